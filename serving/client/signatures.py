"""Signatures from metadata in JSON form, which both APIs can give."""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.client.protocol import InputSpec
from serving.errors import ClientError


def _dims(info: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the dimensions; none for a scalar and for an unknown rank."""
    dims: Sequence[Mapping[str, Any]] = info.get("tensor_shape", {}).get("dim", ())
    return dims


def input_specs(
    signatures: Mapping[str, Any], name: str, where: str
) -> tuple[InputSpec, ...]:
    """Return the inputs of one signature of a SignatureDefMap.

    Raises:
        ClientError: There is no such signature.
    """
    if name not in signatures:
        known = ", ".join(sorted(n for n in signatures if not n.startswith("__")))
        raise ClientError(f"{where} has no signature {name!r}; it has: {known}")
    return tuple(
        InputSpec(
            key,
            info["dtype"],
            tuple(int(dim["size"]) for dim in _dims(info)),
        )
        for key, info in sorted(signatures[name]["inputs"].items())
    )
