"""`python -m serving.server` and `tensorflow_model_server`."""

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
    return run()


if __name__ == "__main__":
    sys.exit(main())
