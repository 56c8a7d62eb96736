"""Texts that clients keep: read back whatever their length, and the same each time."""

import base64
import zlib

import pytest

from planner.seam.time_travel import _SHORT, pack, unpack


@pytest.mark.parametrize("partitions", [0, 1, 24, 500, 1_000, 10_000])
def test_what_is_packed_is_read_back(partitions: int) -> None:
    document = {"end": [[partition, 7_919 * partition] for partition in range(partitions)]}
    text = pack("c:", document)
    assert unpack("c:", text) == document
    assert pack("c:", document) == text


@pytest.mark.parametrize("length", [_SHORT - 9, _SHORT - 8, _SHORT - 7, 3 * _SHORT])
def test_zlib_reads_it_with_its_own_settings(length: int) -> None:
    text = pack("c:", {"a": "x" * length})
    plain = zlib.decompress(base64.urlsafe_b64decode(text.removeprefix("c:")))
    assert plain == b'{"a":"' + b"x" * length + b'"}'


def test_a_short_text_is_no_longer_for_the_smaller_window() -> None:
    document = {"end": [[partition, 60_000 + partition] for partition in range(24)]}
    packed = base64.urlsafe_b64decode(pack("c:", document).removeprefix("c:"))
    assert len(packed) <= 1.05 * len(zlib.compress(zlib.decompress(packed), 3))
