"""A labeling page in the browser: rows one by one, several people, and a proof of when to stop.

Here a table becomes a page that is being served: a socket that is ours, uvicorn, and an orderly end.

Any client that reaches the port may open connections without signing in, so the server limits them: there are
limits on how many there are, on how long a request may take to arrive, and on how often the log repeats a line.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import numpy as np
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from surefoot._errors import FileError, import_extra
from surefoot._printing import address
from surefoot.pool.label_log import Neighbours
from surefoot.pool.schedule import LabelingSettings
from surefoot.pool.service import LabelingService
from surefoot.pool.store_labels import open_store
from surefoot.serve.app import make_app
from surefoot.serve.guard import Guard, allowed_hosts
from surefoot.serve.state import AppState, Cards, Fitter, Process

if TYPE_CHECKING:
    from surefoot.pool.served_model import ServedTable

__all__ = ["run_site"]

LOCAL = ("127.0.0.1", "localhost", "::1")
_SECONDS_TO_END = 10
# Seconds from the first byte, or the last response, to the end of a request.
SECONDS_TO_ARRIVE = 20.0
MOST_CONNECTIONS = 256
# Seconds for which a line of the log is not repeated.
_SILENCE = 60.0
# asyncio accepts this many at once, before any of them can be counted; the system's queue may be longer.
_AT_ONCE, _QUEUE = 8, 128


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
            f"port {port} of {host} cannot be used: {getattr(error, 'strerror', None) or error}. Pass another "
            "--port, or stop the program that uses it."
        ) from error
    return sock


def guarded(state: AppState, host: str, allowed: Iterable[str] = ()) -> Guard:
    """The application behind its guard."""
    hosts = allowed_hosts(host, allowed)
    return Guard(make_app(state), hosts, any_address=not is_local(host), is_program=state.is_label_studio)


def _leave(*_: object) -> None:
    raise SystemExit(0)


def run_server(
    state: AppState,
    sock: socket.socket,
    host: str,
    *,
    allowed: Iterable[str] = (),
    ready: Callable[[str], None],
    browser: bool,
) -> None:
    """Serve until SIGINT or SIGTERM; answers under way are written first."""
    url = address(host, sock.getsockname()[1])
    server = Server(
        guarded(state, host, allowed),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises it again when all answers are written
    state.fitter.start()
    state.fitter.wake()
    ready(url)
    if browser:
        threading.Timer(0.5, webbrowser.open, [url]).start()
    try:
        server.run(sockets=[sock])
    finally:
        state.fitter.stop()
        state.desk.store.close()
        sock.close()


def run_site(
    load: Callable[[], ServedTable],
    settings: LabelingSettings,
    *,
    host: str,
    port: int,
    ready: Callable[[str, LabelingService, bool], None],
    allowed: Collection[str] = (),
    guidelines: Path | None = None,
    robot: object | None = None,
    browser: bool = True,
    target: float | None = None,
    label_studio: bool = False,
) -> None:
    """Serve the labeling page of a table until the process is stopped.

    load : opens the table; called when the port is known to be free.
    ready : gets the page's address, its desk, and whether an invitation is needed, when the page is served.
    allowed : more names of this server; guidelines : Markdown file to show; robot : the label of each row (N,), for
    the demonstration; target : to prove from now on, None for the last one of this table. label_studio : whether to
    serve a Label Studio as well, which has a token. People come in by invitation unless only this machine can reach the
    host.
    """
    bind(host, port).close()  # told before anything is read
    shown = None if guidelines is None else read_guidelines(guidelines)
    opened = load()
    table, pool = opened.table, opened.pool
    worker = None if opened.learner is None else Process(opened.learner)
    if worker is not None:
        worker.start()  # first, while there are no threads
    store = open_store(table, opened.content, opened.read)
    desk = LabelingService(store, len(table.labels), table.classes, settings)
    try:
        desk.begin_audit(opened.audit, opened.predictions, opened.scores)
        if target is not None and desk.turns.finishing is None and desk.turns.column is None:
            desk.set_target(None, target)
    except BaseException:
        if worker is not None:
            worker.stop()
        store.close()
        raise
    state = AppState(
        desk,
        Cards(table, None if pool is None else pool.values[pool.columns.numbers], desk.turns.hidden_columns),
        Fitter(worker, desk.wanted, desk.take_ranking, desk.freeze_if_due),
        Neighbours(np.empty((len(table.labels), 0)) if pool is None else pool.rows),
        opened.content,
        shown,
        invitations_only=not is_local(host) or bool(allowed),
        robot=robot,
        label_studio=label_studio,
    )
    sock = bind(host, port)
    run_server(
        state, sock, host, allowed=allowed, ready=lambda url: ready(url, desk, state.by_invitation), browser=browser
    )


def read_guidelines(path: Path) -> str:
    """A Markdown file as HTML; HTML in it is shown, not used, and pictures are left out."""
    markdown = import_extra("markdown_it", "serve", "showing guidelines")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise FileError(f"{path} must be a Markdown file in UTF-8; it could not be read: {error}. Check it.") from error
    return str(markdown.MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text))


def most_connections() -> int:
    """How many connections may be open: a quarter of the files that the process may open, at most 256."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files < 0 else max(min(MOST_CONNECTIONS, files // 4), 1)


class Connection(H11Protocol):
    """A connection that ends when its request takes too long; and when others come, if it waits for its client."""

    since = 0.0
    dropped = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it; if there are too many, the one that has waited longest for its client makes room."""
        super().connection_made(transport)
        self._expect_request()
        there = [one for one in self.connections if isinstance(one, Connection) and not one.dropped]
        if len(there) > most_connections():
            min((one for one in there if one.waits_for_client()), key=lambda one: one.since).drop()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer as well."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def waits_for_client(self) -> bool:
        """Whether the client is to send the rest of a request, or to read a response."""
        at_work = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and not self.cycle.response_complete
        return not at_work or self.transport.get_write_buffer_size() > 0

    def drop(self) -> None:
        """End it at once, whatever is still to be sent."""
        self.dropped = True
        self.transport.abort()

    def _expect_request(self) -> None:
        if self._late is not None:
            self._late.cancel()
        if not self.transport.get_write_buffer_size():  # else its client still has the last response to read
            self.since = self.loop.time()
        self._late = self.loop.call_later(SECONDS_TO_ARRIVE, self._end_if_late)

    def _end_if_late(self) -> None:
        """A response that is still being read is not cut off: it ends by itself, or makes room for others."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.get_write_buffer_size():
            self.drop()


class Once(logging.Filter):
    """Limits similar log lines to one per minute, with the number of omitted lines."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the line should be written."""
        kind = record.exc_info[0] if record.exc_info else None
        key, now = (str(record.msg).partition("\n")[0], kind), time.monotonic()
        until, more = self._seen.get(key, (0.0, 0))
        if now < until:
            self._seen[key] = until, more + 1
            return False
        self._seen[key] = now + _SILENCE, 0
        if more:
            record.msg = f"{record.msg} ({more} more like this since the last)"
        return True


class Server(uvicorn.Server):
    """uvicorn with these limits."""

    def __init__(self, app: Any, **options: Any) -> None:
        # h11 and asyncio, also where faster ones are installed: the limits are theirs
        super().__init__(uvicorn.Config(app, http=Connection, loop="asyncio", backlog=_AT_ONCE, **options))
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(Once())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a longer queue than asyncio sets."""
        await super().startup(sockets)
        for sock in sockets or []:
            sock.listen(_QUEUE)
