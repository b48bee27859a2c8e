"""Who takes part in a multi-worker run, and which of them a process is."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ModelError
from components.trainer.cluster import Cluster, find_cluster

WORKERS = ("a:1", "b:2", "c:3")
ADDRESSES = st.lists(
    st.from_regex(r"[a-z][a-z0-9.\-]{0,9}:[0-9]{1,5}", fullmatch=True),
    min_size=1,
    max_size=5,
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    addresses = tuple(draw(ADDRESSES))
    index = draw(st.integers(0, len(addresses) - 1))
    return Cluster(addresses, index, draw(st.booleans()))


@st.composite
def served_clusters(draw: st.DrawFn) -> Cluster:
    chief, *workers = draw(ADDRESSES.filter(lambda found: len(found) > 1))
    servers = tuple(draw(ADDRESSES))
    index = draw(st.integers(0, len(workers) + len(servers)))
    return Cluster((chief, *workers), index, True, servers)


def tf_config(**content: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps(content)}


def refusal(environ: Mapping[str, str], workers: tuple[str, ...] = ()) -> str:
    with pytest.raises(ModelError) as error:
        find_cluster(workers, environ)
    return str(error.value)


@given(clusters())
def test_a_cluster_comes_back_from_its_tf_config(cluster: Cluster) -> None:
    assert find_cluster((), {"TF_CONFIG": cluster.to_tf_config()}) == cluster


@given(clusters())
def test_exactly_the_first_of_a_cluster_is_chief(cluster: Cluster) -> None:
    found = find_cluster((), {"TF_CONFIG": cluster.to_tf_config()})
    assert found is not None
    assert found.is_chief == (cluster.index == 0)


def test_a_process_that_nobody_told_of_others_is_alone() -> None:
    assert (
        find_cluster((), {"HOSTNAME": "train-1", "JOB_COMPLETION_INDEX": "1"}) is None
    )


@pytest.mark.parametrize(
    "text", ["", "  ", "{}", '{"cluster": {}}', '{"cluster": {"ps": ["a:1"]}}']
)
def test_a_tf_config_without_workers_is_that_of_a_single_process(text: str) -> None:
    assert find_cluster((), {"TF_CONFIG": text}) is None


def test_the_chief_comes_before_the_workers() -> None:
    environ = tf_config(
        cluster={"worker": ["w:1", "w:2"], "chief": ["c:0"], "evaluator": ["e:9"]},
        task={"type": "worker", "index": 1},
    )
    assert find_cluster((), environ) == Cluster(("c:0", "w:1", "w:2"), 2, True)


def test_without_a_chief_worker_0_is_chief() -> None:
    environ = tf_config(
        cluster={"worker": ["w:1", "w:2"]}, task={"type": "worker", "index": 0}
    )
    found = find_cluster((), environ)
    assert found == Cluster(("w:1", "w:2"), 0)
    assert found.is_chief


def test_tf_config_wins_over_the_setting() -> None:
    environ = tf_config(
        cluster={"worker": ["w:1"]}, task={"type": "worker", "index": 0}
    )
    assert find_cluster(WORKERS, environ) == Cluster(("w:1",), 0)


def test_the_index_of_an_indexed_job_wins_over_the_host_name() -> None:
    environ = {"JOB_COMPLETION_INDEX": "2", "HOSTNAME": "train-0"}
    assert find_cluster(WORKERS, environ) == Cluster(WORKERS, 2)


def test_the_number_at_the_end_of_a_stateful_sets_host_name_is_the_index() -> None:
    assert find_cluster(WORKERS, {"HOSTNAME": "job-7-train-1"}) == Cluster(WORKERS, 1)


@pytest.mark.parametrize("host", ["train", "train-1-x", "", "train1"])
def test_workers_without_an_index_are_refused(host: str) -> None:
    assert refusal({"HOSTNAME": host}, WORKERS) == (
        "trainer.workers is set, but nothing says which worker this is: set "
        "TF_CONFIG, JOB_COMPLETION_INDEX, or a HOSTNAME that ends in -NUMBER"
    )


@pytest.mark.parametrize("text", ["3", "-1", "one", "", "²"])
def test_an_index_outside_the_workers_is_refused(text: str) -> None:
    assert refusal({"JOB_COMPLETION_INDEX": text}, WORKERS) == (
        f"JOB_COMPLETION_INDEX: got {text}, allowed: 0 to 2, "
        "for trainer.workers has 3 entries"
    )


def test_an_ordinal_outside_the_workers_names_the_host_name() -> None:
    assert refusal({"HOSTNAME": "train-12"}, WORKERS) == (
        "HOSTNAME: got 12, allowed: 0 to 2, for trainer.workers has 3 entries"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes: "),
        ("[1]", "is a list, allowed: an object"),
        ('"x"', "is a str, allowed: an object"),
        ('{"cluster": ["a:1"]}', "cluster: allowed: an object of lists of HOST:PORT"),
        (
            '{"cluster": {"worker": "a:1"}}',
            "cluster: allowed: an object of lists of HOST:PORT",
        ),
        (
            '{"cluster": {"worker": [1]}}',
            "cluster: allowed: an object of lists of HOST:PORT",
        ),
        (
            '{"cluster": {"chief": ["a:1", "b:1"]}}',
            "cluster.chief: got 2, allowed: one",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": "worker"}',
            "task: got a str, allowed: an object of type and index",
        ),
    ],
)
def test_a_malformed_tf_config_is_refused_with_what_is_allowed(
    text: str, sentence: str
) -> None:
    assert refusal({"TF_CONFIG": text}).startswith(f"TF_CONFIG {sentence}")


@pytest.mark.parametrize("kind", ["ps", "evaluator", None, 3])
def test_a_task_that_does_not_train_is_refused(kind: object) -> None:
    environ = tf_config(
        cluster={"worker": ["a:1"], "ps": ["p:1"]}, task={"type": kind, "index": 0}
    )
    assert refusal(environ) == (
        f'TF_CONFIG task.type: got {json.dumps(kind)}, allowed: "chief", "worker"; '
        "parameter servers and evaluators take no part in a multi_worker run"
    )


def test_a_tf_config_without_a_task_is_refused() -> None:
    environ = tf_config(cluster={"worker": ["a:1"]})
    assert refusal(environ).startswith("TF_CONFIG task.type: got null, allowed: ")


@pytest.mark.parametrize("index", [2, -1, "0", None, 0.0])
def test_a_task_index_that_the_cluster_does_not_list_is_refused(index: object) -> None:
    environ = tf_config(
        cluster={"worker": ["a:1", "b:1"]}, task={"type": "worker", "index": index}
    )
    assert refusal(environ) == (
        f"TF_CONFIG task.index: got {json.dumps(index)} for a worker, allowed: 0 to 1"
    )


def test_a_task_of_a_kind_that_the_cluster_does_not_list_is_refused() -> None:
    environ = tf_config(cluster={"worker": ["a:1"]}, task={"type": "chief", "index": 0})
    assert refusal(environ) == (
        "TF_CONFIG task.index: got 0 for a chief, allowed: none, for it lists no such"
    )


SERVED = {"chief": ["c:0"], "worker": ["w:1", "w:2"], "ps": ["p:1", "p:2"]}


@given(served_clusters())
def test_a_cluster_with_servers_comes_back_from_its_tf_config(cluster: Cluster) -> None:
    environ = {"TF_CONFIG": cluster.to_tf_config()}
    assert find_cluster((), environ, served=True) == cluster


@pytest.mark.parametrize(
    ("task", "index"), [(("chief", 0), 0), (("worker", 1), 2), (("ps", 1), 4)]
)
def test_servers_are_counted_behind_the_workers(
    task: tuple[str, int], index: int
) -> None:
    environ = tf_config(cluster=SERVED, task={"type": task[0], "index": task[1]})
    found = find_cluster((), environ, served=True)
    assert found == Cluster(("c:0", "w:1", "w:2"), index, True, ("p:1", "p:2"))
    assert found.task == task
    assert found.jobs == SERVED


def test_servers_take_no_part_where_workers_hold_the_weights() -> None:
    environ = tf_config(cluster=SERVED, task={"type": "worker", "index": 0})
    assert find_cluster((), environ) == Cluster(("c:0", "w:1", "w:2"), 1, True)


@pytest.mark.parametrize(
    ("kind", "wanted"), [("chief", "one"), ("worker", "some"), ("ps", "some")]
)
def test_a_run_with_servers_that_lacks_somebody_is_refused(
    kind: str, wanted: str
) -> None:
    present = {job: hosts for job, hosts in SERVED.items() if job != kind}
    task = {"type": "worker", "index": 0}
    with pytest.raises(ModelError) as error:
        find_cluster((), tf_config(cluster=present, task=task), served=True)
    assert str(error.value) == (
        f"TF_CONFIG cluster.{kind}: got none, allowed with trainer.strategy "
        f"parameter_server: {wanted}"
    )


@pytest.mark.parametrize("kind", ["evaluator", None, ["ps"]])
def test_a_run_with_servers_has_no_evaluator(kind: object) -> None:
    environ = tf_config(cluster=SERVED, task={"type": kind, "index": 0})
    with pytest.raises(ModelError) as error:
        find_cluster((), environ, served=True)
    assert str(error.value) == (
        f'TF_CONFIG task.type: got {json.dumps(kind)}, allowed: "chief", "worker", '
        '"ps"; the chief of a parameter_server run evaluates'
    )
