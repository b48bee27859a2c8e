"""Which optional parts are installed, found without importing them."""

from importlib.util import find_spec

from pipeline.errors import MissingExtraError

GLIBC_SENTENCE = (
    "a plain `pip install` without the lock fails where glibc is older than 2.39, "
    "because the overrides in pyproject.toml do not travel in package metadata"
)
EXTRAS = {
    "serving": (
        "tensorflow",
        "cryptography",
        "google_crc32c",
        "grpc_health",
        "grpc_reflection",
        "hpack",
        "httptools",
        "orjson",
        "uvloop",
    ),
    "tfx": (
        "tensorflow",
        "tfx",
        "apache_beam",
        "keras",
        "ml_metadata",
        "tensorflow_data_validation",
        "tensorflow_model_analysis",
        "tensorflow_transform",
        "tensorboard",
    ),
    "kubeflow": ("kfp",),
}
LOCKS = {"serving": "serving", "tfx": "full", "kubeflow": "full"}


def missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def require(extra: str) -> None:
    """Refuse to go on without an extra.

    Raises:
        MissingExtraError: Modules of it are not installed.
    """
    missing = missing_modules(extra)
    if missing:
        raise MissingExtraError(
            f"this command needs the extra {extra!r}, of which {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; install the lock: "
            f"`pip install --no-deps -r requirements/{LOCKS[extra]}.txt` "
            f"({GLIBC_SENTENCE})"
        )


def require_tfx() -> None:
    """Refuse to go on without TFX."""
    require("tfx")


def require_serving() -> None:
    """Refuse to go on without TensorFlow, and what the model server is made of."""
    require("serving")
