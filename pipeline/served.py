"""The model of the settings: where it is published, and who serves it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.config import ProjectSettings
from serving.client.grpc_client import GrpcClient
from serving.errors import ClientError
from serving.routing import Routes

PROBE_TIMEOUT_S = 2.0


@contextmanager
def routes_of(settings: ProjectSettings) -> Iterator[Routes]:
    """Return the routes of the settings' model, with the servers to tell of changes.

    Raises:
        ClientError: A server that the settings name cannot be reached.
    """
    model = settings.push.model
    local = f"{settings.serving.host}:{settings.serving.grpc_port}"
    addresses = settings.serving.servers or (local,)
    clients = {address: GrpcClient(address, model) for address in addresses}
    try:
        servers = {
            address: client
            for address, client in clients.items()
            if settings.serving.servers or _serves(client)
        }
        yield Routes(settings.push.base_path, model, servers)
    finally:
        for client in clients.values():
            client.close()


def _serves(client: GrpcClient) -> bool:
    """Tell whether a server runs there that knows the model."""
    try:
        client.status(PROBE_TIMEOUT_S)
    except ClientError:
        return False
    return True


def told(routes: Routes) -> str:
    """Return the sentence that says who has taken a change."""
    if routes.addresses:
        return f"taken by {', '.join(routes.addresses)}"
    return "no server runs; one that starts takes it from there"
