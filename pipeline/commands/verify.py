"""`taxiway verify`: compare versions with what was published, byte by byte."""

import argparse

from pipeline.config import load_settings
from serving.errors import RepositoryError
from serving.model_repository import ModelRepository
from serving.signing import check_signed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "version", type=int, nargs="*", help="versions to check; all when left out"
    )


def run(args: argparse.Namespace) -> int:
    """Read every file of the versions; 1 if one is not as it was published."""
    settings = load_settings(args.config, args.overrides)
    repository = ModelRepository(settings.push.base_path, settings.push.model)
    numbers = {e.version for e in repository.entries() if e.version is not None}
    versions = args.version or sorted(numbers)
    if not versions:
        print(f"{repository.folder}: no version yet")
    is_whole = True
    for version in versions:
        try:
            faults = repository.verify(version)
            if settings.serving.public_key is not None and not faults:
                check_signed(repository.path(version), settings.serving.public_key)
        except RepositoryError as error:
            faults = [str(error)]
        is_whole = is_whole and not faults
        print(
            f"version {version}: {'as it was published' if not faults else ''}".strip()
        )
        for fault in faults:
            print(f"  {fault}")
    return 0 if is_whole else 1
