"""Commands that train, use and test a model, and commands without a table."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot._errors import FileError
from surefoot._printing import at_most, count, percent, rounded_up, visible
from surefoot.cli import app as o
from surefoot.cli.app import Call, command, command_line
from surefoot.cli.output import FAILED, NOT_REACHED, OK, Output, whole_percent
from surefoot.pool.options import DEFAULT, read_loss, split_names
from surefoot.pool.table.cells import TableError
from surefoot.pool.table.reading import WRITABLE, listed

if TYPE_CHECKING:
    from surefoot.pool.appraisal import Appraisal
    from surefoot.pool.table import Pool

# Commands that train, use and test a model.

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function


@command("fit", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def fit(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    classifier: o.Classifier = "default",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Model file. The default is POOL.skops in this folder.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Report file. The default is next to the model.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not write a report.")] = False,
    full_report: Annotated[
        bool, typer.Option("--full-report", help="Add the worst case and its curves over the radius to the report.")
    ] = False,
    worst_case: Annotated[
        bool | None,
        typer.Option(
            "--worst-case/--no-worst-case",
            help="Bound the worst case over a decision set. On with --radius, --target-risk or --evidence.",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        float | None, typer.Option("--time", min=1.0, help="Time limit in seconds. Notes list the steps skipped.")
    ] = None,
    learn_rows: Annotated[
        int | None,
        typer.Option(
            "--learn-rows", min=0, help="Number of unlabeled rows for training, or 0 for all. Default: by size."
        ),
    ] = None,
    cv_groups: o.CvGroups = None,
    evidence: o.Evidence = None,
    force: o.Force = False,
    target_risk: o.Target = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", min=0.0, max=1.0, help="Exit with code 3 if the bound on the error rate is above this."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all notes, bounds and assumptions.")] = False,
) -> int:
    """Train a model, bound its error rate and write a report."""
    from surefoot._files import OutputFile, check_outputs, check_writable, is_report

    call.output.brief = not verbose
    output, choices = call.output, call.settle_pool(pool, learn_rows=learn_rows, max_error=max_error)
    model = out or Path(f"{pool.stem}.skops")
    check_writable(model)  # a folder has no suffix to change
    page = None if no_report else report or model.with_suffix(".html")
    from surefoot.cli.output import pool_data, say_files, say_judged, say_pool
    from surefoot.pool.appraisal import appraise
    from surefoot.pool.evidence import evidence_files
    from surefoot.pool.model import train
    from surefoot.pool.model_file import is_model_file, model_file_of, prepare_saving, save_model
    from surefoot.pool.options import Clock
    from surefoot.pool.served_model import Writing, next_command, report_of
    from surefoot.pool.store import files_of
    from surefoot.pool.store_labels import picked_rows
    from surefoot.pool.training import LabeledTable
    from surefoot.report import write_report

    outputs = [OutputFile(model, "model", "--out", is_model_file)]
    if page is not None:
        outputs.append(OutputFile(page, "report", "--report", is_report))
    outputs += [] if evidence is None else evidence_files(evidence)
    check_outputs(outputs, files_of(pool), force=force)
    table = call.read_pool()
    writing = Writing(model, page, {**call.values, "suffix": pool.suffix}, choices.seed, command_line())
    _check_groups(cv_groups, list(table.table.cells.columns))
    say_pool(output, table)
    prepare_saving()
    with output.working("learning") as say:
        clock = Clock(time, say)
        trained = train(LabeledTable.from_pool(table, picked_rows(table.table), group_column=cv_groups), choices, clock)
        wanted = full_report or target_risk is not None or evidence is not None or choices.radius != DEFAULT
        judged = appraise(trained, choices, clock, worst=wanted if worst_case is None else worst_case)
    output.note(*trained.notes)
    say_judged(output, judged, table.classes)
    summary = judged.data()
    output.note(*judged.cautions, always=True)
    save_model(model, model_file_of(trained, summary, writing.options))
    written = {"model": str(model)}
    if evidence is not None:
        written |= _save_evidence(call, evidence, judged, table, model, cleaned_by_model=False)
    if page is not None:
        with output.working("writing the report") as say:
            write_report(page, report_of(judged, output.notes, writing, say, curves=full_report))
        written["report"] = str(page)
    following = next_command(judged, writing)
    say_files(output, written, following)
    code = _target(output, "log loss", judged.risk, target_risk, guaranteed=judged.is_guaranteed)
    code = NOT_REACHED if max_error is not None and not judged.is_useful else code
    data = {**pool_data(table), **summary, **written, "next": following, "seconds": round(clock.passed, 2)}
    return output.finish(data, code)


def _check_groups(column: str | None, known: list[str]) -> None:
    if column is not None and column not in known:
        raise TableError(f"--cv-groups must name a column; got {column!r}. Pass one of {listed(known)}.")


def _save_evidence(
    call: Call, path: Path, judged: Appraisal, pool: Pool, model: Path, *, cleaned_by_model: bool
) -> dict[str, str]:
    """Write the bounds of a model as evidence. Return the files written, by kind."""
    from surefoot.pool.evidence import save_appraisal

    how = {"model": model, "cleaned_by_model": cleaned_by_model, "seed": call.ctx.params["seed"]}
    saved = save_appraisal(path, judged, pool, call.form, call.columns, **how)
    if not saved:
        call.output.note("no evidence was written: there is no bound to prove.")
    return {name: str(file) for name, file in zip(("evidence", "arrays"), saved, strict=False)}


@command("predict", o.ReadingOptions, o.Json)
def predict(
    call: Call,
    model: o.ModelPath,
    table: Annotated[Path, typer.Argument(help="Table with the columns that the model was trained on.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Table to write, with all columns and the predictions.")
    ] = None,
    abstain: Annotated[
        float | None,
        typer.Option("--abstain", min=0.0, max=1.0, help="Leave rows empty whose confidence is below this."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the three columns that matter most for each prediction.")
    ] = False,
    force: o.Force = False,
    trust: o.Trust = "",
) -> int:
    """Predict the label of each row of a new table."""
    from surefoot._files import OutputFile, check_outputs
    from surefoot.pool.store import files_of
    from surefoot.pool.stored import Classifier, is_predictions, predict_rows, write_predictions
    from surefoot.pool.table import read_table

    output = call.output
    if out is not None:
        if out.suffix.lower() not in WRITABLE:
            raise FileError(f"--out must end in one of {', '.join(WRITABLE)}; got {out}. Change the name.")
        file = OutputFile(out, "table of predictions", "--out", is_predictions)
        check_outputs([file], [model, *files_of(table)], force=force)
    classifier = Classifier.load(model, split_names(trust))
    call.settle(table, classifier.options(table))
    cells = read_table(table, call.form)
    with output.working("predicting"):
        found = predict_rows(classifier, cells, abstain, explain=explain)
    output.note(*found.unread)
    if found.n_abstained:
        output.note(
            f"{found.n_abstained} of {count(len(cells), 'row')} left empty: the confidence is below {abstain:g}. The "
            "bound of the fit covers predictions for all rows, not for the rest alone."
        )
    if found.why is not None:
        effect = "the log-odds of the predicted class" if found.why.additive else "the predicted probability"
        output.note(
            f"why_1 to why_3 name the columns that matter most. The number is the change in {effect}, compared with "
            "the median or the most frequent value of the column. It does not describe a cause."
        )
    if found.n_known:
        output.note(
            f"{found.label!r} is filled in for {count(found.n_known, 'new row')}. To compare: surefoot score {model} "
            f"{table}"
        )
    data: dict[str, Any] = {"rows": len(cells), "predicted": found.counts, "abstained": found.n_abstained}
    if out is not None:
        write_predictions(out, found.table())
        shares = ", ".join(f"{known}: {n}" for known, n in found.counts.items())
        output.say(f"{count(len(cells), 'row')} predicted: {shares}")
        output.rows([("written", str(out))])
        return output.finish({**data, "out": str(out)})
    if output.json:
        data["predictions"] = found.predicted.tolist()
        data["probabilities"] = None if found.proba is None else found.proba.round(6).tolist()
        data["classes"] = found.classes
        data |= {} if found.why is None else {"why": found.why.data()}
        return output.finish(data)
    text = io.StringIO()
    found.listed().to_csv(text, index=False, lineterminator="\n")
    # a pipe gets every byte; control characters are escaped for a terminal
    sys.stdout.write(visible(text.getvalue(), lines=True) if sys.stdout.isatty() else text.getvalue())
    return output.finish(data)


@command("score", o.ReadingOptions, o.Json)
def score(
    call: Call,
    model: o.ModelPath,
    table: Annotated[Path, typer.Argument(help="Table with the true labels.")],
    label: Annotated[
        str | None,
        typer.Option("--label", "-l", help="Column of the true labels. Models of surefoot fit know it."),
    ] = None,
    trust: o.Trust = "",
) -> int:
    """Compare the predictions and bounds of a model with true labels."""
    from surefoot.pool.stored import Classifier, score_model

    output, classifier = call.output, Classifier.load(model, split_names(trust))
    call.settle(table, classifier.options(table))
    with output.working("predicting"):
        scores = score_model(classifier, table, classifier.label_or(label), call.form)
    output.note(*scores.unread)
    if scores.unknown:
        output.note(f"the model never predicts {', '.join(map(repr, scores.unknown))}, a class it does not know.")
    if scores.n_taught:
        which = "All" if scores.n_taught == scores.n_rows else f"{scores.n_taught} of the {scores.n_rows}"
        output.note(f"{which} rows with a label trained the model. Its accuracy is lower on new rows.")
    output.say(f"{model.name} on {table.name}: {count(scores.n_rows, 'row')} with a label", "bold")
    most, share = scores.most_frequent
    pairs = [("accuracy", f"{percent(scores.accuracy, 1)} (a constant prediction of {most!r}: {percent(share, 1)})")]
    if scores.log_loss is not None:
        pairs.append(("log loss", f"{scores.log_loss:.4f}"))
    output.rows(pairs)
    output.say("Confusion matrix: true classes (rows), predictions (columns)", "bold")
    rows = [
        [one.name, *map(str, row), whole_percent(one.recall), whole_percent(one.precision)]
        for one, row in zip(scores.by_class, scores.confusion, strict=True)
    ]
    output.table(["", *scores.classes, "recall", "precision"], rows, right=tuple(range(1, len(scores.classes) + 3)))
    if scores.calibration:
        output.say("Calibration: predicted confidence and share of correct predictions", "bold")
        bins = [[percent(b["confidence"]), percent(b["right"]), str(b["rows"])] for b in scores.calibration]
        output.table(["confidence", "correct", "rows"], bins, right=(0, 1, 2))
    if scores.bounds:
        output.say("Bounds computed when the model was trained", "bold")
        output.rows([_bound_words(bound) for bound in scores.bounds])
        output.say("  A bound covers the population of the labels. With 90 % confidence, one in ten may fail.", "dim")
    return output.finish(scores.data())


@command("certify", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def certify(
    call: Call,
    model: o.ModelPath,
    pool: o.PoolPath,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Label column. Models of surefoot fit know it.")
    ] = None,
    loss: o.Loss = "zero_one",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    evidence: o.Evidence = None,
    force: o.Force = False,
    target_risk: o.Target = None,
    trust: o.Trust = "",
) -> int:
    """Certify the worst-case error rate of any classifier stored with skops."""
    kind = read_loss(loss)
    from surefoot._files import check_outputs
    from surefoot.cli.output import say_judged
    from surefoot.pool.appraisal import appraise_classifier
    from surefoot.pool.evidence import evidence_files
    from surefoot.pool.options import Clock
    from surefoot.pool.store import files_of
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table import check_learnable
    from surefoot.pool.table.pool import in_order

    if evidence is not None:
        check_outputs(evidence_files(evidence), [model, *files_of(pool)], force=force)
    output, classifier = call.output, Classifier.load(model, split_names(trust))
    call.settle(pool, classifier.options(pool))
    choices = call.choices()
    table = call.read_table(pool, classifier.label_or(call.values["label"]))
    check_learnable(table)
    call.take_up(table)
    classes = in_order({*table.classes, *classifier.classes})
    unknown = [name for name in table.classes if name not in classifier.classes]
    if unknown:
        output.note(f"the model never predicts {', '.join(unknown)}, a class it does not know.")
    cleaned = classifier.cleaned(replace(table, classes=classes), **call.columns)
    output.note(*cleaned.notes)
    with output.working("certifying") as say:
        judged = appraise_classifier(classifier, cleaned, choices, Clock(None, say), kind)
    worst = judged.worst
    if worst is None:
        raise TableError(f"{' '.join(judged.missing)} Pass a number as --radius.")
    output.say(f"{classifier.name} over {table.path.name}", "bold")
    say_judged(output, judged, classes)
    data: dict[str, Any] = {
        "rows": len(cleaned.rows),
        "bounds": judged.bounds,
        "accuracy": judged.accuracy_data,
        "certificate": worst.data(classes),
    }
    if evidence is not None:
        written = _save_evidence(call, evidence, judged, cleaned, model, cleaned_by_model=classifier.stored is not None)
        output.rows(list(written.items()))
        data |= written
    return output.finish(data, _target(output, "risk", worst.first.risk, target_risk, guaranteed=worst.guaranteed))


@command("verify", o.Json)
def verify(
    call: Call,
    evidence: Annotated[Path, typer.Argument(help="File written with --evidence.")],
    pool: Annotated[Path, typer.Argument(help="Table of the claims, with its present labels.")],
    model: Annotated[Path | None, typer.Argument(help="Model file (.skops) of the claims.")] = None,
    trust: o.Trust = "",
) -> int:
    """Check the claims of an evidence file without the solver."""
    from surefoot.pool.evidence import verify_table

    output = call.output
    with output.working("verifying"), output.warnings():
        found = verify_table(evidence, pool, model, split_names(trust))
    output.say(f"{evidence.name}: the evidence {'holds' if found.ok else 'does NOT hold'}", "bold")
    for head, texts in (
        ("Claims", found.claims),
        ("Mismatches", found.mismatches),
        ("Verified", found.verified),
        ("Not verified", found.not_verified),
    ):
        if texts:
            output.say(head, "bold")
            output.rows([("-", text) for text in texts])
    data = {
        "holds": found.ok,
        "claims": found.claims,
        "mismatches": found.mismatches,
        "verified": found.verified,
        "not_verified": found.not_verified,
    }
    return output.finish(data, OK if found.ok else FAILED)


@command("card", o.Json)
def card(
    call: Call,
    evidence: Annotated[Path, typer.Argument(help="File that --evidence wrote.")],
    model: Annotated[Path | None, typer.Argument(help="Model file (.skops), for its hyperparameters.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Model card (.md), or CycloneDX (.json); by default EVIDENCE.md.")
    ] = None,
    force: o.Force = False,
    trust: o.Trust = "",
) -> int:
    """Write a model card from evidence: Markdown for Hugging Face, or a CycloneDX document."""
    from surefoot._files import OutputFile, check_outputs
    from surefoot.pool.evidence import check_card_name, is_card, write_card
    from surefoot.pool.stored import Classifier

    path = out or evidence.with_suffix(".md")
    check_card_name(path)
    check_outputs(
        [OutputFile(path, "model card", "--out", is_card)], [evidence, *([] if model is None else [model])], force=force
    )
    write_card(path, evidence, None if model is None else Classifier.load(model, split_names(trust)))
    call.output.rows([("written", str(path))])
    return call.output.finish({"card": str(path)})


def _target(output: Output, name: str, risk: float | None, target: float | None, *, guaranteed: bool) -> int:
    """Return the exit code for a risk, and note a risk above the target."""
    if target is None or (risk is not None and risk <= target):
        return OK
    if risk is None:
        output.note(f"the {name} has no bound to compare with --target-risk {target:g}.", always=True)
        return NOT_REACHED
    word = "certified" if guaranteed else "worst-case"
    output.note(f"the {word} {name} {rounded_up(risk, 4)} is above --target-risk {target:g}.", always=True)
    return NOT_REACHED


def _bound_words(bound: dict[str, Any]) -> tuple[str, str]:
    from surefoot.problem.losses import ZERO_ONE

    name = "error rate" if bound["loss"] == ZERO_ONE else "log loss"
    value = at_most(bound["value"]) if bound["loss"] == ZERO_ONE else rounded_up(bound["value"], 4)
    truth = percent(bound["truth"], 1) if bound["loss"] == ZERO_ONE else f"{bound['truth']:.4f}"
    kind = {"crossfit": "cross-fitted", "transport": "worst case"}.get(bound["method"], bound["method"])
    note = "" if bound["guaranteed"] else " (no guarantee)"
    return name, f"at most {value} ({kind}){note}: {'held' if bound['held'] else 'exceeded'}, true value {truth}"


# Number of rows shown of a table of results.
_SHOWN = 40


def _experiments() -> list[str]:
    from surefoot.paper import EXPERIMENTS

    return list(EXPERIMENTS)


@command("reproduce", o.Json)
def reproduce(
    call: Call,
    name: Annotated[
        str,
        typer.Argument(help="Figure or table: figure1 to figure6, table1 or table2.", autocompletion=_experiments),
    ],
    datasets: Annotated[
        str, typer.Option("--datasets", help="Datasets, separated by commas. The default is the paper's.")
    ] = "",
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Number of trials. The default is that of the paper.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Make a small run to check the setup.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Number of processes, or -1 for one per core.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output folder.")] = None,
    device: Annotated[
        str, typer.Option("--device", help="Device for the fits of figures 5 and 6: cpu, or a torch device like cuda.")
    ] = "cpu",
    force: o.Force = False,
    seed: o.Seed = 0,
) -> int:
    """Reproduce an experiment of the paper, resuming an interrupted run."""
    from surefoot.paper import reproduce

    output = call.output
    with output.warnings():
        done = reproduce(
            name,
            datasets=split_names(datasets) or None,
            trials=trials,
            quick=quick,
            jobs=jobs,
            out=out,
            seed=seed,
            device=device,
            progress=True,
            force=force,
        )
    for title, table in done.tables.items():
        output.say(title, "bold")
        output.table(
            [str(column) for column in table.columns],
            [
                [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
                for row in table.values[:_SHOWN]
            ],
        )
        if len(table) > _SHOWN:
            output.say(f"  and {len(table) - _SHOWN} more rows in {done.out / title}.csv", "dim")
    output.rows([("written", str(done.out)), *[("figure", str(path)) for path in done.figures]])
    data = {
        "name": done.name,
        "out": str(done.out),
        "datasets": list(done.settings.datasets),
        "trials": done.settings.trials,
        "tables": {title: str(done.out / f"{title}.csv") for title in done.tables},
        "figures": [str(path) for path in done.figures],
    }
    return output.finish(data)


@command("demo", o.Json)
def demo(
    call: Call,
    out: Annotated[Path, typer.Option("--out", "-o", help="Figure to write (.png, .pdf, .svg).")] = Path(
        "surefoot-demo.png"
    ),
    force: o.Force = False,
    seed: o.Seed = 0,
) -> int:
    """Train and certify a classifier on 20 labels of the breast cancer data."""
    from surefoot._files import check_outputs
    from surefoot.cli import demo

    if out.suffix.lower() not in demo.FORMATS:
        raise FileError(f"--out must end in one of {', '.join(demo.FORMATS)}; got {out}. Change the name.")
    check_outputs([demo.figure_file(out)], [], force=force)
    with call.output.working("fitting"):
        shown = demo.Demonstration.from_seed(seed)
    call.output.say(shown.report, wrap=False)
    with call.output.working("drawing"):
        shown.draw(out)
    call.output.say(f"\nFigure: {out}")
    return call.output.finish({**shown.data, "figure": str(out)})
