"""What each step reports, in words: pure, for the terminal and the README's reader."""

from collections.abc import Callable, Mapping
from typing import Any

from components.evaluator.verdict import BASELINE
from pipeline import steps
from pipeline.runners.record import RunRecord, StepRecord

Summary = Mapping[str, Any]
XLA_WORDS = {"whole": "on", "clusters": "where it can compile"}


def step_words(step: StepRecord) -> str:
    """Return what the step has to say in a line; empty when nothing."""
    words = _WORDS.get(step.id)
    return words(step.summary) if words and step.summary else ""


def unblessed_words(record: RunRecord) -> list[str]:
    """Return why the model was not blessed, one reason an entry."""
    verdict = record.step(steps.EVALUATOR.id).summary
    reasons = verdict.get("reasons") or ["the Evaluator gave no reason"]
    return [reason.replace(BASELINE, baseline_words(verdict)) for reason in reasons]


def baseline_words(verdict: Summary) -> str:
    """Say what the model was compared with: `version 3`, where it is published."""
    version = verdict.get("baseline_version")
    return "the blessed baseline" if version is None else f"version {version}"


def metrics_words(metrics: Mapping[str, float | None]) -> str:
    """Write metrics as `auc 0.742, binary_accuracy 0.81`."""
    shown = {k: v for k, v in metrics.items() if k != "example_count"}
    return ", ".join(
        f"{name} {'not finite' if value is None else format(value, '.4g')}"
        for name, value in shown.items()
    )


def _counts(counts: Summary) -> str:
    parts = [f"{name} {counts['splits'][name]:,}" for name in ("train", "eval")]
    if counts["num_held_out"]:
        parts.append(f"held out {counts['num_held_out']:,}")
    if counts["num_without_label"]:
        parts.append(f"without label {counts['num_without_label']:,}")
    return f"{counts['num_rows']:,} rows: {', '.join(parts)}"


def _warnings(summary: Summary) -> str:
    warnings = summary["warnings"]
    if not warnings:
        return "no anomalies"
    return "\n".join(f"warning: {text}" for text in warnings)


def _training(summary: Summary) -> str:
    history = summary["history"]
    epochs = len(history["loss"])
    # What is exported, where that is not the last.
    number = summary.get("exported_epoch", epochs)
    shown = {name: values[number - 1] for name, values in history.items()}
    which = f", exported epoch {number}" if number != epochs else ""
    lines = [f"{epochs} epoch{'s' * (epochs != 1)}{which}: {metrics_words(shown)}"]
    speed = f"{summary['examples_per_second']:,.0f} examples/s"
    if summary["input_bound"] is not None:
        speed += f", input-bound {summary['input_bound']:.0%}"
    xla = f"XLA {XLA_WORDS.get(summary['xla'], summary['xla'])}"
    lines.append(f"{summary['strategy']}, {summary['precision']}, {xla}: {speed}")
    lines += [
        f"out of memory with {time['micro_batch_size']} examples at a time: went on "
        f"with {time['micro_batch_size'] // time['divisor']}, the effective batch is "
        f"{summary['effective_batch_size']} as before"
        for time in summary["out_of_memory"]
    ]
    skipped = summary["skipped_steps"]
    if skipped:
        lines.append(
            f"skipped {len(skipped)} batches that were not finite; the log names them"
        )
    return "\n".join(lines)


def _verdict(verdict: Summary) -> str:
    what = "blessed" if verdict["blessed"] else "NOT blessed"
    compared = f", compared with {baseline_words(verdict)}"
    against = compared if verdict["baseline_metrics"] else ""
    first = (
        f"{what} on {verdict['num_examples']:,} examples{against}: "
        f"{metrics_words(verdict['metrics'])}"
    )
    notes = (f"note: {note}" for note in verdict.get("notes", ()))
    return "\n".join((first, *notes))


def _version(summary: Summary) -> str:
    version = summary["version"]
    if version is None:
        return "nothing pushed"
    what = f"version {version}"
    if not summary.get("is_new", True):
        what = f"{what} holds the same model already"
    if summary.get("confirmed"):
        what = f"{what}, AVAILABLE on {', '.join(summary['confirmed'])}"
    notes = [f"note: {change}" for change in summary.get("changes", ())]
    if summary.get("problem"):
        notes.append(f"published, not pushed: {summary['problem']}")
    return "\n".join((what, *notes))


_WORDS: Mapping[str, Callable[[Summary], str]] = {
    steps.EXAMPLE_GEN.id: _counts,
    steps.EXAMPLE_VALIDATOR.id: _warnings,
    steps.TRAINER.id: _training,
    steps.EVALUATOR.id: _verdict,
    steps.PUSHER.id: _version,
}
