"""Optional parts: what is missing is named, with the lock that installs it."""

from pathlib import Path

import pytest

from pipeline import extras
from pipeline.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


def install(monkeypatch: pytest.MonkeyPatch, *absent: str) -> None:
    """Let everything be installed but these modules."""
    monkeypatch.setattr(
        extras, "find_spec", lambda name: None if name in absent else object()
    )


def refusal(extra: str) -> str:
    with pytest.raises(MissingExtraError) as caught:
        extras.require(extra)
    return str(caught.value)


@pytest.mark.parametrize("extra", extras.EXTRAS)
def test_an_extra_that_is_installed_is_no_error(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    assert extras.missing_modules(extra) == []
    extras.require(extra)


def test_one_missing_module_is_named_with_extra_and_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, "tensorflow", "kfp")
    assert refusal("serving") == (
        "this command needs the extra 'serving', of which tensorflow is not installed; "
        "install the lock: `pip install --no-deps -r requirements/serving.txt` "
        f"({extras.GLIBC_SENTENCE})"
    )


def test_several_missing_modules_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "tfx", "ml_metadata")
    message = refusal("tfx")
    assert "of which tfx, ml_metadata are not installed" in message
    assert "requirements/full.txt" in message


def test_what_another_extra_lacks_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, "tfx", "kfp")
    extras.require_serving()
    with pytest.raises(MissingExtraError, match="'tfx'"):
        extras.require_tfx()


@pytest.mark.parametrize("extra", extras.EXTRAS)
def test_the_lock_of_an_extra_is_checked_in(extra: str) -> None:
    assert (ROOT / "requirements" / f"{extras.LOCKS[extra]}.txt").is_file()


def test_modules_are_found_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "costly.py").write_text("raise RuntimeError('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(extras.EXTRAS, "mine", ("costly", "gone_for_good"))
    assert extras.missing_modules("mine") == ["gone_for_good"]
