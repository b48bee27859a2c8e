"""The servers that bench/serving.py compares: how each is set up, started and asked."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "bench" / "serving_peers"
ENVIRONMENTS = ROOT / ".venv-bench"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
KSERVE_PREDICT = "/inference.GRPCInferenceService/ModelInfer"
REST = "/v1/models/m:predict"
BATCHING = """
max_batch_size { value: 2048 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 1 }
"""


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    grpc: int
    rest: int


@dataclass(frozen=True)
class Contender:
    """One server."""

    name: str
    command: Callable[[Path, Ports], list[str]]
    """From the model's base path and the ports."""
    grpc: str = ""
    """Path of its gRPC method; empty: none."""
    rest: str = ""
    """Path of its REST method; empty: none."""
    requirements: tuple[str, ...] = ()
    """Of an environment of its own; none: ours."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        if not self.requirements:
            return Path(sys.executable)
        return ENVIRONMENTS / self.name / "bin" / "python"


def ours(*flags: str) -> Callable[[Path, Ports], list[str]]:
    """Return the command of our server."""

    def command(base_path: Path, ports: Ports) -> list[str]:
        return [
            *(sys.executable, "-m", "serving.server", "--host=127.0.0.1"),
            *(f"--port={ports.grpc}", f"--rest_api_port={ports.rest}"),
            *("--model_name=m", f"--model_base_path={base_path}", *flags),
        ]

    return command


def peer(name: str, script: str, *, grpc: bool = False) -> Callable[..., list[str]]:
    """Return the command of a peer's script."""

    def command(base_path: Path, ports: Ports) -> list[str]:
        python = str(ENVIRONMENTS / name / "bin" / "python")
        both = [str(ports.rest), str(ports.grpc)] if grpc else [str(ports.rest)]
        return [python, str(PEERS / script), str(base_path / "1"), *both]

    return command


def contenders(folder: Path) -> list[Contender]:
    """Return all of them."""
    batching = folder / "batching.config"
    batching.write_text(BATCHING)
    tensorflow = "tensorflow==2.21.0"
    return [
        Contender("ours", ours(), PREDICT, REST),
        Contender(
            "ours_batching",
            ours("--enable_batching", f"--batching_parameters_file={batching}"),
            PREDICT,
            REST,
        ),
        Contender(
            "plain_grpc",
            lambda base, ports: [
                *(sys.executable, str(PEERS / "plain_grpc.py")),
                *(str(base / "1"), str(ports.grpc)),
            ],
            PREDICT,
        ),
        Contender(
            "fastapi",
            peer("fastapi", "fastapi_server.py"),
            "",
            REST,
            ("fastapi==0.165.0", "uvicorn==0.54.0", tensorflow),
        ),
        Contender(
            "kserve",
            peer("kserve", "kserve_server.py", grpc=True),
            KSERVE_PREDICT,
            REST,
            ("kserve==0.21.0", tensorflow),
        ),
        Contender(
            "bentoml",
            lambda _, ports: [
                str(ENVIRONMENTS / "bentoml" / "bin" / "bentoml"),
                *("serve", "bentoml_server:Predictor", "--working-dir", str(PEERS)),
                *("--host", "127.0.0.1", "--port", str(ports.rest)),
            ],
            "",
            "/predict",
            ("bentoml==1.4.40", tensorflow),
            {"MODEL_FOLDER": str(folder / "m" / "1")},
        ),
        Contender(
            "ray",
            peer("ray", "ray_server.py"),
            "",
            REST,
            ("ray[serve]==2.60.0", tensorflow),
        ),
    ]


def set_up(contender: Contender) -> str:
    """Install a contender's environment; return why that failed, or nothing."""
    if not contender.requirements or contender.python.exists():
        return ""
    folder = ENVIRONMENTS / contender.name
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, "UV_LINK_MODE": "hardlink"}
    for command in (
        [str(uv), "venv", "-q", "-p", sys.executable, str(folder)],
        [
            *(str(uv), "pip", "install", "-q", "--python", str(contender.python)),
            *contender.requirements,
        ],
    ):
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment
        )
        if done.returncode:
            return done.stderr.strip()[-300:]
    return ""


def bodies(contender: Contender, rows: int, folder: Path) -> dict[str, Path]:
    """Write the request of so many rows for each protocol; return the files."""
    x = np.linspace(0, 1, rows * 20, dtype=np.float32).reshape(rows, 20)
    written = {}
    if contender.rest:
        written["rest"] = folder / f"rest-{rows}.json"
        written["rest"].write_text(json.dumps({"instances": x.tolist()}))
    if contender.grpc == KSERVE_PREDICT:
        written["grpc"] = folder / f"kserve-{rows}.bin"
        script = str(PEERS / "kserve_server.py")
        command = [str(contender.python), script, "--body", str(written["grpc"])]
        subprocess.run([*command, str(rows)], check=True, capture_output=True)
    elif contender.grpc:
        written["grpc"] = folder / f"grpc-{rows}.bin"
        written["grpc"].write_bytes(framed(predict_request(x)))
    return written


def predict_request(x: "np.ndarray") -> bytes:
    """Return a serialized PredictRequest."""
    from serving import apis
    from serving.tensors import to_proto

    request = apis.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(to_proto(x))
    content: bytes = request.SerializeToString()
    return content


def framed(message: bytes) -> bytes:
    """Return a message as gRPC sends it: not compressed, its length before it."""
    return b"\0" + struct.pack(">I", len(message)) + message
