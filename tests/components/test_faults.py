"""The sentence for whatever user code or TensorFlow raise."""

from pathlib import Path

import pytest

from components.faults import reason, sentence

GRAPH_ERROR = """Graph execution error:

Detected at node wide/truediv defined at (most recent call last):
  File "model.py", line 63, in call

OOM when allocating tensor with shape[1024,16384]
\t [[{{node wide/truediv}}]]
Hint: If you want to see a list of allocated tensors"""
TWO_ERRORS = """2 root error(s) found.
  (0) UNKNOWN:  ValueError: no such city
  (1) CANCELLED: Function was cancelled"""
KERAS_ERROR = (
    "Exception encountered when calling Wide.call().\n\n"
    "\x1b[1munsupported operand\x1b[0m\n\nArguments received by Wide.call():"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no such file", "no such file"),
        ("first\nsecond", "first"),
        ("", ""),
        ("Hint", "Hint"),
        (GRAPH_ERROR, "OOM when allocating tensor with shape[1024,16384]"),
        (TWO_ERRORS, "UNKNOWN:  ValueError: no such city"),
        (KERAS_ERROR, "unsupported operand"),
    ],
    ids=["plain", "lines", "nothing", "hint only", "graph", "two errors", "Keras"],
)
def test_the_line_that_says_why_is_found(text: str, said: str) -> None:
    assert reason(RuntimeError(text)) == said


def test_an_error_in_the_projects_code_names_file_line_and_function(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def build():\n    raise KeyError('x')\n")
    scope: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    with pytest.raises(KeyError) as caught:
        scope["build"]()
    assert sentence(caught.value, tmp_path) == "KeyError: 'x' (mine.py:2 in build)"
    assert sentence(caught.value, tmp_path / "other") == "KeyError: 'x'"
