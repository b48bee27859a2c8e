"""SavedModels through TensorFlow's session loader: TF1 graphs too, and 20 µs a call.

A ConcreteFunction costs 300 µs a call in Python; a session callable that runs inline
on the caller's thread costs 20.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from serving import apis
from serving.errors import Code, RequestError, invalid_argument
from serving.tensors import Array, dtype_name, numpy_dtype

SERVE_TAG = "serve"
INLINE_POOL = -1
Run = Callable[..., list[Array]]


class LoadedModel:
    """One version in memory; `close` gives the memory back."""

    def __init__(self, path: Path) -> None:
        """Load a SavedModel.

        Raises:
            Exception: Whatever TensorFlow raises; the version is then not servable.
        """
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        with graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(
                self._session, [SERVE_TAG], str(path)
            )
        self.signatures: Mapping[str, Any] = {
            name: apis.SignatureDef.FromString(signature.SerializeToString())
            for name, signature in sorted(meta_graph.signature_def.items())
        }
        self._callables: dict[tuple[str, tuple[str, ...]], Run] = {}

    def run(
        self, signature_name: str, inputs: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """Run a signature.

        Args:
            signature_name: Name of a signature that is there.
            inputs: An array for each input of the signature.
            wanted: Names of the outputs to compute; all when empty.

        Raises:
            RequestError: Inputs or outputs are not the signature's, or it failed.
        """
        signature = self.signatures[signature_name]
        check_inputs(signature, inputs)
        names = tuple(wanted) or tuple(sorted(signature.outputs))
        check_outputs(signature, names)
        run = self._callables.get((signature_name, names))
        if run is None:
            run = self._make_callable(signature, names)
            self._callables[signature_name, names] = run
        try:
            values = run(*(inputs[name] for name in sorted(signature.inputs)))
        except tf.errors.OpError as error:
            raise RequestError(Code(error.error_code), error.message) from error
        except UnicodeDecodeError as error:
            # A kernel's message that quotes the input's bytes; its status is lost.
            message = error.object.decode(errors="replace")
            raise invalid_argument(message) from error
        return dict(zip(names, map(_as_array, values), strict=True))

    def close(self) -> None:
        """Give the memory back; the model must not be running."""
        self._callables.clear()
        self._session.close()

    def _make_callable(self, signature: Any, outputs: Sequence[str]) -> Run:
        feeds = [signature.inputs[name].name for name in sorted(signature.inputs)]
        fetches = [signature.outputs[name].name for name in outputs]
        make = getattr(self._session, "_make_callable_from_options", None)
        if make is None:
            graph = self._session.graph
            tensors = [graph.get_tensor_by_name(name) for name in fetches]
            return self._session.make_callable(tensors, feed_list=feeds)  # type: ignore[no-any-return]
        options = config_pb2.CallableOptions()
        options.feed.extend(feeds)
        options.fetch.extend(fetches)
        options.run_options.inter_op_thread_pool = INLINE_POOL
        return make(options)  # type: ignore[no-any-return]


def _as_array(value: Any) -> Array:
    # A scalar string is bytes, which numpy's own bytes type would cut at NULs.
    return np.asarray(value, object if isinstance(value, bytes) else None)


def check_inputs(signature: Any, inputs: Mapping[str, Array]) -> None:
    """Refuse inputs that are not the signature's, in TensorFlow Serving's words.

    Raises:
        RequestError: A name is missing or unknown, or a type is another.
    """
    expected, got = set(signature.inputs), set(inputs)
    if expected != got:
        raise invalid_argument(
            f"input size does not match signature: {len(got)}!={len(expected)} "
            f"len({{{','.join(sorted(got))}}}) != "
            f"len({{{','.join(sorted(expected))}}}). "
            f"Sent extra: {{{','.join(sorted(got - expected))}}}. "
            f"Missing but required: {{{','.join(sorted(expected - got))}}}."
        )
    for name, info in signature.inputs.items():
        if inputs[name].dtype != numpy_dtype(info.dtype):
            raise invalid_argument(
                f"input {name!r}: got {inputs[name].dtype}, "
                f"expected {dtype_name(info.dtype)}"
            )


def check_outputs(signature: Any, names: Sequence[str]) -> None:
    """Refuse an output filter that names unknown outputs.

    Raises:
        RequestError: A name is not an output of the signature, or stands twice.
    """
    for name in names:
        if name not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {name} "
                "Outputs expected to be in the set "
                f"{{{','.join(sorted(signature.outputs))}}}."
            )
    if len(set(names)) != len(names):
        raise invalid_argument("duplicate output tensor alias in output_filter")
