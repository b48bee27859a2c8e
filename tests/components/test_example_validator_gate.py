"""The schema gate: which anomalies stop the run."""

import pytest

from components.errors import AnomalyError
from components.example_validator.config import SchemaSettings
from components.example_validator.gate import Anomaly, judge

UNSEEN = Anomaly(
    "eval", "origin", "ENUM_TYPE_UNEXPECTED_STRING_VALUES", "unexpected value: XXX"
)
NEW_COLUMN = Anomaly("train", "extra", "SCHEMA_NEW_COLUMN", "new column")


def test_an_anomaly_stops_the_run_and_is_described() -> None:
    with pytest.raises(AnomalyError) as caught:
        judge([UNSEEN], SchemaSettings())
    assert "1 anomaly against the schema inferred from the train split" in str(
        caught.value
    )
    assert "eval: origin: unexpected value: XXX" in str(caught.value)


def test_a_kind_can_be_only_warned_about() -> None:
    settings = SchemaSettings(anomalies={UNSEEN.kind: "warn"})
    assert judge([UNSEEN], settings) == [UNSEEN]


def test_a_kind_can_be_ignored() -> None:
    settings = SchemaSettings(anomalies={UNSEEN.kind: "ignore"})
    assert judge([UNSEEN], settings) == []


def test_one_kind_set_to_error_stops_where_others_only_warn() -> None:
    settings = SchemaSettings(on_anomaly="warn", anomalies={UNSEEN.kind: "error"})
    assert judge([NEW_COLUMN], settings) == [NEW_COLUMN]
    with pytest.raises(AnomalyError, match="origin"):
        judge([NEW_COLUMN, UNSEEN], settings)
