"""The feature table: what it refuses and what it derives."""

import pytest
from pydantic import ValidationError

from components.features import FeatureTable

LABEL = {"column": "late", "kind": "binary"}


def table(features: dict[str, object], **rest: object) -> FeatureTable:
    return FeatureTable.model_validate({"features": features, "label": LABEL, **rest})


def refusal(features: dict[str, object], **rest: object) -> str:
    with pytest.raises(ValidationError) as caught:
        table(features, **rest)
    return str(caught.value)


def test_types_come_from_the_kinds() -> None:
    made = table(
        {
            "distance": {"kind": "numeric"},
            "hour": {"kind": "cyclic", "period": 24, "dtype": "int"},
            "origin": {"kind": "categorical"},
            "note": {"kind": "text"},
        },
        weight="w",
    )
    assert made.column_dtypes() == {
        "distance": "float",
        "hour": "int",
        "origin": "string",
        "note": "string",
        "late": "int",
        "w": "float",
    }


def test_a_served_request_carries_neither_label_nor_weight() -> None:
    made = table({"distance": {"kind": "numeric"}}, weight="w")
    assert made.input_columns() == {"distance": "float"}


def test_one_column_may_feed_two_features_of_one_dtype() -> None:
    made = table(
        {
            "distance": {"kind": "numeric"},
            "distance_bucket": {"kind": "bucketized", "column": "distance"},
        }
    )
    assert made.input_columns() == {"distance": "float"}


def test_one_column_with_two_dtypes_is_refused() -> None:
    message = refusal(
        {
            "hour": {"kind": "numeric", "dtype": "int"},
            "hour_name": {"kind": "categorical", "column": "hour"},
        }
    )
    assert (
        "hour_name: reads column 'hour' as string, but hour reads it as int" in message
    )


def test_the_label_cannot_be_a_feature() -> None:
    assert "column 'late' is the label" in refusal({"late": {"kind": "numeric"}})


def test_the_weight_cannot_be_a_feature() -> None:
    message = refusal({"w": {"kind": "numeric"}}, weight="w")
    assert "column 'w' is the weight" in message


def test_a_cross_needs_features_that_are_there() -> None:
    message = refusal(
        {
            "origin": {"kind": "categorical"},
            "pair": {"kind": "crossed", "of": ["origin", "carier"]},
        }
    )
    assert "pair: crosses 'carier', which is not a feature" in message


def test_a_cross_of_a_number_is_refused() -> None:
    message = refusal(
        {
            "origin": {"kind": "categorical"},
            "distance": {"kind": "numeric"},
            "pair": {"kind": "crossed", "of": ["origin", "distance"]},
        }
    )
    assert "crosses 'distance', which is numeric" in message


def test_two_features_cannot_make_the_same_model_input() -> None:
    message = refusal(
        {
            "a": {"kind": "numeric", "missing_indicator": True},
            "a_missing": {"kind": "numeric"},
        }
    )
    assert "'a_missing' is also that of a" in message


def test_bucket_boundaries_must_ascend() -> None:
    message = refusal({"a": {"kind": "bucketized", "boundaries": [3, 2]}})
    assert "boundaries must be ascending" in message


def test_vocabulary_and_hash_exclude_each_other() -> None:
    message = refusal({"a": {"kind": "categorical", "top_k": 5, "hash_buckets": 5}})
    assert "top_k (vocabulary) or hash_buckets, not both" in message


def test_a_string_positive_value_makes_the_label_text() -> None:
    made = FeatureTable.model_validate(
        {
            "features": {"a": {"kind": "numeric"}},
            "label": {"column": "y", "kind": "binary", "positive": "yes"},
        }
    )
    assert made.column_dtypes()["y"] == "string"
