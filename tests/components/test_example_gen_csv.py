"""CSV files as record batches, and the sentences for files that are not."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from components.errors import DataError
from components.example_gen.config import DataSettings
from components.example_gen.csv_source import read_csv
from components.features import Dtype

DTYPES: dict[str, Dtype] = {"x": "float", "n": "int", "s": "string"}


def read(path: Path, **settings: object) -> list[dict[str, object]]:
    data = DataSettings.model_validate({"files": "x", **settings})
    return pa.Table.from_batches(list(read_csv(path, data, DTYPES))).to_pylist()


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def refusal(path: Path, **settings: object) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **settings)
    return str(caught.value)


def test_types_are_the_settings_and_columns_may_be_in_any_order(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "s,unused,n,x\nJFK,?,16777217,1\n")
    assert read(file) == [{"x": 1.0, "n": 16777217, "s": "JFK"}]


def test_null_values_and_empty_cells_are_missing(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 's,n,x\nNA,,\n"",NA,NA\n')
    rows = read(file, null_values=["", "NA"])
    assert rows == [{"x": None, "n": None, "s": None}] * 2


def test_quotes_hold_commas_and_newlines(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 's,n,x\n"a, b",1,1\n"c\nd",2,2\n')
    assert [row["s"] for row in read(file)] == ["a, b", "c\nd"]


def test_a_byte_order_mark_is_not_part_of_the_header(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s\n1,1,a\n", encoding="utf-8-sig")
    assert read(file)[0]["x"] == 1.0


def test_a_gzipped_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b"x,n,s\n1,1,a\n"))
    assert read(file) == [{"x": 1.0, "n": 1, "s": "a"}]


def test_another_encoding_can_be_set(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s\n1,1,München\n", encoding="latin-1")
    assert read(file, encoding="latin-1")[0]["s"] == "München"
    assert "is not utf-8 text" in refusal(file)
    assert str(file) in refusal(file)


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s\n1,1,a\n")
    assert "unknown encoding 'klingon' (data.encoding)" in refusal(
        file, encoding="klingon"
    )


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,s\n1,a\n")
    assert refusal(file) == f"{file}: no column 'n'; the file has: x, s"


def test_a_cell_of_another_type_is_named_with_its_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s\n1,1,a\n1,1.5,b\n")
    message = refusal(file)
    assert "Row #3" in message
    assert "'1.5'" in message
    assert "set the feature's dtype" in message


def test_a_ragged_row_is_named_with_its_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s\n1,1,a\n1,1,b,?\n")
    assert "Row #3: Expected 3 columns, got 4" in refusal(file)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    assert "is empty, not even a header" in refusal(write(tmp_path / "a.csv", ""))


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "a.csv"
    folder.mkdir()
    assert str(folder) in refusal(folder)


def test_binary_data_is_said_to_be_no_csv(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(bytes(range(256)) * 20)
    assert refusal(file) == f"{file}: holds binary data, it is not a CSV file"


def test_a_latin_1_header_is_named_with_its_file_and_setting(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s,µ\n1,1,a,b\n", encoding="latin-1")
    assert refusal(file).startswith(f"{file}: is not utf-8 text: ")
    assert refusal(file).endswith("set data.encoding")


def test_a_wrong_cell_is_named_with_its_column(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "other,s,x,n\n?,a,1,old\n")
    assert "In column 'n': Row #2" in refusal(file)


def test_a_wanted_column_that_is_there_twice_is_named_with_both(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,n,s,x\n1,1,a,2\n")
    assert refusal(file) == f"{file}: columns 1 and 4 are both 'x'"


def test_names_that_would_run_together_are_quoted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'x,"charge, EUR",s\n1,1,a\n')
    assert refusal(file).endswith("the file has: x, 'charge, EUR', s")
