"""`surefoot import` and `surefoot export`: labels from and to other programs."""

from __future__ import annotations

import json
from pathlib import Path

from surefoot._errors import FileError
from surefoot._files import OutputFile, check_outputs, check_writable, write_bytes
from surefoot._printing import count
from surefoot.cli.app import Call
from surefoot.cli.label import check_labelable
from surefoot.cli.output import OK
from surefoot.pool.database import FREEZE
from surefoot.pool.labeling import exchange as label_studio
from surefoot.pool.labeling.exchange import CSV, PARQUET, answers_file, labeled_file
from surefoot.pool.labeling.label_log import LabelLog
from surefoot.pool.labeling.schedule import unpack
from surefoot.pool.store import MOVED_AUDITS, Store, files_of, store_path
from surefoot.pool.store_labels import labels_to_write, open_store, stored_book, with_labels, write_table
from surefoot.pool.table import Table, read_content

# Refusals that are named one by one.
_SHOWN = 5


def import_tasks(call: Call, tasks: Path) -> int:
    """Take the annotations of Label Studio into the store."""
    try:
        content = tasks.read_bytes()
    except OSError as error:
        raise FileError(f"{tasks} could not be read: {error.strerror or error}. Check the path.") from error
    output = call.output
    call.check_pool()
    check_writable(store_path(call.path))
    raw = read_content(call.path)
    table = call.read_labelable(raw)
    check_labelable(table)
    with open_store(table, raw, call.read_labelable) as store:
        read = label_studio.read_tasks(content, tasks)
        with with_labels(store, table, raw, call.read_labelable) as (book, table, _):
            events, refused = label_studio.answers_of(read, table, book, lambda name: store.person(name).id)
            new = [event for event in events if event.key not in book.keys]
            for event in store.append(new):
                book.apply(event)
    for why in refused[:_SHOWN]:
        output.note(f"not taken: {why}.")
    if len(refused) > _SHOWN:
        output.note(f"not taken: {len(refused) - _SHOWN} more.")
    labels, conflicts = len(book.labels), len(book.conflicts)
    output.say(
        f"{count(len(new), 'answer')} taken from {count(len(read), 'task')}; {count(labels, 'label')} now.", "bold"
    )
    if conflicts:
        output.say(f"{count(conflicts, 'row')} with different answers: surefoot serve shows them to be settled.")
    data = {"answers": len(new), "refused": len(refused), "labels": labels, "conflicts": conflicts}
    return output.finish(data)


def export_store(
    call: Call, out: Path | None, answers: Path | None, *, in_place: bool, predictions: bool, force: bool
) -> int:
    """Write labels and answers; the store is only read, also while it is being served."""
    pool, output = call.path, call.output
    if not store_path(pool).exists():
        raise FileError(f"{store_path(pool)} must be there to be exported; it is not. Label rows with surefoot label.")
    if out is None and answers is None and not in_place:
        out = pool.with_name(f"{pool.stem}.labeled{pool.suffix}")
    _check_outputs(pool, out, answers, force=force)
    call.check_pool()
    book, table, content = _read_both(call)
    written = {}
    with Store(store_path(pool), {}) as store:
        if book is None:
            raise FileError(
                f"{store_path(pool)} must hold labels of {table.label!r} to be exported; it has none. Pass another "
                "--label, or label rows with surefoot label."
            )
        if out is not None:
            write_bytes(out, _labels(store, book, table, content, out, predictions=predictions))
            written["labels"] = str(out)
        if answers is not None:
            write_bytes(answers, answers_file(book, store.people(), _form(answers)))
            written["answers"] = str(answers)
        if in_place:
            check_writable(pool)
            written["changed"] = str(write_table(store, table, content, call.read_labelable))
    output.say("Written", "bold")
    output.rows(list(written.items()))
    if out is not None and out.suffix.lower() == ".json" and not output.json:
        output.say("The labeling interface for a project of Label Studio:")
        output.say(label_studio.config(table))
    if book.conflicts:
        output.note(f"{count(len(book.conflicts), 'row')} with different answers stay empty: settle them first.")
    return output.finish({"labels_written": len(book.labels), **written}, OK)


def _read_both(call: Call) -> tuple[LabelLog | None, Table, bytes]:
    """The labels of a store and its table, of one moment: another process may write into the table between the two."""
    while True:
        content = read_content(call.path)
        table = call.read_labelable(content)
        book = stored_book(table)
        if read_content(call.path) == content:
            return book, table, content


def _labels(store: Store, book: LabelLog, table: Table, content: bytes, out: Path, *, predictions: bool) -> bytes:
    suffix = out.suffix.lower()
    if suffix != ".json":
        return labeled_file(table, content, labels_to_write(book, table), suffix)
    predicted = None
    audit = max((event.audit or 0 for event in book.events if event.kind == FREEZE), default=0)
    if predictions and audit > store.about.get(MOVED_AUDITS, 0):
        codes = unpack(store.frozen(audit).predictions)
        predicted = {row: (table.classes[code], None) for row, code in enumerate(codes.tolist())}
    made = label_studio.tasks(table, book, store.people(), predicted)
    return json.dumps(made, ensure_ascii=False, indent=1).encode()


def _form(path: Path) -> str:
    form = path.suffix.lower().removeprefix(".")
    if form not in (CSV, PARQUET):
        raise FileError(f"{path} must end in .csv or .parquet (labels also in .json). Pass such a name.")
    return form


def _check_outputs(pool: Path, out: Path | None, answers: Path | None, *, force: bool) -> None:
    """No file that is read, none twice, and none that is there already, before any work is done."""
    outputs = []
    if out is not None:
        if out.resolve() == pool.resolve():
            raise FileError(f"{out} is the pool itself. Pass --in-place to write the labels into it.")
        if out.suffix.lower() not in (".json", pool.suffix.lower()):
            _form(out)
        outputs.append(OutputFile(out, "table of labels", "--out", Path.is_file))
    if answers is not None:
        _form(answers)
        outputs.append(OutputFile(answers, "table of answers", "--answers", Path.is_file))
    check_outputs(outputs, files_of(pool), force=force)
    there = [file.path for file in outputs if file.path.exists()]
    if there and not force:  # an older export, too, may have been corrected by hand
        raise FileError(f"{there[0]} is there already. Pass --force to overwrite it, or another name.")
