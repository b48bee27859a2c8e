"""The result of bench/trainer.py: arithmetic on what its runs said, no measuring."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

NOT_MEASURED = "not measured"
IN_MEMORY_FITS = ("fit", "fit_tuned")
"""The faster of these is the bound: both run in every round."""
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""By contender: what each of its runs said."""
Figure = float | str | None


def median(values: Sequence[float], digits: int = 4) -> Figure:
    """Return the median; `not measured` where there are no values."""
    return round(statistics.median(values), digits) if values else NOT_MEASURED


def ratio(value: Figure, by: Figure) -> Figure:
    """Divide; `not measured` where either is."""
    if isinstance(value, str) or isinstance(by, str) or not value or not by:
        return NOT_MEASURED
    return round(value / by, 4)


def paired(runs: Runs, contender: str, by: str) -> Figure:
    """Return the median ratio of two contenders' examples/s in the same round.

    A shared machine is not as fast in each round: medians of other rounds would not do.
    """
    pairs = zip(runs.get(contender, ()), runs.get(by, ()), strict=False)
    return median([one["examples_per_s"] / two["examples_per_s"] for one, two in pairs])


def throughput(runs: Runs, contender: str) -> Figure:
    """Return the median examples/s of a contender."""
    return median([run["examples_per_s"] for run in runs.get(contender, ())], 1)


def fastest(runs: Runs, contender: str) -> Figure:
    """Return the examples/s of the fastest epoch in any round.

    Neighbours on the machine only ever make an epoch slower.
    """
    key = "fastest_epoch_examples_per_s"
    rates = [run["details"][key] for run in runs.get(contender, ())]
    return round(max(rates), 1) if rates else NOT_MEASURED


def detail(runs: Runs, contender: str, name: str) -> Figure:
    """Return the median of one of the details of a contender."""
    return median([run["details"][name] for run in runs.get(contender, ())])


def bound(runs: Runs) -> tuple[str, Figure]:
    """Return the fastest `model.fit` from memory: its name and examples/s."""
    rates = {name: throughput(runs, name) for name in IN_MEMORY_FITS}
    known = {name: rate for name, rate in rates.items() if isinstance(rate, float)}
    if not known:
        return NOT_MEASURED, NOT_MEASURED
    fastest = max(known, key=known.__getitem__)
    return fastest, known[fastest]


def figures(runs: Runs, fit_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the medians and ratios of the contenders.

    Args:
        runs: What each run said.
        fit_options: What Keras' best options were found to be.
    """
    ours = throughput(runs, "ours")
    fastest_fits = [fastest(runs, name) for name in IN_MEMORY_FITS]
    bound_name, bound_rate = bound(runs)
    return {
        "throughput_vs_in_memory_fit": ratio(ours, bound_rate),
        "throughput_vs_in_memory_fit_fastest_epochs": ratio(
            fastest(runs, "ours"),
            max((f for f in fastest_fits if not isinstance(f, str)), default=None),
        ),
        "throughput_vs_template_input": ratio(ours, throughput(runs, "template")),
        "throughput_vs_template_input_same_batch": ratio(
            ours, throughput(runs, "template_same_batch")
        ),
        "input_bound_fraction": detail(runs, "ours", "input_bound_fraction"),
        "slowed_input_injected_fraction": detail(
            runs, "ours_slowed", "injected_fraction"
        ),
        "slowed_input_measured_fraction": detail(
            runs, "ours_slowed", "input_bound_fraction"
        ),
        "xla_speedup_ours": paired(runs, "ours_xla", "ours"),
        "xla_speedup_fit": paired(runs, "fit", "fit_xla_off"),
        "xla_speedup_fit_tuned": paired(runs, "fit_tuned_xla_on", "fit_tuned_xla_off"),
        "mixed_bfloat16_speedup_ours": paired(runs, "ours_bfloat16", "ours"),
        "accumulation_4_throughput_vs_1": paired(runs, "ours_accumulation_4", "ours"),
        "mirrored_2_cpu_devices_throughput_vs_1": paired(
            runs, "ours_mirrored_2", "ours"
        ),
        "in_memory_fit_fastest": bound_name,
        "fit_tuned_options": dict(fit_options),
        "examples_per_s": {name: throughput(runs, name) for name in runs},
        "fastest_epoch_examples_per_s": {name: fastest(runs, name) for name in runs},
        "examples_per_s_of_each_run": {
            name: [round(run["examples_per_s"], 1) for run in of_one]
            for name, of_one in runs.items()
        },
        "first_epoch_s": {
            name: median([run["first_epoch_s"] for run in of_one], 2)
            for name, of_one in runs.items()
        },
        "read_split_s": detail(runs, "ours", "read_s"),
    }


def baselines(seconds: Mapping[str, Sequence[float]]) -> dict[str, Figure]:
    """Return the median seconds of bare processes."""
    return {f"baseline_{name}_s": median(values, 3) for name, values in seconds.items()}


def resnet_figures(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return images/s and scaling by device; `not measured` where there are no runs.

    Args:
        runs: `{device, precision, xla, replicas, batch_size, images_per_s, names}`
            each, the batch being that of a replica; `images_per_s` is a sentence where
            a run failed.
    """
    found: dict[str, Any] = {}
    for device in ("cpu", "gpu"):
        mine = [run for run in runs if run["device"] == device]
        prefix = f"resnet50_{device}"
        found[f"{prefix}_images_per_s"] = {
            _label(run): run["images_per_s"] for run in mine
        } or NOT_MEASURED
        found[f"{prefix}_scaling_efficiency"] = scaling(mine) or NOT_MEASURED
        names = max((run["names"] for run in mine), key=len, default=[])
        found[f"{prefix}_names"] = list(names) or NOT_MEASURED
    return found


def scaling(runs: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Return `rate of n replicas / (n · rate of one)`, at the same batch per replica."""
    rates = {_label(run): run["images_per_s"] for run in runs}
    efficiency: dict[str, Figure] = {}
    for run in runs:
        if run["replicas"] > 1:
            alone = rates.get(_label({**run, "replicas": 1}), NOT_MEASURED)
            whole = run["images_per_s"]
            share = whole if isinstance(whole, str) else whole / run["replicas"]
            efficiency[_label(run)] = ratio(share, alone)
    return efficiency


def _label(run: Mapping[str, Any]) -> str:
    return (
        f"{run['precision']} xla={run['xla']} replicas={run['replicas']} "
        f"batch={run['batch_size']}"
    )


def result(
    commit: str,
    date: str,
    machine: Mapping[str, Any],
    runs: int,
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the object that is written.

    Args:
        commit: With `-dirty` after it where files differ.
        date: ISO 8601, UTC.
        machine: What it ran on.
        runs: How often each contender ran; medians are of so many.
        figures: The medians.
    """
    return {
        "name": "trainer",
        "commit": commit,
        "date": date,
        "machine": dict(machine),
        "runs": runs,
        "figures": dict(figures),
    }
