"""bench/trainer.py: the arithmetic on what was measured, and the shape of its result."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module of bench/, which is run by path and is no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("trainer_result", monkeypatch)


@pytest.fixture
def resnet(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("trainer_resnet", monkeypatch)


def run(rate: float, **details: float) -> dict[str, object]:
    details["fastest_epoch_examples_per_s"] = rate + 10
    return {"examples_per_s": rate, "first_epoch_s": 2.0, "details": details}


RUNS = {
    "ours": [
        run(90.0, input_bound_fraction=0.01, read_s=1.0),
        run(300.0, input_bound_fraction=0.05, read_s=1.0),
        run(100.0, input_bound_fraction=0.02, read_s=1.0),
    ],
    "fit": [run(50.0)],
    "fit_tuned": [run(110.0), run(120.0), run(130.0)],
    "template": [run(10.0)],
    "template_same_batch": [run(40.0)],
}


def test_throughput_is_the_median_of_the_rounds(result: ModuleType) -> None:
    assert result.throughput(RUNS, "ours") == 100.0


def test_fastest_fit_is_the_bound(result: ModuleType) -> None:
    found = result.figures(RUNS, {})
    assert found["in_memory_fit_fastest"] == "fit_tuned"
    assert found["throughput_vs_in_memory_fit"] == pytest.approx(100 / 120, abs=1e-4)


def test_fastest_epochs_are_compared_beside_the_medians(result: ModuleType) -> None:
    found = result.figures(RUNS, {})["throughput_vs_in_memory_fit_fastest_epochs"]
    assert found == pytest.approx(310 / 140, abs=1e-4)


def test_ratios_to_the_template_are_of_medians(result: ModuleType) -> None:
    found = result.figures(RUNS, {})
    assert found["throughput_vs_template_input"] == 10.0
    assert found["throughput_vs_template_input_same_batch"] == 2.5
    assert found["input_bound_fraction"] == 0.02


def test_what_was_not_run_is_not_measured(result: ModuleType) -> None:
    found = result.figures(RUNS, {})
    assert found["xla_speedup_ours"] == "not measured"
    nothing = result.figures({}, {})
    assert nothing["throughput_vs_in_memory_fit"] == "not measured"
    assert result.baselines({"python": []}) == {"baseline_python_s": "not measured"}


def test_speedups_compare_runs_of_the_same_round(result: ModuleType) -> None:
    runs = {**RUNS, "ours_xla": [run(180.0)]}
    assert result.figures(runs, {})["xla_speedup_ours"] == 2.0


def place(replicas: int, rate: float | str, device: str = "gpu") -> dict[str, object]:
    return {
        "device": device,
        "precision": "tf32",
        "xla": "on",
        "replicas": replicas,
        "batch_size": 64,
        "images_per_s": rate,
        "names": ["H200"] * replicas,
    }


def test_scaling_is_the_share_of_so_many_single_devices(result: ModuleType) -> None:
    found = result.resnet_figures([place(1, 100.0), place(2, 180.0)])
    label = "tf32 xla=on replicas=2 batch=64"
    assert found["resnet50_gpu_scaling_efficiency"] == {label: 0.9}
    assert found["resnet50_gpu_images_per_s"][label] == 180.0
    assert found["resnet50_gpu_names"] == ["H200", "H200"]


def test_without_a_gpu_its_figures_are_not_measured(result: ModuleType) -> None:
    found = result.resnet_figures([place(1, 8.0, "cpu")])
    assert found["resnet50_cpu_images_per_s"] != "not measured"
    assert found["resnet50_gpu_images_per_s"] == "not measured"
    assert found["resnet50_gpu_scaling_efficiency"] == "not measured"
    assert found["resnet50_gpu_names"] == "not measured"


def test_failed_place_of_the_grid_keeps_its_reason(result: ModuleType) -> None:
    found = result.resnet_figures([place(1, 100.0), place(2, "failed: no memory")])
    label = "tf32 xla=on replicas=2 batch=64"
    assert found["resnet50_gpu_images_per_s"][label] == "failed: no memory"
    assert found["resnet50_gpu_scaling_efficiency"][label] == "not measured"


def test_result_names_commit_date_machine_and_runs(result: ModuleType) -> None:
    made = result.result(
        "abc-dirty", "2026-12-01T00:00:00+00:00", {"cores": 2}, 3, {"x": 1.0}
    )
    assert set(made) == {"name", "commit", "date", "machine", "runs", "figures"}
    assert json.loads(json.dumps(made)) == made


def test_grid_takes_no_more_replicas_than_gpus(resnet: ModuleType) -> None:
    places = list(resnet.grid(2, tiny=False))
    assert {p.replicas for p in places if p.device == "gpu"} == {1, 2}
    assert {p.device for p in resnet.grid(0, tiny=False)} == {"cpu"}
    assert {p.device for p in resnet.grid(8, tiny=True)} == {"cpu"}


def test_kept_result_has_the_shape_that_the_bench_writes(result: ModuleType) -> None:
    kept = json.loads((BENCH / "results/trainer.json").read_text())
    assert set(kept) == set(result.result("", "", {}, 0, {}))
    assert kept["figures"].keys() >= {
        "throughput_vs_in_memory_fit",
        "throughput_vs_template_input",
        "throughput_vs_template_input_same_batch",
        "input_bound_fraction",
    }
