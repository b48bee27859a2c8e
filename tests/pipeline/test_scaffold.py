"""What `taxiway init` writes down: names, quotes and how long to train."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scaffold.names import project_name, safe_name, words
from pipeline.scaffold.render import in_quotes, quoted, schedule
from pipeline.yaml_source import parse_value
from serving.client.names import tensor_name


@pytest.mark.parametrize(
    ("num_rows", "expected"),
    [(1, (32, 50)), (891, (32, 36)), (15_000, (128, 9)), (10**6, (1024, 2))],
)
def test_small_data_is_read_more_often(num_rows: int, expected: object) -> None:
    assert schedule(num_rows) == expected


@given(st.text())
def test_quoted_text_is_read_again(text: str) -> None:
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert parse_value(quoted(text), "x") == text
        assert parse_value(in_quotes(text), "x") == text
        assert parse_value(f"{{a: {quoted(text)}}} # {in_quotes(text)}", "x") == {
            "a": text
        }


@given(st.text())
def test_a_safe_name_is_a_name_of_tensors(text: str) -> None:
    name = safe_name(text, ())
    assert name.isidentifier()
    assert tensor_name(name) == name
    assert safe_name(text, {name}) != name


@given(st.text())
def test_any_text_gives_a_project_name(text: str) -> None:
    name = project_name(text)
    assert name.isascii()
    assert name[0].isalpha()


def test_words_are_told_apart_by_case_and_signs() -> None:
    assert words("tripStart_hour-2") == ("trip", "start", "hour", "2")
