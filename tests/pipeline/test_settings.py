"""taxiway.yaml: what is read, and the sentence for each thing that is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import ProjectSettings, load_settings, settings_json_schema
from pipeline.errors import SettingsError, UserCodeError

BASE = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  dep_delay: {kind: numeric}
"""
METRICS_OF_BINARY = (
    "auc, auc_precision_recall, binary_accuracy, binary_crossentropy, "
    "calibration, precision, recall"
)


def load(folder: Path, text: str | bytes, *overrides: str) -> ProjectSettings:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "taxiway.yaml").write_bytes(content)
    return load_settings(folder, overrides, environ={})


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(SettingsError) as caught:
        load(folder, text)
    return str(caught.value).replace(str(folder), "…")


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    settings = load(tmp_path, BASE)
    assert settings.root == tmp_path
    assert settings.path == tmp_path / "taxiway.yaml"
    assert settings.state_dir == tmp_path / ".taxiway"
    assert settings.push.base_path == tmp_path / "models"
    assert settings.push.model == "delays"
    assert settings.table.input_columns() == {"dep_delay": "float"}
    assert settings.schema_.on_anomaly == "error"


def test_an_absolute_base_path_stays(tmp_path: Path) -> None:
    text = f"{BASE}push: {{base_path: /srv/models, model: other}}\n"
    push = load(tmp_path, text).push
    assert (push.base_path, push.model) == (Path("/srv/models"), "other")


def test_the_file_is_that_of_the_working_folder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, BASE)
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, environ={}).path == tmp_path / "taxiway.yaml"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + BASE.encode()).project == "delays"


def test_settings_survive_the_way_to_another_process(tmp_path: Path) -> None:
    schema = tmp_path / "schema.pbtxt"
    schema.touch()
    settings = load(
        tmp_path,
        f"{BASE}schema: {{file: schema.pbtxt}}\nweight: w\ndrop: [year]\n"
        "evaluator: {slices: [a, [b, c]], thresholds: {auc: {min: 0.7}}}\n",
    )
    rebuilt = ProjectSettings.from_json(settings.to_json())
    assert rebuilt == settings
    assert (rebuilt.root, rebuilt.schema_file) == (settings.root, schema)
    assert rebuilt.table == settings.table


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, BASE).project = "other"


REFUSED = {
    "unknown tag": (
        BASE.replace("numeric", "numric"),
        (
            'features.dep_delay.kind: got "numric", allowed: numeric, bucketized, '
            'categorical, cyclic, text, crossed (did you mean "numeric"?) at line 5'
        ),
    ),
    "missing tag": (
        BASE.replace("kind: numeric", "scale: log"),
        (
            "features.dep_delay.kind: is required and missing, allowed: bucketized, "
            "categorical, crossed, cyclic, numeric, text at line 5"
        ),
    ),
    "unknown key": (
        f"{BASE}transform: {{preprocesing_fn: a.b}}\n",
        (
            "transform.preprocesing_fn: unknown key (did you mean "
            '"preprocessing_fn"?); known here: preprocessing_fn at line 6'
        ),
    ),
    "unknown key of a feature": (
        BASE.replace("kind: numeric", "kind: cyclic, period: 7, perod: 7"),
        (
            'features.dep_delay.perod: unknown key (did you mean "period"?); '
            "known here: column, dtype, kind, period at line 5"
        ),
    ),
    "attribute's name instead of the key's": (
        f"{BASE}schema_: {{}}\n",
        (
            'schema_: unknown key (did you mean "schema"?); known here: beam, data, drop, '
            "evaluator, features, label, project, push, schema, serving, trainer, "
            "transform, weight at line 6"
        ),
    ),
    "missing key": (
        BASE.replace(", kind: binary", ""),
        "label.kind: is required and missing at line 3",
    ),
    "literal": (
        BASE.replace("kind: numeric", "kind: numeric, scale: lgo"),
        (
            'features.dep_delay.scale: got "lgo", allowed: z_score, min_max, log, none '
            '(did you mean "log"?) at line 5'
        ),
    ),
    "literal or number": (
        BASE.replace("kind: numeric", "kind: numeric, missing: men"),
        (
            'features.dep_delay.missing: got "men", allowed: mean, min, max or a number '
            '(did you mean "mean"?) at line 5'
        ),
    ),
    "number as text": (
        f'{BASE}trainer: {{epochs: "3"}}\n',
        'trainer.epochs: got "3", allowed: a whole number at line 6',
    ),
    "fraction for a whole number": (
        f"{BASE}trainer: {{epochs: 3.5}}\n",
        "trainer.epochs: got 3.5, allowed: a whole number at line 6",
    ),
    "truth for a number": (
        f"{BASE}trainer: {{epochs: true}}\n",
        "trainer.epochs: got true, allowed: a whole number at line 6",
    ),
    "below the least": (
        f"{BASE}trainer: {{epochs: 0}}\n",
        "trainer.epochs: got 0, allowed: a number of at least 1 at line 6",
    ),
    "not above": (
        f"{BASE}trainer: {{learning_rate: 0}}\n",
        "trainer.learning_rate: got 0, allowed: a number above 0 at line 6",
    ),
    "not below": (
        f"{BASE}trainer: {{dropout: 1}}\n",
        "trainer.dropout: got 1, allowed: a number below 1 at line 6",
    ),
    "above the most": (
        f"{BASE}serving: {{rest_port: 70000}}\n",
        "serving.rest_port: got 70000, allowed: a number of at most 65535 at line 6",
    ),
    "number for text": (
        BASE.replace("delays", "12"),
        "project: got 12, allowed: text at line 1",
    ),
    "pattern": (
        BASE.replace("delays", "9 lives"),
        (
            'project: got "9 lives", allowed: text that matches '
            r"^[A-Za-z][A-Za-z0-9_\-]*$ at line 1"
        ),
    ),
    "too long": (
        BASE.replace("flights.csv", 'flights.csv, delimiter: "||"'),
        'data.delimiter: got "||", allowed: text of at most 1 characters at line 2',
    ),
    "value for a list": (
        f"{BASE}trainer: {{hidden_units: 5}}\n",
        "trainer.hidden_units: got 5, allowed: a list at line 6",
    ),
    "value for a mapping": (
        f"{BASE}push: models\n",
        'push: got "models", allowed: a mapping at line 6',
    ),
    "empty section": (
        f"{BASE}push:\n",
        "push: got nothing, allowed: a mapping at line 6",
    ),
    "list for a feature": (
        BASE.replace("{kind: numeric}", "[numeric]"),
        "features.dep_delay: got a list, allowed: a mapping at line 5",
    ),
    "entry of a list": (
        f"{BASE}evaluator:\n  slices:\n  - [a, 3]\n",
        "evaluator.slices[0][1]: got 3, allowed: text at line 8",
    ),
    "key and tag of one name": (
        BASE.replace(
            "flights.csv",
            "a.csv, split: {by: column, column: m, train: [1], eval: [1.5]}",
        ),
        "data.split.eval[0]: got 1.5, allowed: text or a whole number at line 2",
    ),
    "unknown metric": (
        f"{BASE}evaluator: {{thresholds: {{auk: {{min: 1}}}}}}\n",
        (
            'evaluator.thresholds.auk: unknown key (did you mean "auc"?); known here: auc, '
            "auc_precision_recall, binary_accuracy, binary_crossentropy, calibration, "
            "mean_absolute_error, mean_squared_error, precision, recall, "
            "root_mean_squared_error, sparse_categorical_accuracy, "
            "sparse_categorical_crossentropy at line 6"
        ),
    ),
    "one of two keys": (
        BASE.replace("files: flights.csv", "delimiter: ;"),
        (
            "data.files: name the files here, or in split with `by: files`, "
            "one of the two at line 2"
        ),
    ),
    "keys that exclude each other": (
        BASE.replace("kind: numeric", "kind: categorical, top_k: 3, hash_buckets: 3"),
        (
            "features.dep_delay: give top_k (vocabulary) or hash_buckets, "
            "not both at line 5"
        ),
    ),
    "no ISO time": (
        BASE.replace(
            "flights.csv",
            "a.csv, split: {by: time, column: t, train: {end: 31.1.2013}, eval: {}}",
        ),
        (
            'data.split.train.end: got "31.1.2013", allowed: ISO 8601, '
            "for example 2013-01-31 at line 2"
        ),
    ),
    "label among features": (
        BASE.replace("dep_delay:", "late:"),
        "features.late: column 'late' is the label, it cannot be a feature at line 5",
    ),
    "label as weight": (
        f"{BASE}weight: late\n",
        "weight: column 'late' is the label at line 6",
    ),
    "dropped, but used": (
        f"{BASE}drop:\n- year\n- dep_delay\n",
        "drop[1]: column 'dep_delay' is dropped, but also used at line 8",
    ),
    "cross of nothing": (
        f"{BASE}  both: {{kind: crossed, of: [dep_delay, hour]}}\n",
        (
            "features.both: crosses 'dep_delay', which is numeric; only categorical and "
            "bucketized features can be crossed at line 6"
        ),
    ),
    "metric of another label": (
        f"{BASE}evaluator: {{metrics: [mean_squared_error]}}\n",
        (
            "evaluator.metrics[0]: mean_squared_error does not fit a binary label, "
            f"allowed: {METRICS_OF_BINARY} at line 6"
        ),
    ),
    "threshold of another label": (
        f"{BASE}evaluator:\n  thresholds:\n    mean_squared_error: {{max: 1}}\n",
        (
            "evaluator.thresholds.mean_squared_error: mean_squared_error does not fit a "
            f"binary label, allowed: {METRICS_OF_BINARY} at line 8"
        ),
    ),
    "curated schema that is not there": (
        f"{BASE}schema: {{file: schema.pbtxt}}\n",
        "schema.file: no such file: …/schema.pbtxt at line 6",
    ),
    "path of no function": (
        f"{BASE}trainer: {{model: my-model.py}}\n",
        (
            'trainer.model: got "my-model.py", allowed: a dotted path, for example '
            "my_project.model.build_model at line 6"
        ),
    ),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_each_fault_has_its_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text) == f"taxiway.yaml: {sentence}"


def test_all_faults_are_told_by_line(tmp_path: Path) -> None:
    text = BASE.replace("late, kind: binary", "late, kind: binry").replace(
        "delays", "_"
    )
    lines = refusal(
        tmp_path, f"{text}beam: {{num_processes: 0}}\nzoo: 3\n"
    ).splitlines()
    assert [line.rpartition(" at ")[2] for line in lines] == [
        "line 1",
        "line 3",
        "line 6",
        "line 7",
    ]


WHOLE_FILE = {
    "empty": ("", "…/taxiway.yaml: the file is empty; `taxiway init` writes one"),
    "comment": ("# x", "…/taxiway.yaml: the file is empty; `taxiway init` writes one"),
    "list": (
        "- a",
        "taxiway.yaml: got list at the top, allowed: a mapping of settings",
    ),
    "not UTF-8": (
        b"project: \xff",
        (
            "…/taxiway.yaml: not UTF-8 text: 'utf-8' codec can't decode byte 0xff in "
            "position 9: invalid start byte"
        ),
    ),
    "repeated key": (
        f"{BASE}label: {{}}\n",
        "taxiway.yaml:6: 'label' is given twice, first at line 3",
    ),
    "repeated feature": (
        f"{BASE}  dep_delay: {{kind: text}}\n",
        "taxiway.yaml:6: 'dep_delay' is given twice, first at line 5",
    ),
    "no YAML": ("a: b: c", "taxiway.yaml:1:5: mapping values are not allowed here"),
    "tab": (
        "a:\n\tb: 1",
        "taxiway.yaml:2:1: found character '\\t' that cannot start any token",
    ),
    "control character": (
        b"a: \x00",
        (
            "taxiway.yaml: not YAML: unacceptable character #x0000: "
            "special characters are not allowed"
        ),
    ),
}


@pytest.mark.parametrize(("text", "message"), WHOLE_FILE.values(), ids=WHOLE_FILE)
def test_a_file_that_cannot_be_read_is_one_sentence(
    text: str | bytes, message: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path, text) == message


def test_a_missing_file_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as caught:
        load_settings(None, environ={})
    assert str(caught.value) == (
        "taxiway.yaml: no such file; make one with `taxiway init`, or name it with -c"
    )


@pytest.mark.parametrize("name", ["pipeline", "components", "serving"])
@pytest.mark.parametrize("kind", ["{}.py", "{}/__init__.py", "{}/model.py"])
def test_a_module_with_a_name_of_ours_is_refused(
    name: str, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / kind.format(name)
    file.parent.mkdir(exist_ok=True)
    file.touch()
    with pytest.raises(UserCodeError, match=f"a module called '{name}' would clash"):
        load(tmp_path, BASE)


def test_a_folder_of_data_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "requests.csv").touch()
    assert load(tmp_path, BASE).project == "delays"


def objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schema and the sections that it defines."""
    return [schema, *schema["$defs"].values()]


def test_json_schema_describes_every_key() -> None:
    schema = settings_json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    undescribed = [
        f"{section['title']}.{key}"
        for section in objects(schema)
        for key, value in section["properties"].items()
        if not {"description", "$ref"} & value.keys() and key not in {"kind", "by"}
    ]
    assert undescribed == []
    assert all("description" in section for section in objects(schema))


def test_json_schema_knows_the_keys_of_the_file_only() -> None:
    schema = settings_json_schema()
    assert "schema" in schema["properties"]
    assert "schema_" not in schema["properties"]
    assert all(s["additionalProperties"] is False for s in objects(schema))
    assert schema["required"] == ["project", "data", "label", "features"]


def test_json_schema_refers_to_what_it_defines() -> None:
    schema = settings_json_schema()
    text = json.dumps(schema)
    referred = set(re.findall(r'"#/\$defs/(\w+)"', text))
    assert referred == set(schema["$defs"])
