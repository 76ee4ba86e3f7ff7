"""The labeling page as people use it: keys, undo, reload, two people, history; dark and light, phone and desktop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from report.browser import Browser, Page
from report.conftest import chromium  # noqa: F401 - a fixture
from report.test_in_browser import CONTRAST
from serve.rooms import Running, make_room
from serve.services import CLASSES, truth

SHOWN = "document.querySelector('.card-head b') && document.querySelector('.card-head b').textContent"
SAVED = "document.getElementById('saved').textContent"
FETCHING = "document.getElementById('card').textContent.startsWith('Fetching')"
NAMELESS = """
[...document.querySelectorAll('button, a, input:not([type=hidden]), select, textarea')]
  .filter(one => !(one.textContent.trim() || one.labels?.length || one.ariaLabel)).length
"""
LABELS = "Number(document.getElementById('labels').textContent)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, guidelines="<h1>How</h1><p>Well.</p>")
    yield running
    running.kill()


def come_in(browser: Browser, server: Running, name: str, **how: object) -> Page:
    """Sign in as a person would."""
    page = browser.visit(f"{server.url}/", person=browser.new_person(), **how)
    page.wait("document.activeElement && document.activeElement.id === 'name'")
    for letter in name:
        page.type(letter)
    page.press("Enter", 13)
    page.wait(SHOWN)
    return page


def label_row(page: Page, key: str | None = None) -> int:
    """Answer the row on the screen by a key, that of the truth by default; the row."""
    row = int(page.wait(SHOWN).split()[1]) - 1
    page.type(key or str(1 + int(truth(60)[row])))
    page.wait(f"({SHOWN} || '') !== 'Row {row + 1}' && {SAVED}.startsWith('Saved') && !{FETCHING}")
    return row


def is_quiet(page: Page, server: Running) -> bool:
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith(server.url)] == []
    return True


def test_thirty_rows_by_keys_and_undo_reload_and_proof(chromium: Browser, server: Running, tmp_path: Path) -> None:  # noqa: F811
    page = come_in(chromium, server, "ada")
    rows = [label_row(page) for _ in range(12)]
    page.type("u")
    page.wait(f"{SHOWN} === 'Row {rows[-1] + 1}'")
    page.wait(f"{LABELS} === 11")
    page.type(" ")
    page.wait(f"{SAVED} === 'Saved: skipped'")
    page.type("Backspace")
    page.wait(f"{SHOWN} === 'Row {rows[-1] + 1}'")
    rows[-1] = label_row(page)
    page.type("f")
    page.wait("document.getElementById('marks').textContent === 'Flagged for discussion.'")
    page.type("n")
    page.wait("document.activeElement.id === 'note-text'")
    page.type("h")
    page.evaluate("document.getElementById('note-form').requestSubmit()")
    page.wait("document.getElementById('marks').textContent.endsWith('Note: h')")
    page.type("g")
    page.wait("document.getElementById('dialog-guidelines').open")
    page.evaluate("document.getElementById('dialog-guidelines').close()")
    before = page.evaluate(SHOWN)
    page.call("Page.reload")
    page.wait(f"document.readyState === 'complete' && {SHOWN} === '{before}' && {LABELS} === 12")
    while not page.evaluate("document.querySelector('.done') !== null"):
        rows.append(label_row(page))
    assert 30 <= len(rows) <= 60
    page.wait("document.querySelector('.done h2')?.textContent.startsWith('Proved: at most')")
    assert is_quiet(page, server)
    book = make_room(tmp_path).desk.book
    assert [book.labels[row] for row in rows] == [CLASSES[truth(60)[row]] for row in rows]


def test_two_people_at_once_and_an_edit_in_the_history(chromium: Browser, server: Running, tmp_path: Path) -> None:  # noqa: F811
    ada, bob = come_in(chromium, server, "ada"), come_in(chromium, server, "bob")
    rows = [row for _ in range(4) for row in (label_row(ada), label_row(bob))]
    assert len(set(rows)) == 8
    ada.call("Page.navigate", url=f"{server.url}/history?q=Ticket {rows[0]}:")
    ada.wait("document.querySelectorAll('.entry').length === 1 && document.querySelector('.inline select')")
    other = CLASSES[1 - truth(60)[rows[0]]]
    ada.evaluate(
        f"document.querySelector('.inline select').value = '{other}'; document.querySelector('.inline').requestSubmit()"
    )
    ada.wait(f"location.hash === '#row-{rows[0] + 1}' && document.querySelectorAll('.entry').length === 8")
    assert make_room(tmp_path).desk.book.labels[rows[0]] == other
    assert is_quiet(ada, server)
    assert is_quiet(bob, server)


def test_a_server_that_has_gone_is_said_and_the_answer_is_not_lost(chromium: Browser, server: Running) -> None:  # noqa: F811
    page = come_in(chromium, server, "ada")
    row = int(page.wait(SHOWN).split()[1]) - 1
    server.kill()
    page.type("1")
    page.wait(f"{SAVED} === 'Not saved' && {SHOWN} === 'Row {row + 1}'")
    assert page.evaluate("document.getElementById('trouble').hidden") is False
    server.start()
    page.type("1")
    page.wait(f"{SAVED} === 'Saved: no'")
    assert page.evaluate("document.getElementById('trouble').hidden") is True


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (375, True),
        (1200, False),
        *[pytest.param(w, d, marks=pytest.mark.slow) for w, d in ((375, False), (1200, True))],
    ],
)
def test_every_page_is_readable(chromium: Browser, server: Running, width: int, dark: bool) -> None:  # noqa: F811
    page = come_in(chromium, server, "ada", width=width, dark=dark)
    label_row(page)
    for address in ("/", "/history", "/finish"):
        page.call("Page.navigate", url=server.url + address)
        page.wait(f"location.pathname === '{address}' && document.readyState === 'complete'")
        if address == "/":
            page.wait(SHOWN)
            page.wait("document.querySelector('#chart svg') !== null")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ratio, text = page.evaluate(CONTRAST)
        assert ratio >= 4.5, (address, text, ratio)
        assert page.evaluate(NAMELESS) == 0
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(16, 20, 26)" if dark else "rgb(243, 245, 248)")
    assert page.evaluate("window.hacked") is None
    assert is_quiet(page, server)


ODD = ['it\'s "fine"', "<b>bold</b>", "gr\u00f6\u00dfe", "a very long name of a class that goes on and on", *"pqrstu"]
FOCUS = "(one => one.id || one.className || one.textContent.trim())(document.activeElement)"
TOP = "Math.round(document.querySelector('.answers').getBoundingClientRect().top)"


def test_ten_odd_classes_by_keyboard_alone(chromium: Browser, tmp_path: Path) -> None:  # noqa: F811
    server = Running(tmp_path, classes=ODD, overlap=1.0)
    try:
        page = come_in(chromium, server, "ada", width=375)
        seen = []
        for _ in range(40):
            page.press("Tab", 9)
            seen.append(page.evaluate(FOCUS))
            if seen[-1] == "do-note":
                break
        order = ["skip", "Label", "History", "Finish", "plain", "card", *["answer"] * 10]
        order += ["do-skip", "do-undo", "do-flag", "do-note"]
        assert seen == order
        tops = set()
        for _ in range(3):
            row = int(page.wait(SHOWN).split()[1]) - 1
            page.evaluate("document.querySelector('.answer').focus()")
            page.press("Enter", 13)
            page.wait(f"({SHOWN} || '') !== 'Row {row + 1}' && {SAVED} === 'Saved: ' + {sorted(ODD)[0]!r}")
            tops.add(page.evaluate(TOP))
        assert len(tops) == 1  # the answers keep their place
        bob = come_in(chromium, server, "bob", width=375)
        label_row(bob, "2")
        bob.call("Page.navigate", url=f"{server.url}/history?state=conflict")
        bob.wait("location.pathname === '/history' && document.readyState === 'complete'")
        assert bob.evaluate("document.querySelectorAll('.entry').length") == 1
        assert bob.evaluate("document.documentElement.scrollWidth") <= 375
        bob.evaluate("document.querySelector('.inline button').focus()")
        bob.press("Enter", 13)
        bob.wait("location.hash && document.querySelector('.chip.good')?.textContent === 'settled: ' + "
                 f"{sorted(ODD)[1]!r}")  # fmt: skip
        assert is_quiet(page, server)
        assert is_quiet(bob, server)
    finally:
        server.kill()


def test_a_link_in_a_mail_leads_in(chromium: Browser, tmp_path: Path) -> None:  # noqa: F811
    """From a page of another site, whose navigations carry no strict cookie: the invitation, and any page later."""
    room = make_room(tmp_path)
    token = room.desk.store.invite("ada")
    room.desk.store.close()
    server = Running(tmp_path, invitations_only=True)

    class Mail(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            path = f"/join/{token}" if self.path == "/invitation" else "/"
            self.wfile.write(f"<a href='{server.url}{path}'>come</a>".encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    mail = HTTPServer(("127.0.0.1", 0), Mail)
    threading.Thread(target=mail.serve_forever, daemon=True).start()
    try:
        elsewhere = f"http://localhost:{mail.server_port}"
        page = chromium.visit(f"{elsewhere}/invitation", person=chromium.new_person())
        for path in ("/invitation", "/"):
            page.call("Page.navigate", url=f"{elsewhere}{path}")
            page.wait(f"location.origin === '{elsewhere}' && document.querySelector('a') !== null")
            page.evaluate("document.querySelector('a').click()")
            page.wait(f"location.href === '{server.url}/' && document.querySelector('.who')?.textContent === 'ada'")
            page.wait(SHOWN)
    finally:
        mail.shutdown()
        server.kill()


def test_files_are_taken_along_and_one_that_cannot_be_made_is_said(
    chromium: Browser,  # noqa: F811
    server: Running,
    tmp_path: Path,
) -> None:
    page = come_in(chromium, server, "ada")
    row = label_row(page)
    page.call("Page.navigate", url=f"{server.url}/finish")
    page.wait("location.pathname === '/finish' && document.readyState === 'complete'")
    folder = tmp_path / "taken"
    folder.mkdir()
    chromium.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder),
                  browserContextId=page.call("Target.getTargetInfo")["targetInfo"]["browserContextId"])  # fmt: skip
    page.evaluate("document.querySelector('a[href$=\"labels.csv\"]').click()")
    file = folder / "pool.labeled.csv"
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert file.read_text().splitlines()[row + 1].endswith(CLASSES[truth(60)[row]])
    assert is_quiet(page, server)
    server.kill()
    page.evaluate("document.querySelector('a[href$=\"answers.csv\"]').click()")
    page.wait("document.querySelector('.files').textContent.includes('The file could not be made')")
    server.start()
