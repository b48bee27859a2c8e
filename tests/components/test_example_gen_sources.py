"""Which files a pattern names."""

from pathlib import Path

import pytest

from components.errors import DataError
from components.example_gen.config import DataSettings, FilesSplit
from components.example_gen.request import IngestRequest
from components.example_gen.sources import find_sources
from components.features import Label


def request(root: Path, **data: object) -> IngestRequest:
    return IngestRequest(
        root=root,
        data=DataSettings.model_validate(data),
        label=Label(column="y", kind="binary"),
        dtypes={"y": "int"},
    )


def touch(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_a_pattern_reads_only_what_it_names_in_a_stable_order(tmp_path: Path) -> None:
    touch(tmp_path, "d/b.csv", "d/a.csv", "d/README.md", "d/.DS_Store")
    found = find_sources(request(tmp_path, files="d/*.csv"))
    assert [file.name for _, file in found] == ["a.csv", "b.csv"]


def test_a_project_folder_may_hold_brackets(tmp_path: Path) -> None:
    root = tmp_path / "[a] b*"
    touch(root, "a.csv")
    assert find_sources(request(root, files="a.csv")) == [(None, root / "a.csv")]


def test_an_absolute_pattern_is_taken_as_it_is(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    made = request(Path("/elsewhere"), files=str(tmp_path / "*.csv"))
    assert find_sources(made) == [(None, tmp_path / "a.csv")]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nope.csv", "data: no file .*/nope.csv"),
        ("n*.csv", r"data: no file matches .*/n\*.csv"),
        ("d", "data: d is a folder; name its files, for example d/"),
    ],
)
def test_a_pattern_that_names_nothing_is_an_error(
    tmp_path: Path, pattern: str, message: str
) -> None:
    touch(tmp_path, "d/a.csv")
    with pytest.raises(DataError, match=message):
        find_sources(request(tmp_path, files=pattern))


def test_one_file_in_both_splits_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    split = FilesSplit(by="files", train="a.csv", eval="*.csv")
    with pytest.raises(DataError, match="named in train and in eval"):
        find_sources(request(tmp_path, split=split.model_dump()))
