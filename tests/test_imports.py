"""The direction of imports, and a light `import surefoot`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"

# Each line may import the lines above it, and itself. A room stands where most of its modules do; a module that stands
# elsewhere has a line of its own: the front door of `problem` opens every backend, and so stands above them.
ORDER = [
    {"_errors", "_files", "_machine", "_printing", "_validation", "_version"},
    {"costs", "priors"},
    {"problem"},
    {"kernels"},
    {"dual"},
    {"solvers"},
    {
        "certificates.calibration",
        "certificates.certificate",
        "certificates.evidence",
        "certificates.fresh",
        "certificates.verify",
    },
    {"solvers.search"},
    {"problem.robust"},
    {"backends"},
    {"problem.placement"},
    {"certificates"},
    {"estimators.combined"},
    {"bounds"},
    {"estimators"},
    {"active"},
    {"nn"},
    {"datasets", "plots"},
    {"paper", "pool"},
    {"report", "serve"},
    {"cli"},
    {"__init__"},
]
# A result draws itself by the display that stands above it: imported where `plot` is called, never with the module.
DRAWN = {
    ("surefoot.certificates.certificate", "surefoot.plots"),
    ("surefoot.estimators.curves", "surefoot.plots"),
}
# What the views take of each other: the command line starts the server and writes a report, each through one function.
VIEWS = {"cli", "report", "serve"}
ENTRANCES = {("cli", "surefoot.report", "write_report"), ("cli", "surefoot.serve", "run_site")}
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

NEVER_AT_TOP = {"cvxpy", "clarabel", "highspy", "dask", "distributed"}
HEAVY = ["numba", "llvmlite", "ot", "matplotlib", "jinja2", "pandas", "polars", "cvxpy", "torch", "dask"]


def module_files(src: Path) -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    files = {}
    for path in sorted((src / "surefoot").rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def part_of(module: str) -> str:
    """The entry of ORDER that a module belongs to: the longest that its name begins with."""
    parts = ["__init__"] if module == "surefoot" else module.split(".")[1:]
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in RANK), names[-1])


def internal_imports(module: str, path: Path, modules: set[str]) -> set[str]:
    """Modules of the package that a module imports, anywhere in its text."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "surefoot"}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *base.split(".")]).rstrip(".")
            if base.split(".")[0] == "surefoot":
                names = {f"{base}.{alias.name}" for alias in node.names}
                found |= {name if name in modules else base for name in names}
    return found


def top_level_imports(tree: ast.Module) -> set[str]:
    """Top packages imported when the module is: outside functions and outside `if TYPE_CHECKING`."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            yield from visit(child)

    return set(visit(tree))


def direction_faults(src: Path) -> list[str]:
    files = module_files(src)
    faults = [f"{module} has no place in ORDER" for module in files if part_of(module) not in RANK]
    for module, path in files.items():
        for imported in sorted(internal_imports(module, path, set(files))):
            mine, theirs = part_of(module), part_of(imported)
            if (module, imported) in DRAWN:
                continue
            if mine != theirs and RANK.get(theirs, len(ORDER)) > RANK.get(mine, -1):
                faults.append(f"{module} imports {imported}")
    return faults


def heavy_faults(src: Path) -> list[str]:
    faults = []
    for module, path in module_files(src).items():
        part, name = part_of(module), module.rpartition(".")[2]
        forbidden = set(NEVER_AT_TOP)
        if part != "plots":
            forbidden.add("matplotlib")
        if part != "nn" and not name.startswith("torch_"):
            forbidden.add("torch")
        if part != "kernels" and not name.startswith("_lazy"):
            forbidden |= {"numba", "ot"}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        faults += [f"{module} imports {heavy} at its top" for heavy in sorted(top_level_imports(tree) & forbidden)]
    return faults


def names_between_views(src: Path) -> set[tuple[str, str, str]]:
    """Importing view, module of another view, and the name taken from it (empty for the module itself)."""
    found = set()
    for module, path in module_files(src).items():
        mine = part_of(module)
        if mine not in VIEWS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                taken = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                taken = [(node.module or "", alias.name) for alias in node.names]
            else:
                continue
            for whole, name in taken:
                parts = f"{whole}.{name}".split(".")
                if parts[0] == "surefoot" and parts[1] in VIEWS - {mine}:
                    found.add((mine, whole, name))
    return found


TAG = re.compile(r"</?[a-z][\w-]*(\s[^<>]*)?/?>")


def html_in_strings(src: Path) -> list[str]:
    """Texts of the page in Python, where they belong in a template."""
    files = {name: path for name, path in module_files(src).items() if part_of(name) in {"report", "serve"}}
    return [
        f"{module}: {node.value[:60]}"
        for module, path in files.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and TAG.search(node.value)
    ]


def test_views_take_one_function_of_each_other_and_only_the_command_line_does() -> None:
    assert names_between_views(SRC) == ENTRANCES


def test_html_stands_in_templates() -> None:
    assert html_in_strings(SRC) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from surefoot.serve import run", ("report", "surefoot.serve", "run")),
        ("def f():\n    from surefoot import cli", ("report", "surefoot", "cli")),
        ("import surefoot.cli.fit", ("report", "surefoot.cli.fit", "")),
    ],
)
def test_a_view_in_a_view_is_noticed(tmp_path: Path, text: str, found: tuple[str, str, str]) -> None:
    path = tmp_path / "surefoot" / "report" / "page.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert names_between_views(tmp_path) == {found}


@pytest.mark.parametrize(("text", "n_faults"), [("x = f'<p class=\"a\">{y}</p>'", 2), ("x = 'a < b and c > d'", 0)])
def test_html_in_a_string_is_noticed(tmp_path: Path, text: str, n_faults: int) -> None:
    path = tmp_path / "surefoot" / "serve" / "page.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert len(html_in_strings(tmp_path)) == n_faults


def is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return all(is_number(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)) and isinstance(
        node, ast.BinOp | ast.UnaryOp
    )


def named_numbers(path: Path) -> tuple[list[str], list[str]]:
    """Numbers with a name at the top of a module, and those of them without a comment that says why.

    The comment stands on the line, above it, or above the numbers that it follows.
    """
    text = path.read_text(encoding="utf-8")
    lines, found, bare, explained = text.splitlines(), [], [], -1
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign):
            continue
        names, values = node.targets[0], node.value
        both = isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
        pairs = zip(names.elts, values.elts, strict=True) if both else [(names, values)]
        here = [ast.unparse(name) for name, value in pairs if is_number(value) and ast.unparse(name).isupper()]
        above = lines[node.lineno - 2].startswith("#") or explained == node.lineno - 1
        if here and (above or "#" in lines[node.lineno - 1]):
            explained = node.end_lineno
        elif here:
            bare += here
        found += here
    return found, bare


def test_the_package_stays_small() -> None:
    """At most 170 modules, eight files beside the folders, and 137 named numbers in the solver, all with a reason."""
    assert len(module_files(SRC)) <= 170
    assert len([path for path in (SRC / "surefoot").iterdir() if path.suffix in {".py", ".pyi"}]) <= 8
    rooms = [path for room in ("dual", "kernels", "solvers") for path in (SRC / "surefoot" / room).rglob("*.py")]
    numbers = {path.relative_to(SRC): named_numbers(path) for path in rooms}
    assert sum(len(found) for found, _ in numbers.values()) <= 137
    assert {path: bare for path, (_, bare) in numbers.items() if bare} == {}


def test_a_number_without_a_reason_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("# Why.\nA, _B = 1, 2.5e-3\nC = 1 << 4\n\nD = -1\nE = 3  # why\nf = 1\nNAMES = ('a',)\n")
    assert named_numbers(path) == (["A", "_B", "C", "D", "E"], ["D"])


def test_the_package_is_found() -> None:
    assert {"surefoot.costs", "surefoot.problem.losses", "surefoot.priors"} <= set(module_files(SRC))


def test_imports_flow_one_way() -> None:
    assert direction_faults(SRC) == []


def order_in(page: str) -> list[set[str]]:
    """The rooms of each row of the table in CONTRIBUTING.md."""
    section = page.partition("\n## Rooms and the order of imports\n")[2].partition("\n## ")[0]
    return [set(re.findall(r"`([^`]+)`", row.split("|")[1])) for row in section.splitlines() if row.startswith("| `")]


def test_contributing_has_the_order() -> None:
    assert order_in((SRC.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")) == ORDER


def test_another_order_in_contributing_is_noticed() -> None:
    rows = "| room | contents |\n|---|---|\n| `dual` | both `bounds` |\n| `costs`, `priors` | |\n"
    page = f"## Style\n| `cli` | |\n\n## Rooms and the order of imports\n\n{rows}\n## Benchmarks\n| `nn` | |\n"
    assert order_in(f"# Contributing\n\n{page}") == [{"dual"}, {"costs", "priors"}]


def test_imports_have_no_cycle() -> None:
    files = module_files(SRC)
    graph = {
        module: {name for name in internal_imports(module, path, set(files)) if (module, name) not in DRAWN} - {module}
        for module, path in files.items()
    }
    list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_heavy_packages_are_imported_late() -> None:
    assert heavy_faults(SRC) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("costs.py", "from surefoot.pool import Table", "surefoot.costs imports surefoot.pool"),
        ("costs.py", "from . import pool", "surefoot.costs imports surefoot.pool"),
        ("costs.py", "from .pool import x", "surefoot.costs imports surefoot.pool"),
        ("costs.py", "from surefoot import certify", "surefoot.costs imports surefoot"),
        ("solvers/newton.py", "def f():\n    import surefoot.cli", "surefoot.solvers.newton imports surefoot.cli"),
        ("solvers/newton.py", "from ..bounds import x", "surefoot.solvers.newton imports surefoot.bounds"),
        ("problem/rows.py", "from .placement import x", "surefoot.problem.rows imports surefoot.problem.placement"),
        ("stray.py", "", "surefoot.stray has no place in ORDER"),
    ],
)
def test_a_wrong_direction_is_noticed(tmp_path: Path, file: str, text: str, fault: str) -> None:
    for name in ["__init__.py", "pool.py", "cli.py", "bounds.py", "problem/placement.py", file]:
        path = tmp_path / "surefoot" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name == file else "", encoding="utf-8")
    assert direction_faults(tmp_path) == [fault]


@pytest.mark.parametrize(
    ("file", "text", "n_faults"),
    [
        ("costs.py", "import cvxpy as cp", 1),
        ("costs.py", "try:\n    from torch import nn\nexcept ImportError:\n    pass", 1),
        ("costs.py", "from numba import njit", 1),
        ("kernels/rows.py", "from numba import njit\nimport ot", 0),
        ("costs.py", "def f():\n    import ot", 0),
        ("costs.py", "if TYPE_CHECKING:\n    import torch", 0),
        ("cli.py", "import matplotlib.pyplot as plt", 1),
        ("plots.py", "import matplotlib.pyplot as plt", 0),
    ],
)
def test_a_heavy_import_is_noticed(tmp_path: Path, file: str, text: str, n_faults: int) -> None:
    path = tmp_path / "surefoot" / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert len(heavy_faults(tmp_path)) == n_faults


def imported_by(statement: str) -> set[str]:
    """Heavy packages that a fresh interpreter holds after a statement."""
    program = f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])"
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_import_surefoot_is_light() -> None:
    # scikit-learn imports pandas where it is installed (sklearn.utils.fixes): that much we cannot spare
    by_sklearn = imported_by("import sklearn.linear_model")
    assert by_sklearn <= {"pandas"}
    assert imported_by("import surefoot") <= by_sklearn


def test_help_of_the_command_line_makes_no_page() -> None:
    help_page = "from surefoot.cli import run; run(['--help'])"
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys; {help_page}; print('jinja2' in sys.modules)"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(SRC)},
    )  # fmt: skip
    assert loaded.stdout.splitlines()[-1] == "False"


def test_a_heavy_package_in_memory_is_noticed() -> None:
    assert "matplotlib" in imported_by("import surefoot, matplotlib")


_LIGHT_FIT = """
import sys
import surefoot as sf

fit = lambda: sf.RobustLogisticRegression().fit([[0.0], [0.2], [1.0]], [0, 0, 1], X_unlabeled=[[0.1], [0.9], [1.1]])
before = fit().certificate_.risk
loaded = [name for name in ("torch", "jax", "tensorflow", "cupy", "ot") if name in sys.modules]
assert not loaded, loaded
import os
assert not [name for name in os.environ if name.startswith("POT_BACKEND")]

import numpy as np
import ot
from ot.lp.emd_wrap import emd_c

assert callable(emd_c)
a, cost = np.full(3, 1 / 3), np.ones((3, 3)) - np.eye(3)
assert ot.emd2(a, a, cost) == 0
assert ot.emd2_1d(np.arange(3.0), np.arange(3.0) + 1, metric="euclidean") == 1
assert fit().certificate_.risk == before
try:
    import torch
except ImportError:
    raise SystemExit
# POT as its user knows it: torch tensors go in and come out
plan = ot.emd(*(torch.as_tensor(value) for value in (a, a, cost)))
assert isinstance(plan, torch.Tensor)
"""


def test_a_fit_imports_no_array_library_and_leaves_pot_as_it_is() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POT_BACKEND")}
    subprocess.run([sys.executable, "-W", "ignore", "-c", _LIGHT_FIT], check=True, env=environment)


# Names that modules of the package share on purpose: two implementations of one interface, and commands named after the
# function that they call.
SHARED_NAMES = {
    "add_row_sums": {"kernels.torch_fused", "kernels.torch_rows"},
    "certify": {"certificates.certification", "cli.app_model"},
    "reproduce": {"cli.app_model", "paper"},
    "verify": {"certificates.verify", "cli.app_model"},
}


def names_defined_twice(src: Path) -> dict[str, set[str]]:
    """Public classes and functions that more than one module defines at its top level."""
    found: dict[str, set[str]] = {}
    for module, path in module_files(src).items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(module.removeprefix("surefoot."))
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_one_name_has_one_meaning() -> None:
    assert names_defined_twice(SRC) == SHARED_NAMES


def test_a_name_defined_twice_is_noticed(tmp_path: Path) -> None:
    for module, text in [("a", "class Pool: ...\ndef _own(): ..."), ("b", "def Pool(): ...\ndef _own(): ...")]:
        (tmp_path / "surefoot").mkdir(exist_ok=True)
        (tmp_path / "surefoot" / f"{module}.py").write_text(text, encoding="utf-8")
    assert names_defined_twice(tmp_path) == {"Pool": {"a", "b"}}
