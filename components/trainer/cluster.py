"""Who takes part in a multi-worker run, read from what the platform says.

Three sources, the first that is there wins: `TF_CONFIG` (the training operator of
Kubeflow sets it), the setting `trainer.workers` with the index that Kubernetes gives
a pod (`JOB_COMPLETION_INDEX` of an indexed Job, else the number at the end of a
StatefulSet's `HOSTNAME`), or nothing: one process.
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


@dataclass(frozen=True)
class Cluster:
    """The workers of a run, and which of them this process is."""

    addresses: tuple[str, ...]
    """`HOST:PORT`, the chief first."""
    index: int
    """Place of this process in `addresses`."""
    has_chief: bool = False
    """Whether the first is called `chief` rather than `worker` 0."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, the summary and the model."""
        return self.index == 0

    def to_tf_config(self) -> str:
        """Return the value of TF_CONFIG that TensorFlow reads."""
        chiefs = self.addresses[: int(self.has_chief)]
        workers = self.addresses[int(self.has_chief) :]
        cluster = {"worker": list(workers)}
        if chiefs:
            cluster["chief"] = list(chiefs)
        chief = self.has_chief and self.index == 0
        task = {
            "type": "chief" if chief else "worker",
            "index": 0 if chief else self.index - len(chiefs),
        }
        return json.dumps({"cluster": cluster, "task": task})


def find_cluster(workers: Sequence[str], environ: Mapping[str, str]) -> Cluster | None:
    """Return the cluster that this process belongs to; None when it is alone.

    Args:
        workers: The setting `trainer.workers`.
        environ: The process's environment.

    Raises:
        ModelError: TF_CONFIG is unusable, or no variable says which worker this is.
    """
    text = environ.get(TF_CONFIG, "").strip()
    if text:
        return _from_tf_config(text)
    if not workers:
        return None
    return Cluster(tuple(workers), _index(workers, environ))


def _from_tf_config(text: str) -> Cluster | None:
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
    kind, index = task.get("type"), task.get("index")
    if kind not in TASK_TYPES:
        raise _refusal(
            f'task.type: got {json.dumps(kind)}, allowed: "chief", "worker"; parameter '
            "servers and evaluators take no part in a multi_worker run"
        )
    tasks = cluster.get(kind, [])
    if not isinstance(index, int) or not 0 <= index < len(tasks):
        allowed = f"0 to {len(tasks) - 1}" if tasks else "none, for it lists no such"
        raise _refusal(
            f"task.index: got {json.dumps(index)} for a {kind}, allowed: {allowed}"
        )
    chiefs = cluster.get("chief", [])
    place = index if kind == "chief" else len(chiefs) + index
    return Cluster((*chiefs, *cluster.get("worker", [])), place, bool(chiefs))


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
    if not text.isdigit() or int(text) >= len(workers):
        raise ModelError(
            f"{source}: got {text}, allowed: 0 to {len(workers) - 1}, "
            f"for trainer.workers has {len(workers)} entries"
        )
    return int(text)


def _refusal(reason: str) -> ModelError:
    return ModelError(f"{TF_CONFIG} {reason}")
