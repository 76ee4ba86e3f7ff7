"""What every request must pass, and what every answer says: hosts, sizes, origins, and headers of security."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

LARGEST_REQUEST = 64 * 1024
# Of Label Studio, which sends many tasks at once.
LARGEST_BATCH = 16 * 1024 * 1024
# No inline script or style, nothing from elsewhere, no frame around the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # "no-referrer" would take the origin from forms as well
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_ADDRESS = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9.]+))(?::[0-9]+)?", re.IGNORECASE)
# Headers that a proxy adds: the request comes from elsewhere, though its connection comes from this machine.
_OF_A_PROXY = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_MOST_FIELDS = 20
_READING = ("GET", "HEAD")
_LONGEST_ADDRESS = 2000
_PROGRAM = "/label-studio/"


def allowed_hosts(host: str, more: Iterable[str] = ()) -> set[str]:
    """Host names of this server. A foreign page whose name resolves to this server has another name."""
    names = {"localhost", "127.0.0.1", "[::1]", _bracketed(host), *(name.lower() for name in more)}
    if host in ("0.0.0.0", "::"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _is_address(header: str) -> bool:
    """Whether a Host header names a numeric address, with a port or without."""
    found = _ADDRESS.fullmatch(header)
    try:
        ipaddress.ip_address(found[1] or found[2] if found else "")
    except ValueError:
        return False
    return True


class Guard:
    """Wraps an application: refuses foreign hosts, foreign origins and large requests, and sets headers.

    hosts : allowed names; any_address : whether every numeric address will do, too: DNS leads browsers by names alone.
    is_program : whether a token is that of a program, whose requests may be larger.
    """

    def __init__(
        self,
        app: Any,
        hosts: set[str],
        any_address: bool = False,
        is_program: Callable[[str], bool] = lambda token: False,
    ) -> None:
        self._app, self._any_address, self._is_program = app, any_address, is_program
        self._named = TrustedHostMiddleware(app, sorted(hosts), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        token = token_of(scope["path"], headers.get("authorization", ""))
        is_program = token is not None and await run_in_threadpool(self._is_program, token)
        largest = LARGEST_BATCH if is_program else LARGEST_REQUEST
        refusal = self._refusal(scope["method"], headers, largest)
        if len(scope["path"]) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            refusal = refusal or (414, f"an address may have {_LONGEST_ADDRESS} characters at the most")
        if refusal is not None:
            await _refused(*refusal)(scope, receive, send)
            return
        try:
            body = await _whole(Request(scope, receive), largest)
        except ClientDisconnect:
            return
        if body is None:
            await _refused(*_too_large(largest))(scope, receive, send)
            return
        app = self._app if self._any_address and _is_address(headers.get("host", "")) else self._named
        await app(scope, _replayed(body, receive), _with_headers(send))

    @staticmethod
    def _refusal(method: str, headers: dict[str, str], largest: int) -> tuple[int, str] | None:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal() and len(length) < 10 and int(length) <= largest):
            return _too_large(largest)
        if method in _READING:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != headers.get("host")
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "answers are taken from this server's own pages only"
        return None


def token_of(path: str, authorization: str) -> str | None:
    """Return the token of a program: in the path, or as the password of basic authentication; None if there is none."""
    if path.startswith(_PROGRAM):
        return path.removeprefix(_PROGRAM).partition("/")[0]
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:
        return None


def _too_large(largest: int) -> tuple[int, str]:
    return 413, f"a request may have {largest} bytes at the most"


async def _whole(request: Request, largest: int) -> bytes | None:
    """The body of a request; None for one that is too large, of which no more is read."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > largest:
            return None
    return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def read() -> Message:
        nonlocal given
        if given:
            return await receive()  # that the client has gone
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent


def _refused(status: int, why: str) -> PlainTextResponse:
    return PlainTextResponse(f"Refused: {why}.\n", status, HEADERS)


def is_forwarded(request: Request) -> bool:
    """Whether a proxy says that it has handed a request on."""
    return any(name in request.headers for name in _OF_A_PROXY)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; a request is small, see `LARGEST_REQUEST`."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS, keep_blank_values=True))
    except ValueError as error:
        raise HTTPException(400, f"A form may have at most {_MOST_FIELDS} fields.") from error
