"""The words of messages, in one place: all other tests tell messages apart by parameters, codes and values.

`SUREFOOT_WORDING=write pytest tests/test_wording.py` writes the snapshots in tests/wording anew.
"""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import surefoot
from surefoot._errors import CodedWarning, InfeasibleRadiusError, ParameterError, UnlabeledRowsWarning
from surefoot._validation import InexactWarning
from surefoot.cli import output as sentences
from surefoot.cli.output import sentence
from surefoot.pool.notes import _WORDS

SOURCE, SNAPSHOTS = Path(surefoot.__file__).parent, Path(__file__).parent / "wording"
WARNINGS = {"CodedWarning", "InexactWarning", "SeparableWarning", "UnlabeledRowsWarning"}
FILES = {"AnswerError", "FileError", "TableError"}


def calls(names: set[str]) -> Iterator[ast.Call]:
    """Where the package makes an error or a warning of these classes."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield node


def template(node: ast.expr | None) -> str:
    """A text with the expressions in it in braces."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return template(node.left) + template(node.right)
    if isinstance(node, ast.FormattedValue):
        return ast.unparse(ast.JoinedStr([node]))[2:-1]
    return "{" + ast.unparse(node) + "}"


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[position] if len(call.args) > position else given.get(name)


def parts(call: ast.Call) -> tuple[str, ...]:
    """Parameter, rule, value and fix of a ParameterError; an absent value is "None"."""
    named = ("parameter", "rule", "got", "fix")
    return tuple(template(argument(call, position, name)) for position, name in enumerate(named))


def errors() -> list[str]:
    return [" | ".join(parts(call)) for call in calls({"ParameterError"})]


def warnings() -> list[str]:
    found = (call.args[:3] for call in calls(WARNINGS))
    return [" | ".join(map(template, one)) for one in found]


def files() -> list[str]:
    return [template(call.args[0]) for call in calls(FILES)]


def notes() -> list[str]:
    return [f"{code} | {words if isinstance(words, str) else body(words)}" for code, words in _WORDS.items()]


def body(function: Callable[..., str]) -> str:
    """What a function does, in one line."""
    (defined,) = ast.parse(inspect.getsource(function)).body
    return "; ".join(ast.unparse(statement) for statement in getattr(defined, "body", []))


def composed() -> list[str]:
    """Whole messages: as the library says them, and as the command line does."""
    advice = "Raise $max_iter or $tol, or $radius where it is close to the minimal one."
    examples = [
        ParameterError("label_prior", "must sum to 1", 1.1, "Divide by the sum."),
        ParameterError("radius", "can be calibrated from at least 4 labeled rows", 3, "Pass a number as $radius."),
        ParameterError("y", "must show two classes", fix="Label more rows."),
        InfeasibleRadiusError(0.05, 0.11737365414931562),
        InexactWarning("gap", "the certified gap is 1.00e-03, above tol=1.00e-04.", advice, gap=1e-3, tol=1e-4),
        CodedWarning("repeated_rows", "3 rows repeat another.", "Pass $sample_weight instead.", copies=3),
        UnlabeledRowsWarning("unused_rows", "the rows take no part.", "Leave out $X_unlabeled."),
    ]
    return [f"{say.__name__}: {say(one)}" for one in examples for say in (str, sentence)]


@pytest.mark.parametrize("group", [errors, warnings, files, notes, composed], ids=lambda group: group.__name__)
def test_the_words_are_those_of_the_snapshot(group: type) -> None:
    path = SNAPSHOTS / f"{group.__name__}.txt"
    found = group() if group is composed else sorted(set(group()))
    if os.environ.get("SUREFOOT_WORDING") == "write":
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines(), "see SUREFOOT_WORDING at the top of this file"


def test_an_error_names_its_parameter_the_value_and_a_fix() -> None:
    for parameter, rule, got, fix in map(parts, calls({"ParameterError"})):
        named = f"{parameter} {rule}"
        assert re.fullmatch(r"\w+|\{.*\}", parameter), named
        assert rule, named
        assert not rule.endswith((".", ";")), named
        assert not rule.startswith(f"{parameter} "), named
        assert got != "", f"no value, not even None: {named}"
        assert fix.startswith(("{", "$")) or fix[:1].isupper(), f"no fix, or it is no sentence: {named}"
        assert fix.endswith((".", "?", "}", ")")), f"the fix is no sentence: {named}"


def test_the_command_line_knows_the_codes_that_it_reads() -> None:
    assert set(sentences._FIXES) <= {template(call.args[0]) for call in calls(WARNINGS)} | {"gap"}


@pytest.mark.parametrize(
    "problem",
    [
        ParameterError("radius", "must be positive", -1.0, "Pass 1."),
        InfeasibleRadiusError(0.125, 0.5),
        InexactWarning("gap", "it is large.", "Raise $tol.", gap=0.5, tol=0.1),
        UnlabeledRowsWarning("unused_rows", "they take no part."),
    ],
)
def test_messages_survive_pickling(problem: Exception) -> None:
    copy = pickle.loads(pickle.dumps(problem))
    assert type(copy) is type(problem)
    assert (str(copy), vars(copy)) == (str(problem), vars(problem))
