"""Which anomalies stop a run: pure, on anomalies already found."""

from collections.abc import Iterable
from typing import NamedTuple

from components.errors import AnomalyError
from components.example_validator.config import Policy, SchemaSettings


class Anomaly(NamedTuple):
    """One thing about one split that does not fit the schema."""

    split: str
    column: str
    kind: str
    description: str

    def __str__(self) -> str:
        where = f"{self.split}: {self.column}" if self.column else self.split
        return f"{where}: {self.description} [{self.kind}]"


def policy_for(anomaly: Anomaly, settings: SchemaSettings) -> Policy:
    """Return what the settings say about this kind of anomaly."""
    return settings.anomalies.get(anomaly.kind, settings.on_anomaly)


def judge(anomalies: Iterable[Anomaly], settings: SchemaSettings) -> list[Anomaly]:
    """Return the anomalies to warn about.

    Raises:
        AnomalyError: An anomaly's policy is `error`; the message lists all of them.
    """
    by_policy: dict[Policy, list[Anomaly]] = {"error": [], "warn": [], "ignore": []}
    for anomaly in anomalies:
        by_policy[policy_for(anomaly, settings)].append(anomaly)
    if by_policy["error"]:
        raise AnomalyError(_sentence(by_policy["error"], settings))
    return by_policy["warn"]


def _sentence(errors: list[Anomaly], settings: SchemaSettings) -> str:
    what = "1 anomaly" if len(errors) == 1 else f"{len(errors)} anomalies"
    schema = settings.file or "the schema inferred from the train split"
    lines = "".join(f"\n  {anomaly}" for anomaly in errors)
    return (
        f"{what} against {schema}:{lines}\n"
        "Fix the data or the schema, or set schema.anomalies.<KIND>: warn"
    )
