"""The example projects load, and their checked-in data is what it says."""

import csv
import sys
from pathlib import Path

import prepare
import pytest

from pipeline.config import load_settings

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "examples/flights"
CUT = ROOT / "tests/data/flights/flights.csv"
LEAKS = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("project", ["flights", "taxi"])
def test_settings_load(project: str) -> None:
    settings = load_settings(ROOT / "examples" / project, environ={})
    assert settings.project == project


def test_flights_has_each_column_that_its_settings_name() -> None:
    settings = load_settings(FLIGHTS, environ={})
    named = {*settings.table.column_dtypes(), *settings.slice_columns, "month"}
    assert named <= set(rows(CUT)[0])


@pytest.mark.parametrize("path", [CUT, FLIGHTS / "requests.csv"])
def test_flights_knows_nothing_of_what_comes_after_departure(path: Path) -> None:
    assert not LEAKS & set(rows(path)[0])


def test_cut_has_both_splits_every_origin_and_missing_cells() -> None:
    cut = rows(CUT)
    assert {row["origin"] for row in cut} == {"EWR", "JFK", "LGA"}
    assert {row["month"] for row in cut} == {str(month) for month in range(1, 13)}
    assert {row["late"] for row in cut} == {"0", "1", ""}
    assert any(row["pressure"] == "" for row in cut)


def test_requests_are_a_dozen_flights_that_no_split_has_seen() -> None:
    requests = rows(FLIGHTS / "requests.csv")
    assert len(requests) == 12
    assert {row["month"] for row in requests} == {"12"}


@pytest.mark.parametrize(
    ("arr_delay", "late"), [("", ""), ("-3", "0"), ("15", "0"), ("16", "1")]
)
def test_late_is_more_than_fifteen_minutes_or_unknown(
    arr_delay: str, late: str
) -> None:
    assert prepare.late(arr_delay) == late


def test_weekday_counts_from_monday() -> None:
    assert prepare.weekday({"year": "2013", "month": "1", "day": "1"}) == "2"


def test_file_other_than_expected_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    with pytest.raises(RuntimeError, match="other than expected"):
        prepare.write_csv(path, rows(CUT), sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_checked_in_files_are_cut_from_the_data(tmp_path: Path) -> None:
    whole = tmp_path / "flights.csv"
    try:
        prepare.prepare(whole)
    except RuntimeError as error:
        if "could not be downloaded" not in str(error):
            raise
        pytest.skip(str(error).splitlines()[0])
    flights = prepare.read_csv(whole)
    assert len(flights) == 336_776
    renew = f"run {sys.executable} examples/flights/prepare.py --cut"
    assert list(prepare.cut(flights)) == rows(CUT), renew
    assert prepare.requests(flights) == rows(FLIGHTS / "requests.csv"), renew
