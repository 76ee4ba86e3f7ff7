"""What every request must pass, and what every answer says: hosts, sizes, origins, and headers of security."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_REQUEST = 64 * 1024
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
_READING = ("GET", "HEAD")
_LONGEST_ADDRESS = 2000


def allowed_hosts(host: str, more: Iterable[str] = ()) -> set[str]:
    """Names under which this server may be asked; a page elsewhere whose name DNS leads here has none of them."""
    names = {"localhost", "127.0.0.1", "[::1]", _bracketed(host), *(name.lower() for name in more)}
    if host in ("0.0.0.0", "::"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def host_of(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0].lower() + "]"
    return header.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class Guard:
    """Wraps an application: refuses foreign hosts, foreign origins and large requests, and sets headers.

    Parameters
    ----------
    app : ASGI application
    hosts : set of str, allowed names.
    any_address : bool, whether every numeric address will do: a name is needed to lead a browser here by DNS.
    """

    def __init__(self, app: Any, hosts: set[str], any_address: bool = False) -> None:
        self._app, self._hosts, self._any_address = app, hosts, any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope["method"], headers)
        if len(scope["path"]) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            refusal = refusal or (414, f"an address may have {_LONGEST_ADDRESS} characters at the most")
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        body = await _whole(receive)
        if body is None:
            await _refuse(send, 413, f"a request may have {LARGEST_REQUEST} bytes at the most")
            return
        await self._app(scope, _replayed(body, receive), _with_headers(send))

    def _refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = host_of(headers.get("host", ""))
        if host not in self._hosts and not (self._any_address and _is_address(host)):
            return 421, "this server does not answer to that host; start it with --allow-host for another name"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_REQUEST:
            return 413, f"a request may have {LARGEST_REQUEST} bytes at the most"
        if method in _READING:
            return None
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return 403, "answers are taken from this server's own pages only"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "answers are taken from this server's own pages only"
        return None


async def _whole(receive: Receive) -> bytes | None:
    """The body of a request; None for one that is too large, of which no more is read."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_REQUEST:
            return None
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def read() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()  # that the client has gone
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = {key.lower() for key, _ in message["headers"]}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *((k.encode(), v.encode()) for k, v in HEADERS.items())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"Refused: {why}.\n".encode()})
