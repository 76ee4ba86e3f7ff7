"""Pages from Jinja2 templates: every value is escaped, and a template may use what it is given only."""

from __future__ import annotations

from functools import cache
from typing import Any

from surefoot._errors import import_extra
from surefoot._printing import at_least, at_most, percent, rounded_down, rounded_up, short_percent


def render(package: str, template: str, **values: Any) -> str:
    """Render a file of the folder `templates` of a package; it may use these values only."""
    return str(_template(package, template).render(values))


@cache
def _template(package: str, name: str) -> Any:
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Any:
    jinja2 = import_extra("jinja2", "cli", "an HTML page")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "at_least": at_least,
        "at_most": at_most,
        "percent": percent,
        "rounded_down": rounded_down,
        "rounded_up": rounded_up,
        "short_percent": short_percent,
        "thousands": "{:,}".format,
    }
    return made
