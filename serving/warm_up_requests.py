"""Warm-up requests from real rows: what a version is asked before it serves.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of PredictionLogs, which
TensorFlow Serving replays at each load; without it the first clients wait while
TensorFlow sets itself up for the sizes that they send.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving import apis, tfrecord
from serving.rows import MISSING_INT
from serving.saved_model import CLASSIFY, REGRESS, Signature, TensorSpec
from serving.tensors import DT_STRING, DTYPE_ENUMS, Array, numpy_dtype, to_proto

FILE = Path("assets.extra", "tf_serving_warmup_requests")
# More is refused by servers.
MAX_RECORDS = 1000
Features = Mapping[str, Any]


def write(
    file: Path,
    model: str,
    signatures: Mapping[str, Signature],
    examples: Sequence[bytes],
    batch_sizes: Sequence[int],
) -> list[str]:
    """Write requests for every signature that the examples can feed.

    Args:
        file: What to write; nothing is written where no signature can be fed.
        model: Name of the model.
        signatures: Of the model.
        examples: Serialized tf.Examples with raw columns; they are taken in turn.
        batch_sizes: Rows of the requests.

    Returns:
        Why signatures are left out, a sentence each.
    """
    records, notes = [], []
    parsed = [apis.Example.FromString(e).features.feature for e in examples]
    for name, signature in signatures.items():
        reason = _why_not(signature, parsed)
        if reason:
            notes.append(f"signature {name} is not warmed up: {reason}")
            continue
        for size in batch_sizes:
            rows = [index % len(examples) for index in range(size)]
            log = _log(
                (model, name, signature),
                [examples[row] for row in rows],
                [parsed[row] for row in rows],
            )
            records.append(tfrecord.encode(log.SerializeToString(deterministic=True)))
    if records:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(records[:MAX_RECORDS]))
    return notes


def _takes_examples(signature: Signature) -> bool:
    """Tell whether a signature's one input is a vector of serialized tf.Examples."""
    specs = list(signature.inputs.values())
    return len(specs) == 1 and (
        specs[0].dtype == "DT_STRING" and len(specs[0].shape or ()) == 1
    )


def _why_not(signature: Signature, rows: Sequence[Features]) -> str:
    if not rows:
        return "there is no example"
    if _takes_examples(signature):
        return ""
    if signature.method in {CLASSIFY, REGRESS}:
        return f"a signature of {signature.method} takes tf.Examples"
    columns = {name for row in rows for name in row}
    for name, spec in signature.inputs.items():
        if name not in columns:
            return f"the examples have no {name}"
        if not _is_column(spec):
            return f"input {name} is no column: {spec}"
    return "" if signature.inputs else "it has no input"


def _is_column(spec: TensorSpec) -> bool:
    """Tell whether an input takes one value a row, [rows] or [rows, 1]."""
    shape = spec.shape
    return shape is not None and (len(shape) == 1 or shape[1:] in {(1,), (-1,)})


def _log(
    asked: tuple[str, str, Signature],
    examples: Sequence[bytes],
    rows: Sequence[Features],
) -> Any:
    model, name, signature = asked
    log = apis.PredictionLog()
    kinds: Mapping[str, Callable[[], Any]] = {
        CLASSIFY: lambda: log.classify_log.request,
        REGRESS: lambda: log.regress_log.request,
    }
    if signature.method in kinds:
        request = kinds[signature.method]()
        for example in examples:
            request.input.example_list.examples.add().MergeFromString(example)
    else:
        request = log.predict_log.request
        for key, array in _inputs(signature, examples, rows):
            request.inputs[key].CopyFrom(to_proto(array, raw=array.dtype != object))
    request.model_spec.name, request.model_spec.signature_name = model, name
    return log


def _inputs(
    signature: Signature, examples: Sequence[bytes], rows: Sequence[Features]
) -> Iterator[tuple[str, Array]]:
    if _takes_examples(signature):
        (key,) = signature.inputs
        texts = np.empty(len(examples), object)
        texts[:] = list(examples)
        yield key, texts
        return
    for key, spec in signature.inputs.items():
        enum = DTYPE_ENUMS[spec.dtype]
        dtype = numpy_dtype(enum)
        values = [_value(row, key, is_text=enum == DT_STRING) for row in rows]
        if dtype.kind in "iu":
            values = [MISSING_INT if v is None else int(v) for v in values]
        elif dtype.kind == "f":
            values = [np.nan if v is None else v for v in values]
        array = np.array(values, dtype)
        yield key, array.reshape(-1, *[1] * (len(spec.shape or ()) - 1))


def _value(row: Features, key: str, *, is_text: bool) -> Any:
    """Return a feature's value; None, or an empty text, where it is missing."""
    kind = row[key].WhichOneof("kind") if key in row else None
    values = getattr(row[key], kind).value if kind else ()
    if not values:
        return b"" if is_text else None
    value = values[0]
    if is_text and not isinstance(value, bytes):
        return str(value).encode()
    return value
