"""TFRecord files as TensorFlow writes and reads them."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import tfrecord


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_what_is_written_is_read(records: list[bytes]) -> None:
    content = b"".join(map(tfrecord.encode, records))
    assert list(tfrecord.read(io.BytesIO(content))) == records


@given(st.binary(min_size=1, max_size=40), st.data())
def test_every_damage_is_found(record: bytes, data: st.DataObject) -> None:
    content = bytearray(tfrecord.encode(record))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(tfrecord.RecordError, match="at 0"):
        list(tfrecord.read(io.BytesIO(bytes(content))))


@given(st.binary(min_size=1, max_size=40), st.data())
def test_every_cut_is_found(record: bytes, data: st.DataObject) -> None:
    content = tfrecord.encode(record)
    kept = data.draw(st.integers(1, len(content) - 1))
    with pytest.raises(tfrecord.RecordError, match="truncated record at 0"):
        list(tfrecord.read(io.BytesIO(content[:kept])))


@pytest.mark.integration
def test_tensorflow_reads_what_we_write(tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(tfrecord.encode(b"one") + tfrecord.encode(b""))
    script = (
        "import sys, tensorflow as tf\n"
        "print([r.numpy() for r in tf.data.TFRecordDataset(sys.argv[1])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[b'one', b'']"
