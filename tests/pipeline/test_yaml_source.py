"""YAML 1.2 as people mean it, lines kept, and nothing but settings errors."""

import contextlib
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import load_settings
from pipeline.errors import SettingsError
from pipeline.yaml_source import dump, parse, parse_value


@pytest.mark.parametrize("text", ["no", "yes", "on", "off", "NO", "Yes", "y", "n"])
def test_words_of_consent_are_text(text: str) -> None:
    assert parse_value(text, "x") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-0", 0),
        ("010", 10),
        ("0o17", 15),
        ("0x1f", 31),
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("12:30", "12:30"),
        ("1:2:3", "1:2:3"),
        ("1_000", "1_000"),
        ("2013-01-01", "2013-01-01"),
        ("'3'", "3"),
        ('"true"', "true"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    got = parse_value(text, "x")
    assert got == value
    assert type(got) is type(value)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("{no: 1, 3: 2, null: 3, true: 4}", "x").value == {
        "no": 1,
        "3": 2,
        "null": 3,
        "true": 4,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".inf", "cannot read '.inf': a number must be finite"),
        ("-.INF", "cannot read '-.INF': a number must be finite"),
        (".nan", "cannot read '.nan': a number must be finite"),
        ("1e999", "cannot read '1e999': a number must be finite"),
        (str(2**63), f"cannot read '{2**63}': a whole number must fit 64 bits"),
        ("!!int x", "cannot read 'x': invalid literal for int() with base 10: 'x'"),
        (
            "!!python/name:os.system x",
            (
                "cannot read 'x': the tag tag:yaml.org,2002:python/name:os.system "
                "is not allowed"
            ),
        ),
        ("&a [*a]", "an alias inside the value that it names"),
        ("? [a]\n: b", "a key must be text"),
        ('"\\ud800"', "cannot read '\\ud800': 'utf-8' codec can't encode character"),
    ],
)
def test_what_has_no_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text, "x")
    assert str(caught.value).startswith(f"x:1: {problem}")


def test_a_huge_number_is_not_repeated_in_full() -> None:
    with pytest.raises(SettingsError) as caught:
        parse("9" * 5000, "x")
    assert len(str(caught.value)) < 200


def test_aliases_that_grow_without_bound_are_refused() -> None:
    laughs = "\n".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)
    )
    with pytest.raises(SettingsError, match="more than 100,000 values"):
        parse(f"a0: &a0 [x]\n{laughs}\n", "x")


@pytest.mark.parametrize("text", ["[" * 5000, "[" * 5000 + "]" * 5000, "{a: " * 3000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse(text, "x")


def test_each_value_has_the_line_of_its_key() -> None:
    document = parse("a:\n  b:\n    - 1\n    -\n      c: 2\n", "x")
    assert document.origin(("a", "b")) == "at line 2"
    assert document.origin(("a", "b", 0)) == "at line 3"
    assert document.origin(("a", "b", 1, "c")) == "at line 5"
    assert document.origin(("a", "b", 1, "d")) == "at line 5"


# Text that looks like settings finds more than random bytes do.
WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "project data files label column kind features binary numeric cyclic split by "
        "time hash trainer epochs evaluator slices thresholds auc min schema file push "
        "base_path drop weight a.csv 3 0.5 true null [ ] { } : , - & * ! | > ' \" #",
    )
)
LIKE_SETTINGS = st.lists(st.one_of(WORDS, st.just("\n"), st.text(max_size=3))).map(
    " ".join
)
KEYS = st.sampled_from(
    ["project", "data", "label", "features", "a", "kind", "by", "split", "column"]
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["numeric", "crossed", "binary", "column", "hash", "a.b"]),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)
    ),
    max_leaves=20,
)


def load_bytes(folder: Path, content: bytes) -> None:
    (folder / "taxiway.yaml").write_bytes(content)
    with contextlib.suppress(SettingsError):
        load_settings(folder, environ={})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_a_settings_error(
    folder: Path, content: bytes
) -> None:
    load_bytes(folder, content)


@given(LIKE_SETTINGS)
def test_any_text_is_settings_or_a_settings_error(folder: Path, text: str) -> None:
    load_bytes(folder, text.encode("utf-8", "surrogatepass"))


@given(st.dictionaries(KEYS, VALUES))
def test_any_values_are_settings_or_a_settings_error(
    folder: Path, value: dict[str, object]
) -> None:
    load_bytes(folder, json.dumps(value).encode())


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_as_written(number: float) -> None:
    got = parse_value(repr(number), "x")
    assert math.isclose(got, number, rel_tol=0, abs_tol=0)


@given(st.text(max_size=40))
def test_an_override_of_any_text_is_a_value_or_a_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        parse_value(text, "--set a")


PRINTABLE = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=6)


@given(
    st.dictionaries(
        PRINTABLE,
        st.one_of(
            PRINTABLE,
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
    )
)
def test_what_is_written_is_read_again(value: dict[str, object]) -> None:
    assert parse_value(dump(value), "x") == value


@pytest.mark.parametrize("text", ["1e-3", "0o17", "12:30", "no", "1_000", "", "~"])
def test_text_stays_text_when_written(text: str) -> None:
    assert parse_value(dump({"a": text}), "x") == {"a": text}
