"""Trains as the settings say; run as a process of its own.

`python trainer_served.py REQUEST [ask]`: a TrainingRequest as JSON. Prints one line of
JSON: the summary, or why it stopped; if asked to, what the exported model says of two
examples, too.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(text: str, *, ask: bool) -> None:
    from components.errors import ResumeError
    from components.trainer.processes import launch
    from components.trainer.request import SUMMARY_FILE, TrainingRequest
    from components.trainer.supervisor import supervise

    request = TrainingRequest.model_validate_json(text)
    request.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        supervise(request, launch)
    except ResumeError as error:
        print(json.dumps({"stopped": str(error)}))
        return
    summary = json.loads((request.log_dir / SUMMARY_FILE).read_text())
    answers = predictions(request.export_dir) if ask else []
    print(json.dumps({"summary": summary, "predictions": answers}))


def predictions(model: Path) -> list[float]:
    """Ask for an example that is likely positive, and for one that is likely not."""
    import tensorflow as tf
    import tensorflow_transform  # noqa: F401  registers what the model's graph needs

    loaded: Any = tf.saved_model.load(str(model))
    examples = [_example(2.0, -1.0, "Rome"), _example(-2.0, 1.0, "Bonn")]
    found = loaded.signatures["serving_default"](examples=tf.constant(examples))
    [values] = [value for value in found.values() if value.dtype == tf.float32]
    return [float(value) for value in tf.reshape(values, [-1])]


def _example(x: float, z: float, city: str) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(x)
    example.features.feature["z"].float_list.value.append(z)
    example.features.feature["city"].bytes_list.value.append(city.encode())
    return bytes(example.SerializeToString())


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    main(sys.argv[1], ask="ask" in sys.argv[2:])
