"""The decoder of .Z files, against gzip's own and against an encoder."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.datasets._download import unlzw

Compress = Callable[..., bytes]

# printf 'she sells sea shells by the sea shore, she sells sea shells' | compress | base64
BY_COMPRESS = "H52Qc9CUATGnDBs2cwiWCUNQ4MGEYvKAoCNQIcOAb+SUYdFwYMGHFjs+BA=="


def test_a_file_made_by_compress() -> None:
    assert unlzw(base64.b64decode(BY_COMPRESS)) == b"she sells sea shells by the sea shore, she sells sea shells"


@settings(deadline=None)
@given(
    data=st.binary(max_size=3000)
    | st.lists(st.sampled_from([b"0.5,", b"-1.25,", b"7.\n"]), max_size=2000).map(b"".join),
    max_width=st.integers(10, 16),
    clear_every=st.none() | st.integers(1, 700),
)
def test_undoes_an_encoder(data: bytes, max_width: int, clear_every: int | None, compress_z: Compress) -> None:
    assert unlzw(compress_z(data, max_width, clear_every)) == data


LONG = {
    "one byte": b"a" * 100_000,
    "random bytes": random.Random(0).randbytes(100_000),
    "numbers": b"".join(b"%.4f, " % (i**2 % 20_001 / 1e4 - 1) for i in range(20_000)),
    "numbers then random bytes": b"0.1234, " * 5000 + random.Random(1).randbytes(40_000),
    "nothing": b"",
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("max_width", [10, 12, 16])
@pytest.mark.parametrize("clear_every", [None, 7001])
def test_agrees_with_gzip(name: str, max_width: int, clear_every: int | None, compress_z: Compress) -> None:
    packed = compress_z(LONG[name], max_width, clear_every)
    assert unlzw(packed) == LONG[name]
    if gzip := shutil.which("gzip"):
        assert subprocess.run([gzip, "-dc"], input=packed, capture_output=True, check=True).stdout == LONG[name]


@pytest.mark.skipif(shutil.which("compress") is None, reason="needs the program compress")
@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("max_width", range(10, 17))
def test_reads_what_compress_writes(name: str, max_width: int) -> None:
    command = ["compress", "-c", "-f", f"-b{max_width}"]
    packed = subprocess.run(command, input=LONG[name], capture_output=True, check=True).stdout
    assert unlzw(packed) == LONG[name]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begin with the bytes 1f 9d"),
        (b"\x1f\x8b\x08", "begin with the bytes 1f 9d"),
        (b"\x1f\x9d", "begin with the bytes 1f 9d"),
        (b"\x1f\x9d\x89", "10 to 16 bits; its flags are 0x89"),
        (b"\x1f\x9d\x91", "10 to 16 bits; its flags are 0x91"),
        (b"\x1f\x9d\xb0", "10 to 16 bits; its flags are 0xb0"),
        (b"\x1f\x9d\x90\xff\xff", "got 511, 257 are made"),
        (b"\x1f\x9d\x90\x01\x03", "got 257, 257 are made"),
    ],
)
def test_refuses_what_is_no_z_file(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unlzw(content)


def test_without_clear_codes_256_is_an_entry() -> None:
    # codes a, 256 = "aa", 9 bits each, low bits first; the flag of clear codes is not set
    assert unlzw(b"\x1f\x9d\x10" + (ord("a") | 256 << 9).to_bytes(3, "little")) == b"aaa"
