"""What is cached, and what makes it stale: decided from keys alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import steps
from pipeline.cache import Cache, Entry, step_keys
from pipeline.errors import CacheError
from pipeline.steps import STEPS, Step


def keys(changed: str | None = None) -> dict[str, str]:
    def ingredients(step: Step) -> Mapping[str, object]:
        return {"settings": step.id, "edited": step.id == changed}

    return step_keys(STEPS, ingredients)


def changed_by(step: Step) -> set[str]:
    before, after = keys(), keys(step.id)
    return {name for name in before if before[name] != after[name]}


def entry(tmp_path: Path, step: str = "Trainer", **changes: object) -> Entry:
    output = tmp_path / "output"
    output.mkdir(exist_ok=True)
    made = Entry(step, "key", 7, "run", (str(output),), {})
    return replace(made, **changes)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "state" / "cache.sqlite")


def test_an_edited_model_function_runs_trainer_and_later_steps_only() -> None:
    assert changed_by(steps.TRAINER) == {"Trainer", "Evaluator", "Pusher"}


def test_a_changed_anomaly_policy_does_not_train_again() -> None:
    assert changed_by(steps.EXAMPLE_VALIDATOR) == {"ExampleValidator"}


def test_new_data_runs_everything() -> None:
    assert changed_by(steps.EXAMPLE_GEN) == {step.id for step in STEPS}


def test_a_step_is_found_by_its_key(cache: Cache, tmp_path: Path) -> None:
    made = entry(tmp_path, summary={"loss": 0.5})
    cache.record(made)
    assert cache.find("Trainer", "key") == made
    assert cache.find("Trainer", "another key") is None
    assert cache.find("Transform", "key") is None


def test_the_latest_execution_with_a_key_counts(cache: Cache, tmp_path: Path) -> None:
    cache.record(entry(tmp_path, execution_id=1))
    cache.record(entry(tmp_path, execution_id=2))
    found = cache.find("Trainer", "key")
    assert found is not None
    assert found.execution_id == 2


def test_a_step_whose_output_is_gone_is_not_cached(
    cache: Cache, tmp_path: Path
) -> None:
    cache.record(entry(tmp_path))
    (tmp_path / "output").rmdir()
    assert cache.find("Trainer", "key") is None


def verdict(tmp_path: Path, model: int, baseline: int | None, key: str) -> Entry:
    summary = {"model": model, "baseline": baseline, "blessed": True}
    return entry(tmp_path, "Evaluator", key=key, summary=summary)


def test_a_verdict_stands_while_its_model_is_the_baseline(
    cache: Cache, tmp_path: Path
) -> None:
    cache.record(verdict(tmp_path, model=1, baseline=None, key="a"))
    assert cache.find("Evaluator", "a") is not None


def test_a_verdict_falls_when_a_newer_model_is_the_baseline(
    cache: Cache, tmp_path: Path
) -> None:
    cache.record(verdict(tmp_path, model=1, baseline=None, key="a"))
    cache.record(verdict(tmp_path, model=2, baseline=1, key="b"))
    assert cache.find("Evaluator", "a") is None
    assert cache.find("Evaluator", "b") is not None


def test_an_unblessed_model_is_never_the_baseline(cache: Cache, tmp_path: Path) -> None:
    summary = {"model": 5, "baseline": None, "blessed": False}
    cache.record(entry(tmp_path, "Evaluator", summary=summary))
    assert cache.baseline_model() is None


def test_a_damaged_record_is_named_and_safe_to_delete(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(CacheError, match=r"cache\.sqlite: .*; delete the file"):
        Cache(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(), json_values), st.dictionaries(st.text(), json_values))
def test_keys_are_equal_exactly_when_ingredients_are(
    one: dict[str, object], other: dict[str, object]
) -> None:
    def first_key(own: dict[str, object]) -> str:
        return step_keys(STEPS[:1], lambda _: own)["ExampleGen"]

    same = repr(sorted(one.items(), key=str)) == repr(sorted(other.items(), key=str))
    if same:
        assert first_key(one) == first_key(other)
    if first_key(one) == first_key(other):
        assert one == other
