"""`surefoot import` and `surefoot export`: labels from and to other programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from surefoot._files import sole_writer, write_bytes
from surefoot._outputs import OutputFile, check_outputs
from surefoot._printing import count
from surefoot.cli import options as o
from surefoot.cli.label import check_labelable
from surefoot.cli.output import OK, Output
from surefoot.cli.serve_pool import read_table
from surefoot.pool.kept_options import KeptOptions
from surefoot.pool.labeling import label_studio
from surefoot.pool.labeling.book import Book
from surefoot.pool.labeling.desk import Desk, Settings
from surefoot.pool.labeling.downloads import CSV, PARQUET, answers_table, as_bytes, labeled_table
from surefoot.pool.labeling.open_store import open_desk, open_store
from surefoot.pool.labeling.proof import Goal, unpack
from surefoot.pool.store_labels import changed_labels, labels_to_write
from surefoot.pool.table import FileError, Table, read_content
from surefoot.pool.table.beside import files_of, store_path
from surefoot.pool.table.editing import label_writer

# Refusals that are named one by one.
_SHOWN = 5


@dataclass(frozen=True)
class ExportRequest:
    """What to export."""

    out: Path | None
    answers: Path | None
    in_place: bool
    predictions: bool
    force: bool


def import_tasks(output: Output, pool: Path, tasks: Path, found: KeptOptions) -> int:
    """Take the annotations of Label Studio into the store."""
    try:
        content = tasks.read_bytes()
    except OSError as error:
        raise FileError(f"{tasks} could not be read: {error.strerror or error}. Check the path.") from error
    o.check_pool(pool, found)
    with sole_writer(pool):
        table = read_table(pool, found)
        check_labelable(table)
        desk = open_desk(table, Settings(Goal()))
        read = label_studio.read_tasks(content, tasks)
        events, refused = label_studio.answers_of(read, table, desk.book, lambda name: desk.store.person(name).id)
        new = desk.take_in(events)
        for why in refused[:_SHOWN]:
            output.note(f"not taken: {why}.")
        if len(refused) > _SHOWN:
            output.note(f"not taken: {len(refused) - _SHOWN} more.")
        labels, conflicts = len(desk.book.labels), len(desk.book.conflicts)
        desk.store.close()
    output.say(f"{count(new, 'answer')} taken from {count(len(read), 'task')}; {count(labels, 'label')} now.", "bold")
    if conflicts:
        output.say(f"{count(conflicts, 'row')} with different answers: surefoot serve shows them to be settled.")
    data = {"answers": new, "refused": len(refused), "labels": labels, "conflicts": conflicts}
    return output.finish(data)


def export_store(output: Output, pool: Path, found: KeptOptions, wanted: ExportRequest) -> int:
    """Write labels and answers; the store is only read, also while it is being served."""
    if not store_path(pool).exists():
        raise FileError(f"{store_path(pool)} must be there to be exported; it is not. Label rows with surefoot serve.")
    out = wanted.out
    if out is None and wanted.answers is None and not wanted.in_place:
        out = pool.with_name(f"{pool.stem}.labeled{pool.suffix}")
    _check_outputs(pool, out, wanted.answers, force=wanted.force)
    o.check_pool(pool, found)
    content = read_content(pool)
    table = read_table(pool, found, content)
    store = open_store(table)
    try:
        desk = Desk(store, len(table.labels), table.classes, Settings(Goal()))
        written = {}
        if out is not None:
            write_bytes(out, _labels(desk, table, content, out, predictions=wanted.predictions))
            written["labels"] = str(out)
        if wanted.answers is not None:
            write_bytes(wanted.answers, as_bytes(answers_table(desk.book, store.people()), _form(wanted.answers)))
            written["answers"] = str(wanted.answers)
        if wanted.in_place:
            written["changed"] = str(_write_into(pool, table, content, desk.book))
    finally:
        store.close()
    output.say("Written", "bold")
    output.rows(list(written.items()))
    if out is not None and out.suffix.lower() == ".json" and not output.json:
        output.say("The labeling interface for a project of Label Studio:")
        output.say(label_studio.config(table))
    if desk.book.conflicts:
        output.note(f"{count(len(desk.book.conflicts), 'row')} with different answers stay empty: settle them first.")
    return output.finish({"labels_written": len(desk.book.labels), **written}, OK)


def _labels(desk: Desk, table: Table, content: bytes, out: Path, *, predictions: bool) -> bytes:
    suffix = out.suffix.lower()
    if suffix != ".json":
        labels = labels_to_write(desk.book, table)
        if suffix == table.path.suffix.lower():  # all other bytes stay
            return label_writer(table, content).bytes_with(changed_labels(table, labels))
        found = {row: label for row, label in labels.items() if label is not None}
        return as_bytes(labeled_table(table, found), _form(out))
    predicted = None
    if predictions and desk.turns.n_audits:
        codes = unpack(desk.store.frozen(desk.turns.n_audits)[0])
        predicted = {row: (table.classes[code], None) for row, code in enumerate(codes.tolist())}
    made = label_studio.tasks(table, desk.book, desk.store.people(), predicted)
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


def _write_into(pool: Path, table: Table, content: bytes, book: Book) -> int:
    """Write the labels that the table does not have, all or none; how many.

    A label of the table is emptied only where it was taken back, not where people disagree or skipped the row.
    """
    unsettled = book.conflicts | book.skipped
    labels = {row: label for row, label in labels_to_write(book, table).items() if row not in unsettled}
    changed = changed_labels(table, labels)
    with sole_writer(pool):
        if changed:
            label_writer(table, content).write_all(changed)
    return len(changed)
