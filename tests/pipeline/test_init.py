"""`taxiway init`: what is guessed from a CSV file, and which files are refused."""

import csv
import gzip
import importlib.util
import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.example_gen.csv_source import read_csv
from components.example_gen.sources import find_sources
from components.features import FeatureTable
from pipeline.cli import main
from pipeline.config import ProjectSettings, load_settings
from pipeline.runners.ingredients import ingest_request
from pipeline.scaffold.render import quoted

FLIGHTS = Path(__file__).parents[1] / "data" / "flights" / "flights.csv"
RANDOM = random.Random(7)


def write(
    folder: Path, rows: Iterable[Sequence[object]], name: str = "data.csv"
) -> Path:
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def init(path: Path, *arguments: str) -> ProjectSettings:
    """Scaffold beside the file, load the settings and read the data with them."""
    folder = path.parent / "project"
    assert main(["init", str(path), "--dir", str(folder), *arguments]) == 0
    made = load_settings(folder, environ={})
    request = ingest_request(made)
    for _, file in find_sources(request):
        for _ in read_csv(file, made.data, request.dtypes):
            pass
    return made


def feature(made: ProjectSettings, name: str) -> dict[str, object]:
    return made.features[name].model_dump(exclude_unset=True)


def column(values: Sequence[object], name: str = "x") -> list[tuple[object, object]]:
    """Return rows of one column beside a label of zeros and ones."""
    labels = [RANDOM.randint(0, 1) for _ in values]
    return [(name, "label"), *zip(values, labels, strict=True)]


def guessed(folder: Path, values: Sequence[object], name: str = "x") -> object:
    """Return the column's feature; `dropped` and why when it is not used."""
    rows = [(*row, index % 7) for index, row in enumerate(column(values, name))]
    rows[0] = (name, "label", "spare")
    made = init(write(folder, rows))
    if name in made.drop:
        text = made.path.read_text()
        return text.partition(f"- {quoted(name)} # ")[2].partition(";")[0]
    [only] = [key for key in made.features if key != "spare"]
    return feature(made, only)


def numbers(low: float, high: float, how_many: int = 200) -> list[float]:
    return [round(RANDOM.uniform(low, high), 3) for _ in range(how_many)]


def whole(low: int, high: int, how_many: int = 200) -> list[int]:
    return [RANDOM.randint(low, high) for _ in range(how_many)]


CODES = [f"0{RANDOM.randint(1000, 1020)}" for _ in range(200)]
GUESSES = {
    "fractions": (numbers(-3, 9), "x", {"kind": "numeric"}),
    "fractions with a tail": (
        [*numbers(0, 1), 900.5],
        "x",
        {"kind": "numeric", "scale": "log"},
    ),
    "many whole numbers": (
        whole(0, 500),
        "x",
        {"kind": "numeric", "dtype": "int"},
    ),
    "few whole numbers": (
        whole(1, 9),
        "rooms",
        {"kind": "categorical", "dtype": "int"},
    ),
    "missing whole numbers": (
        [*whole(0, 500), *[""] * 40],
        "x",
        {"kind": "numeric", "dtype": "int", "missing_indicator": True},
    ),
    "few words": (["red", "green", "blue"] * 50, "x", {"kind": "categorical"}),
    "truth": (["True", "False"] * 50, "x", {"kind": "categorical"}),
    "whole numbers and fractions": ([*whole(0, 99), 0.5], "x", {"kind": "numeric"}),
    "words and numbers": ([*whole(0, 9), "many"], "x", {"kind": "categorical"}),
    "codes with leading zeros": (CODES, "zip", {"kind": "categorical"}),
    "hours": (
        whole(0, 23),
        "pickup_hour",
        {"kind": "cyclic", "dtype": "int", "period": 24.0},
    ),
    "months": (
        whole(1, 12),
        "Month",
        {"kind": "cyclic", "dtype": "int", "period": 12.0},
    ),
    "weekdays": (
        whole(0, 6),
        "dayOfWeek",
        {"kind": "cyclic", "dtype": "int", "period": 7.0},
    ),
    "days of a month": (
        whole(1, 31),
        "day",
        {"kind": "cyclic", "dtype": "int", "period": 31.0},
    ),
    "hours that are a duration": (
        whole(0, 300),
        "hour",
        {"kind": "numeric", "dtype": "int"},
    ),
    "latitude": (
        numbers(40, 42),
        "pickup_latitude",
        {"kind": "bucketized", "num_buckets": 10},
    ),
    "no latitude": (numbers(0, 500), "lat", {"kind": "numeric"}),
    "identifier that repeats": (
        whole(100, 160),
        "customer_id",
        {"kind": "categorical", "dtype": "int"},
    ),
    "long text": (
        [f"{n} words that nobody has ever written in this order" for n in range(200)],
        "x",
        {"kind": "text"},
    ),
    "many words": (
        [f"w{n}" for n in range(1500)] * 2,
        "x",
        {"kind": "categorical", "hash_buckets": 1024},
    ),
    "counter": (range(200), "x", "different in every row: an identifier"),
    "identifiers": (
        [RANDOM.randrange(10**9) for _ in range(200)],
        "userId",
        "different in every row: an identifier",
    ),
    "names": (
        [f"N{n}" for n in range(200)],
        "x",
        "different in almost every row: an identifier or a name",
    ),
    "constant": (["a"] * 200, "x", "the same in all rows"),
    "empty": ([""] * 200, "x", "empty in all rows"),
    "almost empty": (["a", "b", *[""] * 400], "x", "missing in almost all rows"),
    "times": (
        [f"2013-01-{d:02}T06:00:00" for d in range(1, 29)] * 9,
        "x",
        "a time: of use to split by, not to learn from",
    ),
    "timestamps": (
        whole(1_300_000_000, 1_400_000_000),
        "start_timestamp",
        "a timestamp: later rows have values that training has not seen",
    ),
}


@pytest.mark.parametrize(("values", "name", "expected"), GUESSES.values(), ids=GUESSES)
def test_a_column_is_guessed_from_its_values_and_name(
    values: Sequence[object], name: str, expected: object, tmp_path: Path
) -> None:
    assert guessed(tmp_path, values, name) == expected


def labelled(
    folder: Path, values: Sequence[object], *arguments: str, name: str = "label"
) -> ProjectSettings:
    rows = [(RANDOM.random(), value) for value in values]
    return init(write(folder, [("x", name), *rows]), *arguments)


LABELS = {
    "zero and one": ([0, 1] * 50, {"kind": "binary"}),
    "yes and no": (
        ["yes", "no"] * 50,
        {"kind": "binary", "positive": "yes", "dtype": "string"},
    ),
    "truth": (
        ["False", "True"] * 50,
        {"kind": "binary", "positive": "True", "dtype": "string"},
    ),
    "one and two": (
        [1, 2] * 50,
        {"kind": "binary", "positive": "1", "dtype": "string"},
    ),
    "zero and one as fractions": (
        ["0.0", "1.0"] * 50,
        {"kind": "binary", "positive": "1.0", "dtype": "string"},
    ),
    "the rarer of two words": (
        ["ham", "ham", "spam"] * 50,
        {"kind": "binary", "positive": "spam", "dtype": "string"},
    ),
    "words": (["a", "b", "c"] * 50, {"kind": "multiclass"}),
    "few whole numbers": ([0, 1, 2] * 50, {"kind": "multiclass"}),
    "many whole numbers": (range(100), {"kind": "regression"}),
    "fractions": ([0.5, 1.5, 2.5] * 50, {"kind": "regression"}),
    "missing": ([0, 1, ""] * 50, {"kind": "binary", "missing": "drop"}),
}


@pytest.mark.parametrize(("values", "expected"), LABELS.values(), ids=LABELS)
def test_a_labels_kind_is_that_of_its_values(
    values: Sequence[object], expected: dict[str, object], tmp_path: Path
) -> None:
    made = labelled(tmp_path, values).label.model_dump(exclude_unset=True)
    assert made == {"column": "label", **expected}


@pytest.mark.parametrize(
    ("values", "thresholds"),
    [
        ([0, 1] * 50, {"auc": {"min": 0.5, "max_drop": 0.05}}),
        (
            ["a", "b", "c", "c"] * 25,
            {"sparse_categorical_accuracy": {"min": 0.5, "max_drop": 0.05}},
        ),
        (
            [-1.5, 0, 1.5] * 30,
            {"root_mean_squared_error": {"max": 1.22, "max_rise": 0.0612}},
        ),
    ],
)
def test_the_threshold_is_what_a_constant_answer_reaches(
    values: Sequence[object], thresholds: object, tmp_path: Path
) -> None:
    made = labelled(tmp_path, values).evaluator
    assert made.model_dump(exclude_unset=True, exclude_none=True) == {
        "thresholds": thresholds
    }


CHOICES = {
    "by its name": (("target", "a", "b"), "target"),
    "last with two values": (("a", "b", "two"), "two"),
    "first with two values": (("two", "a", "b"), "two"),
    "only one with two values": (("a", "two", "b"), "two"),
    "last number": (("a", "c", "b"), "b"),
}


@pytest.mark.parametrize(("names", "label"), CHOICES.values(), ids=CHOICES)
def test_the_label_is_found_by_name_or_place(
    names: tuple[str, ...], label: str, tmp_path: Path
) -> None:
    rows = [
        [i % 2 if name == "two" else RANDOM.random() for name in names]
        for i in range(60)
    ]
    assert init(write(tmp_path, [names, *rows])).label.column == label


def test_the_choice_of_label_is_said_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path, ["ham", "ham", "spam"] * 50, name="kind")
    shown = capsys.readouterr().out
    assert "label     kind: the last column, with two values; binary;" in shown
    assert "which value is the positive one is a guess: the rarer one" in shown


def test_the_label_can_be_named(tmp_path: Path) -> None:
    path = write(
        tmp_path, [("a", "b"), *zip([1, 2] * 50, [3, 3, 4, 4] * 25, strict=True)]
    )
    assert init(path, "--label", "a").label.column == "a"


def test_a_column_that_says_the_same_as_the_label_is_dropped(tmp_path: Path) -> None:
    labels = [RANDOM.randint(0, 1) for _ in range(100)]
    rows = [(RANDOM.random(), label, "ny"[label], label, label) for label in labels]
    rows[7] = (0.5, labels[7], "ny"[labels[7]], 1 - labels[7], labels[7])
    path = write(tmp_path, [("x", "label", "word", "almost", "again"), *rows])
    made = init(path)
    assert set(made.drop) == {"word", "again"}
    assert set(made.features) == {"x", "almost"}
    assert "- word # says the same as the label;" in made.path.read_text()


def test_numbers_that_never_repeat_do_not_say_the_same(tmp_path: Path) -> None:
    rows = [(RANDOM.random(), RANDOM.random()) for _ in range(100)]
    made = init(write(tmp_path, [("x", "label"), *rows]))
    assert made.drop == ()


def test_cells_that_mean_missing_are_found(tmp_path: Path) -> None:
    rows = [(v, i % 2) for i, v in enumerate([*numbers(0, 9), "NA", "?", " NULL", ""])]
    made = init(write(tmp_path, [("x", "label"), *rows]))
    assert made.data.null_values == ("", " NULL", "?", "NA")
    assert feature(made, "x")["kind"] == "numeric"


def test_a_question_mark_among_words_is_a_word(tmp_path: Path) -> None:
    made = init(write(tmp_path, column(["a", "b", "?"] * 20)))
    assert made.data.null_values == ("",)


def test_names_that_tensors_cannot_have_keep_their_column(tmp_path: Path) -> None:
    names = ["Trip Miles", "größe (cm)", "2nd", "a/b", "a-b", "is ok?", "", "label"]
    rows = [[*numbers(0, 9, 6), i, i % 2] for i in range(60)]
    made = init(write(tmp_path, [names, *rows]))
    assert {
        name: f.model_dump().get("column") for name, f in made.features.items()
    } == {
        "Trip_Miles": "Trip Miles",
        "grosse_cm": "größe (cm)",
        "column_2nd": "2nd",
        "a_b": "a/b",
        "is_ok": "is ok?",
    }
    assert made.drop == ("a-b",)


def test_a_name_that_another_feature_makes_is_changed(tmp_path: Path) -> None:
    rows = [(v, v / 3, i % 2) for i, v in enumerate([*whole(0, 23), *[0] * 9])]
    names = ("hour", "hour_sin", "label")
    made = init(write(tmp_path, [names, *rows]))
    assert set(made.features) == {"hour", "hour_sin_2"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_the_dialect_is_found(delimiter: str, encoding: str, tmp_path: Path) -> None:
    rows = [
        delimiter.join((f'"ä{delimiter} {i % 3}"', str(i % 5), str(i % 2)))
        for i in range(80)
    ]
    path = tmp_path / "data.csv"
    header = delimiter.join(("größe", "b", "label"))
    path.write_bytes("\r\n".join([header, *rows, ""]).encode(encoding))
    made = init(path)
    assert made.data.delimiter == delimiter
    assert made.data.encoding == encoding.removesuffix("-sig")
    assert set(made.features) == {"grosse", "b"}


def test_cells_may_hold_lines_and_quotes(tmp_path: Path) -> None:
    values = ['a\n"b"', "c,d", "e"] * 30
    made = init(write(tmp_path, column(values)))
    assert feature(made, "x") == {"kind": "categorical"}


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    plain = write(tmp_path, column(["a", "b"] * 40))
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    assert init(path).label.column == "label"


def test_a_file_inside_the_project_is_named_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    path = write(tmp_path / "raw", column(["a", "b"] * 40), "day [1].csv")
    assert main(["init", str(path), "--dir", str(tmp_path)]) == 0
    made = load_settings(tmp_path, environ={})
    assert made.data.files == "raw/day [[]1].csv"
    [(_, found)] = find_sources(ingest_request(made))
    assert found == path


def test_a_file_outside_is_named_in_full_and_not_copied(tmp_path: Path) -> None:
    path = write(tmp_path, column(["a", "b"] * 40))
    made = init(path)
    assert made.data.files == str(path)
    assert {p.name for p in made.root.iterdir()} == {"taxiway.yaml", ".gitignore"}


def test_what_runs_make_is_ignored_once(tmp_path: Path) -> None:
    ignored = tmp_path / ".gitignore"
    ignored.write_text("*.log\nmodels/")
    path = write(tmp_path, column(["a", "b"] * 40))
    for _ in range(2):
        main(["init", str(path), "--dir", str(tmp_path), "--force"])
    assert ignored.read_text() == "*.log\nmodels/\n.taxiway/\n"


def test_the_project_is_called_like_its_folder(tmp_path: Path) -> None:
    assert init(write(tmp_path, column(["a", "b"] * 40))).project == "project"


def test_the_project_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, column(["a", "b"] * 40))
    assert init(path, "--project", "churn").project == "churn"


def test_settings_are_not_overwritten_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, column(["a", "b"] * 40))
    target = tmp_path / "taxiway.yaml"
    target.write_text("mine")
    command = ["init", str(path), "--dir", str(tmp_path)]
    assert main(command) == 1
    assert target.read_text() == "mine"
    assert capsys.readouterr().err == (
        f"taxiway: {target}: is there already; --force overwrites it\n"
    )
    assert main([*command, "--force"]) == 0
    assert target.read_text() != "mine"


ROWS = "1,2\n" * 30
REFUSED = {
    "empty": (b"", "is empty; a CSV file with a header is needed"),
    "blank": (b"\n\n", "is empty; a CSV file with a header is needed"),
    "header only": (b"a,b\n", "has a header but no rows; there is nothing to see"),
    "one column": (
        b"a\n1\n2\n",
        (
            "has one column only; a label and something to predict it from are needed "
            "(cells between , ; | or tabs)"
        ),
    ),
    "a name twice": (
        f"a,b,a\n{'1,2,3' * 9}\n".encode(),
        "the header names 'a' more than once; give each column a name of its own",
    ),
    "no header": (
        b"5.1,3.5,a\n4.9,3.0,b\n",
        (
            "the first row looks like data, not like names: 5.1, 3.5, a, …; "
            "put a header above it"
        ),
    ),
    "binary": (b"\x7fELF\0\0\1,2\n", "is not a CSV file: it holds binary data"),
    "short row": (
        f"a,b\n{ROWS}3\n".encode(),
        "cannot be read as CSV: CSV parse error: Expected 2 columns, got 1: 3",
    ),
    "constant label": (
        f"a,label\n{ROWS}".encode(),
        (
            "label 'label' is constant: '2' in all rows; there is nothing to learn; "
            "try another --label"
        ),
    ),
    "unknown label": (
        f"a,lable\n{ROWS}".encode(),
        '--label label: no such column (did you mean "lable"?); columns: a, lable',
    ),
    "label of names": (
        "a,label\n{}".format("".join(f"{i},n{i}\n" for i in range(200))).encode(),
        (
            "label 'label' has too many values of text to be classes: 200; "
            "try another --label"
        ),
    ),
    "nothing left": (
        "a,label\n{}".format("".join(f"7,{i % 2}\n" for i in range(50))).encode(),
        "no column is left to predict from (a: the same in all rows)",
    ),
}


@pytest.mark.parametrize(("content", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_file_of_no_use_is_one_sentence(
    content: bytes,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    folder = tmp_path / "project"
    assert main(["init", str(path), "--dir", str(folder), "--label", "label"]) == 1
    shown = capsys.readouterr().err.removeprefix("taxiway: ")
    assert shown.removeprefix(f"{path}: ") == f"{problem}\n"
    assert not folder.exists()


def test_without_a_plausible_label_one_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(i / 3, f"name {i}") for i in range(300)]
    path = write(tmp_path, [("a", "b"), *rows])
    assert main(["init", str(path), "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"taxiway: {path}: cannot tell which column is to be predicted; "
        "name it with --label COLUMN; columns: a, b\n"
    )


@pytest.mark.parametrize(
    ("name", "problem"), [("gone.csv", "no such file"), (".", "is a folder")]
)
def test_a_file_that_is_not_there(
    name: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert main(["init", str(path), "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"taxiway: {path}: {problem}; name a CSV file with a header\n"
    )


def test_options_of_other_commands_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, column(["a", "b"] * 40))
    assert main(["-c", str(tmp_path), "init", str(path)]) == 1
    assert "init takes neither --config nor --set; see --dir" in capsys.readouterr().err


def test_the_taxi_data_of_the_tfx_package_makes_a_project(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("tfx")
    if spec is None or spec.origin is None:
        pytest.skip("tfx is not installed")
    folder = Path(spec.origin).parent / "examples/chicago_taxi_pipeline/data"
    path = Path(shutil.copy(folder / "big_tipper_label/data.csv", tmp_path))
    made = init(path)
    assert made.label.column == "big_tipper"
    assert made.label.kind == "binary"
    kinds = {name: feature.kind for name, feature in made.features.items()}
    expected = {
        "trip_start_hour": "cyclic",
        "pickup_latitude": "bucketized",
        "payment_type": "categorical",
        "fare": "numeric",
    }
    assert expected.items() <= kinds.items()
    assert set(made.drop) == {"trip_start_timestamp", "pickup_census_tract"}


def test_flights_make_a_project(tmp_path: Path) -> None:
    made = init(Path(shutil.copy(FLIGHTS, tmp_path)))
    assert made.label.column == "late"
    assert made.label.missing == "drop"
    assert "time_hour" in made.drop
    assert "# Or train on the past" in made.path.read_text()


CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", "NA", "?", "2013-01-01", "0", "1", "007", "+5", "1e5"]),
)


@given(
    header=st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5),
        min_size=3,
        max_size=3,
        unique=True,
    ),
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=2, max_size=30),
)
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_table_makes_readable_settings_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
    header: list[str],
    rows: list[tuple[str, str]],
) -> None:
    folder = tmp_path_factory.mktemp("table")
    content = [(*row, index % 2) for index, row in enumerate(rows)]
    path = write(folder, [header, *content])
    command = ["init", str(path), "--dir", str(folder), f"--label={header[2]}"]
    if main(command) == 0:
        made = load_settings(folder, environ={})
        assert isinstance(made.table, FeatureTable)
        request = ingest_request(made)
        for batch in read_csv(path, made.data, request.dtypes):
            assert batch.num_columns == len(request.dtypes)
