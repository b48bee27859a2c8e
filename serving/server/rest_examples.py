"""The JSON of `:classify` and `:regress`: objects to tf.Examples, results to JSON.

The rules are those of TensorFlow Serving's api_rest.md: a feature is a value or a list
of values of one kind, whole numbers become int64_list, others float_list, text and
`{"b64": …}` bytes_list.
"""

import json
from typing import Any

from serving import apis
from serving.errors import RequestError, invalid_argument
from serving.server import rest_json
from serving.server.rest_json import float_text


def to_input(document: dict[str, Any]) -> Any:
    """Return the Input that a body's `examples` and `context` describe.

    Raises:
        RequestError: They are not there, or a value is of no kind; the message names
            the example and the feature.
    """
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise invalid_argument(
            "Expecting 'examples' value to be a non-empty list of objects"
        )
    source = apis.Input()
    if "context" in document:
        _fill(source.example_list_with_context.context, document["context"], "context")
        into = source.example_list_with_context.examples
    else:
        into = source.example_list.examples
    for index, example in enumerate(examples):
        _fill(into.add(), example, f"examples[{index}]")
    return source


def _fill(example: Any, value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise invalid_argument(f"{where}: expected an object of features")
    for name, feature in value.items():
        if not isinstance(name, str) or not _is_text(name):
            raise invalid_argument(f"{where}: feature name {name!r} is no UTF-8 text")
        values = feature if isinstance(feature, list) else [feature]
        try:
            _fill_feature(example.features.feature[name], values)
        except (RequestError, UnicodeEncodeError) as error:
            raise invalid_argument(f"{where}: feature {name}: {error}") from error


def _fill_feature(feature: Any, values: list[Any]) -> None:
    kinds = {_kind(value) for value in values}
    if kinds == {"number", "whole"} or len(kinds) > 1:
        raise invalid_argument(
            "all values must be of one kind, got "
            + " and ".join(sorted(json.dumps(v)[:40] for v in _one_of_each(values)))
        )
    if not values:
        return
    kind = kinds.pop()
    if kind == "whole":
        if not all(-(2**63) <= value < 2**63 for value in values):
            raise invalid_argument("a whole number is out of range for int64")
        feature.int64_list.value.extend(values)
    elif kind == "number":
        feature.float_list.value.extend(values)
    else:
        feature.bytes_list.value.extend(rest_json.to_bytes(value) for value in values)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "whole"  # as the original takes them: 1 and 0
    if isinstance(value, int):
        return "whole"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str) or rest_json.is_base64(value):
        return "text"
    raise invalid_argument(
        f"{json.dumps(value)[:100]} is no number, text or {{'b64': text}}"
    )


def _one_of_each(values: list[Any]) -> list[Any]:
    first: dict[str, Any] = {}
    for value in values:
        first.setdefault(_kind(value), value)
    return list(first.values())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def classifications_json(result: Any) -> str:
    """Write a ClassificationResult: for each example its `[label, score]` pairs."""
    rows = [
        "["
        + ", ".join(
            f"[{json.dumps(one.label, ensure_ascii=False)}, {float_text(one.score)}]"
            for one in example.classes
        )
        + "]"
        for example in result.classifications
    ]
    return rest_json.wrap("results", f"[{', '.join(rows)}]")


def regressions_json(result: Any) -> str:
    """Write a RegressionResult: a number for each example."""
    values = ", ".join(float_text(one.value) for one in result.regressions)
    return rest_json.wrap("results", f"[{values}]")
