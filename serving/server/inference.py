"""Classify, Regress and MultiInference: signatures that take tf.Examples.

The rules and messages are those of TensorFlow Serving's classifier.cc, regressor.cc,
multi_inference.cc and util.cc.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from serving import apis
from serving.errors import Code, RequestError, invalid_argument
from serving.saved_model import CLASSIFY, REGRESS
from serving.server.versions import Model
from serving.tensors import Array, dtype_name, enum_of

INPUTS = "inputs"
CLASSES, SCORES = "classes", "scores"
OUTPUTS = "outputs"


def serialized_examples(source: Any) -> Array:
    """Return the tf.Examples of an Input, [num_examples] object, serialized.

    A context's features belong to every example; an example's own come later on the
    wire and win.

    Raises:
        RequestError: There is none.
    """
    kind = source.WhichOneof("kind")
    examples = getattr(source, kind).examples if kind else ()
    if not examples:
        raise invalid_argument("Input is empty.")
    context = b""
    if kind == "example_list_with_context":
        context = source.example_list_with_context.context.SerializeToString()
    serialized = np.empty(len(examples), object)
    serialized[:] = [context + example.SerializeToString() for example in examples]
    return serialized


def classify(model: Model, name: str, examples: Array) -> Any:
    """Return a ClassificationResult with a Classifications for each example.

    Raises:
        RequestError: The signature does not classify, or it failed.
    """
    signature = _signature(model, name)
    _check_input(signature, "classification")
    outputs = signature.outputs
    if len(outputs) not in {1, 2}:
        raise invalid_argument(
            f"Expected one or two output Tensors, found {len(outputs)}"
        )
    wanted = [key for key in (CLASSES, SCORES) if key in outputs]
    if not wanted:
        raise invalid_argument(
            f"Expected classification signature outputs to contain at least one of "
            f'"{CLASSES}" or "{SCORES}". Signature was: {signature}'
        )
    arrays = model.run(name, {INPUTS: examples}, wanted)
    _check_dtype(arrays.get(CLASSES), object, "classes", "DT_STRING")
    _check_dtype(arrays.get(SCORES), np.float32, "scores", "DT_FLOAT")
    for key, array in arrays.items():
        if array.ndim != 2:
            raise invalid_argument(
                f"Expected Tensor shape: [batch_size num_classes] but got "
                f"{list(array.shape)}"
            )
        _check_batch(len(array), len(examples), key)
    return _classifications(arrays.get(CLASSES), arrays.get(SCORES), len(examples))


def _classifications(classes: Array | None, scores: Array | None, count: int) -> Any:
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise invalid_argument(
            f"Tensors class and score should match in shape. Got "
            f"{list(classes.shape)} vs. {list(scores.shape)}"
        )
    result = apis.ClassificationResult()
    labels = None if classes is None else classes.tolist()
    values = None if scores is None else scores.tolist()
    for index in range(count):
        added = result.classifications.add().classes
        width = len((labels or values or [[]])[index])
        for number in range(width):
            one = added.add()
            if labels is not None:
                one.label = labels[index][number].decode(errors="replace")
            if values is not None:
                one.score = values[index][number]
    return result


def regress(model: Model, name: str, examples: Array) -> Any:
    """Return a RegressionResult with a Regression for each example.

    Raises:
        RequestError: The signature does not regress, or it failed.
    """
    signature = _signature(model, name)
    _check_input(signature, "regression")
    if len(signature.outputs) != 1:
        raise invalid_argument("Expected one output Tensor.")
    if OUTPUTS not in signature.outputs:
        raise invalid_argument(
            f"No regression outputs found in SignatureDef: {signature}"
        )
    array = model.run(name, {INPUTS: examples}, [OUTPUTS])[OUTPUTS]
    if array.ndim not in {1, 2} or (array.ndim == 2 and array.shape[1] != 1):
        raise invalid_argument(
            "Expected output Tensor shape to be either [batch_size] or "
            f"[batch_size, 1] but got {list(array.shape)}"
        )
    _check_batch(len(array), len(examples), "output")
    _check_dtype(array, np.float32, "output", "DT_FLOAT")
    result = apis.RegressionResult()
    for value in array.ravel().tolist():
        result.regressions.add(value=value)
    return result


def check_tasks(tasks: Sequence[Any]) -> None:
    """Refuse a MultiInferenceRequest that cannot be run as one.

    Raises:
        RequestError: It has no task, tasks of several models, one twice, or a method
            that is not known.
    """
    if not tasks:
        raise invalid_argument("Inference request must have at least one task.")
    for task in tasks:
        if not task.model_spec.name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if task.model_spec.name != tasks[0].model_spec.name:
            raise invalid_argument(
                "All ModelSpecs in a MultiInferenceRequest must access the same model "
                "name."
            )
        if task.method_name not in {CLASSIFY, REGRESS}:
            raise RequestError(
                Code.UNIMPLEMENTED,
                f"Unsupported signature method_name: {task.method_name}",
            )
    names = [task.model_spec.signature_name for task in tasks]
    for name in _twice(names):
        raise invalid_argument(f"Duplicate evaluation of signature: {name}")


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _signature(model: Model, name: str) -> Any:
    if name not in model.signatures:
        raise invalid_argument(f"No signature was found with the name: {name}")
    return model.signatures[name]


def _check_input(signature: Any, kind: str) -> None:
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")
    if INPUTS not in signature.inputs:
        raise invalid_argument(f"No {kind} inputs found in SignatureDef: {signature}")


def _check_dtype(array: Array | None, dtype: Any, what: str, wanted: str) -> None:
    if array is not None and array.dtype != dtype:
        raise invalid_argument(
            f"Expected {what} Tensor of type {wanted}. Got: "
            f"{dtype_name(enum_of(array))}"
        )


def _check_batch(got: int, wanted: int, what: str) -> None:
    if got != wanted:
        raise invalid_argument(
            f"Expected {what} output batch size of {wanted}. Got: {got}"
        )
