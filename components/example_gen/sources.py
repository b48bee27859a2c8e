"""Which files a pattern names, and what is wrong when it names none."""

import glob
from pathlib import Path

from components.errors import DataError
from components.example_gen.request import IngestRequest

Source = tuple[str | None, Path]


def find_sources(request: IngestRequest) -> list[Source]:
    """Return `(split, file)` pairs in a stable order; split None: by row.

    Raises:
        DataError: A pattern matches no file, or a file is in both splits.
    """
    sources: list[Source] = []
    for split, patterns in request.patterns().items():
        for pattern in patterns:
            sources += [(split, file) for file in _match(request.root, pattern)]
    _refuse_repeats(sources)
    return sources


def _match(root: Path, pattern: str) -> list[Path]:
    # The project's own path may hold `[` and `*`, and means them.
    full = Path(glob.escape(str(root))) / Path(pattern).expanduser()
    if (root / Path(pattern).expanduser()).is_dir():
        raise DataError(
            f"data: {pattern} is a folder; name its files, for example "
            f"{Path(pattern) / '*.csv'}"
        )
    # Not Path.glob: it refuses absolute patterns, which users write.
    names = glob.glob(str(full), recursive=True)  # noqa: PTH207
    files = [Path(name) for name in sorted(names)]
    files = [file for file in files if file.is_file()]
    if not files:
        kind = "no file matches" if glob.has_magic(pattern) else "no file"
        raise DataError(f"data: {kind} {root / pattern}")
    return files


def _refuse_repeats(sources: list[Source]) -> None:
    seen: dict[Path, str | None] = {}
    for split, file in sources:
        if file in seen:
            where = "twice" if seen[file] == split else "in train and in eval"
            raise DataError(f"data: {file} is named {where}")
        seen[file] = split
