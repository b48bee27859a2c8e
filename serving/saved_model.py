"""SavedModels as files: what a folder must hold, and what its signatures are.

Read without TensorFlow; see saved_model.proto and meta_graph.proto.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from serving import apis
from serving.errors import RepositoryError
from serving.tensors import dtype_name

SAVED_MODEL_FILE = "saved_model.pb"
SERVE_TAG = "serve"
ASSETS = "assets"
VARIABLES_INDEX = "variables/variables.index"
INIT_OP = "__saved_model_init_op"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature."""

    dtype: str
    """`DT_FLOAT` and so on."""
    shape: tuple[int, ...] | None
    """-1 where any size is taken; None: any rank."""

    def __str__(self) -> str:
        sizes = "any shape" if self.shape is None else list(self.shape)
        return f"{self.dtype} {sizes}"


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives under one name."""

    method: str
    """`tensorflow/serving/predict` and so on."""
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


def read_meta_graph(folder: Path, tag: str = SERVE_TAG) -> Any:
    """Return the MetaGraphDef that is served.

    Raises:
        RepositoryError: There is none: the file is missing, damaged, or has no graph
            with the tag.
    """
    file = folder / SAVED_MODEL_FILE
    try:
        model = apis.SavedModel.FromString(file.read_bytes())
    except FileNotFoundError:
        raise RepositoryError(
            f"{folder}: no SavedModel, {SAVED_MODEL_FILE} is missing"
        ) from None
    except OSError as error:
        raise RepositoryError(f"{file} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise RepositoryError(f"{file}: damaged, it is no SavedModel") from error
    for meta_graph in model.meta_graphs:
        if tag in meta_graph.meta_info_def.tags:
            return meta_graph
    tags = ", ".join(
        " and ".join(graph.meta_info_def.tags) for graph in model.meta_graphs
    )
    raise RepositoryError(
        f"{file}: no graph with the tag {tag}; tags: {tags or 'none'}"
    )


def missing_files(folder: Path, meta_graph: Any) -> list[str]:
    """Return the files that a graph needs and the folder lacks."""
    files = [f"{ASSETS}/{asset.filename}" for asset in meta_graph.asset_file_def]
    if meta_graph.saver_def.restore_op_name:
        files.append(VARIABLES_INDEX)
    return [file for file in files if not (folder / file).is_file()]


def signatures(meta_graph: Any) -> dict[str, Signature]:
    """Return the signatures that can be called, by name."""
    return {
        name: Signature(
            definition.method_name,
            _specs(definition.inputs),
            _specs(definition.outputs),
        )
        for name, definition in sorted(meta_graph.signature_def.items())
        if name != INIT_OP
    }


def _specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(dtype_name(info.dtype), _shape(info.tensor_shape))
        for name, info in sorted(infos.items())
    }


def _shape(shape: Any) -> tuple[int, ...] | None:
    if shape.unknown_rank:
        return None
    return tuple(dim.size for dim in shape.dim)


def check_servable(folder: Path) -> dict[str, Signature]:
    """Return the signatures of a SavedModel that a server can serve.

    Raises:
        RepositoryError: It is not whole, or has no signature.
    """
    meta_graph = read_meta_graph(folder)
    missing = missing_files(folder, meta_graph)
    if missing:
        raise RepositoryError(
            f"{folder}: the SavedModel is not whole, missing: {', '.join(missing)}"
        )
    found = signatures(meta_graph)
    if not found:
        raise RepositoryError(
            f"{folder}: the SavedModel has no signature, so a server could answer "
            "nothing with it; export it with one, for example serving_default"
        )
    return found
