"""Which blessed models a candidate can be compared with."""

from pathlib import Path
from typing import Any

import pytest

from components.evaluator.comparable import why_not_comparable
from components.features import FeatureTable
from components.trainer.config import TABLE_FILE

TABLE: dict[str, Any] = {
    "features": {"x": {"kind": "numeric"}, "city": {"kind": "categorical"}},
    "label": {"column": "y", "kind": "binary"},
}


def table(**changes: Any) -> FeatureTable:
    return FeatureTable.model_validate({**TABLE, **changes})


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    file = tmp_path / TABLE_FILE
    file.parent.mkdir()
    file.write_text(table().model_dump_json())
    return tmp_path


def test_a_model_of_the_same_table_is_comparable(baseline: Path) -> None:
    assert why_not_comparable(table(), baseline) is None


def test_another_model_of_the_same_columns_is_comparable(baseline: Path) -> None:
    features = {
        "x": {"kind": "bucketized"},
        "city": {"kind": "categorical", "top_k": 3},
        "n": {"kind": "numeric"},
    }
    made = table(features=features, label={**TABLE["label"], "missing": "drop"})
    assert why_not_comparable(made, baseline) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"label": {"column": "z", "kind": "binary"}}, "predicts another label"),
        (
            {"label": {"column": "y", "kind": "binary", "positive": "yes"}},
            "predicts another label",
        ),
        ({"weight": "w"}, "weighted otherwise (by nothing)"),
        (
            {"features": {"x": {"kind": "numeric"}}},
            "reads column 'city', which the examples lack",
        ),
        (
            {
                "features": {
                    **TABLE["features"],
                    "x": {"kind": "numeric", "dtype": "int"},
                }
            },
            "reads column 'x' as float, now int",
        ),
    ],
)
def test_a_model_of_other_data_is_not(
    baseline: Path, changes: dict[str, Any], reason: str
) -> None:
    assert reason in (why_not_comparable(table(**changes), baseline) or "")


def test_a_model_that_is_gone_is_not(tmp_path: Path) -> None:
    assert "not there any more" in (why_not_comparable(table(), tmp_path) or "")


def test_a_model_of_another_release_is_not(baseline: Path) -> None:
    (baseline / TABLE_FILE).write_text('{"features": {"x": {"kind": "quantum"}}}')
    assert why_not_comparable(table(), baseline) == (
        "its feature table is of another release"
    )
