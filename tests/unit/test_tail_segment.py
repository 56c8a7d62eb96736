"""A segment's life: what may happen to it, held against a model that counts who could still need its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tail.segment import TRANSITIONS, Segment, SegmentEvent, SegmentState


@dataclass(frozen=True)
class Model:
    """What is true of a table, whatever its state is called."""

    in_tail: bool = True
    exists: bool = True
    grows: bool = True
    has_writer: bool = False

    def after(self, event: SegmentEvent) -> Model | None:
        """None: it would lose rows, show rows that were never committed, or free a table twice."""
        match event:
            case SegmentEvent.BEGIN if self.in_tail and self.grows and not self.has_writer:
                return replace(self, has_writer=True)
            case SegmentEvent.END if self.has_writer:
                return replace(self, has_writer=False)
            case SegmentEvent.CLOSE if self.in_tail and not self.has_writer:
                return replace(self, grows=False)
            case SegmentEvent.DROP if self.in_tail and not self.has_writer:
                return replace(self, in_tail=False)
            case SegmentEvent.FREE if self.exists and not self.in_tail:
                return replace(self, exists=False)
            case _:
                return None


STARTS = {
    SegmentState.OPEN: Model(),
    SegmentState.PACKED: Model(grows=False),
    SegmentState.SPILLED: Model(grows=False),
}


@given(
    state=st.sampled_from(list(STARTS)),
    events=st.lists(st.sampled_from(SegmentEvent), max_size=12),
)
def test_a_segment_takes_the_events_that_the_model_takes(
    state: SegmentState, events: list[SegmentEvent]
) -> None:
    segment, model = Segment("t", state=state), STARTS[state]
    for event in events:
        after = model.after(event)
        before = segment.state
        if after is None:
            with pytest.raises(
                AssertionError, match=f"{event.name} happened to .* {before.name}"
            ):
                segment.on(event)
            assert segment.state is before
            continue
        segment.on(event)
        model = after
        assert segment.is_dropped == (not model.in_tail)
        assert segment.is_full == (model.in_tail and not model.grows)
        assert (segment.state is SegmentState.FREED) == (not model.exists)
        is_in_memory = segment.state is not SegmentState.SPILLED
        assert segment.is_movable == (model.in_tail and not model.has_writer and is_in_memory)


def test_the_table_names_every_state_and_only_its_own_kinds() -> None:
    assert set(TRANSITIONS) == set(SegmentState)
    assert {event for row in TRANSITIONS.values() for event in row} == set(SegmentEvent)
