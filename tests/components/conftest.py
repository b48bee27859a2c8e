"""Fixtures that several tests of the components share."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transform graph, and transformed examples whose last batch is incomplete."""
    folder = tmp_path_factory.mktemp("small")
    script = (
        "import sys, json, pathlib; sys.path[:0] = sys.argv[2:];"
        "from tfx import v1; import trainer_data as data;"
        "folder = pathlib.Path(sys.argv[1]);"
        "data.write_transform(folder / 'transform', data.TABLE);"
        "(folder / 'table.json').write_text(json.dumps(data.TABLE));"
        "data.write_examples(folder / 'train' / 'one.gz', data.columns(2000));"
        "data.write_examples(folder / 'train' / 'two.gz', data.columns(1000, 2));"
        "data.write_examples(folder / 'eval' / 'one.gz', data.columns(300, 1))"
    )
    root = str(HERE.parents[1])
    subprocess.run(
        [sys.executable, "-c", script, str(folder), root, str(HERE)],
        check=True,
        capture_output=True,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "0"},
    )
    assert json.loads((folder / "table.json").read_text())
    return folder
