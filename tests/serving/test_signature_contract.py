"""What breaks the contract with clients, and what only widens it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.saved_model import Signature, TensorSpec
from serving.signature_contract import compare, compare_vocabularies

PREDICT = "tensorflow/serving/predict"
X, Y = TensorSpec("DT_FLOAT", (-1, 2)), TensorSpec("DT_FLOAT", (-1, 1))


def signature(
    inputs: dict[str, TensorSpec] | None = None,
    outputs: dict[str, TensorSpec] | None = None,
    method: str = PREDICT,
) -> Signature:
    return Signature(method, inputs or {"x": X}, outputs or {"y": Y})


def said(before: Any, after: Any) -> list[tuple[str, bool]]:
    changes = compare({"s": before}, {"s": after})
    return [(str(change), change.breaks) for change in changes]


def spec(*shape: int, dtype: str = "DT_FLOAT") -> TensorSpec:
    return TensorSpec(dtype, shape)


@pytest.mark.parametrize(
    ("after", "text", "breaks"),
    [
        (signature({"inputs": X}), "s: input x was renamed to inputs", True),
        (signature({"x": X, "z": X}), "s: input z is new: DT_FLOAT [-1, 2]", True),
        (
            signature({"x": spec(-1, 2, dtype="DT_INT64")}),
            "s: input x takes DT_INT64 [-1, 2], before: DT_FLOAT [-1, 2]",
            True,
        ),
        (
            signature({"x": spec(-1, 3)}),
            "s: input x takes DT_FLOAT [-1, 3], before: DT_FLOAT [-1, 2]",
            True,
        ),
        (
            signature({"x": spec(-1, -1)}),
            "s: input x takes DT_FLOAT [-1, -1], before: DT_FLOAT [-1, 2]",
            False,
        ),
        (
            signature({"x": TensorSpec("DT_FLOAT", None)}),
            "s: input x takes DT_FLOAT any shape, before: DT_FLOAT [-1, 2]",
            False,
        ),
        (
            signature({"x": spec(8, 2)}),
            "s: input x takes DT_FLOAT [8, 2], before: DT_FLOAT [-1, 2]",
            True,
        ),
        (signature(outputs={"p": Y}), "s: output y was renamed to p", True),
        (
            signature(outputs={"y": Y, "p": Y}),
            "s: output p is new: DT_FLOAT [-1, 1]",
            False,
        ),
        (
            signature(outputs={"y": spec(-1, 3)}),
            "s: output y gives DT_FLOAT [-1, 3], before: DT_FLOAT [-1, 1]",
            True,
        ),
        (
            signature(outputs={"y": spec(4, 1)}),
            "s: output y gives DT_FLOAT [4, 1], before: DT_FLOAT [-1, 1]",
            False,
        ),
        (
            signature(method="tensorflow/serving/classify"),
            f"signature s has the method tensorflow/serving/classify, before: {PREDICT}",
            True,
        ),
    ],
)
def test_one_change_is_told_with_what_it_means(
    after: Signature, text: str, breaks: bool
) -> None:
    assert said(signature(), after) == [(text, breaks)]


def test_input_that_is_gone_among_others_is_told() -> None:
    before = signature({"x": X, "z": Y})
    assert said(before, signature()) == [("s: input z is gone", True)]


def test_two_names_for_two_are_no_renaming() -> None:
    before, after = signature({"a": X, "b": X}), signature({"c": X, "d": X})
    texts = [text for text, _ in said(before, after)]
    assert texts == [
        "s: input a is gone",
        "s: input b is gone",
        "s: input c is new: DT_FLOAT [-1, 2]",
        "s: input d is new: DT_FLOAT [-1, 2]",
    ]


def test_signatures_come_and_go() -> None:
    changes = compare({"a": signature()}, {"b": signature()})
    assert [(str(change), change.breaks) for change in changes] == [
        ("signature a is gone", True),
        ("signature b is new", False),
    ]


SPECS = st.builds(
    TensorSpec,
    st.sampled_from(["DT_FLOAT", "DT_STRING"]),
    st.none() | st.lists(st.integers(-1, 3), max_size=3).map(tuple),
)
NAMED = st.dictionaries(st.sampled_from("abc"), SPECS, min_size=1)
SIGNATURES = st.dictionaries(
    st.sampled_from("st"), st.builds(Signature, st.just(PREDICT), NAMED, NAMED)
)


@given(SIGNATURES)
def test_what_is_the_same_has_no_change(signatures: dict[str, Signature]) -> None:
    assert compare(signatures, signatures) == []


@given(SIGNATURES, SIGNATURES)
def test_what_differs_has_a_change(
    before: dict[str, Signature], after: dict[str, Signature]
) -> None:
    assert (compare(before, after) == []) == (before == after)


@given(SIGNATURES, SIGNATURES, SIGNATURES)
def test_steps_that_break_nothing_break_nothing_together(
    first: dict[str, Signature],
    second: dict[str, Signature],
    third: dict[str, Signature],
) -> None:
    def is_kept(before: Any, after: Any) -> bool:
        return not any(change.breaks for change in compare(before, after))

    if is_kept(first, second) and is_kept(second, third):
        assert is_kept(first, third)


def test_vocabularies_are_compared_by_their_values(tmp_path: Path) -> None:
    for name, words in (("a", "AA\nUA\nB6\n"), ("b", "UA\nAA\nDL\nWN\n")):
        (tmp_path / name / "assets").mkdir(parents=True)
        (tmp_path / name / "assets" / "carrier").write_text(words)
        (tmp_path / name / "assets" / "same").write_text("x\n")
    (tmp_path / "a" / "assets" / "old").write_text("x\n")
    changes = compare_vocabularies(tmp_path / "a", tmp_path / "b")
    assert [str(change) for change in changes] == [
        "vocabulary carrier lost 1 of its 3 values, gained 2",
        "vocabulary old is gone",
    ]
    assert compare_vocabularies(tmp_path / "none", tmp_path / "b") == []
