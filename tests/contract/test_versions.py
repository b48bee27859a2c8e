"""Versions come and go, labels move, configs are reloaded, loads fail."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from contract_server import (
    MODELS,
    TIMEOUT_S,
    Contracted,
    StatusError,
    config,
    publish,
    running,
    until,
)

HALF = MODELS / "half_plus_two" / "00000123"
THREE = MODELS / "half_plus_three" / "00000123"
QUICK = "--file_system_poll_wait_seconds=1"
NO_RETRY = "--max_num_load_retries=0"
Start = Callable[..., Contracted]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *flags, **options: stack.enter_context(
            running(tmp_path / "log", *flags, NO_RETRY, **options)
        )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    publish(HALF, tmp_path / "m", 1)
    return tmp_path / "m"


def single(base: Path) -> tuple[str, str]:
    return "--model_name=m", f"--model_base_path={base}"


def answer(server: Contracted, **spec: Any) -> float:
    return float(server.predict("m", {"x": [2.0]}, **spec)["y"][0])


def labels(**versions: int) -> str:
    return " ".join(
        f'version_labels {{ key: "{label}" value: {version} }}'
        for label, version in versions.items()
    )


def test_new_version_replaces_the_old_one(start: Start, base: Path) -> None:
    server = start(*single(base))
    assert answer(server) == 3.0
    publish(THREE, base, 2)
    until(lambda: server.states("m") == {2: "AVAILABLE", 1: "END"})
    assert answer(server) == 4.0
    with pytest.raises(StatusError, match=r"Specific\(m, 1\)"):
        answer(server, version=1)


def test_names_that_are_no_versions_are_ignored(start: Start, base: Path) -> None:
    for name in ("v7", "0.1", "9.tmp", "9999999999999999999", "-3"):
        (base / name).mkdir()
    publish(THREE, base, 2)
    (base / "2").rename(base / "00000002")
    assert start(*single(base)).states("m") == {2: "AVAILABLE"}


def test_failed_load_keeps_the_old_version_and_is_visible(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    (base / "2").mkdir()
    (base / "2" / "saved_model.pb").write_bytes(b"nonsense")
    until(lambda: server.states("m").get(2) == "END")
    assert answer(server) == 3.0
    [entry] = server.status("m", 2).model_version_status
    assert entry.status.error_code != 0
    assert entry.status.error_message


@pytest.mark.improves("whole")
@pytest.mark.parametrize("missing", ["saved_model.pb", "variables/variables.index"])
def test_version_that_lacks_files_is_not_served(
    start: Start, base: Path, missing: str
) -> None:
    server = start(*single(base))
    publish(HALF, base, 3)
    until(lambda: server.states("m").get(3) == "AVAILABLE")
    publish(HALF, base.parent / "aside", 4)
    (base.parent / "aside" / "4" / missing).unlink()
    (base.parent / "aside" / "4").rename(base / "4")
    publish(THREE, base, 2)
    if missing != "saved_model.pb":
        until(lambda: server.states("m").get(4) == "END")
        assert (
            missing
            in server.status("m", 4).model_version_status[0].status.error_message
        )
    assert answer(server) == 3.0


@pytest.mark.improves("mended")
def test_version_that_is_mended_is_served(start: Start, base: Path) -> None:
    server = start(*single(base))
    (base / "2").mkdir()
    (base / "2" / "saved_model.pb").write_bytes(b"nonsense")
    until(lambda: server.states("m").get(2) == "END")
    (base / "2" / "saved_model.pb").unlink()
    (base / "2").rmdir()
    publish(THREE, base, 2)
    until(lambda: server.states("m").get(2) == "AVAILABLE")


def test_empty_base_path_unloads_and_a_missing_one_does_not(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    base.rename(base.with_name("away"))
    other = base.with_name("other")
    publish(THREE, other, 1)
    assert server.reload(config(("m", base, ""), ("other", other, "")))[0] == "OK"
    assert answer(server) == 3.0
    base.mkdir()
    until(lambda: server.states("m") == {1: "END"})


def test_policies(start: Start, base: Path) -> None:
    publish(HALF, base, 2)
    publish(HALF, base, 3)
    server = start(*single(base))
    policy = "model_version_policy {{ {} }}".format
    for text, versions in (
        ("all {}", {1, 2, 3}),
        ("latest { num_versions: 2 }", {2, 3}),
        ("specific { versions: 1 versions: 2 }", {1, 2}),
        ("specific { versions: 1 versions: 9 }", {1}),
        ("latest {}", {3}),
    ):
        assert server.reload(config(("m", base, policy(text)))) == ("OK", "")

        def are_served(wanted: set[int] = versions) -> bool:
            states = server.states("m")
            return {v for v, s in states.items() if s == "AVAILABLE"} == wanted

        until(are_served)


def test_reload_adds_models_and_takes_away_those_it_leaves_out(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    other = base.with_name("other")
    publish(THREE, other, 1)
    assert server.reload(config(("m", base, ""), ("other", other, ""))) == ("OK", "")
    assert server.predict("other", {"x": [2.0]})["y"].tolist() == [4.0]
    assert server.reload(config(("other", other, ""))) == ("OK", "")

    def is_gone() -> bool:
        try:
            answer(server)
        except StatusError as error:
            return error.code == "NOT_FOUND"
        return False

    until(is_gone)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "INVALID_ARGUMENT"),
        (config(("m", Path("relative"), "")), "INVALID_ARGUMENT"),
        (
            config(("m", Path("/models/m"), ""), ("m", Path("/models/m"), "")),
            "INVALID_ARGUMENT",
        ),
        (
            'model_config_list { config { name: "m" base_path: "/models/m" } }',
            "INVALID_ARGUMENT",
        ),
        (
            'model_config_list { config { name: "m" base_path: "/models/m"  model_platform: "caffe" } }',
            "FAILED_PRECONDITION",
        ),
    ],
    ids=["empty", "relative", "twice", "no platform", "other platform"],
)
def test_configs_that_are_refused_change_nothing(
    start: Start, base: Path, text: str, code: str
) -> None:
    server = start(*single(base))
    got, message = server.reload(text)
    assert got == code
    assert message
    assert answer(server) == 3.0


def test_bad_model_then_a_good_one_each_within_its_deadline(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    bad, good = base.with_name("bad"), base.with_name("good")
    (bad / "1").mkdir(parents=True)
    (bad / "1" / "saved_model.pb").write_bytes(b"nonsense")
    publish(THREE, good, 1)
    code, _ = server.reload(config(("m", base, ""), ("bad", bad, "")), timeout_s=20)
    assert code != "OK"
    assert server.reload(config(("m", base, ""), ("good", good, "")))[0] == "OK"
    assert server.predict("good", {"x": [2.0]})["y"].tolist() == [4.0]
    assert answer(server) == 3.0


ALL = "model_version_policy { all {} } "


def test_labels_are_assigned_moved_and_taken_away(start: Start, base: Path) -> None:
    publish(THREE, base, 2)
    server = start(*single(base))
    assert server.reload(config(("m", base, ALL))) == ("OK", "")
    until(lambda: server.states("m") == {1: "AVAILABLE", 2: "AVAILABLE"})
    both = config(("m", base, ALL + labels(stable=1, canary=2)))
    assert server.reload(both) == ("OK", "")
    assert (answer(server, label="stable"), answer(server, label="canary")) == (
        3.0,
        4.0,
    )
    moved = config(("m", base, ALL + labels(stable=2)))
    assert server.reload(moved) == ("OK", "")
    assert answer(server, label="stable") == 4.0
    with pytest.raises(
        StatusError, match="Unrecognized servable version label: canary"
    ):
        answer(server, label="canary")


def test_label_of_a_version_that_is_not_there_is_refused(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    assert server.reload(config(("m", base, labels(stable=1)))) == ("OK", "")
    code, message = server.reload(config(("m", base, labels(stable=1, canary=99))))
    assert code == "FAILED_PRECONDITION"
    assert (
        "Request to assign label to version 99 of model m, which is not currently "
        "available for inference" in message
    )
    assert answer(server, label="stable") == 3.0


@pytest.mark.improves("old labels")
def test_reload_with_a_bad_label_keeps_versions_and_routing(
    start: Start, base: Path
) -> None:
    publish(THREE, base, 2)
    server = start(*single(base))
    assert server.reload(config(("m", base, ALL + labels(stable=1))))[0] == "OK"
    only_2 = "model_version_policy { specific { versions: 2 } } "
    code, _ = server.reload(config(("m", base, only_2 + labels(stable=99))))
    assert code == "FAILED_PRECONDITION"
    assert answer(server, label="stable") == 3.0


@pytest.mark.improves("label and load")
def test_label_may_come_with_the_version_that_it_names(
    start: Start, base: Path
) -> None:
    server = start(*single(base))
    publish(THREE, base, 2)
    text = config(("m", base, ALL + labels(stable=1, canary=2)))
    assert server.reload(text) == ("OK", "")
    assert answer(server, label="canary") == 4.0


def test_label_of_a_version_that_is_not_there_ends_the_start(
    start: Start, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, labels(canary=99))))
    server = start(f"--model_config_file={file}", waits=False)
    assert server.process.wait(60) != 0
    assert "Request to assign label to version 99 of model m" in server.log.read_text()


def test_new_labels_may_be_early_with_the_flag(start: Start, base: Path) -> None:
    server = start(*single(base), "--allow_version_labels_for_unavailable_models=true")
    assert server.reload(config(("m", base, labels(next=2)))) == ("OK", "")
    with pytest.raises(StatusError) as refused:
        answer(server, label="next")
    assert refused.value.code == "NOT_FOUND"
    publish(THREE, base, 2)
    until(lambda: server.states("m").get(2) == "AVAILABLE")
    assert answer(server, label="next") == 4.0
    code, _ = server.reload(config(("m", base, labels(next=7))))
    assert code == "FAILED_PRECONDITION"


def test_config_file_is_read_again(start: Start, base: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, "")))
    server = start(
        f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1"
    )
    other = base.with_name("other")
    publish(THREE, other, 1)
    file.write_text("nonsense {")
    file.write_text(config(("m", base, ""), ("other", other, "")))

    def has_other() -> bool:
        try:
            return server.states("other") == {1: "AVAILABLE"}
        except StatusError:
            return False

    until(has_other)


ALL = "model_version_policy { all {} } "
BOTH = {1: "AVAILABLE", 2: "AVAILABLE"}
POLL = "--model_config_file_poll_wait_seconds=1"


@pytest.mark.improves("newest config")
def test_config_file_that_waits_for_a_model_can_be_corrected(
    start: Start, base: Path, tmp_path: Path
) -> None:
    publish(THREE, base, 2)
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, "")))
    server = start(f"--model_config_file={file}", POLL)
    assert server.states("m") == {2: "AVAILABLE"}
    file.write_text(config(("m", base, ALL), ("n", tmp_path / "missing", "")))
    until(lambda: server.states("m") == BOTH)  # it was read, and waits for n
    file.write_text(config(("m", base, ALL + labels(stable=1))))
    until(lambda: answers_to(server, "stable"))


def answers_to(server: Contracted, label: str) -> bool:
    try:
        return answer(server, label=label) == 3.0
    except StatusError:
        return False


@pytest.mark.improves("stop")
def test_sigterm_ends_a_server_that_waits_for_a_model_of_its_file(
    start: Start, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, "")))
    server = start(f"--model_config_file={file}", POLL)
    file.write_text(config(("m", base, ""), ("n", tmp_path / "missing", "")))
    threading.Event().wait(2.5)
    started = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - started < TIMEOUT_S


def test_what_the_file_says_holds_whoever_said_otherwise(
    start: Start, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, labels(stable=1))))
    server = start(f"--model_config_file={file}", POLL)
    assert server.reload(config(("m", base, ""))) == ("OK", "")
    until(lambda: answers_to(server, "stable"))


@pytest.mark.improves("newest config")
def test_newer_config_holds_and_the_older_one_that_waits_does_not_undo_it(
    start: Start, base: Path, tmp_path: Path
) -> None:
    publish(THREE, base, 2)
    server = start(*single(base), "--allow_version_labels_for_unavailable_models=false")
    older = config(("m", base, ALL + labels(stable=1)), ("z", tmp_path / "missing", ""))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.reload, older, 20.0)
        until(lambda: server.states("m") == BOTH)  # it was taken, and waits for z
        newer = config(("m", base, ALL + labels(stable=2)))
        assert server.reload(newer, 20.0) == ("OK", "")
        code, _ = waiting.result()
    assert code != "OK"
    assert answer(server, label="stable") == 4.0


def test_model_that_cannot_be_loaded_ends_the_start(start: Start, base: Path) -> None:
    (base / "1" / "saved_model.pb").write_bytes(b"nonsense")
    server = start(*single(base), waits=False)
    assert server.process.wait(60) != 0


def test_server_without_versions_opens_no_port_and_waits(
    start: Start, base: Path
) -> None:
    base.rename(base.with_name("away"))
    server = start(*single(base), waits=False)
    with pytest.raises(AssertionError):
        until_listening(server, tries=20)
    base.with_name("away").rename(base)
    until(lambda: is_listening(server))
    assert answer(server) == 3.0


def is_listening(server: Contracted) -> bool:
    from contract_server import listens

    return listens(server)


def until_listening(server: Contracted, tries: int) -> None:
    import threading

    pause = threading.Event()
    for _ in range(tries):
        if is_listening(server):
            return
        pause.wait(0.1)
    raise AssertionError("no port is open")


def test_start_and_stop_with_sigterm(start: Start, base: Path) -> None:
    server = start(*single(base))
    assert answer(server) == 3.0
    assert server.stop() in {0, -15, 143}
