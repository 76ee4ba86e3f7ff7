"""Running the pages: a socket that is ours, uvicorn, and an orderly end."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterable

import uvicorn

from surefoot._errors import FileError
from surefoot.serve.app import make_app
from surefoot.serve.guard import Guard, allowed_hosts
from surefoot.serve.room import Room

LOCAL = ("127.0.0.1", "localhost", "::1")
_SECONDS_TO_END = 10


def is_local(host: str) -> bool:
    """Whether only this machine can reach a host."""
    return host in LOCAL


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # by its name: else asyncio leaves Nagle's algorithm on, and the body of an answer waits 40 ms after its head
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what it accepts has it from here
    try:
        sock.bind((host, port))
        sock.listen(128)
    except (OSError, OverflowError) as error:
        sock.close()
        raise FileError(
            f"port {port} of {host} cannot be listened on: {getattr(error, 'strerror', None) or error}. Pass another "
            "--port, or end the program that holds it."
        ) from error
    return sock


def address(host: str, port: int) -> str:
    """The address for a browser."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def guarded(room: Room, host: str, allowed: Iterable[str] = ()) -> Guard:
    """The application behind its guard."""
    return Guard(make_app(room), allowed_hosts(host, allowed), any_address=not is_local(host))


def _leave(*_: object) -> None:
    raise SystemExit(0)


def run(
    room: Room,
    sock: socket.socket,
    host: str,
    *,
    allowed: Iterable[str] = (),
    ready: Callable[[str], None],
    browser: bool,
) -> None:
    """Serve until SIGINT or SIGTERM; answers under way are written first."""
    url = address(host, sock.getsockname()[1])
    config = uvicorn.Config(
        guarded(room, host, allowed),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises it again when all answers are written
    room.fitter.start()
    room.fitter.wake()
    ready(url)
    if browser:
        threading.Timer(0.5, webbrowser.open, [url]).start()
    try:
        uvicorn.Server(config).run(sockets=[sock])
    finally:
        room.fitter.stop()
        room.desk.store.close()
        sock.close()
