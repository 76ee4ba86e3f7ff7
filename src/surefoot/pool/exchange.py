"""Export and import Label Studio's JSON: tasks with annotations and predictions, so that a team can label there."""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape, unescape
from typing import Any

import numpy as np

from surefoot._errors import FileError, ParameterError
from surefoot._printing import cell_text
from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.label_log import LabelLog
from surefoot.pool.store import LABEL_STUDIO, Person
from surefoot.pool.store_labels import changed_labels
from surefoot.pool.table import Table
from surefoot.pool.table.cells import as_text
from surefoot.pool.table.editing import label_writer

# Files to download: the pool with its labels, and a long table of answers.

CSV, PARQUET = "csv", "parquet"
COLUMNS = (
    "row", "answer", "skipped", "person", "time", "purpose", "pick_probability", "audit", "stands", "settled",
    "flagged", "notes",
)  # fmt: skip
# A spreadsheet reads a text that begins with one of these characters as a formula. Some programs accept the wide signs,
# too. The list includes the apostrophe, so that removing one leading apostrophe always restores the text.
_LIKE_A_FORMULA = tuple("=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
                        "\N{FULLWIDTH COMMERCIAL AT}'")  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def labeled_file(table: Table, content: bytes, labels: Mapping[int, str | None], suffix: str) -> bytes:
    """Return a file of the pool with these labels. In the format of its own file, `content`, all other bytes stay."""
    if suffix == table.path.suffix.lower():
        return label_writer(table, content).bytes_with(changed_labels(table, labels))
    found = {row: label for row, label in labels.items() if label is not None}
    return as_bytes(labeled_table(table, found), suffix.removeprefix("."))


def labeled_table(table: Table, labels: dict[int, str]) -> Any:
    """Return the pool as a data frame whose label column contains only these labels."""
    import pandas as pd

    column = np.full(len(table.labels), None, dtype=object)
    for row, label in labels.items():
        column[row] = label
    return table.cells.assign(**{table.label: pd.Series(column, index=table.cells.index, dtype="str")})


def answers_table(book: LabelLog, people: list[Person]) -> Any:
    """Return a table with one line per answer, oldest first.

    Column `stands` is True for a label that was neither changed nor undone. Column `settled` has the label that counts
    for the row.
    """
    import pandas as pd

    names = {person.id: person.name for person in people}
    lines = []
    for event in book.events:
        if event.kind not in (e.LABEL, e.SKIP):
            continue
        state = book.row(event.row)
        lines.append(
            {
                "row": event.row + 1,
                "answer": event.value,
                "skipped": event.kind == e.SKIP,
                "person": names.get(event.person),
                "time": datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds"),
                "purpose": event.purpose,
                "pick_probability": event.probability,
                "audit": event.audit,
                "stands": state.answers.get(event.person) is event,
                "settled": state.label,
                "flagged": bool(state.flags),
                "notes": " | ".join(str(note.value) for note in state.notes),
            }
        )
    frame = pd.DataFrame(lines, columns=COLUMNS)
    return frame.astype({"audit": "Int64", "pick_probability": "float64"})


def as_bytes(frame: Any, form: str) -> bytes:
    """Return a data frame as Parquet, or as CSV that preserves line ends within cells."""
    if form == PARQUET:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    # with both characters as the line end, to_csv quotes every cell that contains one of them
    return bytes(frame.to_csv(index=False, lineterminator="\r\n").encode())


def answers_file(book: LabelLog, people: list[Person], form: str) -> bytes:
    """Return the table of answers as a file. In CSV, no typed text can act as a formula."""
    frame = answers_table(book, people)
    return as_bytes(frame if form == PARQUET else frame.map(_as_text_alone), form)


def _as_text_alone(cell: Any) -> Any:
    typed = isinstance(cell, str) and cell.startswith(_LIKE_A_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if typed else cell


ROW = "surefoot_row"
_FROM = "label"
_DAY = 86_400.0  # clocks may differ by at most this many seconds
_LONGEST = 60  # characters of a name or label from another program


def config(table: Table, hidden: Sequence[str] = ()) -> str:
    """Return the labeling interface for the tasks, ready to paste into a Label Studio project."""
    fields = [
        f'  <Header value="{escape(name)}" size="6"/>\n  <Text name="{_tag(k)}" value="${key}"/>'
        for k, (name, key) in enumerate(data_keys(table, hidden).items())
    ]
    choices = "\n".join(f'    <Choice value="{escape(name)}"/>' for name in table.classes)
    asked = f'  <Choices name="{_FROM}" toName="{_tag(0)}" choice="single" showInLine="true">\n{choices}\n  </Choices>'
    return "\n".join(["<View>", *fields, asked, "</View>"])


def data_keys(table: Table, hidden: Sequence[str] = ()) -> dict[str, str]:
    """Return column -> key in the task data. Label Studio variables allow only letters, digits and underscores."""
    names = [str(column) for column in table.cells.columns if column not in (table.label, *hidden)]
    plain = {name: re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "cell" for name in names}
    keys = {name: name for name in names if plain[name] == name != ROW}
    for name in names:
        key, more = plain[name], 2
        while name not in keys and (key in keys.values() or key == ROW):
            key, more = f"{plain[name]}_{more}", more + 1
        keys.setdefault(name, key)
    return {name: keys[name] for name in names}


def _tag(k: int) -> str:
    return f"cell{k}"


def tasks(
    table: Table,
    book: LabelLog,
    people: list[Person],
    predictions: Mapping[int, tuple[str, float | None]] | None = None,
    hidden: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return one task per row, with annotations (valid labels) and predictions (labels with scores).

    hidden : columns that the tasks do not show.
    """
    names = {person.id: person.name for person in people}
    cells = {key: table.cells[name].tolist() for name, key in data_keys(table, hidden).items()}
    found = []
    for row in range(book.n_rows):
        data: dict[str, Any] = {key: _plain(column[row]) for key, column in cells.items()}
        task: dict[str, Any] = {"id": row + 1, "data": {**data, ROW: row + 1}}
        task["annotations"] = [_annotation(event, names) for event in book.row(row).answers.values()]
        if predictions is not None and row in predictions:
            label, score = predictions[row]
            known = {} if score is None else {"score": score}
            task["predictions"] = [{"model_version": "surefoot", **known, "result": ChoicesTag().result(label)}]
        found.append(task)
    return found


def _annotation(event: Event, names: dict[int, str]) -> dict[str, Any]:
    skipped = event.kind == e.SKIP
    return {
        "id": event.id,
        "completed_by": {"email": names.get(event.person, ""), "first_name": names.get(event.person, "")},
        "created_at": datetime.fromtimestamp(event.time, UTC).isoformat(),
        "was_cancelled": skipped,
        "result": [] if skipped else ChoicesTag().result(str(event.value)),
    }


def read_tasks(content: bytes, path: object) -> list[dict[str, Any]]:
    """Read the tasks of a JSON export of Label Studio."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} must be JSON exported from Label Studio; {error}. Export it again as JSON.") from error
    if not isinstance(found, list) or not all(isinstance(task, dict) and "data" in task for task in found):
        raise FileError(
            f"{path} must be a list of tasks, each with its data, as Label Studio's export JSON is (not JSON-MIN). "
            "Export it again as JSON."
        )
    return found


def answers_of(
    found: list[dict[str, Any]],
    table: Table,
    book: LabelLog,
    person_of: Any,
    rows: TaskRows | None = None,
    sample: Collection[int] = (),
) -> tuple[list[Event], list[str]]:
    """Return the events of the annotations, and one sentence per annotation or task that could not be used.

    person_of : callable, name -> id of the person; rows : finds the rows of the table, None to build it;
    sample : rows that were sampled at random.
    """
    rows = TaskRows(table) if rows is None else rows
    events: dict[str, Event] = {}  # an annotation that occurs twice in the file counts once
    refused = []
    for task in found:
        row = rows.find(task["data"])
        if row is None:
            refused.append(f"{_name(task)} is no row of {table.path.name}")
            continue
        for annotation in _list(task.get("annotations") or task.get("completions")):
            label, why = _label_of(annotation, table.classes)
            if why is not None:
                refused.append(f"{_name(task)}: {why}")
                continue
            key = _key(task, annotation)
            purpose = book.row(row).purpose or (e.RANDOM if row in sample else e.IMPORTED)
            kind = e.SKIP if label is None else e.LABEL
            events[key] = Event(kind, row, person_of(_who(annotation)), label, purpose, key=key, time=_when(annotation))
    return list(events.values()), refused


def _name(task: Mapping[str, Any]) -> str:
    return f"task {cell_text(task.get('id'), _LONGEST)}"


def _list(value: Any) -> list[Any]:
    """Return a list from an untrusted file. Another value becomes a list with this value, None an empty list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _label_of(annotation: Any, classes: list[str]) -> tuple[str | None, str | None]:
    """Return the label of an annotation (None if skipped), and the reason if it is not usable."""
    if not isinstance(annotation, dict):
        return None, f"an annotation must be an object of JSON; got {cell_text(annotation, _LONGEST)}"
    if annotation.get("was_cancelled") or annotation.get("skipped"):
        return None, None
    chosen = list(_choices(_list(annotation.get("result"))))
    if len(chosen) != 1:
        return None, f"an annotation must choose one class; it chooses {len(chosen)}"
    label = as_text(chosen[0])
    no_class = f"{cell_text(label, _LONGEST)!r} is no class: {', '.join(classes)}"
    return (label, None) if label in classes else (None, no_class)


def _choices(result: list[Any]) -> Iterator[Any]:
    for part in result:
        if isinstance(part, dict) and part.get("type") == "choices" and isinstance(part.get("value"), dict):
            yield from _list(part["value"].get("choices"))


def _who(annotation: Mapping[str, Any]) -> str:
    """Return the name of the annotator. Label Studio gives a number or an account."""
    by = annotation.get("completed_by")
    name = (by.get("email") or by.get("username") or by.get("id")) if isinstance(by, dict) else by
    return cell_text(name, _LONGEST) if name not in (None, "") else LABEL_STUDIO


def _when(annotation: Mapping[str, Any]) -> float:
    said = annotation.get("updated_at") or annotation.get("created_at")
    try:
        when = datetime.fromisoformat(str(said).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0  # the store then uses the current time
    return when if 0.0 < when < time.time() + _DAY else 0.0


def _key(task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """Return the key of an annotation. After a change, only the first part of the key is the same."""
    said = [task.get("id"), *(annotation.get(name) for name in ("id", "result", "updated_at")), _who(annotation)]
    return _first_of_key(annotation) + _hashed(said)[:32]


def _first_of_key(annotation: Mapping[str, Any]) -> str:
    return f"ls-{_hashed(annotation.get('id'))[:16]}-"


def _hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# Label Studio as a front end: the requests of its server to a machine learning backend, and the responses.

MADE, DELETED = ("ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED"), "ANNOTATIONS_DELETED"
_CHOICES = re.compile(r"<Choices\b([^>]*)>(.*?)(?:</Choices>|$)", re.DOTALL)
_CHOICE = re.compile(r"<Choice\b([^>]*)>")
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


@dataclass(frozen=True)
class ChoicesTag:
    """The Choices control of a labeling interface, with the classes that it offers."""

    name: str = _FROM
    to_name: str = "cell0"
    classes: tuple[str, ...] = ()

    @classmethod
    def from_interface(cls, text: Any) -> ChoicesTag:
        """Read the first Choices control of a labeling interface in XML; the default control for an empty text."""
        if not text:
            return cls()
        found = _CHOICES.search(str(text))
        own = {} if found is None else _attributes(found[1])
        if found is None or "name" not in own or "toName" not in own:
            raise ParameterError(
                "label_config", "must have a Choices control with name and toName", repr(str(text)[:60]),
                "Paste the interface that surefoot export --out tasks.json prints.",
            )  # fmt: skip
        offered = (_attributes(one).get("value") for one in _CHOICE.findall(found[2]))
        return cls(own["name"], own["toName"], tuple(as_text(name) for name in offered if name is not None))

    def check_classes(self, classes: list[str]) -> None:
        """Raise an error if the interface offers other classes. Without static choices, there is nothing to check."""
        if self.classes and set(self.classes) != set(classes):
            raise ParameterError(
                "label_config", f"must offer the classes {', '.join(classes)}", ", ".join(self.classes),
                "Correct the choices of the labeling interface, or pass --classes.",
            )  # fmt: skip

    def result(self, label: str) -> list[dict[str, Any]]:
        """Return a label in Label Studio's format."""
        return [{"from_name": self.name, "to_name": self.to_name, "type": "choices", "value": {"choices": [label]}}]


def _attributes(text: str) -> dict[str, str]:
    return {name: unescape(double or single) for name, double, single in _ATTRIBUTE.findall(text)}


def changes_of(
    sent: Mapping[str, Any],
    rows: TaskRows,
    table: Table,
    book: LabelLog,
    person_of: Any,
    sample: Collection[int] = (),
) -> tuple[list[Event], list[str]]:
    """Return the events of a report by Label Studio, and one sentence per annotation that could not be used.

    sample : rows that were sampled at random.

    Reports about anything else give no event. An older version of an annotation does not replace a newer version.
    """
    if sent.get("action") in MADE:
        made, tasks = _list(sent.get("annotation")), [one for one in _list(sent.get("task")) if isinstance(one, dict)]
        if not tasks or not all("data" in task for task in tasks):
            return [], ["the report must hold the annotated task; enable 'send payload' of the webhook"]
        own = {id(task): [one for one in made if _belongs(one, task)] for task in tasks}
        found = [{**task, "annotations": own[id(task)]} for task in tasks]
        events, refused = answers_of(found, table, book, person_of, rows, sample)
        return [event for event in events if not _is_outdated(event, book)], refused
    if sent.get("action") == DELETED:
        gone = tuple(_first_of_key(one) for one in _list(sent.get("annotations")) if isinstance(one, dict))
        answers = [event for state in book.rows.values() for event in state.answers.values()]
        return [Event(e.UNDO, one.row, one.person) for one in answers if gone and (one.key or "").startswith(gone)], []
    return [], []


def _belongs(annotation: Any, task: Mapping[str, Any]) -> bool:
    return not isinstance(annotation, dict) or annotation.get("task", task.get("id")) == task.get("id")


def _is_outdated(event: Event, book: LabelLog) -> bool:
    """Return True if the log has a later version of the same annotation."""
    now, first = book.row(event.row).answers.get(event.person), str(event.key)[:20]
    return now is not None and (now.key or "").startswith(first) and now.time > event.time > 0.0


class TaskRows:
    """Find the row of a task by its row number if the cells agree, otherwise by its cells.

    hidden : columns that the tasks do not contain.
    """

    def __init__(self, table: Table, hidden: Sequence[str] = ()) -> None:
        self._keys = data_keys(table, hidden)
        columns = [[_said(value) for value in table.cells[name].tolist()] for name in self._keys]
        self._cells = list(zip(*columns, strict=True))
        self._by_cells: dict[tuple[str, ...], int] = {}
        for row, cells in enumerate(self._cells):
            self._by_cells.setdefault(cells, row)

    def find(self, data: Any) -> int | None:
        if not isinstance(data, dict):
            return None
        # tasks use column names if the user imported the table into Label Studio directly, otherwise our keys
        theirs = all(name in data for name in self._keys)
        cells = tuple(_said(data.get(name if theirs else key)) for name, key in self._keys.items())
        number = data.get(ROW)
        if isinstance(number, int) and 1 <= number <= len(self._cells) and self._cells[number - 1] == cells:
            return number - 1
        return self._by_cells.get(cells)


def _said(value: Any) -> str:
    """Return a cell as text. The result does not depend on whether the table or JSON had a text or a number."""
    return as_text(_plain(value))


def _plain(value: Any) -> Any:
    """Return a cell for JSON. A missing cell becomes an empty text, because Label Studio does not accept null."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or str(value) in ("<NA>", "NaT"):  # noqa: PLR0124 - NaN
        return ""
    return value if isinstance(value, str | int | float | bool) else str(value)
