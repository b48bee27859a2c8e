"""Measures the Trainer against Keras' fit from memory and against TFX's own input.

    python bench/trainer.py                      # all but ResNet-50: 8 minutes
    python bench/trainer.py --gpu --rounds 0     # ResNet-50 alone, on all devices
    python bench/trainer.py --gpu --tiny         # does it all run?

Each contender runs in a process of its own, one after the other, round after round;
what is written to bench/results/trainer.json are medians over the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import machine
import trainer_result
from synthetic_flights import Flights
from trainer_resnet import ResnetRun, grid

RESULT = Path(__file__).parent / "results/trainer.json"
MARK = "measured: "
BATCH_SIZE = 512
"""The default of `trainer.batch_size`."""
TEMPLATE_BATCH_SIZE = 20
"""TRAIN_BATCH_SIZE of TFX's penguin template; that of its taxi template is 40."""
INJECTED_SHARE = 0.3
BASELINES = {"python": "pass", "import_tensorflow": "import tensorflow"}
FIT_TRIALS: tuple[dict[str, Any], ...] = (
    {"steps_per_execution": 8, "jit_compile": False},
    {"steps_per_execution": 32, "jit_compile": False},
    {"steps_per_execution": 128, "jit_compile": False},
    {"steps_per_execution": 128, "jit_compile": True},
)
"""Where Keras' best is looked for."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed."""

    num_train: int = 200_000
    num_eval: int = 4_096
    epochs: int = 4
    template_steps: int = 600
    """Steps of what counts as an epoch at the template's batch."""
    same_batch_steps: int = 120


TINY = Sizes(4_096, 512, 3, 20, 4)


@dataclass(frozen=True)
class Contender:
    """Who trains, and how."""

    name: str
    kind: str
    """`ours`, `fit` or `template`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Trainer settings (ours) or fields of FitOptions."""


MAIN = (
    Contender("ours", "ours"),
    Contender("fit", "fit", {"jit_compile": True}),  # Keras' default is "auto": on
    Contender("fit_tuned", "fit"),
    Contender("template", "template", {"batch_size": TEMPLATE_BATCH_SIZE}),
    Contender("template_same_batch", "template"),
)
"""Run in each round: what the main figures are made of."""
EXTRA = (
    Contender("ours_slowed", "ours"),
    Contender("ours_xla", "ours", {"xla": "on"}),
    Contender("fit_xla_off", "fit", {"jit_compile": False}),
    Contender("fit_tuned_xla_on", "fit", {"jit_compile": True}),
    Contender("fit_tuned_xla_off", "fit", {"jit_compile": False}),
    Contender("ours_bfloat16", "ours", {"precision": "mixed_bfloat16"}),
    Contender("ours_accumulation_4", "ours", {"accumulation_steps": 4}),
    Contender("ours_mirrored_2", "ours", {"cpu_devices": 2}),
)
"""Run in the first `--extra-rounds` rounds."""


def main() -> None:
    """Measure, or be the process that one contender runs in."""
    arguments = _parser().parse_args()
    if arguments.only:
        _be(arguments)
        return
    sizes = TINY if arguments.tiny else Sizes()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-trainer-") as scratch:
        bench = Bench(Path(arguments.folder or scratch), sizes, tiny=arguments.tiny)
        rounds = min(arguments.rounds, 1) if arguments.tiny else arguments.rounds
        bench.run(rounds, arguments.extra_rounds)
        if arguments.gpu:
            bench.run_resnet()
    made = trainer_result.result(
        machine.commit(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine.describe(),
        rounds,
        bench.figures(),
    )
    text = json.dumps(made, indent=2) + "\n"
    out = arguments.out or (None if arguments.tiny else RESULT)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    print(text)
    print(f"took {time.monotonic() - begun:.0f} s; written: {out or 'nothing'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of all contenders")
    parser.add_argument("--extra-rounds", type=int, default=1, help="XLA, precision, …")
    parser.add_argument("--gpu", action="store_true", help="ResNet-50 on all devices")
    parser.add_argument("--tiny", action="store_true", help="prove that it runs")
    parser.add_argument("--folder", help="data, kept and used again when given")
    parser.add_argument("--out", type=Path, help="where the result is written")
    parser.add_argument("--only", help="be this contender, and say so as JSON")
    parser.add_argument("--options", default="{}", help="for --only: JSON")
    return parser


class Bench:
    """The contenders' processes, and what they said."""

    def __init__(self, folder: Path, sizes: Sizes, *, tiny: bool) -> None:
        self._folder = folder
        self._sizes = sizes
        self._tiny = tiny
        self._runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._seconds: dict[str, list[float]] = {name: [] for name in BASELINES}
        self._resnet: list[dict[str, Any]] = []
        self._fit_options: dict[str, Any] = {}

    def run(self, rounds: int, extra_rounds: int) -> None:
        """Run all contenders, round after round."""
        if not rounds:
            return
        if not Flights(self._folder).transform.exists():
            print(f"writing {self._sizes.num_train:,} examples …", flush=True)
            self._child("data", asdict(self._sizes))
        self._tune()
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            self._run_baselines()
            extra = EXTRA if number < extra_rounds else ()
            for contender in (*MAIN, *extra):
                self._measure(contender)

    def _tune(self) -> None:
        """Find the options that make Keras' fit from memory fastest."""
        trials = FIT_TRIALS[:2] if self._tiny else FIT_TRIALS
        shared = {"batch_size": BATCH_SIZE, "epochs": 3}
        rates = self._child("tune", {"trials": [{**shared, **t} for t in trials]})
        pairs = list(zip(rates["examples_per_s"], trials, strict=True))
        for rate, options in pairs:
            print(f"  fit {options}: {rate:,.0f} examples/s", flush=True)
        self._fit_options = max(pairs, key=lambda pair: pair[0])[1]

    def _run_baselines(self) -> None:
        for name, code in BASELINES.items():
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True
            )
            self._seconds[name].append(time.perf_counter() - begun)

    def _measure(self, contender: Contender) -> None:
        begun = time.monotonic()
        made = self._child(contender.kind, self._options(contender))
        self._runs[contender.name].append(made)
        print(
            f"  {contender.name:<20} {made['examples_per_s']:>9,.0f} examples/s, "
            f"first epoch {made['first_epoch_s']:5.1f} s, process "
            f"{time.monotonic() - begun:4.0f} s",
            flush=True,
        )

    def _options(self, contender: Contender) -> dict[str, Any]:
        sizes = self._sizes
        if contender.kind == "ours":
            settings = {"epochs": sizes.epochs, "batch_size": BATCH_SIZE}
            chunk_s = 0.0
            if contender.name == "ours_slowed":
                whole = self._runs["ours"][-1]["details"]["chunk_s"]
                chunk_s = whole * INJECTED_SHARE / (1 - INJECTED_SHARE)
            return {"settings": {**settings, **contender.options}, "chunk_s": chunk_s}
        shared = {"batch_size": BATCH_SIZE, "epochs": sizes.epochs}
        if contender.name.startswith("fit_tuned"):
            shared.update(self._fit_options)
        if contender.kind == "template":
            is_default = contender.options.get("batch_size") == TEMPLATE_BATCH_SIZE
            steps = sizes.template_steps if is_default else sizes.same_batch_steps
            shared["steps_per_epoch"] = steps
        return {**shared, **contender.options}

    def run_resnet(self) -> None:
        """Go through the grid of devices; what fails says so and is gone over."""
        gpus = machine.gpu_names()
        for run in grid(len(gpus), tiny=self._tiny):
            visible = ",".join(map(str, range(run.replicas)))
            try:
                made = self._child(
                    "resnet",
                    asdict(run),
                    CUDA_VISIBLE_DEVICES=visible if run.device == "gpu" else "",
                )
            except RuntimeError as error:
                made = {"images_per_s": f"failed: {_last_line(error)}", "names": []}
            self._resnet.append({**asdict(run), **made})
            print(f"  resnet50 {run}: {made['images_per_s']} images/s", flush=True)

    def _child(
        self, kind: str, options: Mapping[str, Any], **environment: str
    ) -> dict[str, Any]:
        command = [
            *(sys.executable, __file__, "--only", kind),
            *("--folder", str(self._folder), "--options", json.dumps(options)),
        ]
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
        if done.returncode or not lines:
            raise RuntimeError(f"{kind} {options}: {done.stderr[-3_000:]}")
        found: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
        return found

    def figures(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            **trainer_result.figures(self._runs, self._fit_options),
            **trainer_result.baselines(self._seconds),
            **trainer_result.resnet_figures(self._resnet),
            "sizes": {**asdict(self._sizes), "batch_size": BATCH_SIZE},
        }


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1]


def _be(arguments: argparse.Namespace) -> None:
    """Do what `--only` names, and print what came of it."""
    import trainer_contenders

    options = json.loads(arguments.options)
    flights = Flights(Path(arguments.folder or "."))
    made = _DO[arguments.only](trainer_contenders, flights, options)
    print(f"{MARK}{json.dumps(made)}", flush=True)


def _do_data(_: Any, flights: Flights, options: Mapping[str, Any]) -> dict[str, Any]:
    import synthetic_flights

    synthetic_flights.write(flights.folder, options["num_train"], options["num_eval"])
    return {}


def _do_ours(contenders: Any, flights: Flights, options: Any) -> dict[str, Any]:
    slowness = contenders.Slowness(options.get("chunk_s", 0.0))
    settings = options.get("settings", {"epochs": Sizes.epochs})
    return asdict(contenders.train_ours(flights, settings, slowness))


def _do_fit(contenders: Any, flights: Flights, options: Any) -> dict[str, Any]:
    made = contenders.FitOptions(**{"batch_size": BATCH_SIZE, **options})
    return asdict(contenders.fit_in_memory(flights, made))


def _do_tune(contenders: Any, flights: Flights, options: Any) -> dict[str, Any]:
    trials: Sequence[Any] = options["trials"]
    made = [
        contenders.fit_in_memory(flights, contenders.FitOptions(**trial))
        for trial in trials
    ]
    # The fastest epochs: neighbours on the machine must not choose for Keras.
    rates = [measured.details["fastest_epoch_examples_per_s"] for measured in made]
    return {"examples_per_s": rates}


def _do_template(contenders: Any, flights: Flights, options: Any) -> dict[str, Any]:
    made = contenders.FitOptions(
        **{
            "batch_size": TEMPLATE_BATCH_SIZE,
            "steps_per_epoch": Sizes.template_steps,
            **options,
        }
    )
    return asdict(contenders.fit_template_input(flights, made))


def _do_resnet(_: Any, __: Flights, options: Any) -> dict[str, Any]:
    import trainer_resnet

    return trainer_resnet.train(ResnetRun(**options))


_DO = {
    "data": _do_data,
    "ours": _do_ours,
    "fit": _do_fit,
    "tune": _do_tune,
    "template": _do_template,
    "resnet": _do_resnet,
}


if __name__ == "__main__":
    main()
