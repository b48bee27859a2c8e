"""The `taxiway` command: finds the command's module and speaks its errors.

Nothing but argparse is imported before a command is chosen, so that `--help`
answers at once.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

COMMANDS = {
    "init": "scaffold a project from a CSV file",
    "run": "run the pipeline: from files to a published version",
    "runs": "show the history of runs and the lineage of one",
    "replay": "train a published version again from its record, and compare",
    "serve": "serve the published model over REST and gRPC",
    "predict": "ask the served model about rows of a file",
    "models": "show the published versions, their labels and where they serve",
    "push": "publish a SavedModel and let the servers take it",
    "reload": "serve what another config file says",
    "promote": "make a version stable",
    "rollback": "make the version stable that was stable before",
    "retire": "remove a version for good",
    "verify": "compare versions with what was published",
    "status": "show versions in the repository and on the server",
    "doctor": "check what is installed and what is missing",
    "config": "check or show the settings, or print their JSON Schema",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0 is success, 1 a failure that was explained, 2 wrong usage or settings, 130 an
    interrupt; commands document others.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parse(arguments)
        code: int = import_module(f"pipeline.commands.{args.command}").run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("taxiway: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has enough; keep Python from saying so at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115
        return 0
    except Exception as error:  # noqa: BLE001  the last word on any error is ours
        return _explain(error)
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="taxiway",
        description=_description(),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print the version and exit"
    )
    _add_globals(parser, top=True)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=_sentence(text))
        _add_globals(command, top=False)
        if name in arguments:  # as the command, or as a value: `-c serve run`
            import_module(f"pipeline.commands.{name}").add_arguments(command)
    args = parser.parse_args(arguments)
    args.overrides = [*args.overrides_before, *(args.overrides or [])]
    args.config = args.config or args.config_before
    return args


def _add_globals(parser: argparse.ArgumentParser, *, top: bool) -> None:
    """Accept the global options before the command and after it."""
    suffix = "_before" if top else ""
    parser.add_argument(
        "-c",
        "--config",
        dest=f"config{suffix}",
        type=Path,
        metavar="PATH",
        help="the settings file, or its folder (./taxiway.yaml)",
    )
    parser.add_argument(
        "--set",
        dest=f"overrides{suffix}",
        action="append",
        default=[] if top else None,
        metavar="KEY=VALUE",
        help="override a setting: --set trainer.epochs=3",
    )


class _Parser(argparse.ArgumentParser):
    """argparse that guesses which command was meant."""

    def error(self, message: str) -> NoReturn:
        import difflib

        word = message.partition("invalid choice: '")[2].partition("'")[0]
        close = difflib.get_close_matches(word, COMMANDS, n=1) if word else []
        if close:
            message = f"no command {word!r}; did you mean {close[0]!r}?"
        super().error(message)


def _description() -> str:
    return "From files to live, guarded predictions on TensorFlow."


_EPILOG = "`taxiway COMMAND --help` shows a command's options."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"taxiway {version('taxiway')}")
        except PackageNotFoundError:
            print("taxiway (not installed)")
        parser.exit()


def _explain(error: Exception) -> int:
    import tempfile
    import traceback

    from components.faults import storage_fault
    from serving.errors import TaxiwayError

    if isinstance(error, TaxiwayError):
        print(f"taxiway: {error}", file=sys.stderr)
        return error.exit_code
    if full := storage_fault(error, Path.cwd()):
        print(f"taxiway: {full}", file=sys.stderr)
        return 1
    with tempfile.NamedTemporaryFile(
        "w", prefix="taxiway-", suffix=".log", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exception(error, file=file)
    print(
        f"taxiway: unexpected {type(error).__name__}: {error}\n"
        f"  this is a fault of Taxiway; the traceback is in {file.name}",
        file=sys.stderr,
    )
    return 1
