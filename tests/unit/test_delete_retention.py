"""How long topics keep deletes, as a server remembers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from connectors.kafka.admin import DeleteRetention
from planner.tiering.triggers import LogRetention


class Settings:
    """Settings of topics that change, and a clock; None: they cannot be read."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.deletes_s: float | None = 600.0
        self.is_readable = True
        self.made = self.reads = 0
        self.retention = DeleteRetention(self.reader, clock=lambda: self.now_s)

    def reader(self) -> Settings:
        self.made += 1
        return self

    def __call__(self, topics: Sequence[str]) -> Mapping[str, LogRetention]:
        self.reads += 1
        retention = LogRetention(deletes_s=self.deletes_s)
        return dict.fromkeys(topics, retention) if self.is_readable else {}


def test_a_topic_is_looked_at_once_a_minute() -> None:
    settings = Settings()
    assert settings.made == 0
    assert [settings.retention("devices", 0.0) for _ in range(3)] == [600.0] * 3
    settings.now_s += 59.0
    settings.retention("devices", 0.0)
    assert (settings.made, settings.reads) == (1, 1)
    settings.now_s += 1.0
    settings.retention("devices", 0.0)
    assert (settings.made, settings.reads) == (1, 2)


def test_the_shortest_since_then_counts() -> None:
    """A delete that the log lost under a short setting does not come back with a longer one."""
    settings = Settings()
    assert settings.retention("devices", 900.0) == 600.0
    settings.now_s, settings.deletes_s = 2_000.0, 60.0
    assert settings.retention("devices", 900.0) == 60.0
    settings.now_s, settings.deletes_s = 3_000.0, 86_400.0
    assert settings.retention("devices", 900.0) == 60.0
    assert settings.retention("devices", 2_999.0) == 60.0
    # What was published since lost nothing under it.
    assert settings.retention("devices", 3_000.0) == 86_400.0


def test_a_topic_that_is_not_compacted_loses_no_delete() -> None:
    settings = Settings()
    settings.deletes_s = math.inf
    assert settings.retention("devices", 0.0) == math.inf


def test_what_was_read_once_stays_where_settings_cannot_be_read() -> None:
    settings = Settings()
    settings.is_readable = False
    assert settings.retention("devices", 0.0) is None
    settings.is_readable = True
    settings.now_s += 60.0
    assert settings.retention("devices", 0.0) == 600.0
    settings.is_readable = False
    settings.now_s += 60.0
    assert settings.retention("devices", 0.0) == 600.0
    assert settings.retention("others", 0.0) is None
