"""`python -m serving.server` and `tensorflow_model_server`."""

import logging
import os
import sys


def main() -> int:
    """Run the server, or say what it lacks."""
    try:
        from serving.server.main import main as run
    except ModuleNotFoundError as error:
        print(
            f"the model server needs {error.name}, which is not installed; install the "
            "lock: `pip install --no-deps -r requirements/serving.txt`",
            file=sys.stderr,
        )
        return 1
    code = run()
    # A load that goes on in TensorFlow would be waited for as long as it takes.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
