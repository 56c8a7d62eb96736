import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadBinding, TailGap, TombstonesExpired
from planner.seam.binding import Binding, parse_binding
from planner.seam.keys import RecordKey, Upsert
from planner.tiering.triggers import (
    DEFAULT_TAIL_BYTES,
    DEFAULT_TAIL_ROWS,
    ColdSurvey,
    Lag,
    LogRetention,
    TierOptions,
    Trigger,
    decide,
    exceeds_tail_budget,
    measure_lag,
    parse_options,
)
from tests.harness.builders import BINDING, FLOWS, bounds, pin

MIB = 1024**2
FOREVER = LogRetention()


def lag_of(*pairs: tuple[int, int], marks: tuple[int, ...], **facts: object) -> Lag:
    inputs = {
        "bytes_per_offset": 100.0,
        "age_s": 5.0,
        "retention": FOREVER,
        "survey": ColdSurvey(),
    } | facts
    return measure_lag(pin(*marks), bounds(*pairs), **inputs)  # type: ignore[arg-type]


def test_lag_counts_offsets_bytes_and_files() -> None:
    lag = lag_of((0, 300), (10, 120), marks=(100, 20))
    assert (lag.rows, lag.log_bytes, lag.file_bytes) == (300, 30_000.0, 7_500.0)
    assert (lag.headroom_rows, lag.headroom_s, lag.longest_bytes) == (10, None, 20_000.0)
    assert lag.age_s == 5.0


def test_without_untiered_offsets_there_is_no_lag() -> None:
    assert lag_of((90, 100), marks=(100,)) == Lag()


def test_a_partition_without_lag_has_no_headroom_to_lose() -> None:
    assert lag_of((20, 20), (0, 30), marks=(20, 25)).headroom_rows == 25


def test_the_tables_own_files_say_what_a_row_takes() -> None:
    observed = ColdSurvey(rows=10_000, file_bytes=400_000)
    assert lag_of((0, 100), marks=(0,), survey=observed).file_bytes == 4_000.0
    few = ColdSurvey(rows=9_999, file_bytes=400_000)
    assert lag_of((0, 100), marks=(0,), survey=few).file_bytes == 2_500.0
    assert ColdSurvey(rows=10_000).bytes_per_row(100.0) == 25.0


def moving(before: tuple[int, int], seconds: float | None = None) -> LogRetention:
    return LogRetention(seconds, earlier=bounds(before), elapsed_s=2.0)


def test_headroom_is_what_retention_leaves_at_its_pace_or_by_its_setting() -> None:
    moved = lag_of((60, 300), marks=(100,), retention=moving((50, 200)))
    assert moved.headroom_s == 8.0
    still = lag_of((60, 300), marks=(100,), retention=moving((60, 200)))
    assert still.headroom_s is None
    timed = lag_of(
        *((60, 300),),
        marks=(100,),
        retention=moving((50, 200), seconds=10.0),
    )
    assert timed.headroom_s == 5.0
    assert lag_of((0, 9), marks=(1,), retention=LogRetention(1.0), age_s=9.0).headroom_s == 0.0


def test_a_lost_range_is_an_error_not_a_lag() -> None:
    with pytest.raises(TailGap):
        lag_of((4, 5), marks=(3,))
    with pytest.raises(ValueError, match="not bound"):
        measure_lag(
            pin(binding=None),
            bounds((0, 5)),
            ColdSurvey(),
            FOREVER,
            bytes_per_offset=1,
            age_s=0,
        )


KEYED = Binding("flows", key=RecordKey("json"), upsert=Upsert((4,)))


def test_deletes_that_a_compacted_log_may_have_lost_are_an_error() -> None:
    def lag(
        age_s: float,
        rows: int = 7,
        binding: Binding = KEYED,
        end: int = 5,
        deletes_s: float | None = 3_600.0,
    ) -> Lag:
        return measure_lag(
            pin(3, binding=binding),
            bounds((0, end)),
            ColdSurvey(rows=rows),
            LogRetention(deletes_s=deletes_s),
            bytes_per_offset=1,
            age_s=age_s,
        )

    with pytest.raises(TombstonesExpired) as caught:
        lag(3_241.0)
    assert caught.value.message == (
        "lake.net.flows: the last time that topic flows was surely read to its end was 3,241 s ago, and it keeps deletes for "
        "3,600 s (delete.retention.ms), of which a tenth is left to clocks: some may be gone, and their rows would stay for "
        "ever; run `thermocline rebuild lake.net.flows`, and raise delete.retention.ms if tiering may stand as long again."
    )
    with pytest.raises(TombstonesExpired, match="its settings cannot be read"):
        lag(3_241.0, deletes_s=None)
    # Nothing new, no row to delete, a row for each record, and a topic that is not compacted.
    for harmless in (
        lag(3_240.0),
        lag(3_601.0, end=3),
        lag(3_601.0, 0),
        lag(3_601.0, 7, BINDING),
        lag(1e9, deletes_s=math.inf),
    ):
        assert harmless.rows in (0, 2)


def test_deletes_that_a_compacted_log_will_lose_press() -> None:
    facts = {"binding": KEYED, "retention": LogRetention(deletes_s=1_000.0)}
    assert kind(Lag(rows=1, age_s=499.0), **facts) is None
    assert kind(Lag(rows=1, age_s=500.0), **facts) == "pressure"
    assert kind(Lag(rows=1, age_s=500.0), retention=LogRetention(deletes_s=1_000.0)) is None
    assert kind(Lag(rows=1, age_s=1_799.0), binding=KEYED) is None
    assert kind(Lag(rows=1, age_s=1_800.0), binding=KEYED) == "pressure"
    forever = LogRetention(deletes_s=math.inf)
    assert kind(Lag(rows=1, age_s=1_799.0), binding=KEYED, retention=forever) is None


def test_a_topic_that_keeps_nothing_presses_at_once() -> None:
    for retention in (LogRetention(seconds=0.0), LogRetention(partition_bytes=0)):
        assert kind(Lag(rows=1), retention=retention) == "pressure"
    assert kind(Lag(rows=1), binding=KEYED, retention=LogRetention(deletes_s=0.0)) == "pressure"


def kind(lag: Lag, **facts: object) -> str | None:
    inputs = {"survey": ColdSurvey(), "binding": BINDING, "retention": FOREVER} | facts
    result = decide(lag, **inputs)  # type: ignore[arg-type]
    return None if result is None else result.kind


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (Lag(), None),
        (Lag(age_s=1e9), None),
        (Lag(rows=1, age_s=1799.9), None),
        (Lag(rows=1, age_s=1800), "age"),
        (Lag(rows=1, file_bytes=512 * MIB - 1), None),
        (Lag(rows=1, file_bytes=512 * MIB, age_s=1800), "bytes"),
        (Lag(rows=DEFAULT_TAIL_ROWS // 2 - 1), None),
        (Lag(rows=DEFAULT_TAIL_ROWS // 2, file_bytes=512 * MIB), "pressure"),
        (Lag(rows=1, log_bytes=DEFAULT_TAIL_BYTES / 2), "pressure"),
        (Lag(rows=1, headroom_s=601), None),
        (Lag(rows=1, headroom_s=600), "pressure"),
    ],
)
def test_what_publishes_by_default(lag: Lag, expected: str | None) -> None:
    assert kind(lag) == expected


@pytest.mark.parametrize(
    ("lag", "retention", "expected"),
    [
        (Lag(rows=1, age_s=49), LogRetention(seconds=100), None),
        (Lag(rows=1, age_s=50), LogRetention(seconds=100), "pressure"),
        (Lag(rows=1, longest_bytes=499), LogRetention(partition_bytes=1000), None),
        (Lag(rows=1, longest_bytes=500), LogRetention(partition_bytes=1000), "pressure"),
        # A short retention is not under pressure the moment a row arrives.
        (Lag(rows=1, headroom_s=99), LogRetention(seconds=100), None),
        (Lag(rows=1, headroom_s=50), LogRetention(seconds=100), "pressure"),
    ],
)
def test_retention_presses(lag: Lag, retention: LogRetention, expected: str | None) -> None:
    assert kind(lag, retention=retention) == expected


def test_a_tables_own_limits_win() -> None:
    assert kind(Lag(rows=50), binding=Binding("flows", max_tail_rows=100)) == "pressure"
    assert kind(Lag(rows=1, log_bytes=50), binding=Binding("flows", max_tail_bytes=100))
    hasty = ColdSurvey(TierOptions(max_age_s=5, target_file_bytes=10))
    assert kind(Lag(rows=1, age_s=5), survey=hasty) == "age"
    assert kind(Lag(rows=1, file_bytes=10), survey=hasty) == "bytes"


def test_every_partition_that_is_written_to_wants_a_full_file() -> None:
    unknown = ColdSurvey(partitioned=True, partition_values=None)
    assert kind(Lag(rows=1, file_bytes=512 * MIB), survey=unknown) == "bytes"
    spread = ColdSurvey(partitioned=True, partition_values=3)
    assert kind(Lag(rows=1, file_bytes=3 * 512 * MIB - 1), survey=spread) is None
    assert kind(Lag(rows=1, file_bytes=3 * 512 * MIB), survey=spread) == "bytes"


@given(st.integers(1, 10**9), st.integers(1, 10**7), st.floats(0, 1e6))
def test_no_tail_grows_past_its_budget_unnoticed(rows: int, budget: int, age_s: float) -> None:
    binding = Binding("flows", max_tail_rows=budget)
    lag = Lag(rows=rows, age_s=age_s)
    if exceeds_tail_budget(lag, binding):
        assert kind(lag, binding=binding) == "pressure"


def test_the_tail_budget_is_exceeded_above_it_not_at_it() -> None:
    binding = Binding("flows", max_tail_rows=10, max_tail_bytes=100)
    assert not exceeds_tail_budget(Lag(rows=10, log_bytes=100), binding)
    assert exceeds_tail_budget(Lag(rows=11), binding)
    assert exceeds_tail_budget(Lag(rows=1, log_bytes=101), binding)


def test_urgency_puts_danger_first() -> None:
    triggers = [Trigger("age", 9.0), Trigger("pressure", 1.0), Trigger("bytes", 5.0)]
    ordered = sorted(triggers, key=lambda value: value.urgency, reverse=True)
    assert [value.kind for value in ordered] == ["pressure", "bytes", "age"]


def test_options_come_from_the_tables_properties() -> None:
    assert parse_options(FLOWS, {}) == TierOptions()
    value = parse_options(
        FLOWS,
        {
            "thermocline.tier.max_age_s": "60",
            "thermocline.tier.max_rows": "1000",
            "thermocline.tier.distribution": "none",
            "thermocline.tier.writer": "spark",
            "write.target-file-size-bytes": "1048576",
            "write.distribution-mode": "hash",
        },
    )
    assert value == TierOptions(60.0, 1000, "none", "spark", MIB)


@pytest.mark.parametrize(
    ("mode", "expected"), [("hash", "hash"), ("range", "auto"), ("none", "auto")]
)
def test_icebergs_distribution_mode_counts_where_it_can_be_kept(
    mode: str, expected: str
) -> None:
    assert parse_options(FLOWS, {"write.distribution-mode": mode}).distribution == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("thermocline.tier.max_age_s", "0"),
        ("thermocline.tier.max_rows", "many"),
        ("thermocline.tier.distribution", "range"),
        ("thermocline.tier.writer", "java"),
        ("thermocline.tier.max_age", "60"),
        ("write.target-file-size-bytes", "-1"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_stops_no_reader(key: str, value: str) -> None:
    with pytest.raises(BadBinding, match=key) as caught:
        parse_options(FLOWS, {key: value})
    assert caught.value.facts["property"] == key
    properties = BINDING.properties() | {key: value}
    assert parse_binding(FLOWS, properties) == BINDING


def test_a_lag_is_a_value() -> None:
    assert dataclasses.replace(Lag(), rows=3).rows == 3
