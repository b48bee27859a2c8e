"""What ExampleGen's counts make of unusable data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import DataError
from components.example_gen.counts import Counts, check_counts
from components.features import Label

BINARY = Label(column="y", kind="binary")
SPLITS = ("train", "eval")


def counts(**changes: object) -> Counts:
    good: dict[str, object] = {
        "num_rows": 10,
        "splits": {"train": 8, "eval": 2},
        "label_values": {"train": {"0": 5, "1": 3}, "eval": {"0": 2}},
    }
    return Counts.model_validate({**good, **changes})


def refusal(made: Counts, label: Label = BINARY) -> str:
    with pytest.raises(DataError) as caught:
        check_counts(made, label, SPLITS)
    return str(caught.value)


def test_good_counts_pass() -> None:
    check_counts(counts(), BINARY, SPLITS)


def test_no_rows_stop_the_run() -> None:
    assert refusal(Counts()) == "the data has a header but no rows"


def test_an_empty_split_is_named_with_where_the_rows_went() -> None:
    message = refusal(counts(splits={"train": 8}, num_held_out=2))
    assert message == (
        "split 'eval' is empty: of 10 rows, train 8, held out 2; see data.split"
    )


def test_missing_labels_stop_the_run_unless_dropped() -> None:
    made = counts(num_without_label=4)
    assert "label 'y' is missing in 4 of 10 rows" in refusal(made)
    check_counts(made, Label(column="y", kind="binary", missing="drop"), SPLITS)


def test_a_constant_label_is_named_with_its_value() -> None:
    made = counts(label_values={"train": {"0": 8}, "eval": {"0": 2}})
    assert "label 'y' is constant: '0' in all 8 rows" in refusal(made)


def test_a_constant_number_to_predict_is_refused_too() -> None:
    made = counts(label_values={"train": {"3.5": 8}, "eval": {"1.0": 2}})
    assert "is constant" in refusal(made, Label(column="y", kind="regression"))


def test_a_binary_label_with_three_values_is_refused() -> None:
    made = counts(label_values={"train": {"0": 5, "1": 3}, "eval": {"2": 2}})
    assert "declared binary, but has 3 values: '0', '1', '2'" in refusal(made)


def test_a_positive_value_that_never_occurs_is_refused() -> None:
    made = counts(label_values={"train": {"no": 5, "yes": 3}, "eval": {"no": 2}})
    label = Label(column="y", kind="binary", positive="Yes")
    assert "no row has the positive value 'Yes'; values: 'no', 'yes'" in refusal(
        made, label
    )


def test_a_class_seen_only_in_eval_is_refused() -> None:
    made = counts(label_values={"train": {"a": 5, "b": 3}, "eval": {"c": 2}})
    label = Label(column="y", kind="multiclass")
    assert "'c' in the eval split, but never in the train split" in refusal(made, label)


part = st.builds(
    Counts,
    num_rows=st.integers(0, 1000),
    num_without_label=st.integers(0, 1000),
    num_held_out=st.integers(0, 1000),
    splits=st.dictionaries(st.sampled_from(SPLITS), st.integers(0, 1000)),
    label_values=st.dictionaries(
        st.sampled_from(SPLITS),
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 50)),
    ),
)


@given(st.lists(part, max_size=5), st.randoms())
def test_the_total_does_not_depend_on_the_order_of_files(
    parts: list[Counts], random: object
) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Counts.total(parts) == Counts.total(shuffled)
    assert Counts.total(parts).num_rows == sum(part.num_rows for part in parts)
