"""Ports that cannot be had, in words."""


def port_taken(api: str, host: str, port: int) -> str:
    """Say that a port cannot be had."""
    return (
        f"the {api} port {host}:{port} cannot be opened: another program listens there, "
        "or it is not ours to take; choose another, or 0 for any free one"
    )
