"""Print the lowest versions that pyproject.toml allows, of the package's dependencies and of the extras cli and dask.

Polars is among them: scikit-learn sees the column names of a newer one only from 1.9 on.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

BOUND = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[\d.]+)$")


def lowest(requirements: list[str]) -> list[str]:
    """`name==version.*` for `name>=version`: the newest of the lowest series, as a bug fix does not move a bound."""
    found = []
    for requirement in requirements:
        bound = BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"a dependency must have a lower bound and no other, name>=1.2; got {requirement!r}")
        found.append(f"{bound['name']}=={bound['version']}" + ".*" * (bound["version"].count(".") < 2))
    return found


if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    polars = [requirement for requirement in extras["test"] if requirement.startswith("polars")]
    print("\n".join(sorted(set(lowest([*project["dependencies"], *extras["cli"], *extras["dask"], *polars])))))
