"""Measures the model server against others, each with one core, the load on another.

    .venv/bin/python bench/serving.py [--rounds 3] [--seconds 5] [--only NAME …]

Needs h2load (Debian: nghttp2-client) and taskset. Writes bench/results/serving.json.
"""

import argparse
import datetime as dt
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import machine  # noqa: E402
from serving_contenders import (  # noqa: E402
    Contender,
    Ports,
    bodies,
    contenders,
    set_up,
)
from serving_servers import pinned, running  # noqa: E402

RESULT = ROOT / "bench" / "results" / "serving.json"
IN_FLIGHT = 32
BATCHES = (1, 64)
_RATE = re.compile(r"finished in .*?, ([\d.]+) req/s")
_STATUS = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
_FAILED = re.compile(r"(\d+) failed, (\d+) errored, (\d+) timeout")


def load(
    contender: Contender, ports: Ports, protocol: str, body: Path, args: Any
) -> dict[str, float]:
    """Put load on a server; return requests/s and latencies in ms."""
    log = body.with_suffix(".log")
    command = [
        "h2load",
        "-D",
        str(args.seconds),
        "--warm-up-time",
        "1",
        "-d",
        str(body),
    ]
    command += ["--log-file", str(log)]
    log.unlink(missing_ok=True)
    if protocol == "grpc":
        url = f"http://127.0.0.1:{ports.grpc}{contender.grpc}"
        command += ["-c", "1", "-m", str(IN_FLIGHT)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers", url]
    else:
        url = f"http://127.0.0.1:{ports.rest}{contender.rest}"
        command += ["--h1", "-c", str(IN_FLIGHT), "-m", "1"]
        command += ["-H", "content-type: application/json", url]
    done = subprocess.run(
        pinned(args.cores[1], command), capture_output=True, text=True, check=True
    )
    rate, status, failed = (
        pattern.search(done.stdout) for pattern in (_RATE, _STATUS, _FAILED)
    )
    if not (rate and status and failed) or sum(map(int, status.groups()[1:])):
        raise RuntimeError(f"{contender.name}: {done.stdout[-500:]}")
    # Start in µs, HTTP status, duration in µs.
    micros = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
    return {
        "requests_per_s": float(rate[1]),
        "p50_ms": micros[len(micros) // 2] / 1000,
        "p99_ms": micros[int(len(micros) * 0.99)] / 1000,
    }


def seconds_of(command: Sequence[str], core: int) -> float:
    """Return the wall seconds of a command."""
    started = time.monotonic()
    subprocess.run(pinned(core, command), check=True, capture_output=True)
    return time.monotonic() - started


def bound(folder: Path, rows: int, core: int) -> float:
    """Return examples/s of the model without a server."""
    script = str(ROOT / "bench" / "serving_bound.py")
    command = [sys.executable, script, str(folder / "m" / "1"), str(rows)]
    done = subprocess.run(
        pinned(core, command), check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout)["examples_per_s"])


def measure(args: Any, folder: Path) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Run all rounds; return what each measured, and why a contender did not run."""
    runs: dict[str, list[Any]] = defaultdict(list)
    absent: dict[str, str] = {}
    chosen = [c for c in contenders(folder) if not args.only or c.name in args.only]
    for contender in chosen:
        if reason := set_up(contender):
            absent[contender.name] = reason
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", flush=True)
        for rows in BATCHES:
            runs[f"bound {rows}"].append(bound(folder, rows, args.cores[0]))
        python = [sys.executable, "-c"]
        runs["python_pass_s"].append(seconds_of([*python, "pass"], args.cores[0]))
        runs["import_tensorflow_s"].append(
            seconds_of([*python, "import tensorflow"], args.cores[0])
        )
        for contender in chosen:
            if contender.name in absent:
                continue
            try:
                measure_one(contender, folder, args, runs)
            except (RuntimeError, OSError) as error:
                absent[contender.name] = str(error)
                print(f"  {contender.name}: {error}", flush=True)
    return runs, absent


def measure_one(
    contender: Contender, folder: Path, args: Any, runs: dict[str, list[Any]]
) -> None:
    """Measure one server once."""
    with running(contender, folder, args.cores[0]) as server:
        ports = server.ports
        runs[f"{contender.name} start_s"].append(server.start_s)
        for rows in BATCHES:
            for protocol, body in bodies(contender, rows, folder).items():
                measured = load(contender, ports, protocol, body, args)
                runs[f"{contender.name} {protocol} {rows}"].append(measured)
                print(
                    f"  {contender.name:14} {protocol} {rows:2} rows "
                    f"{measured['requests_per_s']:9,.0f}/s  "
                    f"p99 {measured['p99_ms']:7.2f} ms",
                    flush=True,
                )


def figures(runs: dict[str, list[Any]], absent: dict[str, str]) -> dict[str, Any]:
    """Return medians and ratios."""

    def rate(name: str, key: str = "requests_per_s") -> float | None:
        values = [run[key] for run in runs.get(name, [])]
        return statistics.median(values) if values else None

    def ratio(value: float | None, by: float | None) -> Any:
        return round(value / by, 3) if value and by else "not measured"

    def best(protocol: str, rows: int) -> tuple[str, float | None]:
        peers = {
            name: rate(f"{name} {protocol} {rows}")
            for name in ("fastapi", "kserve", "bentoml", "ray")
        }
        known = {name: value for name, value in peers.items() if value}
        if not known:
            return "none", None
        name = max(known, key=known.__getitem__)
        return name, known[name]

    grpc_peer, grpc_best = best("grpc", 1)
    rest_peer, rest_best = best("rest", 1)
    ours = max(
        ("ours", "ours_batching"), key=lambda name: rate(f"{name} grpc 64") or 0.0
    )
    batch64 = rate(f"{ours} grpc 64")
    start = runs.get("ours start_s")
    return {
        "grpc_rps_vs_naive": ratio(rate("ours grpc 1"), rate("plain_grpc grpc 1")),
        "grpc_rps_vs_best_peer": ratio(rate("ours grpc 1"), grpc_best),
        "rest_rps_vs_best_peer": ratio(rate("ours rest 1"), rest_best),
        "batch64_fraction_of_bound": ratio(
            batch64 and batch64 * 64, statistics.median(runs["bound 64"])
        ),
        "batch64_is_of": ours,
        "start_to_first_answer_s": round(statistics.median(start), 3)
        if start
        else None,
        "import_tensorflow_s": round(statistics.median(runs["import_tensorflow_s"]), 3),
        "python_pass_s": round(statistics.median(runs["python_pass_s"]), 3),
        "best_grpc_peer": grpc_peer,
        "best_rest_peer": rest_peer,
        "grpc_p99_vs_naive": ratio(
            rate("ours grpc 1", "p99_ms"), rate("plain_grpc grpc 1", "p99_ms")
        ),
        "grpc_p99_vs_best_peer": ratio(
            rate("ours grpc 1", "p99_ms"), rate(f"{grpc_peer} grpc 1", "p99_ms")
        ),
        "rest_p99_vs_best_peer": ratio(
            rate("ours rest 1", "p99_ms"), rate(f"{rest_peer} rest 1", "p99_ms")
        ),
        "in_flight": IN_FLIGHT,
        "bound_examples_per_s": {
            str(rows): round(statistics.median(runs[f"bound {rows}"]))
            for rows in BATCHES
        },
        "servers": {
            name: {
                key: round(statistics.median(run[key] for run in values), 3)
                for key in ("requests_per_s", "p50_ms", "p99_ms")
            }
            for name, values in runs.items()
            if values and isinstance(values[0], dict)
        },
        "start_s": {
            name.removesuffix(" start_s"): round(statistics.median(values), 3)
            for name, values in runs.items()
            if name.endswith(" start_s")
        },
        "not_run": absent,
    }


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    args.cores = sorted(os.sched_getaffinity(0))[:2]
    if len(args.cores) < 2:
        sys.exit("two cores are needed: one for the server, one for the load")
    for program in ("h2load", "taskset"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing (Debian: nghttp2-client, util-linux)")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-serving-") as name:
        folder = Path(name)
        script = str(ROOT / "bench" / "serving_model.py")
        target = str(folder / "m" / "1")
        subprocess.run(
            [sys.executable, script, target], check=True, capture_output=True
        )
        runs, absent = measure(args, folder)
    result = {
        "name": "serving",
        "commit": machine.commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "runs": args.rounds,
        "figures": figures(runs, absent),
    }
    args.result.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["figures"], indent=2))
    print(f"took {time.monotonic() - started:.0f} s; written: {args.result}")


if __name__ == "__main__":
    main()
