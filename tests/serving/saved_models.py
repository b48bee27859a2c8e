"""Small SavedModels, whole but for the graph: nothing here can be run."""

from pathlib import Path
from typing import Any

from serving import apis

SPEC = {"x": (1, (-1, 2))}


def graph(
    signatures: dict[str, Any] | None = None, assets: tuple[str, ...] = ()
) -> bytes:
    """Return a SavedModel message: inputs of each signature as (DataType, shape)."""
    model = apis.SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.saver_def.restore_op_name = "restore"
    for name, inputs in (
        {"serving_default": SPEC} if signatures is None else signatures
    ).items():
        signature = meta.signature_def[name]
        signature.method_name = "tensorflow/serving/predict"
        for key, (dtype, shape) in inputs.items():
            info = signature.inputs[key]
            info.name, info.dtype = f"{key}:0", dtype
            for size in shape:
                info.tensor_shape.dim.add(size=size)
        output = signature.outputs["y"]
        output.name, output.dtype = "y:0", 1
    for asset in assets:
        meta.asset_file_def.add(filename=asset)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def saved_model(folder: Path, content: str, **given: Any) -> Path:
    """Write a SavedModel whose variables are a text."""
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(graph(**given))
    (folder / "variables" / "variables.index").write_text(content)
    return folder
