"""The application: pages, and an interface of JSON for their script."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from hmac import compare_digest
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from surefoot._errors import ParameterError
from surefoot.pool import exchange as label_studio
from surefoot.pool.database import NotSavedError
from surefoot.pool.exchange import CSV, PARQUET, answers_file, as_bytes, labeled_file
from surefoot.pool.finishing import finished_table
from surefoot.pool.label_log import as_job
from surefoot.pool.schedule import AUDITING, FINISHED, PROVED
from surefoot.pool.service import AnswerError, status
from surefoot.pool.store import SESSION_SECONDS, Person, clean_name
from surefoot.pool.store_labels import labels_to_write
from surefoot.pool.table import TableError
from surefoot.pool.table.reading import is_text
from surefoot.serve.guard import form_of, is_forwarded, token_of
from surefoot.serve.pages import (
    BatchQueue,
    Query,
    Replies,
    finish_page,
    hello_page,
    history_page,
    key_of,
    label_page,
    onward_page,
)
from surefoot.serve.state import AppState, media_type, write_token

COOKIE = "surefoot_session"
_STATIC = {"style.css": "text/css", "label.js": "text/javascript", "lists.js": "text/javascript",
           "chart.js": "text/javascript", "icon.svg": "image/svg+xml"}  # fmt: skip
# Rows that Label Studio is to ask for first.
_ORDERED = 200
# Seconds for which a session is not looked up again; a new invitation ends the old one within these.
_REMEMBERED = 5.0

_SAVED = b'{"saved":true}'

Act = Callable[[Person, dict[str, Any]], Any]
View = Callable[[Request], Awaitable[Response]]
# The status of an error that is told to whoever made the request.
_STATUS: dict[type[Exception], int] = {AnswerError: 400, TableError: 409, NotSavedError: 507}


def make_app(state: AppState) -> Starlette:
    """The application of one pool."""
    views = Views(state)
    get, post = ["GET"], ["POST"]
    acts = {"undo": views.undo, "flag": views.flag, "note": views.note, "robot": views.robot, "finish": views.finish,
            "target": views.target}  # fmt: skip
    forms = {"edit": views.edit, "settle": views.settle, "unflag": views.unflag, "report": views.ask_report}
    return Starlette(
        routes=[  # tried in this order
            Route("/api/answer", views.api(views.answer), methods=post),
            Route("/", views.page(lambda person, token, _: label_page(state, person, token)), methods=get),
            Route("/history", views.page(views.history), methods=get),
            Route("/finish", views.page(lambda person, token, _: finish_page(state, person, token)), methods=get),
            Route("/hello", views.hello, methods=[*get, *post]),
            Route("/join/{token}", views.join, methods=get),
            Route("/leave", views.leave, methods=post),
            Route("/api/rows", views.rows, methods=get),
            Route("/api/standing", views.status, methods=get),
            *[Route(f"/api/{name}", views.api(in_a_thread(act)), methods=post) for name, act in acts.items()],
            *[Route(f"/{name}", views.form(act), methods=post) for name, act in forms.items()],
            Route("/picture/{row:int}/{column:int}", views.picture, methods=get),
            Route("/download/{name}", views.download, methods=get),
            Route("/static/{name}", views.static, methods=get),
            *(LabelStudio(state, views).routes() if state.label_studio else []),
        ],
        exception_handlers=dict.fromkeys((HTTPException, *_STATUS), _told),
    )


class Views:
    """What each address does."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.replies = Replies(state)
        self._answers = BatchQueue(self.replies.answers)
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
        person = await run_in_threadpool(self.state.desk.store.signed_in, secret)
        if person is not None:
            self._people[secret] = person, time.monotonic() + _REMEMBERED
        return person

    async def _signed_in(self, request: Request) -> Person:
        person = await self._person(request)
        if person is None:
            raise HTTPException(401, "You are not signed in. Reload the page.")
        return person

    def _come_in(self, person: Person, request: Request, response: Response) -> Response:
        """Begin a session, whose secret a response takes to the browser."""
        secret = self.state.desk.store.sign_in(person)
        secure = request.headers.get("x-forwarded-proto") == "https"  # of a proxy; who forges it harms himself
        response.set_cookie(
            COOKIE, secret, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure, path="/"
        )
        return response

    async def hello(self, request: Request) -> Response:
        """Ask for a name; on a server only a token lets people in."""
        names = [one.name for one in self.state.desk.store.people() if not one.name.startswith("(")]
        state = self.state
        if is_forwarded(request):
            state = replace(state, invitations_only=True)
        if request.method == "GET":
            return HTMLResponse(hello_page(state, names))
        given = await form_of(request)
        if state.by_invitation or not _same(given.get("token"), state.form_token):
            return HTMLResponse(hello_page(state, names, "That page was too old. Try again."), 403)
        try:
            name = clean_name(given.get("name", ""))
            person = await run_in_threadpool(state.desk.store.person, name)
            return await run_in_threadpool(self._come_in, person, request, RedirectResponse("/", 303))
        except NotSavedError as error:
            return HTMLResponse(hello_page(state, names, str(error)), 507)
        except ParameterError as error:
            return HTMLResponse(hello_page(state, names, error.message({"name": "A name"})), 400)

    async def join(self, request: Request) -> Response:
        """A token link: whoever has it is that person.

        A page leads on, not a redirection: from that, a browser that came by a link in a mail keeps the cookie back.
        """
        person = await run_in_threadpool(self.state.desk.store.invited, request.path_params["token"])
        if person is None:
            return HTMLResponse(hello_page(self.state, [], "This link is not valid, or no longer valid."), 403)
        page = HTMLResponse(onward_page("/", f"Welcome, {person.name}."))
        try:
            return await run_in_threadpool(self._come_in, person, request, page)
        except NotSavedError as error:
            return HTMLResponse(hello_page(self.state, [], str(error)), 507)

    async def leave(self, request: Request) -> Response:
        """Forget who sits here."""
        given = await form_of(request)
        response: Response = RedirectResponse("/hello", 303)
        secret = request.cookies.get(COOKIE, "")
        if _same(given.get("token"), write_token(secret)):
            with suppress(NotSavedError):  # the browser forgets it in any case
                await run_in_threadpool(self.state.desk.store.sign_out, secret)
            self._people.pop(secret, None)
            response.delete_cookie(COOKIE, path="/")
        return response

    # pages

    def page(self, make: Callable[[Person, str, Request], str]) -> View:
        """A page for people who are signed in."""

        async def shown(request: Request) -> Response:
            if await self._person(request) is None and request.headers.get("sec-fetch-site") == "cross-site":
                return HTMLResponse(onward_page(request.url.path))  # from a link elsewhere: now with the cookie
            person = await self._signed_in(request)
            token = write_token(request.cookies[COOKIE])
            return HTMLResponse(await run_in_threadpool(make, person, token, request))

        return shown

    def history(self, person: Person, token: str, request: Request) -> str:
        return history_page(self.state, person, token, Query.from_request(dict(request.query_params)))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404)
        return Response(self._static[name], media_type=_STATIC[name], headers={"cache-control": "no-cache"})

    async def picture(self, request: Request) -> Response:
        """A picture that a cell names; the address has numbers only, never a path."""
        cards, row, column = self.state.cards, request.path_params["row"], request.path_params["column"]
        if await self._person(request) is None or row >= self.state.desk.book.n_rows or column >= len(cards.names):
            raise HTTPException(404)
        file = await run_in_threadpool(cards.picture, row, cards.names[column])
        if file is None:
            raise HTTPException(404)
        return FileResponse(file, media_type=media_type(file))

    # rows and answers

    async def rows(self, request: Request) -> Response:
        """The rows in a person's hands, as cards."""
        person = await self._signed_in(request)
        given = {"have": [], "beyond": request.query_params.get("beyond") == "1"}
        return _as_json(await run_in_threadpool(self.replies.rows, person, given))

    async def status(self, request: Request) -> Response:
        await self._signed_in(request)
        return _as_json(await run_in_threadpool(self.replies.status))

    def api(self, act: Callable[[Person, dict[str, Any]], Awaitable[bytes]]) -> View:
        """An answer in JSON; it needs the session, and the token of its page."""

        async def acted(request: Request) -> Response:
            person = await self._signed_in(request)
            _check_token(request, request.headers.get("x-write-token"))
            try:
                data = json.loads(await request.body())
            except (ValueError, RecursionError):
                data = None
            if not isinstance(data, dict):
                raise HTTPException(400, "A request must be a JSON object.")
            return _as_json(await act(person, data))

        return acted

    def form(self, act: Act) -> View:
        """Handle the same request from a form, and return to its page."""

        async def acted(request: Request) -> Response:
            given, person = await form_of(request), await self._signed_in(request)
            _check_token(request, given.get("token"))
            row = given.get("row", "")
            data = {**given, "row": int(row) if row.isdecimal() and len(row) < 12 else -1}
            return RedirectResponse(await run_in_threadpool(act, person, data), 303)

        return acted

    async def answer(self, person: Person, data: dict[str, Any]) -> bytes:
        """A label or a skip; the answer is on the disk when this returns."""
        return await self._answers.ask((person, data))

    def undo(self, person: Person, data: dict[str, Any]) -> bytes:
        row = self.state.desk.undo(person, key_of(data))
        self.state.fitter.wake()
        return self.replies.rows(person, data, undone=row)

    def flag(self, person: Person, data: dict[str, Any]) -> bytes:
        self.state.desk.flag(person, data.get("row", -1), bool(data.get("flagged")))
        return _SAVED

    def note(self, person: Person, data: dict[str, Any]) -> bytes:
        text = data.get("text")
        self.state.desk.note(person, data.get("row", -1), text if isinstance(text, str) else "", key_of(data))
        return _SAVED

    def finish(self, person: Person, data: dict[str, Any]) -> bytes:
        """Finish the table with the latest model."""
        share = data.get("max_error")
        if share is not None and not (type(share) is float and 0.0 < share < 1.0):
            raise AnswerError(f"max_error must lie between 0 and 1; got {share!r:.60}. Reload the page.")
        self.state.desk.begin_finish(share)
        return _SAVED

    def target(self, person: Person, data: dict[str, Any]) -> bytes:
        """Prove another error rate."""
        share = data.get("target")
        if not (type(share) is float and 0.0 < share < 1.0):
            raise AnswerError(f"target must lie between 0 and 1; got {share!r:.60}. Reload the page.")
        self.state.desk.set_target(person, share)
        self.state.fitter.wake()
        return _SAVED

    def robot(self, person: Person, data: dict[str, Any]) -> bytes:
        """Return the label that the robot of the demonstration gives."""
        truth: Any = self.state.robot
        row = data.get("row", -1)
        if truth is None or not isinstance(row, int) or not 0 <= row < len(truth):
            raise AnswerError("there is no robot here.")
        return json.dumps({"saved": True, "label": str(truth[row])}).encode()

    def edit(self, person: Person, data: dict[str, Any]) -> str:
        self.state.desk.answer(person, data["row"], _label(data) or None)
        self.state.fitter.wake()
        return f"/history#row-{data['row'] + 1}"

    def settle(self, person: Person, data: dict[str, Any]) -> str:
        self.state.desk.settle(person, data["row"], _label(data))
        self.state.fitter.wake()
        return f"/history#row-{data['row'] + 1}"

    def unflag(self, person: Person, data: dict[str, Any]) -> str:
        self.state.desk.flag(person, data["row"], False)
        return f"/history#row-{data['row'] + 1}"

    def ask_report(self, person: Person, data: dict[str, Any]) -> str:
        book = self.state.desk.book
        with self.state.desk.lock:
            job = as_job(book.labels, book.picked())
        self.state.fitter.ask_report(job)
        return "/finish"

    # files

    async def download(self, request: Request) -> Response:
        await self._signed_in(request)
        made = await run_in_threadpool(self._file, request.path_params["name"])
        if made is None:
            raise HTTPException(404)
        content, kind, file = made
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in file)
        headers = {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file, safe='')}"}
        return Response(content, media_type=kind, headers=headers)

    def _file(self, name: str) -> tuple[bytes, str, str] | None:
        """Content, type and name of a download."""
        desk, table = self.state.desk, self.state.cards.table
        stem = table.path.stem
        what, _, form = name.partition(".")
        kind = {CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}.get(form, "application/octet-stream")
        with desk.lock:
            labels, people = labels_to_write(desk.book, table), desk.store.people()
            if what == "answers" and form in (CSV, PARQUET):
                return answers_file(desk.book, people, form), kind, f"{stem}.answers.{form}"
            if name == "label-studio.json":
                made = label_studio.tasks(table, desk.book, people, self.predictions(), desk.turns.hidden_columns)
                return json.dumps(made, ensure_ascii=False).encode(), "application/json", f"{stem}.label-studio.json"
        if what == "labels" and form in (CSV, PARQUET) and not (desk.turns.column and desk.turns.phase == AUDITING):
            end = table.path.suffix.lower() if is_text(table.path) and form != PARQUET else f".{form}"
            return labeled_file(table, self.state.content, labels, end), kind, f"{stem}.labeled{end}"
        if name in ("model.skops", "proved.skops"):
            model = self._model() if what == "model" else self._proved_model()
            return None if model is None else (model, kind, f"{stem}{'' if what == 'model' else '.proved'}.skops")
        if name == "report.html" and self.state.fitter.report is not None:
            return self.state.fitter.report, "text/html; charset=utf-8", f"{stem}.report.html"
        return self._finished(form, kind) if what == "finished" and form in (CSV, PARQUET) else None

    def _finished(self, form: str, kind: str) -> tuple[bytes, str, str] | None:
        """The finished table, which says who labeled each row."""
        desk, table = self.state.desk, self.state.cards.table
        with desk.lock:
            if desk.turns.phase != FINISHED or desk.turns.finishing is None:
                return None
            labels, authors = desk.turns.finishing.labels()
        return as_bytes(finished_table(table, labels, authors), form), kind, f"{table.path.stem}.finished.{form}"

    def predictions(self) -> dict[int, tuple[str, float | None]] | None:
        """Return the predictions of the latest model with their scores. Hidden during an audit."""
        ranking, classes = self.state.desk.ranking, self.state.desk.book.classes
        if ranking is None or self.state.desk.turns.phase == AUDITING:
            return None
        scores = ranking.proba[np.arange(len(ranking.predictions)), ranking.predictions].tolist()
        return {row: (classes[k], scores[row]) for row, k in enumerate(ranking.predictions.tolist())}

    def _proved_model(self) -> bytes | None:
        """The model with the smallest bound that audits have proved."""
        desk = self.state.desk
        with desk.lock:
            best = desk.turns.best()
            return None if best is None else desk.store.frozen(best[0]).model

    def _model(self) -> bytes | None:
        """The model that was proved, else the latest."""
        desk = self.state.desk
        with desk.lock:
            if desk.turns.phase not in (PROVED, FINISHED) and desk.ranking is not None:
                return desk.ranking.model
            return desk.store.frozen(desk.turns.n_audits).model if desk.turns.n_audits else None


class LabelStudio:
    """The protocol by which the server of Label Studio talks to a machine learning backend.

    Its requests carry the token in the path, `/label-studio/TOKEN/predict`, or as the password of basic authentication.
    """

    def __init__(self, state: AppState, views: Views) -> None:
        self.state, self._views = state, views
        self._rows: tuple[tuple[str, ...], label_studio.TaskRows] | None = None

    def routes(self) -> list[Route]:
        """Return the addresses, each with the token in its path and without."""
        acts = {"setup": self.setup, "predict": self.predict, "webhook": self.webhook}
        read = {"health": self.health, "metrics": self.metrics}
        return [
            Route(f"{path}/{name}", self._program(act), methods=["POST" if name in acts else "GET"])
            for path in ("", "/label-studio/{token}")
            for name, act in (acts | read).items()
        ]

    def _program(self, act: Callable[[dict[str, Any]], Any]) -> View:
        async def acted(request: Request) -> Response:
            token = token_of(request.url.path, request.headers.get("authorization", ""))
            if token is None or not await run_in_threadpool(self.state.is_label_studio, token):
                words = "This address is for Label Studio, with its token."
                raise HTTPException(401, words, {"www-authenticate": 'Basic realm="surefoot"'})
            try:
                data = {} if request.method == "GET" else json.loads(await request.body())
            except (ValueError, RecursionError):
                data = None
            if not isinstance(data, dict):
                raise HTTPException(400, "A request must be a JSON object.")
            try:
                return JSONResponse(await run_in_threadpool(act, data))
            except ParameterError as error:
                raise HTTPException(400, str(error)) from error

        return acted

    def health(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"status": "UP", "model_class": "surefoot"}

    def metrics(self, _: dict[str, Any]) -> dict[str, Any]:
        """The progress in numbers."""
        now = status(self.state.desk)
        names = ("phase", "rows", "labels", "skipped", "conflicts", "target", "level", "needed")
        bound, problem = now["bound"] or {}, now["problem"] or self.state.fitter.problem
        found = {"bound": bound.get("value"), "kind": bound.get("kind"), "problem": problem}
        return {name: now[name] for name in names} | found

    def setup(self, data: dict[str, Any]) -> dict[str, Any]:
        """Check the labeling interface of a project."""
        label_studio.ChoicesTag.from_interface(data.get("schema")).check_classes(self.state.desk.book.classes)
        return {"model_version": self._version}

    def predict(self, data: dict[str, Any]) -> dict[str, Any]:
        """A prediction and a score for each task. Label Studio asks for the smallest score first: our order.

        During an audit there are scores and no predictions, so that they cannot lead anybody.
        """
        tasks, control = data.get("tasks"), label_studio.ChoicesTag.from_interface(data.get("label_config"))
        if not isinstance(tasks, list):
            raise ParameterError("tasks", "must be a list", repr(tasks)[:60], "Send the tasks of a project.")
        desk = self.state.desk
        first = desk.order(_ORDERED)
        places = {row: place / (2 * len(first)) for place, row in enumerate(first)}
        guesses, version, results = self._views.predictions() or {}, self._version, []
        for task in tasks:
            row = self._task_rows().find(task.get("data") if isinstance(task, dict) else None)
            label, sure = guesses.get(-1 if row is None else row, (None, 1.0))
            score = 1.0 if row is None else places.get(row, 0.5 + (1.0 if sure is None else sure) / 2)
            result = [] if label is None else control.result(label)
            results.append({"result": result, "score": score, "model_version": version})
        return {"results": results, "model_version": version}

    def webhook(self, data: dict[str, Any]) -> dict[str, Any]:
        """Take annotations that were created, changed or deleted; what cannot be used is said here and on the page."""
        desk = self.state.desk
        with desk.lock:
            desk.catch_up()
            events, refused = label_studio.changes_of(
                data, self._task_rows(), self.state.cards.table, desk.book, lambda name: desk.store.person(name).id,
                desk.random_sample,
            )  # fmt: skip
            taken = desk.take(events)
            if refused:
                desk.problem = f"Label Studio: {refused[0]}."
        self.state.fitter.wake()
        if refused and not events:
            raise HTTPException(400, f"{refused[0]}.")
        return {"status": "ok", "taken": len(taken), "refused": refused}

    def _task_rows(self) -> label_studio.TaskRows:
        hidden = self.state.desk.turns.hidden_columns
        if self._rows is None or self._rows[0] != hidden:
            self._rows = hidden, label_studio.TaskRows(self.state.cards.table, hidden)
        return self._rows[1]

    @property
    def _version(self) -> str:
        """Label Studio asks again for predictions of another version."""
        desk = self.state.desk
        if desk.turns.phase == AUDITING:
            return f"audit {desk.turns.n_audits}"
        return f"{0 if desk.ranking is None else desk.ranking.n_labels} labels"


def in_a_thread(act: Act) -> Callable[[Person, dict[str, Any]], Awaitable[bytes]]:
    """Run an action that waits for the disk."""
    return lambda person, data: run_in_threadpool(act, person, data)


def _told(request: Request, error: Exception) -> Response:
    """An error, for the script of the page in JSON, for people in words."""
    status, words, headers = _STATUS.get(type(error), 500), str(error), None
    if isinstance(error, HTTPException):
        status, words, headers = error.status_code, error.detail, error.headers
    if request.url.path.startswith("/api/"):
        return JSONResponse({"saved": False, "message": words}, status, headers)
    if status == 401 and headers is None:  # a person, whose browser shall ask for the name
        return RedirectResponse("/hello", 303)
    return PlainTextResponse(f"Not saved: {words}\n" if status == 507 else f"{words}\n", status, headers)


def _as_json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _check_token(request: Request, given: str | None) -> None:
    if not _same(given, write_token(request.cookies[COOKIE])):
        raise HTTPException(403, "This page is too old. Reload it.")


def _same(given: str | None, right: str) -> bool:
    """Whether a token is the right one; how long that takes tells nothing."""
    return given is not None and compare_digest(given.encode("utf-8", "replace"), right.encode())


def _label(data: dict[str, Any]) -> str:
    """The label of a form; an empty one is a skip, none at all is a mistake."""
    if "label" not in data:
        raise AnswerError("label must be in the form; it is missing. Reload the page.")
    return str(data["label"])
