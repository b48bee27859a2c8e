"""SavedModels by TensorFlow's session loader: TF1 graphs too, and 20 µs a call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving import apis
from serving.errors import Code, RepositoryError, RequestError, invalid_argument
from serving.manifest import lacks, read_manifest
from serving.saved_model import SERVE_TAG, missing_files
from serving.server.tensorflow_library import Session
from serving.tensors import Array, dtype_name, enum_of, numpy_dtype, to_array

# Run on the caller's thread: handing over to another costs more than a small model.
INLINE_POOL = -1
Run = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class SessionOptions:
    """How TensorFlow runs graphs."""

    tags: tuple[str, ...] = (SERVE_TAG,)
    """Of the meta graph to load."""
    intra_op_parallelism: int = 0
    """Threads of one kernel; 0: as many as cores."""
    inter_op_parallelism: int = 0
    """Kernels that run at once; 0: as many as cores."""
    gpu_memory_fraction: float = 0.0
    """Share of a GPU's memory to take at once; 0: as it is needed."""

    def config(self) -> bytes:
        """Return a serialized ConfigProto."""
        config = apis.ConfigProto(
            intra_op_parallelism_threads=self.intra_op_parallelism,
            inter_op_parallelism_threads=self.inter_op_parallelism,
        )
        if self.gpu_memory_fraction:
            fraction = self.gpu_memory_fraction
            config.gpu_options.per_process_gpu_memory_fraction = fraction
        else:
            config.gpu_options.allow_growth = True
        content: bytes = config.SerializeToString()
        return content


class LoadedModel:
    """One version in memory; `close` gives the memory back."""

    def __init__(self, path: Path, options: SessionOptions = SessionOptions()) -> None:
        """Load a SavedModel.

        Raises:
            RequestError: TensorFlow cannot load it; the version is then not servable.
        """
        self._calls: dict[tuple[str, tuple[str, ...]], _Call] = {}
        self._session = Session(path, options.tags, options.config())
        meta_graph = apis.MetaGraphDef.FromString(self._session.meta_graph)
        try:
            check_files(path, meta_graph)
        except RequestError:
            self.close()
            raise
        self.signatures: Mapping[str, Any] = {
            name: apis.SignatureDef.FromString(signature.SerializeToString())
            for name, signature in sorted(meta_graph.signature_def.items())
        }

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        wanted: Sequence[str],
        deadline: float | None = None,  # noqa: ARG002  nothing waits here
    ) -> dict[str, Array]:
        """Run a signature.

        Args:
            signature_name: Name of a signature that is there.
            inputs: An array for each input of the signature.
            wanted: Names of the outputs to compute; all when empty.
            deadline: Of no use: nothing waits here.

        Raises:
            RequestError: Inputs or outputs are not the signature's, or it failed.
        """
        call = self._prepared(signature_name, tuple(wanted))
        return dict(zip(call.outputs, call.run(call.values(inputs)), strict=True))

    def check(
        self, signature_name: str, inputs: Mapping[str, Array], wanted: Sequence[str]
    ) -> None:
        """Refuse what `run` would refuse before it runs.

        Raises:
            RequestError: Inputs or outputs are not the signature's.
        """
        self._prepared(signature_name, tuple(wanted)).values(inputs)

    def _prepared(self, signature_name: str, wanted: tuple[str, ...]) -> "_Call":
        key = signature_name, wanted
        call = self._calls.get(key)
        if call is None:
            call = self._call(self.signatures[signature_name], wanted)
            self._calls[key] = call
        return call

    def close(self) -> None:
        """Give the memory back; the model must not be running."""
        self._calls.clear()
        self._session.close()

    def _call(self, signature: Any, wanted: tuple[str, ...]) -> "_Call":
        outputs = wanted or tuple(sorted(signature.outputs))
        check_outputs(signature, outputs)
        names = tuple(sorted(signature.inputs))
        options = apis.RunOptions(inter_op_thread_pool=INLINE_POOL)
        run = self._session.callable(
            [signature.inputs[name].name for name in names],
            [signature.outputs[name].name for name in outputs],
            options.SerializeToString(),
        )
        defaults = {name: to_array(t) for name, t in signature.defaults.items()}
        enums = tuple(signature.inputs[name].dtype for name in names)
        return _Call(signature, names, enums, defaults, outputs, run)


@dataclass(frozen=True)
class _Call:
    """A signature with chosen outputs, ready to run."""

    signature: Any
    names: tuple[str, ...]
    enums: tuple[int, ...]
    defaults: Mapping[str, Array]
    outputs: tuple[str, ...]
    run: Run

    def values(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the inputs in their order.

        Raises:
            RequestError: They are not the signature's.
        """
        if self.defaults:
            inputs = {**self.defaults, **inputs}
        values = [inputs.get(name) for name in self.names]
        enums = tuple(-1 if value is None else enum_of(value) for value in values)
        if enums != self.enums or len(inputs) != len(values):
            check_inputs(self.signature, inputs)
        return values  # type: ignore[return-value]


def check_files(path: Path, meta_graph: Any) -> None:
    """Refuse a SavedModel that lacks files: TensorFlow itself loads it all the same.

    Without its variables every request of it would fail.

    Raises:
        RequestError: A file is missing, or is not as the manifest says, if there is one.
    """
    missing = missing_files(path, meta_graph)
    if missing:
        raise RequestError(
            Code.NOT_FOUND,
            f"{path}: the SavedModel is not whole: {', '.join(missing)} missing",
        )
    try:
        manifest = read_manifest(path)
    except RepositoryError as error:
        raise RequestError(Code.DATA_LOSS, str(error)) from error
    faults = [] if manifest is None else lacks(path, manifest)
    if faults:
        raise RequestError(
            Code.DATA_LOSS, f"{path}: not as it was published: {'; '.join(faults)}"
        )


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
