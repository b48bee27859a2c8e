"""Settings of the Trainer."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from serving.settings import Settings

TABLE_FILE = "assets.extra/taxiway_features.json"
"""Where an exported model keeps the feature table that it was made from."""
RECORD_FILE = "assets.extra/taxiway_training.json"
"""Where an exported model keeps the record of how it was trained."""
PROGRESS_VARIABLE = "TAXIWAY_PROGRESS_FILE"
"""Environment: where one line about the progress is kept."""
KEY_VARIABLE = "TAXIWAY_STEP_KEY"
"""Environment: what the runner's cache knows this step by, user code included."""

Positive = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


class InputSettings(Settings):
    """How training reads the transformed examples."""

    cache: Literal["auto", "memory", "disk", "none"] = "auto"
    """Where parsed examples are kept; `auto` picks by their size and what is free."""
    shuffle_buffer: Positive = 100_000
    """Examples that are mixed at a time where nothing is cached; else all are."""
    service: str | None = None
    """Read through tf.data service: `grpc://HOST:PORT` of its dispatcher."""


class CheckpointSettings(Settings):
    """When training saves its state, and which states are kept."""

    every_s: PositiveFloat = 60.0
    """Seconds between two checkpoints."""
    every_steps: Positive | None = None
    """Save also each time that so many steps were done."""
    keep: Positive = 2
    """How many of the newest are kept while training; the best one always is."""
    export: Literal["last", "best"] = "last"
    """Which weights become the model; with early stopping always the best."""


class TensorBoardSettings(Settings):
    """What is written for TensorBoard."""

    enabled: bool = True
    """Write scalars and the graph."""
    histograms: bool = False
    """Write histograms of weights and gradients after each epoch."""
    profile_steps: tuple[Positive, Positive] | None = None
    """First and last step of a profile."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.profile_steps and self.profile_steps[0] >= self.profile_steps[1]:
            first, last = self.profile_steps
            raise ValueError(
                f"profile_steps: got {first} and {last}, allowed: a first step below "
                "the last"
            )
        return self


class TrainerSettings(Settings):
    """How the model is built and trained."""

    model: str | None = None
    """Dotted path of your `build_model(inputs)`; wide-and-deep when left out."""
    hidden_units: tuple[Positive, ...] = (64, 32)
    """Sizes of the deep part's layers."""
    embedding_dim: Positive | None = None
    """Size of each embedding; grows with the vocabulary when left out."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of units dropped after each hidden layer while training."""
    learning_rate: PositiveFloat = 1e-3
    """Step size of Adam."""
    batch_size: Positive = 512
    """Examples for each change of the weights, over all replicas."""
    accumulation_steps: Positive = 1
    """Micro-batches that a replica goes through for one change of the weights."""
    last_batch: Literal["pad", "drop"] = "pad"
    """An incomplete last batch is filled up with rows of weight 0, or left out."""
    epochs: Positive = 2
    """How often training reads the train split."""
    early_stopping_patience: Annotated[int, Field(ge=0)] = 0
    """Stop after this many epochs without a lower eval loss; 0 never stops early."""
    seed: int = 1
    """Seed of the weights and of the order of examples."""
    clip_norm: PositiveFloat | None = None
    """Scale gradients down to this global norm."""
    ema_momentum: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Judge and export a moving average of the weights with this momentum."""
    strategy: Literal[
        "auto", "one_device", "mirrored", "multi_worker", "parameter_server", "tpu"
    ] = "auto"
    """How training spreads over devices; `auto` picks by what is there."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Devices to train on; `gpu` refuses to run without one."""
    cpu_devices: Positive | None = None
    """Split the CPU into so many logical devices, to try a mirrored run without GPUs."""
    workers: tuple[str, ...] = ()
    """`HOST:PORT` of each worker of a multi_worker run, where TF_CONFIG is not set."""
    num_local_workers: Positive | None = None
    """So many workers of a multi_worker or parameter_server run on this machine."""
    num_local_servers: Positive | None = None
    """So many parameter servers on this machine, beside num_local_workers."""
    all_reduce: Literal["auto", "nccl", "ring"] = "auto"
    """How replicas add up their gradients."""
    precision: Literal["auto", "float32", "tf32", "mixed_float16", "mixed_bfloat16"] = (
        "auto"
    )
    """Numbers to compute in, `auto` by the GPU; weights, outputs and losses are always float32."""
    xla: Literal["auto", "on", "off"] = "auto"
    """Compile forward and backward with XLA; `auto` does so on GPUs where it can."""
    steps_per_execution: Positive | None = None
    """Steps run without going back to Python; picked by the size of a batch."""
    deterministic: bool = False
    """Make every operation deterministic: slower, but equal bit by bit when repeated."""
    nan_policy: Literal["stop", "skip"] = "stop"
    """What a loss or gradient that is not finite does: end training, or skip its batch."""
    memory_retries: Annotated[int, Field(ge=0)] = 4
    """How often a run that is out of memory goes on with half the micro-batch."""
    input: InputSettings = InputSettings()
    """How training reads the transformed examples."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """When training saves its state, and which states are kept."""
    tensorboard: TensorBoardSettings = TensorBoardSettings()
    """What is written for TensorBoard."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for address in self.workers:
            if not re.fullmatch(r"\[?[A-Za-z0-9_.:\-]+\]?:\d{1,5}", address):
                raise ValueError(f"got workers entry {address!r}, allowed: HOST:PORT")
        if self.workers and self.num_local_workers:
            raise ValueError("workers and num_local_workers exclude each other")
        if (self.workers or self.num_local_workers) and self.strategy not in {
            "auto",
            "multi_worker",
            *(() if self.workers else ("parameter_server",)),
        }:
            raise ValueError(
                f"workers are for strategy multi_worker, got strategy {self.strategy}"
            )
        if self.deterministic and self.input.service:
            raise ValueError(
                "deterministic does not go with input.service: its workers hand out "
                "examples in an order that changes from run to run"
            )
        return self

    @model_validator(mode="after")
    def _fits_parameter_servers(self) -> Self:
        if self.strategy != "parameter_server":
            if self.num_local_servers:
                raise ValueError(
                    "num_local_servers is for strategy parameter_server, got strategy "
                    f"{self.strategy}"
                )
            return self
        if bool(self.num_local_servers) != bool(self.num_local_workers):
            raise ValueError(
                "strategy parameter_server takes num_local_workers and "
                "num_local_servers together: set both, or none and TF_CONFIG"
            )
        for name, (is_set, reason) in self._not_served.items():
            if is_set:
                raise ValueError(
                    f"{name} does not go with strategy parameter_server: {reason}"
                )
        return self

    @property
    def _not_served(self) -> dict[str, tuple[bool, str]]:
        """Settings that parameter servers rule out: whether they are set, and why."""
        return {
            "deterministic": (
                self.deterministic,
                "workers change the weights in an order that differs from run to run",
            ),
            "precision mixed_float16": (
                self.precision == "mixed_float16",
                "nobody keeps the loss scale; float32, tf32 and mixed_bfloat16 do",
            ),
            "ema_momentum": (
                self.ema_momentum is not None,
                "an average would miss what several workers change at once",
            ),
            "input.service": (
                self.input.service is not None,
                "its workers read the files themselves",
            ),
            "steps_per_execution": (
                self.steps_per_execution is not None,
                "steps are given to workers one by one",
            ),
            "all_reduce": (
                self.all_reduce != "auto",
                "its workers add up no gradients",
            ),
        }

    @property
    def wants_best(self) -> bool:
        """Whether the weights of the best epoch become the model."""
        return self.early_stopping_patience > 0 or self.checkpoints.export == "best"
