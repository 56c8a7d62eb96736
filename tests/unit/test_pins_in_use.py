"""Which watermarks tickets may still need: those of the last seconds, counted from their last use."""

from proxy.tail.followed_table import PinsInUse
from tests.harness.builders import watermark


def test_the_lowest_of_the_pins_in_use_counts() -> None:
    pins = PinsInUse(keep_s=10.0)
    assert pins.offset(0) == 0
    pins.note(watermark(5, 7), now=0.0)
    pins.note(watermark(9, 7, 4), now=1.0)
    assert [pins.offset(partition) for partition in range(3)] == [5, 7, 0]


def test_a_pin_counts_from_its_last_use_also_where_it_was_the_only_one() -> None:
    pins = PinsInUse(keep_s=10.0)
    for now in range(8):
        pins.note(watermark(5), now=float(now))
    pins.note(watermark(9), now=16.0)
    assert pins.offset(0) == 5
    pins.note(watermark(9), now=17.0)
    assert pins.offset(0) == 9


def test_the_last_one_counts_however_long_ago() -> None:
    pins = PinsInUse(keep_s=10.0)
    pins.note(watermark(5), now=0.0)
    assert pins.offset(0) == 5
    pins.note(watermark(5), now=100.0)
    assert pins.offset(0) == 5
