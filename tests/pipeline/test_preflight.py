"""What is found out before TFX is loaded."""

from pathlib import Path

import pytest

from components.errors import DataError
from pipeline.config import load_settings
from pipeline.errors import PipelineError, UserCodeError
from pipeline.runners.preflight import check

SETTINGS = """
project: small
data:
  files: a.csv
  split: {by: column, column: month, train: [1], eval: [2]}
label: {column: y, kind: binary}
features: {x: {kind: numeric}}
evaluator: {slices: [city]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    (tmp_path / "a.csv").write_text("x,y,month,city\n1,1,1,Oslo\n")
    return tmp_path


def look(project: Path, *overrides: str) -> None:
    check(load_settings(project, overrides, environ={}))


def test_a_project_with_all_its_columns_passes(project: Path) -> None:
    look(project)


def test_a_folder_that_tfx_takes_for_a_pattern_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "[a] b"
    folder.mkdir()
    (folder / "taxiway.yaml").write_text(SETTINGS)
    with pytest.raises(PipelineError, match=r"TFX takes \[ \] in a path for a pattern"):
        look(folder)


@pytest.mark.parametrize("column", ["x", "y", "month", "city"])
def test_a_column_that_features_label_split_or_slices_need_must_be_there(
    project: Path, column: str
) -> None:
    columns = ("x", "y", "month", "city")
    header = ",".join("other" if name == column else name for name in columns)
    (project / "a.csv").write_text(f"{header}\n1,1,1,Oslo\n")
    with pytest.raises(DataError, match=f"no column '{column}'; the file has: "):
        look(project)


@pytest.mark.parametrize(
    "text",
    [
        "def build_model(inputs): ...",
        "from elsewhere import build_model",
        "from elsewhere import *",
        "build_model = make()",
        "if True:\n    def build_model(inputs): ...",
    ],
)
def test_a_function_is_found_however_it_is_bound(project: Path, text: str) -> None:
    (project / "mine.py").write_text(text)
    look(project, "trainer.model=mine.build_model")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "trainer.model: no module mine for mine.build_model"),
        ("def build(inputs): ...", "mine.py has no 'build_model'"),
        ("def build_model(:", r"mine.py:1: not Python"),
    ],
)
def test_a_function_that_is_not_there_is_named(
    project: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (project / "mine.py").write_text(text)
    with pytest.raises(UserCodeError, match=message):
        look(project, "trainer.model=mine.build_model")
