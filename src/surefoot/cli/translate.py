"""Messages of the library in the words of the command line: its options in place of parameters."""

from __future__ import annotations

import re

_WORDS = (
    (r" Where rows were copied to weigh more, pass sample_weight instead\.", ""),
    (r" Raise max_iter or tol, or the radius where it is close to the minimal one\.", " Raise --radius."),
    (r" Raise tol, or the radius where it is close to the minimal one\.", " Raise --radius."),
    (r" Set l2 > 0 or raise the radius for a finite optimum\.", " A larger --radius has one."),
    (r"both bounds of certificate_ hold", "both bounds hold"),
    (r"Label more rows, or lower confidence\.", "Label more rows."),
    (r"confidence=([\d.]+)", r"the threshold \1"),
    (r"Pass a radius of ([\d.]+) or more, widen label_prior, or lower label_cost\.", r"Pass --radius \1 or more."),
    (r"\bas label_prior\b", "as --prior"),
    (r"\blabel_prior\b", "--prior"),
    (r"\bX_unlabeled\b", "the rows without a label"),
    (r"\bclasses=", "--classes "),
    (r"(?<![-\w])radius must\b", "--radius must"),
    (r'(?<![-\w])radius="(\w+)"', r"--radius \1"),
)


def in_options(text: str) -> str:
    """A message with options in place of the parameters that it names."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
