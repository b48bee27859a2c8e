"""The example projects' settings, whole and damaged, and faults beyond one key."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import yaml_source
from pipeline.config import ProjectSettings, load_settings
from pipeline.errors import SettingsError

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [EXAMPLES / name / "taxiway.yaml" for name in ("flights", "taxi")]
BASE = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  delay: {kind: numeric}
  origin: {kind: categorical}
"""

example = pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)


def load(folder: Path, text: str, *overrides: str) -> ProjectSettings:
    (folder / "taxiway.yaml").write_text(text)
    return load_settings(folder, overrides, environ={})


def refusal(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(folder, text, *overrides)
    return str(caught.value).replace(str(folder), "…")


def refusal_of(path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ={})
    return str(caught.value)


class TestExamples:
    @example
    def test_survive_the_way_to_another_process(self, file: Path) -> None:
        made = load_settings(file, environ={})
        rebuilt = ProjectSettings.from_json(made.to_json())
        assert rebuilt == made
        assert (rebuilt.path, rebuilt.table) == (file, made.table)

    @example
    def test_publish_below_their_own_folder(self, file: Path) -> None:
        push = load_settings(file, environ={}).push
        assert push.base_path == file.parent / "models"
        assert push.model == file.parent.name

    def test_are_read_the_same_from_anywhere(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(EXAMPLES)
        relative = load_settings(Path("flights"), environ={})
        assert relative == load_settings(FILES[0], environ={})
        assert relative.path == FILES[0]

    def test_flights_means_what_it_says(self) -> None:
        made = load_settings(FILES[0], environ={})
        precip = made.features["precip"].model_dump()
        assert (precip["missing"], precip["scale"]) == (0, "log")
        assert made.schema_.anomalies == {"ENUM_TYPE_UNEXPECTED_STRING_VALUES": "warn"}
        assert made.evaluator.thresholds["auc"].min == 0.65


def feature(text: str) -> str:
    """Return settings whose seventh line is this feature."""
    return f"{BASE}  {text}\n"


CONTRADICTIONS = {
    "weight among features": (
        f"{BASE}weight: delay\n",
        (
            "features.delay: column 'delay' is the weight, it cannot be a feature "
            "at line 5"
        ),
    ),
    "one column, two dtypes": (
        feature("again: {kind: cyclic, column: delay, dtype: int, period: 7}"),
        (
            "features.again: reads column 'delay' as int, but delay reads it as float; "
            "one column has one dtype at line 7"
        ),
    ),
    "cross of what is not there": (
        feature("both: {kind: crossed, of: [origin, dest]}"),
        (
            "features.both: crosses 'dest', which is not a feature; "
            "features: delay, origin, both at line 7"
        ),
    ),
    "two features with one input": (
        feature("delay_sin: {kind: numeric}\n  delay2: {kind: cyclic, period: 7}")
        .replace("  delay: {kind: numeric}", "  delay: {kind: cyclic, period: 7}")
        .replace("  delay2: {kind: cyclic, period: 7}\n", ""),
        (
            "features.delay_sin: its model input 'delay_sin' is also that of delay "
            "at line 7"
        ),
    ),
    "name that TensorFlow would not take": (
        feature("dep time: {kind: numeric}"),
        (
            "features.dep time: a feature's name is a letter and then letters, digits or "
            "underscores; call it dep_time and set column: dep time at line 7"
        ),
    ),
    "too few to cross": (
        feature("both: {kind: crossed, of: [origin]}"),
        "features.both.of: got a list, allowed: at least 2 entries at line 7",
    ),
    "cut two ways": (
        feature("b: {kind: bucketized, num_buckets: 3, boundaries: [1]}"),
        "features.b: give num_buckets or boundaries, not both at line 7",
    ),
    "boundaries that fall": (
        feature("b: {kind: bucketized, boundaries: [2, 1]}"),
        "features.b: boundaries must be ascending, at least one at line 7",
    ),
    "positive of a number": (
        BASE.replace("binary", "regression, positive: 1"),
        "label: positive is for a binary label only at line 3",
    ),
    "one value in both splits": (
        BASE.replace(
            "flights.csv",
            "a.csv, split: {by: column, column: m, train: [1, 2], eval: ['2']}",
        ),
        "data.split: in train and in eval: 2 at line 2",
    ),
    "threshold that says nothing": (
        f"{BASE}evaluator: {{thresholds: {{auc: {{}}}}}}\n",
        (
            "evaluator.thresholds.auc: set at least one of min, max, max_drop, max_rise "
            "at line 7"
        ),
    ),
    "no features": (
        BASE.partition("features")[0] + "features: {}\n",
        "features: got a mapping, allowed: at least 1 entries at line 4",
    ),
    "home of nobody": (
        f"{BASE}push: {{base_path: ~nobody.of.this.name/models}}\n",
        (
            'push.base_path: got "~nobody.of.this.name/models", allowed: a path, '
            "~ for your home folder at line 7"
        ),
    ),
    "name that no file can have": (
        f"{BASE}schema: {{file: {'x' * 300}}}\n",
        "schema.file: cannot be read: File name too long at line 7",
    ),
}


@pytest.mark.parametrize(
    ("text", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS
)
def test_a_contradiction_is_told_at_its_line(
    text: str, sentence: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path, text) == f"taxiway.yaml: {sentence}"


def test_faults_of_a_line_above_ten_stand_last(tmp_path: Path) -> None:
    text = BASE + "#\n" * 5 + "zoo: 1\ntrainer:\n  epochs: 0\n"
    lines = refusal(tmp_path, text.replace("numeric", "numric")).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["5", "12", "14"]


def test_the_command_line_s_faults_stand_before_the_file_s(tmp_path: Path) -> None:
    text = f"{BASE}trainer: {{epochs: 0}}\n"
    first, second = refusal(tmp_path, text, "beam.num_processes=0").splitlines()
    assert first.endswith("(from --set beam.num_processes)")
    assert second.endswith("at line 7")


@pytest.mark.parametrize("name", ["line", "airline", "at line x"])
def test_an_override_with_line_in_its_name_has_its_sentence(
    name: str, tmp_path: Path
) -> None:
    message = refusal(tmp_path, BASE, f"features.{name}.kind=numric")
    assert message.startswith(f'taxiway.yaml: features.{name}.kind: got "numric"')
    assert message.endswith(f"(from --set features.{name}.kind)")


def test_a_folder_without_the_file_names_the_file(tmp_path: Path) -> None:
    assert refusal_of(tmp_path) == f"{tmp_path}/taxiway.yaml: no such file"


def test_a_path_to_nothing_is_named(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "other.yaml") == f"{tmp_path}/other.yaml: no such file"


def test_a_folder_with_the_file_s_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "taxiway.yaml").mkdir()
    assert refusal_of(tmp_path) == f"{tmp_path}/taxiway.yaml: no such file"


def test_a_path_that_no_file_can_have_is_one_sentence() -> None:
    name = "x" * 300
    assert refusal_of(Path(name)) == f"{name}: cannot be read: File name too long"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_is_not_ours_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "taxiway.yaml"
    file.touch(mode=0o000)
    assert refusal_of(file) == f"{file}: cannot be read: Permission denied"


def test_a_file_of_another_name_is_named_in_its_faults(tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text(BASE.replace("delays", "9"))
    assert refusal_of(file) == "prod.yaml: project: got 9, allowed: text at line 1"


def test_home_is_put_for_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    push = load(tmp_path, f"{BASE}push: {{base_path: ~/models}}\n").push
    assert push.base_path == tmp_path / "home/models"


def test_a_word_of_yaml_1_1_is_a_column_as_good_as_any(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        f"{BASE}  no: {{kind: categorical, missing: off}}\nweight: on\ndrop: [y, 12:30]\n",
    )
    assert made.features["no"].model_dump()["missing"] == "off"
    assert (made.weight, made.drop) == ("on", ("y", "12:30"))


def test_the_positive_value_keeps_its_type(tmp_path: Path) -> None:
    for written, value, dtype in (("1", 1, "int"), ('"1"', "1", "string")):
        text = BASE.replace("kind: binary", f"kind: binary, positive: {written}")
        label = ProjectSettings.from_json(load(tmp_path, text).to_json()).label
        assert (label.positive, label.data_dtype) == (value, dtype)


TEXTS = [file.read_text() for file in FILES]
SCRAPS = ["", " ", "\n", "\t", ":", "-", "{", "}", "[", "]", ",", "#", "&a ", "*a", '"']
SCRAPS += ["null", "true", "-1", "1e3", "[]", "{}", "kind", "numeric", "é", "\x00"]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return an example file with a few pieces replaced by scraps."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 5, 20]))
        scrap = draw(st.sampled_from(SCRAPS))
        text = text[:begin] + scrap + text[begin + length :]
    return text


def load_or_explain(folder: Path, text: str) -> None:
    try:
        made = load(folder, text)
    except SettingsError as error:
        message = str(error)
    else:
        message = "none"
        assert ProjectSettings.from_json(made.to_json()) == made
    assert all(line.strip() for line in message.split("\n"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@given(damaged())
@settings(max_examples=60)
def test_a_damaged_file_is_settings_or_a_settings_error(
    folder: Path, text: str
) -> None:
    load_or_explain(folder, text)


REPLACEMENTS = st.sampled_from([None, True, 0, -1, 2.5, "", "x", [], {}, [1], {"a": 1}])


@given(st.data())
@settings(max_examples=60)
def test_any_value_in_the_place_of_another_is_settings_or_a_settings_error(
    folder: Path, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    document = yaml_source.parse(text, "x")
    path = data.draw(st.sampled_from([p for p in document.origins if p]))
    replace(document.value, path, data.draw(REPLACEMENTS))
    load_or_explain(folder, json.dumps(document.value))


def replace(value: Any, path: yaml_source.Path, new: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new
