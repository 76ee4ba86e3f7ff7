"""Messages of the library in the words of the command line: its options in place of parameters."""

from __future__ import annotations

import re

from surefoot._printing import rounded_up

_WORDS = (
    (r" Where rows were copied to weigh more, pass sample_weight instead\.", ""),
    (r" Raise max_iter or tol, or the radius where it is close to the minimal one\.", " Raise --radius."),
    (r" Raise tol, or the radius where it is close to the minimal one\.", " Raise --radius."),
    (r" Set l2 > 0 or raise the radius for a finite optimum\.", " A larger --radius has one."),
    (r"both bounds of certificate_ hold", "both bounds hold"),
    (r"Label more rows, or lower confidence\.", "Label more rows."),
    (r"confidence=([\d.]+)", r"the threshold \1"),
    (r"\bas label_prior\b", "as --prior"),
    (r"\blabel_prior\b", "--prior"),
    (r"\bX_unlabeled\b", "the rows without a label"),
    (r"\bclasses=", "--classes "),
    (r"(?<![-\w])radius must\b", "--radius must"),
    (r'(?<![-\w])radius="(\w+)"', r"--radius \1"),
)

_TOO_SMALL = re.compile(
    r"got radius=([\d.e+-]+), minimal_radius=([\d.e+-]+)\. Pass a radius of [\d.e+-]+ or more, widen label_prior, or "
    r"lower label_cost\."
)


def in_options(text: str) -> str:
    """A message with options in place of the parameters that it names."""
    text = _TOO_SMALL.sub(_least_radius, text)
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


def _least_radius(found: re.Match[str]) -> str:
    """The same with four digits, rounded up: what is named can be passed."""
    given, least = float(found[1]), rounded_up(float(found[2]), 4)
    return f"got {given:g}, and the minimal one is {least}. Pass --radius {least} or more."
