"""Which key gives which label: digits in the order of the classes, and first letters where they are free."""

from __future__ import annotations

COMMANDS = {"u": "undo", "f": "flag", "n": "note", "g": "guidelines", "?": "keys", " ": "skip"}


def class_keys(classes: list[str]) -> dict[str, list[str]]:
    """Class -> its keys, the first of which is shown. Classes that are digits themselves have that digit."""
    own = {name: name for name in classes if len(name) == 1 and name.isdigit()}
    keys: dict[str, list[str]] = {}
    for place, name in enumerate(classes, start=1):
        digit = own.get(name) if own else (str(place) if place <= 9 else None)
        keys[name] = [digit] if digit is not None else []
    letters = [name[:1].casefold() for name in classes]
    for name, letter in zip(classes, letters, strict=True):
        if letter.isalpha() and letter.isascii() and letters.count(letter) == 1 and letter not in COMMANDS:
            keys[name].append(letter)
    return keys
