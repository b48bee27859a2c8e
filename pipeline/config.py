"""The one settings file, `taxiway.yaml`: frozen, strict, with errors that point."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from components.evaluator.config import METRICS_FOR, EvaluatorSettings
from components.example_gen.config import DataSettings
from components.example_validator.config import SchemaSettings
from components.features import Feature, FeatureTable, Label
from components.pusher.config import PushSettings
from components.trainer.config import TrainerSettings
from components.transform.config import TransformSettings
from pipeline import settings_errors, yaml_source
from pipeline.errors import SettingsError
from pipeline.overrides import apply_environment, apply_overrides
from pipeline.user_code import is_dotted_path, refuse_reserved_names
from pipeline.yaml_source import Document
from serving.config import ServingSettings
from serving.settings import Settings

FILE_NAME = "taxiway.yaml"
STATE_FOLDER = ".taxiway"


class BeamSettings(Settings):
    """How the data steps run."""

    num_processes: Annotated[int, Field(ge=1)] = 1
    """Processes on this machine; more than one pays off above some 100,000 rows."""
    args: tuple[str, ...] = ()
    """Options for Beam, as on its command line; `--runner=…` replaces the local one."""


class ProjectSettings(Settings):
    """A project: its data, its features, its model, and where it is published."""

    model_config = ConfigDict(populate_by_name=True)

    project: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*$")]
    """Name of the project, and of its model unless `push.model` says otherwise."""
    data: DataSettings
    """Where the rows come from and how they are split."""
    label: Label
    """What the model learns to predict."""
    features: Annotated[dict[str, Feature], Field(min_length=1)]
    """The feature table: what each column means, by feature name."""
    weight: str | None = None
    """Column with a non-negative weight for each row."""
    drop: tuple[str, ...] = ()
    """Columns left out on purpose; a column that is not listed anywhere is, too."""
    schema_: SchemaSettings = Field(SchemaSettings(), alias="schema")
    """The schema that data is held to, and what an anomaly does."""
    transform: TransformSettings = TransformSettings()
    """How raw columns become model inputs."""
    trainer: TrainerSettings = TrainerSettings()
    """How the model is built and trained."""
    evaluator: EvaluatorSettings = EvaluatorSettings()
    """How a candidate model is judged."""
    push: PushSettings = PushSettings()
    """Where blessed models are published."""
    serving: ServingSettings = ServingSettings()
    """Where the model server listens."""
    beam: BeamSettings = BeamSettings()
    """How the data steps run."""

    _path: Path = PrivateAttr(default=Path(FILE_NAME))

    @model_validator(mode="after")
    def _name_the_model(self) -> Self:
        if not self.push.model:
            push = self.push.model_copy(update={"model": self.project})
            object.__setattr__(self, "push", push)
        return self

    @property
    def path(self) -> Path:
        """The settings file, absolute."""
        return self._path

    @property
    def root(self) -> Path:
        """The project's folder: that of the settings file, absolute."""
        return self._path.parent

    @property
    def state_dir(self) -> Path:
        """Where the project's metadata, cache, artifacts and logs are kept."""
        return self.root / STATE_FOLDER

    @property
    def metadata_path(self) -> Path:
        """The SQLite file of ML Metadata."""
        return self.state_dir / "metadata.sqlite"

    @property
    def schema_file(self) -> Path | None:
        """The curated schema, absolute; None where it is inferred."""
        return None if self.schema_.file is None else self.root / self.schema_.file

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Every column that a slice of the Evaluator reads."""
        entries = self.evaluator.slices
        names = [(e,) if isinstance(e, str) else e for e in entries]
        return tuple(dict.fromkeys(name for many in names for name in many))

    @cached_property
    def table(self) -> FeatureTable:
        """Features, label and weight, checked against each other."""
        return FeatureTable(
            features=self.features, label=self.label, weight=self.weight
        )

    def to_json(self) -> str:
        """Return the settings for another process; `from_json` reads them."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps({"path": str(self._path), "settings": content})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Rebuild what `to_json` wrote."""
        content = json.loads(text)
        settings = cls.model_validate(content["settings"])
        return settings.located(Path(content["path"]))

    def located(self, path: Path) -> Self:
        """Return the settings as read from this file."""
        made = self.model_copy()
        made._path = path  # noqa: SLF001  a private attribute of this very class
        return made


def settings_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the settings file, for editors."""
    schema = ProjectSettings.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def load_settings(
    path: Path | None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ProjectSettings:
    """Read a project's settings: the file, then the environment, then overrides.

    Args:
        path: The settings file or its folder; `taxiway.yaml` here when None.
        overrides: `key=value` each, `trainer.epochs=3`.
        environ: Variables `TAXIWAY__TRAINER__EPOCHS`; the process's when None.

    Raises:
        SettingsError: Something is wrong; one line for each thing.
        UserCodeError: A module of the project has the name of one of our packages.
    """
    file = _find(path)
    document = yaml_source.parse(_read(file), file.name)
    if document.value is None:
        raise SettingsError(f"{file}: the file is empty; `taxiway init` writes one")
    if not isinstance(document.value, dict):
        raise SettingsError(
            f"{file.name}: got {type(document.value).__name__} at the "
            "top, allowed: a mapping of settings"
        )
    schema = ProjectSettings.model_json_schema(by_alias=True)
    apply_environment(document, os.environ if environ is None else environ, schema)
    apply_overrides(document, overrides)
    settings = _validate(document, file, schema)
    refuse_reserved_names(settings.root)
    return settings


def _find(path: Path | None) -> Path:
    file = Path(FILE_NAME) if path is None else path
    try:
        if file.is_dir():
            file /= FILE_NAME
        found = file.is_file()
    except OSError as error:  # a name that is too long, a folder that is not ours
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    if not found:
        hint = "; make one with `taxiway init`, or name it with -c" if not path else ""
        raise SettingsError(f"{file}: no such file{hint}")
    return file.absolute()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error


def _validate(
    document: Document, file: Path, schema: Mapping[str, Any]
) -> ProjectSettings:
    try:
        settings = ProjectSettings.model_validate_json(
            json.dumps(document.value), strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        details = error.errors(include_url=False)
        found = settings_errors.explain(details, document, schema)
        raise _refusal(found, document, file) from None
    settings = settings.located(file)
    wrong = list(_contradictions(settings))
    if wrong:
        raise _refusal(wrong, document, file)
    return _with_paths(settings, file.parent)


def _with_paths(settings: ProjectSettings, folder: Path) -> ProjectSettings:
    """Return settings whose paths are relative to no working folder."""

    def located(path: Path | None) -> Path | None:
        return None if path is None else folder / path.expanduser()

    push, serving = settings.push, settings.serving
    places = {
        "base_path": located(push.base_path),
        "signing_key": located(push.signing_key),
    }
    key = {"public_key": located(serving.public_key)}
    return settings.model_copy(
        update={
            "push": push.model_copy(update=places),
            "serving": serving.model_copy(update=key),
        }
    )


def _refusal(
    found: Sequence[tuple[yaml_source.Path, str]], document: Document, file: Path
) -> SettingsError:
    lines = []
    for path, sentence in found:
        origin = document.origin(path)
        shown = f"({origin})" if origin.startswith("from ") else origin
        key = _written(path)
        number = int(origin.rpartition(" ")[2]) if origin.startswith("at line ") else 0
        text = f"{key}: {sentence}" if key else sentence
        lines.append((number, f"{file.name}: {text} {shown}".rstrip()))
    return SettingsError("\n".join(text for _, text in sorted(lines)))


def _written(path: yaml_source.Path) -> str:
    """Write a path as messages do: `evaluator.slices[0]`."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(parts).removeprefix(".")


def _contradictions(
    settings: ProjectSettings,
) -> Iterator[tuple[yaml_source.Path, str]]:
    """Yield what is wrong between sections that are each right."""
    try:
        _ = settings.table
    except ValidationError as error:
        for detail in error.errors():
            message = detail["msg"].removeprefix("Value error, ")
            name, _, rest = message.partition(": ")
            known = name in settings.features
            yield (("features", name), rest) if known else (("features",), message)
        return
    yield from _wrong_columns(settings)
    yield from _wrong_code(settings)
    for name in settings.evaluator.thresholds:
        if name not in METRICS_FOR[settings.label.kind]:
            yield ("evaluator", "thresholds", name), _unfit(name, settings)
    for index, name in enumerate(settings.evaluator.metrics):
        if name not in METRICS_FOR[settings.label.kind]:
            yield ("evaluator", "metrics", index), _unfit(name, settings)
    yield from _wrong_paths(settings)


def _wrong_columns(
    settings: ProjectSettings,
) -> Iterator[tuple[yaml_source.Path, str]]:
    if settings.weight == settings.label.column:
        yield ("weight",), f"column {settings.weight!r} is the label"
    used = settings.table.column_dtypes()
    for index, column in enumerate(settings.drop):
        if column in used:
            yield ("drop", index), f"column {column!r} is dropped, but also used"


def _wrong_code(settings: ProjectSettings) -> Iterator[tuple[yaml_source.Path, str]]:
    code = {
        ("transform", "preprocessing_fn"): settings.transform.preprocessing_fn,
        ("trainer", "model"): settings.trainer.model,
    }
    for path, dotted in code.items():
        if dotted is not None and not is_dotted_path(dotted):
            allowed = "a dotted path, for example my_project.model.build_model"
            yield path, f'got "{dotted}", allowed: {allowed}'


def _wrong_paths(settings: ProjectSettings) -> Iterator[tuple[yaml_source.Path, str]]:
    if settings.schema_file is not None:
        try:
            if not settings.schema_file.is_file():
                yield ("schema", "file"), f"no such file: {settings.schema_file}"
        except OSError as error:  # a name that is too long, a folder that is not ours
            yield ("schema", "file"), f"cannot be read: {error.strerror}"
    try:
        settings.push.base_path.expanduser()
    except RuntimeError:
        allowed = "a path, ~ for your home folder"
        got = settings.push.base_path
        yield ("push", "base_path"), f'got "{got}", allowed: {allowed}'


def _unfit(metric: str, settings: ProjectSettings) -> str:
    kind = settings.label.kind
    return (
        f"{metric} does not fit a {kind} label, "
        f"allowed: {', '.join(sorted(METRICS_FOR[kind]))}"
    )
