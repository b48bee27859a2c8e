"""Writes answers.json: what TensorFlow itself answers, from the columns and as examples.

    .venv/bin/python tests/data/flights/answer.py MODEL

MODEL is a version that `scripts/demo` published; model/1 is a copy of it without
assets.extra.
"""

import base64
import csv
import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

HERE = Path(__file__).parent
REQUESTS = HERE / "flights.csv"
NUM_ROWS = 40
MISSING = {"int": -(2**63), "float": float("nan"), "string": ""}
READ: dict[str, Any] = {"int": int, "float": float, "string": str}


def main(version: Path) -> None:
    """Ask both signatures about the first rows of the requests."""
    features = json.loads((version / "assets.extra/taxiway_features.json").read_text())
    dtypes = {
        feature.get("column") or name: feature["dtype"]
        for name, feature in features["features"].items()
        if "dtype" in feature
    }
    with REQUESTS.open(newline="") as lines:
        rows = list(csv.DictReader(lines))[:NUM_ROWS]
    model = tf.saved_model.load(str(HERE / "model" / "1"))
    by_columns = model.signatures["serving_columns"]
    _, specs = by_columns.structured_input_signature
    columns = {
        name: [
            READ[dtypes[name]](row[name]) if row[name] else MISSING[dtypes[name]]
            for row in rows
        ]
        for name in specs
    }
    tensors = {
        name: tf.reshape(tf.constant(columns[name], spec.dtype), [-1, 1])
        for name, spec in specs.items()
    }
    examples = [example(row, dtypes) for row in rows]
    by_examples = model.signatures["serving_default"](examples=tf.constant(examples))
    instances = [
        {name: [value] for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]
    answers = {
        "instances": instances,
        "examples": [base64.b64encode(e).decode() for e in examples],
        "serving_columns": by_columns(**tensors)["probability"]
        .numpy()
        .ravel()
        .tolist(),
        "serving_default": by_examples["probability"].numpy().ravel().tolist(),
    }
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


def example(row: dict[str, str], dtypes: dict[str, str]) -> bytes:
    """Return a serialized tf.Example; what is missing is left out."""
    built = tf.train.Example()
    for name, dtype in dtypes.items():
        feature = built.features.feature[name]
        if not row[name]:
            continue
        if dtype == "string":
            feature.bytes_list.value.append(row[name].encode())
        elif dtype == "int":
            feature.int64_list.value.append(int(row[name]))
        else:
            feature.float_list.value.append(float(row[name]))
    content: bytes = built.SerializeToString(deterministic=True)
    return content


if __name__ == "__main__":
    main(Path(sys.argv[1]))
