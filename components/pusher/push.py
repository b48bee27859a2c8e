"""What a push is: published, then taken by every server that is to serve it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.errors import PushError
from components.pusher.config import PushSettings
from serving import warm_up_requests
from serving.client.grpc_client import GrpcClient
from serving.errors import RepositoryError, ServingError
from serving.model_repository import Origin
from serving.routing import Routes
from serving.saved_model import check_servable
from serving.signature_contract import Change, compare, compare_vocabularies
from serving.signing import Signer, signer


@dataclass(frozen=True)
class Pushed:
    """What became of a model."""

    version: int
    is_new: bool
    """False where this version held the same files already."""
    confirmed: tuple[str, ...] = ()
    """Servers that have it AVAILABLE."""
    problem: str = ""
    """Why a server has not; it is then published, not pushed."""
    changes: tuple[str, ...] = ()
    """What clients could notice, compared with the version before, and what is not
    warmed up."""


def push(
    source: Path,
    settings: PushSettings,
    servers: Sequence[str],
    timeout_s: float,
    origin: Origin,
    examples: Sequence[bytes] = (),
) -> Pushed:
    """Publish a SavedModel and let the servers take it.

    Requests that ask for no version are answered as before, unless it is the first.

    Args:
        source: The SavedModel.
        settings: Where to.
        servers: gRPC addresses; none: whoever starts later takes it from the config.
        timeout_s: How long they may take.
        origin: Where it comes from.
        examples: Raw tf.Examples, of which warm-up requests are made.

    Raises:
        PushError: It cannot be published, or would break what clients rely on.
    """
    try:
        sign = signer(settings.signing_key) if settings.signing_key else None
    except ServingError as error:
        raise PushError(f"push.signing_key: {error}") from error
    with _routes(settings, servers, sign) as routes:
        try:
            changes = compare_with_stable(source, routes)
            broken = [str(change) for change in changes if change.breaks]
            if broken and not settings.allow_breaking:
                raise PushError(
                    "push: clients of the version before would break: "
                    f"{'; '.join(broken)}; set push.allow_breaking to push it all the "
                    "same"
                )
            notes: list[str] = []

            def warm_up(copy: Path) -> None:
                notes.extend(add_warm_up(copy, settings, examples))

            published = routes.repository.publish(source, origin, warm_up)
        except ServingError as error:
            raise PushError(f"push: {error}") from error
        problem = _take(routes, published.version, timeout_s)
    return Pushed(
        published.version,
        published.is_new,
        () if problem else tuple(servers),
        problem,
        (*map(str, changes), *notes),
    )


def add_warm_up(
    version: Path, settings: PushSettings, examples: Sequence[bytes]
) -> list[str]:
    """Add warm-up requests to a model that has none of its own; return notes.

    Raises:
        RepositoryError: It is no SavedModel that can be served.
    """
    file = version / warm_up_requests.FILE
    if not (examples and settings.warm_up_batch_sizes) or file.exists():
        return []
    return warm_up_requests.write(
        file,
        settings.model,
        check_servable(version),
        examples,
        settings.warm_up_batch_sizes,
    )


@contextmanager
def _routes(
    settings: PushSettings, servers: Sequence[str], sign: Signer | None
) -> Iterator[Routes]:
    clients = {address: GrpcClient(address, settings.model) for address in servers}
    try:
        yield Routes(settings.base_path, settings.model, clients, sign)
    finally:
        for client in clients.values():
            client.close()


def _take(routes: Routes, version: int, timeout_s: float) -> str:
    """Let the servers take a version; return why one did not."""
    try:
        routes.take(version, timeout_s)
    except ServingError as error:
        return str(error)
    return ""


def compare_with_stable(source: Path, routes: Routes) -> list[Change]:
    """Return what clients of the stable version could notice, or of the newest.

    Raises:
        RepositoryError: The source is no SavedModel that can be served.
    """
    after = check_servable(source)
    version = routes.stable() or routes.repository.latest()
    if version is None:
        return []
    try:
        folder = routes.repository.path(version)
        before = check_servable(folder)
    except RepositoryError:
        return []  # what cannot be served has no clients
    return [*compare(before, after), *compare_vocabularies(folder, source)]
