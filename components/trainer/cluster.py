"""Who takes part in a run of several processes, read from what the platform says.

Three sources, the first that is there wins: `TF_CONFIG` (the training operator of
Kubeflow sets it), the setting `trainer.workers` with the index that Kubernetes gives
a pod (`JOB_COMPLETION_INDEX` of an indexed Job, else the number at the end of a
StatefulSet's `HOSTNAME`), or nothing: one process. Parameter servers are named by
`TF_CONFIG` alone.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.errors import ModelError

TF_CONFIG = "TF_CONFIG"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
TASK_TYPES = ("chief", "worker")
SERVED_TASK_TYPES = ("chief", "worker", "ps")
"""Those of a parameter_server run."""


@dataclass(frozen=True)
class Cluster:
    """The processes of a run, and which of them this one is."""

    addresses: tuple[str, ...]
    """`HOST:PORT`, the chief first."""
    index: int
    """Place of this process in `addresses`, servers counted behind them."""
    has_chief: bool = False
    """Whether the first is called `chief` rather than `worker` 0."""
    servers: tuple[str, ...] = ()
    """`HOST:PORT` of parameter servers; none where workers hold the weights."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, the summary and the model."""
        return self.index == 0

    @property
    def jobs(self) -> dict[str, list[str]]:
        """Addresses by what TensorFlow calls their job."""
        count = int(self.has_chief)
        jobs = {
            "worker": self.addresses[count:],
            "chief": self.addresses[:count],
            "ps": self.servers,
        }
        return {job: list(addresses) for job, addresses in jobs.items() if addresses}

    @property
    def task(self) -> tuple[str, int]:
        """Job of this process, and its number among those of the job."""
        if self.index >= len(self.addresses):
            return "ps", self.index - len(self.addresses)
        if self.has_chief and self.index == 0:
            return "chief", 0
        return "worker", self.index - int(self.has_chief)

    def to_tf_config(self) -> str:
        """Return the value of TF_CONFIG that TensorFlow reads."""
        kind, index = self.task
        task = {"type": kind, "index": index}
        return json.dumps({"cluster": self.jobs, "task": task})


def find_cluster(
    workers: Sequence[str], environ: Mapping[str, str], *, served: bool = False
) -> Cluster | None:
    """Return the cluster that this process belongs to; None when it is alone.

    Args:
        workers: The setting `trainer.workers`.
        environ: The process's environment.
        served: The run's weights lie on parameter servers.

    Raises:
        ModelError: TF_CONFIG is unusable, or no variable says which worker this is.
    """
    text = environ.get(TF_CONFIG, "").strip()
    if text:
        return _from_tf_config(text, served=served)
    if not workers:
        return None
    return Cluster(tuple(workers), _index(workers, environ))


def _from_tf_config(text: str, *, served: bool) -> Cluster | None:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refusal(f"is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise _refusal(f"is a {type(content).__name__}, allowed: an object")
    cluster = _addresses(content)
    if cluster is None:
        return None
    task = content.get("task") or {}
    if not isinstance(task, dict):
        raise _refusal(
            f"task: got a {type(task).__name__}, allowed: an object of type and index"
        )
    kind, index = task.get("type"), task.get("index")
    allowed_kinds = SERVED_TASK_TYPES if served else TASK_TYPES
    if not isinstance(kind, str) or kind not in allowed_kinds:
        raise _unknown_task(kind, served=served)
    if served:
        _check_jobs(cluster)
    tasks = cluster.get(kind, [])
    if not isinstance(index, int) or not 0 <= index < len(tasks):
        allowed = f"0 to {len(tasks) - 1}" if tasks else "none, for it lists no such"
        raise _refusal(
            f"task.index: got {json.dumps(index)} for a {kind}, allowed: {allowed}"
        )
    chiefs, servers = cluster.get("chief", []), cluster.get("ps", [])
    computing = (*chiefs, *cluster.get("worker", []))
    first = {"chief": 0, "worker": len(chiefs), "ps": len(computing)}[kind]
    return Cluster(
        computing, first + index, bool(chiefs), tuple(servers) if served else ()
    )


def _unknown_task(kind: object, *, served: bool) -> ModelError:
    got = f"task.type: got {json.dumps(kind)}"
    if served:
        return _refusal(
            f'{got}, allowed: "chief", "worker", "ps"; the chief of a '
            "parameter_server run evaluates"
        )
    return _refusal(
        f'{got}, allowed: "chief", "worker"; parameter '
        "servers and evaluators take no part in a multi_worker run"
    )


def _check_jobs(cluster: Mapping[str, Sequence[str]]) -> None:
    """Refuse a parameter_server run that lacks somebody."""
    for kind, wanted in (("chief", "one"), ("worker", "some"), ("ps", "some")):
        if not cluster.get(kind):
            raise _refusal(
                f"cluster.{kind}: got none, allowed with trainer.strategy "
                f"parameter_server: {wanted}"
            )


def _addresses(content: Mapping[str, Any]) -> dict[str, list[str]] | None:
    cluster = content.get("cluster") or {}
    if not isinstance(cluster, dict) or not all(
        isinstance(value, list) and all(isinstance(item, str) for item in value)
        for value in cluster.values()
    ):
        raise _refusal("cluster: allowed: an object of lists of HOST:PORT")
    if len(cluster.get("chief", [])) > 1:
        raise _refusal(f"cluster.chief: got {len(cluster['chief'])}, allowed: one")
    return cluster if any(cluster.get(kind) for kind in TASK_TYPES) else None


def _index(workers: Sequence[str], environ: Mapping[str, str]) -> int:
    text, source = environ.get(INDEX_VARIABLE), INDEX_VARIABLE
    if text is None:
        source = "HOSTNAME"
        ordinal = re.search(r"-(\d+)$", environ.get("HOSTNAME", ""))
        text = ordinal[1] if ordinal else None
    if text is None:
        raise ModelError(
            "trainer.workers is set, but nothing says which worker this is: set "
            f"TF_CONFIG, {INDEX_VARIABLE}, or a HOSTNAME that ends in -NUMBER"
        )
    if not text.isdecimal() or int(text) >= len(workers):
        raise ModelError(
            f"{source}: got {text}, allowed: 0 to {len(workers) - 1}, "
            f"for trainer.workers has {len(workers)} entries"
        )
    return int(text)


def _refusal(reason: str) -> ModelError:
    return ModelError(f"{TF_CONFIG} {reason}")
