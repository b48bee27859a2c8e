"""The processes of a parameter_server run: waits for them, connects, is one of them.

```
chief     trains: says which steps to compute, evaluates, saves, exports
worker    computes steps; may come and go
ps        holds weights and the optimizer's state; when it is gone, so are they
```
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.errors import ModelError
from components.trainer.checkpoints import Progress
from components.trainer.cluster import Cluster
from components.trainer.devices import DevicePlan
from components.trainer.loop import Preempted

log = logging.getLogger(__name__)
CONNECT_LIMIT_S = 600.0
"""What processes that were started together may need to find each other."""
PATIENCE_S = 60.0
"""A chief that is away for longer does not come back."""
POLL_S = 1.0


def answers(address: str) -> bool:
    """Tell whether something listens at `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_S):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class Surroundings:
    """What waiting needs of the world."""

    answers: Callable[[str], bool] = answers
    """Whether something listens at `HOST:PORT`."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_all(
    cluster: Cluster, wants_stop: Callable[[], bool], world: Surroundings
) -> None:
    """Wait until every worker and server of a chief answers.

    Raises:
        ModelError: One does not, for `CONNECT_LIMIT_S`.
        Preempted: It was asked to stop meanwhile.
    """
    jobs = cluster.jobs
    missing = [*jobs["worker"], *jobs["ps"]]
    begun = world.clock()
    while missing := [address for address in missing if not world.answers(address)]:
        if wants_stop():
            raise Preempted(Progress())
        if world.clock() - begun > CONNECT_LIMIT_S:
            raise ModelError(
                f"no answer for {CONNECT_LIMIT_S:.0f} s from {', '.join(missing)}, "
                "which TF_CONFIG lists as workers and parameter servers"
            )
        world.sleep(POLL_S)


def wait_while_needed(chief: str, world: Surroundings) -> None:
    """Return when the chief has gone.

    Raises:
        ModelError: It never came, for `CONNECT_LIMIT_S`.
    """
    was_there, seen_at = False, world.clock()
    while True:
        world.sleep(POLL_S)
        if world.answers(chief):
            was_there, seen_at = True, world.clock()
        away = world.clock() - seen_at
        if was_there and away > PATIENCE_S:
            return
        if away > CONNECT_LIMIT_S:
            raise ModelError(
                f"no answer for {CONNECT_LIMIT_S:.0f} s from {chief}, which TF_CONFIG "
                "lists as the chief"
            )


def connect(
    planned: DevicePlan,
    wants_stop: Callable[[], bool],
    world: Surroundings | None = None,
) -> Any:
    """Return the strategy whose variables lie on the servers; before using a device.

    Raises:
        ModelError: A process of the cluster is not there.
        Preempted: It was asked to stop meanwhile.
    """
    cluster = _cluster(planned)
    wait_for_all(cluster, wants_stop, world or Surroundings())
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.jobs), task_type="chief", task_id=0
    )
    return tf.distribute.ParameterServerStrategy(resolver)


def serve(planned: DevicePlan, world: Surroundings | None = None) -> None:
    """Be a worker or a parameter server until the chief has gone.

    Raises:
        ModelError: It never came.
    """
    cluster = _cluster(planned)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The chief, which is told to stop as well, needs it to save its state.
        signal.signal(number, signal.SIG_IGN)
    job, index = cluster.task
    # One GPU each: with more, one step would run on all of them.
    gpus = tf.compat.v1.GPUOptions(allow_growth=True, visible_device_list="0")
    config = (
        tf.compat.v1.ConfigProto(gpu_options=gpus)
        if planned.device_type == "GPU"
        else tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    )
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.jobs),
        job_name=job,
        task_index=index,
        protocol="grpc",
        config=config,
    )
    address = cluster.jobs[job][index]
    log.info("%s %d serves at %s, process %d", job, index, address, os.getpid())
    wait_while_needed(cluster.addresses[0], world or Surroundings())
    del server  # alive until here


def _cluster(planned: DevicePlan) -> Cluster:
    if planned.cluster is None:
        raise ModelError("a parameter_server run needs a cluster")
    return planned.cluster
