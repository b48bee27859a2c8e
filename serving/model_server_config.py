"""ModelServerConfig: which models and versions a server serves, as frozen values.

The rules and their words are those of TensorFlow Serving's model_server_config.proto
and server_core.cc.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from serving import apis
from serving.errors import Code, RequestError, ServerError, invalid_argument

PLATFORM = "tensorflow"
LOG_TYPES = ("tfrecord", "")
_LABEL = re.compile(r"[a-zA-Z0-9_]+")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True)
class Latest:
    """Serve the highest versions."""

    num_versions: int = 1


@dataclass(frozen=True)
class All:
    """Serve every version that is there."""


@dataclass(frozen=True)
class Specific:
    """Serve these versions, where they are there."""

    versions: tuple[int, ...]


Policy = Latest | All | Specific


@dataclass(frozen=True)
class ModelConfig:
    """One model that a server is to serve."""

    name: str
    base_path: Path
    """Absolute; holds a folder for each version."""
    policy: Policy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)
    """Version by label."""
    logging: Any = None
    """A LoggingConfig; None: no request is logged."""


def read_text(file: Path, message_class: Any) -> Any:
    """Read a message in protobuf's text format.

    Raises:
        ServerError: It cannot be read; the message names file, line and column.
    """
    try:
        return text_format.Parse(file.read_text(), message_class())
    except OSError as error:
        raise ServerError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ServerError(f"{file}: not UTF-8 text: {error}") from error
    except text_format.ParseError as error:
        raise ServerError(
            f"{file}:{error}; expected a {message_class.DESCRIPTOR.name} in protobuf's "
            "text format"
        ) from error


def read_models(file: Path) -> list[ModelConfig]:
    """Read a ModelServerConfig.

    Raises:
        ServerError: It cannot be read, or breaks a rule.
    """
    message = read_text(file, apis.ModelServerConfig)
    try:
        return parse(message)
    except RequestError as error:
        raise ServerError(f"{file}: {error}") from error


def parse(message: Any) -> list[ModelConfig]:
    """Return the models of a ModelServerConfig.

    Raises:
        RequestError: It breaks a rule; the status is TensorFlow Serving's.
    """
    kind = message.WhichOneof("config")
    if kind == "custom_model_config":
        raise RequestError(
            Code.FAILED_PRECONDITION,
            "Cannot transition to requested config. It is only legal to transition "
            "from one ModelConfigList to another.",
        )
    models = [_model(config) for config in message.model_config_list.config]
    names: set[str] = set()
    for model in models:
        if model.name in names:
            raise invalid_argument(
                f"Illegal to list model {model.name} multiple times in config list"
            )
        names.add(model.name)
    return models


def _model(config: Any) -> ModelConfig:
    if not config.name:
        raise invalid_argument("model_config_list: a config has no name")
    _check_platform(config)
    if _REMOTE.match(config.base_path):
        raise RequestError(
            Code.UNIMPLEMENTED,
            f"model {config.name}: base_path {config.base_path}: this server reads "
            "files only; allowed: an absolute path",
        )
    if "\0" in config.base_path:
        raise invalid_argument(
            f"model {config.name}: base_path holds a zero byte: {config.base_path!r}"
        )
    if not config.base_path.startswith("/"):
        raise invalid_argument(
            f"Expected model {config.name} to have an absolute path or URI; got "
            f"base_path()={config.base_path}"
        )
    return ModelConfig(
        config.name,
        Path(config.base_path),
        _policy(config),
        _labels(config),
        _logging(config) if config.HasField("logging_config") else None,
    )


def _logging(config: Any) -> Any:
    logging = config.logging_config
    collector = logging.log_collector_config
    where = f"model {config.name}: logging_config"
    if collector.type not in LOG_TYPES:
        raise RequestError(
            Code.NOT_FOUND,
            f"{where}: Cannot find LogCollector::Factory for type: {collector.type}; "
            f"allowed: {LOG_TYPES[0]}",
        )
    prefix = collector.filename_prefix
    if not prefix.startswith("/") or "\0" in prefix:
        raise invalid_argument(
            f"{where}: filename_prefix must be an absolute path, got {prefix!r}"
        )
    rate = logging.sampling_config.sampling_rate
    if not 0 <= rate <= 1:
        raise invalid_argument(
            f"{where}: sampling_rate must be in [0, 1], got {rate:g}"
        )
    return logging


def _check_platform(config: Any) -> None:
    if config.model_type and config.model_platform:
        raise invalid_argument(
            "Illegal setting both model_type(deprecated) and model_platform."
        )
    if not (config.model_type or config.model_platform):
        raise invalid_argument(
            "Illegal setting neither model_type(deprecated) nor model_platform."
        )
    is_tensorflow = config.model_type == 1 or config.model_platform == PLATFORM
    if not is_tensorflow:
        raise RequestError(
            Code.FAILED_PRECONDITION,
            "Cannot transition to requested model platform. It is only legal to "
            f"transition to the same model platform. (model {config.name}: got "
            f"{config.model_platform or 'OTHER'}, allowed: {PLATFORM})",
        )


def _policy(config: Any) -> Policy:
    policy = config.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return All()
        case "specific":
            versions = tuple(policy.specific.versions)
            if not versions or min(versions) < 0:
                raise invalid_argument(
                    f"model {config.name}: model_version_policy.specific: got versions "
                    f"{list(versions)}, allowed: at least one, none of them negative"
                )
            return Specific(versions)
        case "latest":
            # 0 is proto3's way to say nothing.
            return Latest(policy.latest.num_versions or 1)
    return Latest()


def _labels(config: Any) -> dict[str, int]:
    for label in config.version_labels:
        if not _LABEL.fullmatch(label):
            raise invalid_argument(
                f"model {config.name}: version label {label!r}: allowed: letters, "
                "digits and _"
            )
    return dict(config.version_labels)


def differences(
    before: Sequence[ModelConfig], after: Sequence[ModelConfig]
) -> list[str]:
    """Return what a reload would change, a line each; models that go come first."""
    old, new = ({config.name: config for config in side} for side in (before, after))
    lines = [f"- {name}: no longer served" for name in dropped(before, after)]
    for name, config in new.items():
        if name not in old:
            lines.append(f"+ {name}: {config.base_path}, {_described(config)}")
        elif config != old[name]:
            lines.extend(
                f"  {name}: {line}" for line in _model_differences(old[name], config)
            )
    return lines


def dropped(before: Sequence[ModelConfig], after: Sequence[ModelConfig]) -> list[str]:
    """Return the models that a reload would no longer serve."""
    kept = {config.name for config in after}
    return [config.name for config in before if config.name not in kept]


def _model_differences(old: ModelConfig, new: ModelConfig) -> list[str]:
    lines = []
    if old.base_path != new.base_path:
        lines.append(f"base path {old.base_path} → {new.base_path}")
    if old.policy != new.policy:
        lines.append(f"{_policy_words(old.policy)} → {_policy_words(new.policy)}")
    for label in sorted({*old.labels, *new.labels}):
        versions = [str(c.labels.get(label, "none")) for c in (old, new)]
        if versions[0] != versions[1]:
            lines.append(f"label {label} {' → '.join(versions)}")
    if old.logging != new.logging:
        lines.append("another request log")
    return lines


def _described(config: ModelConfig) -> str:
    labels = [f"label {name} {v}" for name, v in sorted(config.labels.items())]
    return ", ".join([_policy_words(config.policy), *labels])


def _policy_words(policy: Policy) -> str:
    match policy:
        case All():
            return "all versions"
        case Specific(versions):
            return f"versions {', '.join(map(str, versions))}"
        case Latest(num_versions):
            newest = "the newest version"
            return (
                newest if num_versions == 1 else f"the newest {num_versions} versions"
            )


def to_text(models: Sequence[ModelConfig]) -> str:
    """Write a ModelServerConfig; the same models give the same text."""
    message = apis.ModelServerConfig()
    for model in models:
        config = message.model_config_list.config.add(
            name=model.name, base_path=str(model.base_path), model_platform=PLATFORM
        )
        match model.policy:
            case Latest(num_versions):
                if num_versions > 1:
                    config.model_version_policy.latest.num_versions = num_versions
            case All():
                config.model_version_policy.all.SetInParent()
            case Specific(versions):
                config.model_version_policy.specific.versions.extend(versions)
        for label, version in sorted(model.labels.items()):
            config.version_labels[label] = version
        if model.logging is not None:
            config.logging_config.CopyFrom(model.logging)
    return text_format.MessageToString(message)
