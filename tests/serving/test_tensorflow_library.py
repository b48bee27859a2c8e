"""TensorFlow's C API: arrays in and out, errors, and living beside other libraries."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving import apis
from serving.errors import Code, RequestError
from serving.server.loader import LoadedModel
from serving.server.tensorflow_library import Session

pytestmark = pytest.mark.integration


@pytest.fixture
def half_plus_two(conformance: Path) -> Path:
    return conformance / "models" / "half_plus_two" / "00000123"


def test_pythons_cryptography_is_not_taken_over() -> None:
    """TensorFlow's library holds another one; with its names global, hmac crashes."""
    script = (
        "from serving.server.tensorflow_library import library; library()\n"
        "import hmac, ssl\n"
        "ssl.create_default_context()\n"
        "print(hmac.new(b'k', b'm', 'sha256').hexdigest()[:8])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "b60090e3"


def test_tensorflow_itself_is_not_imported(half_plus_two: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from serving.server.loader import LoadedModel\n"
        "LoadedModel(Path(sys.argv[1]))\n"
        "print('tensorflow' in sys.modules)\n"
    )
    command = [sys.executable, "-c", script, str(half_plus_two)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_strings_of_every_length_come_and_go(half_plus_two: Path) -> None:
    """Up to 22 bytes lie inside TensorFlow's string, longer ones elsewhere."""
    model = LoadedModel(half_plus_two)
    texts = []
    for length in (0, 1, 21, 22, 23, 24, 1000):
        example = apis.Example()
        example.features.feature["x"].float_list.value.append(float(length))
        example.features.feature["y"].bytes_list.value.append(b"z" * length)
        texts.append(example.SerializeToString())
    outputs = model.run("regress_x_to_y", {"inputs": np.array(texts, object)}, ())
    expected = [length / 2 + 2 for length in (0, 1, 21, 22, 23, 24, 1000)]
    assert outputs["outputs"].ravel().tolist() == expected


def test_kernel_that_fails_gives_its_status(half_plus_two: Path) -> None:
    model = LoadedModel(half_plus_two)
    with pytest.raises(RequestError, match="Could not parse example") as failed:
        model.run("regress_x_to_y", {"inputs": np.array([b"\xff\xfe"], object)}, ())
    assert failed.value.code is Code.INVALID_ARGUMENT


def test_empty_tensors_and_arrays_that_are_not_contiguous(half_plus_two: Path) -> None:
    model = LoadedModel(half_plus_two)
    empty = np.empty([0, 1], np.float32)
    assert model.run("serving_default", {"x": empty}, ())["y"].shape == (0, 1)
    every_second = np.arange(8, dtype=np.float32)[::2]
    outputs = model.run("serving_default", {"x": every_second}, ())
    assert outputs["y"].tolist() == [2.0, 3.0, 4.0, 5.0]


def test_folder_or_tag_that_is_not_there_is_a_status(
    half_plus_two: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as missing:
        Session(tmp_path, ["serve"], b"")
    assert missing.value.code is Code.NOT_FOUND
    with pytest.raises(RequestError, match="gpu"):
        Session(half_plus_two, ["gpu"], b"")


def test_tensor_that_is_not_in_the_graph_is_named(half_plus_two: Path) -> None:
    session = Session(half_plus_two, ["serve"], b"")
    with pytest.raises(RequestError, match="no tensor 'nothing:0'"):
        session.callable(["nothing:0"], ["y:0"], b"")
    with pytest.raises(RequestError, match="no tensor 'y:7'"):
        session.callable(["x:0"], ["y:7"], b"")
    session.close()
    session.close()


def test_model_that_lacks_its_variables_is_refused(
    half_plus_two: Path, tmp_path: Path
) -> None:
    (tmp_path / "saved_model.pb").write_bytes(
        (half_plus_two / "saved_model.pb").read_bytes()
    )
    with pytest.raises(RequestError, match=r"variables/variables.index.* missing"):
        LoadedModel(tmp_path)
