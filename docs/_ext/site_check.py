"""Check a built site: links lead somewhere, no page asks another host for anything or names a folder of the machine.

The slowest example is named.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that a browser fetches by itself; of <link> only these kinds.
FETCHED = {
    "audio": ("src",), "embed": ("src",), "iframe": ("src",), "img": ("src", "srcset"), "input": ("src",),
    "object": ("data",), "script": ("src",), "source": ("src", "srcset"), "track": ("src",), "video": ("src", "poster"),
}  # fmt: skip
LINKS_FETCHED = {
    "apple-touch-icon",
    "icon",
    "manifest",
    "modulepreload",
    "preload",
    "prefetch",
    "preconnect",
    "stylesheet",
}
ROOT = Path(__file__).resolve().parents[2]
RUNNING_TIME = re.compile(r"Total running time of the script:\D*(\d+) minutes ([\d.]+) seconds")
CSS_ADDRESS = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])([^'")\s]+)""")


@dataclass
class Page(HTMLParser):
    """The links, fetched files and anchors of a page."""

    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    in_style: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        given = {key: value or "" for key, value in attrs}
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        self.in_style = tag == "style"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and LINKS_FETCHED & set(given.get("rel", "").split()):
            self.fetched.append(given.get("href", ""))
        for key in FETCHED.get(tag, ()):
            if key in given:
                self.fetched += [part.split()[0] for part in given[key].split(",")] if key == "srcset" else [given[key]]
        self.fetched += CSS_ADDRESS.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Collect addresses of style sheets inside the page."""
        if self.in_style:
            self.fetched += CSS_ADDRESS.findall(data)


def is_outside(address: str) -> bool:
    """Whether an address names another host; text inside the address itself (data:) does not."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in {"http", "https", "ftp"}


def faults(site: Path, root: Path = ROOT) -> list[str]:
    """Links that lead nowhere, requests to other hosts, and paths of the machine, each with its page."""
    # the theme keeps templates among its static files
    pages = {path.resolve(): Page() for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    found = []
    for path, page in pages.items():
        text = path.read_text(encoding="utf-8")
        page.feed(text)
        found += [f"{path.relative_to(site.resolve())}: names the folder {root}"] if str(root) in text else []
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        found += [f"{where}: fetches {address}" for address in page.fetched if is_outside(address)]
        inside = [link for link in page.links + page.fetched if not urlsplit(link).scheme and not urlsplit(link).netloc]
        found += [f"{where}: {link!r} leads nowhere" for link in inside if not leads_on(link, path, pages)]
    for sheet in sorted(site.rglob("*.css")):
        addresses = CSS_ADDRESS.findall(sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.relative_to(site)}: fetches {address}" for address in addresses if is_outside(address)]
    return found


def leads_on(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Whether a relative link leads to a file of the site, and to an anchor of it where it names one."""
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.is_file()
    page = pages[target]
    return not parts.fragment or unquote(parts.fragment) in page.anchors | {"", "top"}


def slowest_example(site: Path) -> str | None:
    """Return the slowest example, if the examples were run."""
    seconds = {}
    for path in site.glob("auto_examples/plot_*.html"):
        if found := RUNNING_TIME.search(path.read_text(encoding="utf-8")):
            seconds[path.stem] = 60 * int(found[1]) + float(found[2])
    slowest = max(seconds, key=seconds.__getitem__, default=None)
    return None if slowest is None else f"{slowest}, {seconds[slowest]:.1f} s"


def main() -> int:
    """Print all problems, and exit with a nonzero status if there are any."""
    site = Path(sys.argv[1])
    found = sorted(set(faults(site)))
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    n_pages = sum(1 for _ in site.rglob("*.html"))
    if n_pages == 0:
        sys.stdout.write(f"no pages in {site}\n")
    else:
        slowest = slowest_example(site)
        sys.stdout.write(f"slowest example: {slowest}\n" if slowest else "")
        sys.stdout.write(f"{n_pages} pages, {len(found)} faults: {site / 'index.html'}\n")
    return int(bool(found) or n_pages == 0)


if __name__ == "__main__":
    sys.exit(main())
