"""What each step's key is made of: data, settings, user code, our code, libraries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.example_gen.request import IngestRequest
from components.example_gen.sources import find_sources
from pipeline import digests, steps
from pipeline.config import ProjectSettings
from pipeline.steps import Step
from pipeline.user_code import reachable_sources

OUR_PACKAGES = ("pipeline", "components", "serving")
OUR_ROOT = Path(__file__).parents[2]
WIRING = OUR_ROOT / "pipeline" / "definition.py"


@dataclass(frozen=True)
class Ingredients:
    """Digests taken once for a run; call it for what goes into a step's key."""

    settings: ProjectSettings
    data: Mapping[str, str]
    """Digest of each input file, by its path."""
    libraries: str
    """Digest of the interpreter and the installed distributions."""

    @classmethod
    def gather(cls, settings: ProjectSettings) -> "Ingredients":
        """Read the input files and list the libraries.

        Raises:
            DataError: A file is missing.
        """
        sources = find_sources(ingest_request(settings))
        data = digests.of_files(file for _, file in sources)
        return cls(settings, data, digests.of_libraries())

    @property
    def data_digest(self) -> str:
        """One digest of all input files."""
        return digests.of_value(self.data)

    def __call__(self, step: Step) -> Mapping[str, object]:
        """Return what the step's key holds besides the keys of its inputs."""
        own = _OWN.get(step.id, _nothing)
        return {
            "own": own(self),
            "code": code_digest(step.code, OUR_ROOT, OUR_PACKAGES),
            "wiring": digests.of_file(WIRING),
            "libraries": self.libraries,
        }


def ingest_request(settings: ProjectSettings) -> IngestRequest:
    """Return what ExampleGen will be asked to read."""
    return IngestRequest.build(
        settings.root, settings.data, settings.table, settings.slice_columns
    )


def code_digest(
    dotted: str | None, root: Path, packages: tuple[str, ...] | None = None
) -> str | None:
    """Return the digest of all source files that a dotted path reaches."""
    if dotted is None:
        return None
    sources = reachable_sources(dotted, root, packages)
    return digests.of_value(
        {name: digests.of_file(path) for name, path in sources.items()}
    )


def _nothing(_: Ingredients) -> object:
    return None


def _example_gen(given: Ingredients) -> object:
    request = ingest_request(given.settings)
    return [list(given.data.items()), request.model_dump(mode="json")]


def _schema_gen(given: Ingredients) -> object:
    curated = given.settings.schema_file
    return None if curated is None else digests.of_file(curated)


def _example_validator(given: Ingredients) -> object:
    return given.settings.schema_.model_dump(mode="json")


def _transform(given: Ingredients) -> object:
    settings = given.settings
    return [
        settings.table.model_dump(mode="json"),
        settings.transform.model_dump(mode="json"),
        code_digest(settings.transform.preprocessing_fn, settings.root),
    ]


def _trainer(given: Ingredients) -> object:
    settings = given.settings
    return [
        settings.trainer.model_dump(mode="json"),
        code_digest(settings.trainer.model, settings.root),
    ]


def _evaluator(given: Ingredients) -> object:
    return given.settings.evaluator.model_dump(mode="json")


def _pusher(given: Ingredients) -> object:
    return {
        **given.settings.push.model_dump(mode="json"),
        "servers": given.settings.serving.servers,
    }


_OWN: Mapping[str, Callable[[Ingredients], object]] = {
    steps.EXAMPLE_GEN.id: _example_gen,
    steps.SCHEMA_GEN.id: _schema_gen,
    steps.EXAMPLE_VALIDATOR.id: _example_validator,
    steps.TRANSFORM.id: _transform,
    steps.TRAINER.id: _trainer,
    steps.EVALUATOR.id: _evaluator,
    steps.PUSHER.id: _pusher,
}
