"""The application: pages, and an interface of JSON for their script."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hmac import compare_digest
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from surefoot.pool.labeling import label_studio
from surefoot.pool.labeling.desk import AnswerError
from surefoot.pool.labeling.downloads import CSV, PARQUET, answers_table, as_bytes, labeled_table
from surefoot.pool.labeling.learning import as_job
from surefoot.pool.labeling.line import Line
from surefoot.pool.labeling.store import NotSavedError, Person, check_name
from surefoot.pool.labeling.turns import AUDITING, PROVED
from surefoot.serve.cards import media_type
from surefoot.serve.lists import Query, finish_page, history_page
from surefoot.serve.pages import hello_page, label_page, onward_page
from surefoot.serve.replies import OK, Replies, Reply, refusal
from surefoot.serve.room import Room, write_token

COOKIE = "surefoot_session"
_YEAR = 365 * 24 * 3600
_STATIC = {"style.css": "text/css", "label.js": "text/javascript", "lists.js": "text/javascript",
           "chart.js": "text/javascript", "icon.svg": "image/svg+xml"}  # fmt: skip
# Seconds for which a session is not looked up again; a new invitation ends the old one within these.
_REMEMBERED = 5.0

_SAVED = b'{"saved":true}'

Act = Callable[[Person, dict[str, Any]], Any]
Asking = Callable[[Person, dict[str, Any]], Awaitable[Reply]]


def make_app(room: Room) -> Starlette:
    """The application of one pool."""
    views = Views(room)
    get, post = ["GET"], ["POST"]
    acts = {
        "undo": views.undo,
        "flag": views.flag,
        "note": views.note,
        "robot": views.robot,
    }
    forms = {"edit": views.edit, "settle": views.settle, "unflag": views.unflag, "report": views.ask_report}
    return Starlette(
        routes=[  # tried in this order
            Route("/api/answer", views.asking(views.answer), methods=post),
            Route("/", views.page(lambda person, token, _: label_page(room, person, token)), methods=get),
            Route("/history", views.page(views.history), methods=get),
            Route("/finish", views.page(lambda person, token, _: finish_page(room, person, token)), methods=get),
            Route("/hello", views.hello, methods=[*get, *post]),
            Route("/join/{token}", views.join, methods=get),
            Route("/leave", views.leave, methods=post),
            Route("/api/rows", views.rows, methods=get),
            Route("/api/standing", views.standing, methods=get),
            *[Route(f"/api/{name}", views.asking(in_a_thread(act)), methods=post) for name, act in acts.items()],
            *[Route(f"/{name}", views.form(act), methods=post) for name, act in forms.items()],
            Route("/picture/{row:int}/{column:int}", views.picture, methods=get),
            Route("/download/{name}", views.download, methods=get),
            Route("/static/{name}", views.static, methods=get),
        ]
    )


class Views:
    """What each address does."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.replies = Replies(room)
        self._line = Line(self.replies.answers)
        self._people: dict[str, tuple[Person, float]] = {}
        folder = files("surefoot.serve") / "static"
        self._static = {name: (folder / name).read_bytes() for name in _STATIC}

    # who

    async def _person(self, request: Request) -> Person | None:
        secret = request.cookies.get(COOKIE)
        if secret is None:
            return None
        known = self._people.get(secret)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        person = await run_in_threadpool(self.room.desk.store.signed_in, secret)
        if person is not None:
            self._people[secret] = person, time.monotonic() + _REMEMBERED
        return person

    def _come_in(self, person: Person, request: Request, response: Response) -> Response:
        """Begin a session, whose secret a response takes to the browser."""
        secret = self.room.desk.store.sign_in(person)
        secure = request.headers.get("x-forwarded-proto") == "https"  # of a proxy; who forges it harms himself
        response.set_cookie(COOKIE, secret, max_age=_YEAR, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    async def hello(self, request: Request) -> Response:
        """Ask for a name; on a server only a token lets people in."""
        names = [one.name for one in self.room.desk.store.people() if not one.name.startswith("(")]
        if request.method == "GET":
            return HTMLResponse(hello_page(self.room, names))
        given = await _form(request)
        if self.room.by_invitation or not _same(given.get("token"), self.room.form_token):
            return HTMLResponse(hello_page(self.room, names, "That page was too old. Try again."), 403)
        name = " ".join(given.get("name", "").split())
        try:
            check_name(name)
            person = await run_in_threadpool(self.room.desk.store.person, name)
            return await run_in_threadpool(self._come_in, person, request, RedirectResponse("/", 303))
        except NotSavedError as error:
            return HTMLResponse(hello_page(self.room, names, str(error)), 507)
        except ValueError as error:
            return HTMLResponse(hello_page(self.room, names, str(error)), 400)

    async def join(self, request: Request) -> Response:
        """A token link: whoever has it is that person.

        A page leads on, not a redirection: from that, a browser that came by a link in a mail keeps the cookie back.
        """
        person = await run_in_threadpool(self.room.desk.store.invited, request.path_params["token"])
        if person is None:
            return HTMLResponse(hello_page(self.room, [], "That link is not, or no longer, valid."), 403)
        page = HTMLResponse(onward_page("/", f"Welcome, {person.name}."))
        try:
            return await run_in_threadpool(self._come_in, person, request, page)
        except NotSavedError as error:
            return HTMLResponse(hello_page(self.room, [], str(error)), 507)

    async def leave(self, request: Request) -> Response:
        """Forget who sits here."""
        given = await _form(request)
        response: Response = RedirectResponse("/hello", 303)
        secret = request.cookies.get(COOKIE, "")
        if _same(given.get("token"), write_token(secret)):
            with suppress(NotSavedError):  # the browser forgets it in any case
                await run_in_threadpool(self.room.desk.store.sign_out, secret)
            self._people.pop(secret, None)
            response.delete_cookie(COOKIE, path="/")
        return response

    # pages

    def page(self, make: Callable[[Person, str, Request], str]) -> Callable[[Request], Awaitable[Response]]:
        """A page for people who are signed in."""

        async def shown(request: Request) -> Response:
            person = await self._person(request)
            if person is None and request.headers.get("sec-fetch-site") == "cross-site":
                return HTMLResponse(onward_page(request.url.path))  # from a link elsewhere: now with the cookie
            if person is None:
                return RedirectResponse("/hello", 303)
            token = write_token(request.cookies[COOKIE])
            return HTMLResponse(await run_in_threadpool(make, person, token, request))

        return shown

    def history(self, person: Person, token: str, request: Request) -> str:
        return history_page(self.room, person, token, Query.of(dict(request.query_params)))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            return PlainTextResponse("Not found.\n", 404)
        return Response(self._static[name], media_type=_STATIC[name], headers={"cache-control": "no-cache"})

    async def picture(self, request: Request) -> Response:
        """A picture that a cell names; the address has numbers only, never a path."""
        cards, row, column = self.room.cards, request.path_params["row"], request.path_params["column"]
        if await self._person(request) is None or row >= self.room.desk.book.n_rows or column >= len(cards.names):
            return PlainTextResponse("Not found.\n", 404)
        file = await run_in_threadpool(cards.picture, row, cards.names[column])
        return (
            PlainTextResponse("Not found.\n", 404) if file is None else FileResponse(file, media_type=media_type(file))
        )

    # rows and answers

    async def rows(self, request: Request) -> Response:
        """The rows in a person's hands, as cards."""
        person = await self._person(request)
        if person is None:
            return _signed_out()
        given = {"have": [], "beyond": request.query_params.get("beyond") == "1"}
        return _replied(await run_in_threadpool(_tried, self.replies.state, person, given))

    async def standing(self, request: Request) -> Response:
        if await self._person(request) is None:
            return _signed_out()
        return _replied((OK, await run_in_threadpool(self.replies.standing)))

    def asking(self, act: Asking) -> Callable[[Request], Awaitable[Response]]:
        """An answer in JSON; it needs the session, and the token of its page."""

        async def acted(request: Request) -> Response:
            person = await self._person(request)
            if person is None:
                return _signed_out()
            if not _same(request.headers.get("x-write-token"), write_token(request.cookies[COOKIE])):
                return JSONResponse({"saved": False, "message": "This page is too old. Reload it."}, 403)
            try:
                data = json.loads(await request.body())
            except (ValueError, RecursionError):
                data = None
            if not isinstance(data, dict):
                return JSONResponse({"saved": False, "message": "A request must be a JSON object."}, 400)
            return _replied(await act(person, data))

        return acted

    def form(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        """The same from a form; back to where it came from."""

        async def acted(request: Request) -> Response:
            person, given = await self._person(request), await _form(request)
            if person is None:
                return RedirectResponse("/hello", 303)
            if not _same(given.get("token"), write_token(request.cookies[COOKIE])):
                return PlainTextResponse("This page is too old. Go back and reload it.\n", 403)
            row = given.get("row", "")
            data = {**given, "row": int(row) if row.isdecimal() and len(row) < 12 else -1}
            try:
                where = await run_in_threadpool(act, person, data)
            except AnswerError as error:
                return PlainTextResponse(f"{error}\n", 400)
            except NotSavedError as error:
                return PlainTextResponse(f"Not saved: {error}\n", 507)
            return RedirectResponse(str(where), 303)

        return acted

    async def answer(self, person: Person, data: dict[str, Any]) -> Reply:
        """A label or a skip; the answer is on the disk when this returns."""
        return await self._line.ask((person, data))

    def undo(self, person: Person, data: dict[str, Any]) -> bytes:
        row = self.room.desk.undo(person, _key(data))
        self.room.fitter.wake()
        return self.replies.state(person, data, undone=row)

    def flag(self, person: Person, data: dict[str, Any]) -> bytes:
        self.room.desk.flag(person, data.get("row", -1), bool(data.get("flagged")))
        return _SAVED

    def note(self, person: Person, data: dict[str, Any]) -> bytes:
        self.room.desk.note(person, data.get("row", -1), str(data.get("text", "")), _key(data))
        return _SAVED

    def robot(self, person: Person, data: dict[str, Any]) -> bytes:
        """What the robot of the demonstration would answer."""
        truth: Any = self.room.robot
        row = data.get("row", -1)
        if truth is None or not isinstance(row, int) or not 0 <= row < len(truth):
            raise AnswerError("there is no robot here.")
        return json.dumps({"saved": True, "label": str(truth[row])}).encode()

    def edit(self, person: Person, data: dict[str, Any]) -> str:
        self.room.desk.answer(person, data["row"], data.get("label") or None)
        self.room.fitter.wake()
        return f"/history#row-{data['row'] + 1}"

    def settle(self, person: Person, data: dict[str, Any]) -> str:
        self.room.desk.settle(person, data["row"], str(data.get("label")))
        self.room.fitter.wake()
        return f"/history#row-{data['row'] + 1}"

    def unflag(self, person: Person, data: dict[str, Any]) -> str:
        self.room.desk.flag(person, data["row"], False)
        return f"/history#row-{data['row'] + 1}"

    def ask_report(self, person: Person, data: dict[str, Any]) -> str:
        book = self.room.desk.book
        with self.room.desk.lock:
            job = as_job(book.labels, book.picked())
        self.room.fitter.ask_report(job)
        return "/finish"

    # files

    async def download(self, request: Request) -> Response:
        if await self._person(request) is None:
            return RedirectResponse("/hello", 303)
        name = request.path_params["name"]
        made = await run_in_threadpool(self._file, name)
        if made is None:
            return PlainTextResponse("Not found.\n", 404)
        content, kind, file = made
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in file)
        headers = {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file, safe='')}"}
        return Response(content, media_type=kind, headers=headers)

    def _file(self, name: str) -> tuple[bytes, str, str] | None:
        """Content, type and name of a download."""
        desk, table = self.room.desk, self.room.cards.table
        stem = table.path.stem
        what, _, form = name.partition(".")
        kind = {CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}.get(form, "application/octet-stream")
        with desk.lock:
            labels, people = dict(desk.book.labels), desk.store.people()
            if what == "answers" and form in (CSV, PARQUET):
                frame = answers_table(desk.book, people)
                return as_bytes(frame, form), kind, f"{stem}.answers.{form}"
            if name == "label-studio.json":
                made = label_studio.tasks(table, desk.book, people, self._predictions())
                return json.dumps(made, ensure_ascii=False).encode(), "application/json", f"{stem}.label-studio.json"
        if what == "labels" and form in (CSV, PARQUET):
            return as_bytes(labeled_table(table, labels), form, table), kind, f"{stem}.labeled.{form}"
        if name == "model.skops":
            model = self._model()
            return None if model is None else (model, kind, f"{stem}.skops")
        if name == "report.html" and self.room.fitter.report is not None:
            return self.room.fitter.report, "text/html; charset=utf-8", f"{stem}.report.html"
        return None

    def _predictions(self) -> dict[int, tuple[str, float | None]] | None:
        """What the latest model says of each row, and how sure it is; not while an audit hides it."""
        ranking, classes = self.room.desk.ranking, self.room.desk.book.classes
        if ranking is None or self.room.desk.turns.phase == AUDITING:
            return None
        scores = ranking.proba[np.arange(len(ranking.predictions)), ranking.predictions].tolist()
        return {row: (classes[k], scores[row]) for row, k in enumerate(ranking.predictions.tolist())}

    def _model(self) -> bytes | None:
        """The model that was proved, else the latest."""
        desk = self.room.desk
        with desk.lock:
            if desk.turns.phase != PROVED and desk.ranking is not None:
                return desk.ranking.model
            return desk.store.frozen(desk.turns.n_audits)[2] if desk.turns.n_audits else None


def in_a_thread(act: Act) -> Asking:
    """An act that waits for the disk, beside the others."""

    async def asked(person: Person, data: dict[str, Any]) -> Reply:
        return await run_in_threadpool(_tried, act, person, data)

    return asked


def _tried(act: Act, person: Person, data: dict[str, Any]) -> Reply:
    try:
        return OK, act(person, data)
    except (AnswerError, NotSavedError) as error:
        return refusal(error)


def _replied(reply: Reply) -> Response:
    status, content = reply
    return Response(content, status, media_type="application/json")


def _same(given: str | None, right: str) -> bool:
    """Whether a token is the right one; how long that takes tells nothing."""
    return given is not None and compare_digest(given.encode("utf-8", "replace"), right.encode())


def _signed_out() -> Response:
    return JSONResponse({"saved": False, "message": "You are not signed in. Reload the page."}, 401)


def _key(data: dict[str, Any]) -> str | None:
    key = data.get("key")
    return key if isinstance(key, str) else None


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; a request is small, see `guard`."""
    text = (await request.body()).decode("utf-8", "replace")
    return dict(parse_qsl(text, max_num_fields=20, keep_blank_values=True))
