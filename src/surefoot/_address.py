"""The address at which a browser finds a server of this machine."""

from __future__ import annotations

import socket


def address(host: str, port: int) -> str:
    """The address for a browser."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
