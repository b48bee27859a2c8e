"""Trains as the settings say; run as a process of its own.

`python trainer_served.py REQUEST`: a TrainingRequest as JSON. Prints one line of JSON:
the summary, or why it stopped.
"""

import json
import os
import sys
from pathlib import Path


def main(text: str) -> None:
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
    print(json.dumps({"summary": summary}))


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    main(sys.argv[1])
