"""Forged evidence: every field of a file is changed, one at a time, and the checksum and the texts are mended."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from surefoot.certificates.verify import checksum, claim_words


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to the values of a file; of a list of numbers to its first and its last entry."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list) and node:
        yield path
        ends = {0, len(node) - 1}
        for at in sorted(ends):
            yield from leaves(node[at], (*path, at))
    else:
        yield path


def changes(value: Any) -> list[Any]:
    """Other values of a field: smaller, larger, absent, of another kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value * 0.5, value - 0.01, value + 0.01, value * 2 + 1, 0, None]
    if isinstance(value, str):
        kinds = ("theorem", "conditional", "measured", "none"), ("given", "calibrated", "rule of thumb")
        kinds += ("planned", "anytime"), ("uniform", "weighted"), ("zero_one", "log_loss"), ("euclidean", "manhattan")
        words = [word for kind in kinds if value in kind for word in kind] + ["clopper-pearson"]
        return [word for word in words if word != value] + [value[1:] + "0", None]
    if isinstance(value, list):
        return [value[1:], value[::-1], value + value[:1]] if value else [["age"], [0]]
    return [0.5, 1, [0.0, 1.0], True]


def forged(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other = copy.deepcopy(content)
    node = other
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return other


def mended(content: dict[str, Any]) -> dict[str, Any]:
    """The forger writes the texts that follow from the fields, and the checksum."""
    for claim in content["claims"]:
        try:
            claim.update(claim_words(claim, content["data"]))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            continue
    content["sha256"] = checksum(content)
    return content


def all_forgeries(content: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for path in leaves(content):
        node: Any = content
        for key in path:
            node = node[key]
        for value in changes(node):
            if value != node or isinstance(value, bool) is not isinstance(node, bool):
                yield path, forged(content, path, value)
