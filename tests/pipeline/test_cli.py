"""The `taxiway` command: what it imports, where options stand, how it fails."""

import errno
import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import cli
from pipeline.errors import SettingsError
from serving.errors import TaxiwayError

HEAVY = ("pydantic", "yaml", "rich", "numpy", "pyarrow", "tensorflow", "tfx")


def imported_by(*arguments: str) -> set[str]:
    program = (
        "import sys\nfrom pipeline.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_that_takes_time(option: str) -> None:
    assert not set(HEAVY) & imported_by(option)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_command_helps_without_tensorflow(command: str) -> None:
    assert not {"tensorflow", "tfx", "apache_beam"} & imported_by(command, "--help")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_command_has_a_module(command: str) -> None:
    module = importlib.import_module(f"pipeline.commands.{command}")
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"    {name} " in shown for name in cli.COMMANDS)


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["rnu"])
    assert caught.value.code == 2
    assert "no command 'rnu'; did you mean 'run'?" in capsys.readouterr().err


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


class Fake:
    """A command that remembers its arguments and does what it is told."""

    def __init__(self, outcome: BaseException | int = 0) -> None:
        self.outcome = outcome
        self.args = SimpleNamespace(config=None, overrides=None)

    def add_arguments(self, parser: object) -> None: ...

    def run(self, args: SimpleNamespace) -> int:
        self.args = args
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def use(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | int = 0) -> Fake:
    fake = Fake(outcome)
    monkeypatch.setattr(cli, "import_module", lambda name: fake)
    return fake


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "x", "--set", "a=1", "--set", "b=2", "run"],
        ["run", "-c", "x", "--set", "a=1", "--set", "b=2"],
        ["--set", "a=1", "run", "--set", "b=2", "--config", "x"],
        ["--config=x", "--set=a=1", "run", "--set=b=2"],
    ],
)
def test_global_options_stand_before_or_after_the_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = use(monkeypatch)
    assert cli.main(arguments) == 0
    assert fake.args.config == Path("x")
    assert fake.args.overrides == ["a=1", "b=2"]


def test_without_options_nothing_is_overridden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = use(monkeypatch)
    cli.main(["run"])
    assert (fake.args.config, fake.args.overrides) == (None, [])


def test_a_folder_may_have_the_name_of_a_command(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["-c", "serve", "run", "--no-cache"]) == 2
    assert capsys.readouterr().err == "taxiway: serve: no such file\n"


def test_a_commands_exit_code_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 3)
    assert cli.main(["run"]) == 3


def test_an_explained_error_is_its_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, TaxiwayError("the port is taken"))
    assert cli.main(["run"]) == 1
    assert capsys.readouterr().err == "taxiway: the port is taken\n"


def test_a_disk_that_takes_nothing_is_no_fault_of_taxiway(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/run/run.json")
    use(monkeypatch, full)
    assert cli.main(["run"]) == 1
    assert capsys.readouterr().err == (
        "taxiway: /run/run.json: No space left on device; free some space there, then "
        "run again\n"
    )


def test_wrong_settings_are_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SettingsError("x"))
    assert cli.main(["run"]) == 2


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, KeyboardInterrupt())
    assert cli.main(["run"]) == 130


def test_an_unexpected_error_leaves_its_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    use(monkeypatch, ZeroDivisionError("division by zero"))
    assert cli.main(["run"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("taxiway: unexpected ZeroDivisionError: division by zero\n")
    [log] = tmp_path.iterdir()
    assert str(log) in shown
    assert "Traceback" in log.read_text()


def test_a_command_that_cannot_be_imported_is_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pyarrow'")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "import_module", fail)
    assert cli.main(["run"]) == 1
    assert "unexpected ModuleNotFoundError: No module" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m pipeline config schema | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.stdout, done.stderr, done.returncode) == ("{\n", "", 0)
