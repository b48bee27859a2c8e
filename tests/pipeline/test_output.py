"""A step's log holds what the step says, not what TFX was asked for."""

import logging
from collections.abc import Iterator

import pytest

from pipeline.runners.output import is_worth_a_line, leave_out_dumps

LAUNCHER = "/lib/site-packages/tfx/orchestration/portable/launcher.py"


@pytest.mark.parametrize(
    ("path", "level", "kept"),
    [
        (LAUNCHER, logging.INFO, False),
        (LAUNCHER, logging.WARNING, True),
        (LAUNCHER, logging.ERROR, True),
        ("/lib/site-packages/tfx/components/evaluator/executor.py", 20, True),
        ("/home/me/components/trainer/process.py", logging.INFO, True),
        ("/home/me/my_orchestration/tfx/model.py", logging.INFO, True),
    ],
)
def test_only_what_tfx_tells_of_its_launching_is_left_out(
    path: str, level: int, *, kept: bool
) -> None:
    record = logging.LogRecord("absl", level, path, 1, "words", None, None)
    assert is_worth_a_line(record) == kept


@pytest.fixture
def absl_logger() -> Iterator[logging.Logger]:
    from absl import logging as _  # noqa: F401  before anybody asks for its logger

    logger = logging.getLogger("absl")
    before = logger.filters[:]
    yield logger
    logger.filters[:] = before


def test_tfxs_own_dump_is_left_out_by_where_it_is_logged(
    absl_logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """What TFX calls is absl.logging, which says from which file it was called."""
    from absl import logging as absl_logging

    source = "logging.info('Running launcher for a\\nlong\\nnode')"
    launcher = compile(source, LAUNCHER, "exec")
    ours = compile("logging.info('ours')", __file__, "exec")
    with caplog.at_level(logging.INFO, "absl"):
        leave_out_dumps()
        exec(launcher, {"logging": absl_logging})
        exec(ours, {"logging": absl_logging})
    assert caplog.messages == ["ours"]
