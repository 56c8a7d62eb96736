"""Times and sizes as people read them."""

from __future__ import annotations

import pytest

from thermocline.output.units import size_text, span_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0.0s"),
        (1.25, "1.2s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (3_661, "1h 1m"),
        (86_400 * 7, "7d 0h"),
    ],
)
def test_spans_have_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (300 * 1024**2, "300 MiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_sizes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert size_text(count) == text
