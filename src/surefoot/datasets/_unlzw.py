"""Decoder of the Unix `compress` format (.Z), in which the UCI archive keeps Isolet; Python's library has none.

A .Z file is the bytes 1f 9d, a byte of flags (its low 5 bits: the largest code width; its top bit: code 256 clears the
table), then Lempel-Ziv-Welch codes of 9 bits and more, low bits first, in groups of 8 codes. Where the width grows or
the table is cleared inside a group, the rest of the group is padding.
"""

from __future__ import annotations

_MAGIC = b"\x1f\x9d"
_FIRST_WIDTH = 9
_CLEAR = 256


def unlzw(content: bytes) -> bytes:
    """The bytes that `content`, a whole .Z file, stands for; a ValueError where it is not valid."""
    if len(content) < 3 or content[:2] != _MAGIC:
        raise ValueError("a .Z file must begin with the bytes 1f 9d and a byte of flags")
    max_width, clears = content[2] & 0x1F, bool(content[2] & 0x80)
    if not 10 <= max_width <= 16 or content[2] & 0x60:  # with 9 bits, programs write files that none can read
        raise ValueError(f"a .Z file must have codes of at most 10 to 16 bits; its flags are {content[2]:#04x}")
    root = [bytes([byte]) for byte in range(256)] + [b""] * clears  # code 256 is not an entry where it clears
    table, previous, output = root.copy(), b"", []
    width, position = _FIRST_WIDTH, 3
    while position < len(content):
        group = content[position : position + width]
        position += width
        bits = int.from_bytes(group, "little")
        for _ in range(len(group) * 8 // width):  # fewer than 8 codes at the end of the file
            code = bits & ((1 << width) - 1)
            bits >>= width
            if clears and code == _CLEAR:
                table, previous, width = root.copy(), b"", _FIRST_WIDTH
                break
            if code < len(table):
                entry = table[code]
            elif code == len(table) and previous:  # the entry made by this very code
                entry = previous + previous[:1]
            else:
                raise ValueError(f"a .Z file must use codes after it has made them; got {code}, {len(table)} are made")
            output.append(entry)
            if previous and len(table) < 1 << max_width:
                table.append(previous + entry[:1])
            previous = entry
            if len(table) == 1 << width and width < max_width:
                width += 1
                break
    return b"".join(output)
