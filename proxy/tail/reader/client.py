"""Reads topics by the process for them where it is worth the way, else in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import NO_EPOCHS, OffsetRange
from proxy.tail.reader.child import Ingestion
from proxy.tail.reader.ipc import ReadRequest
from proxy.tail.reader.local import MUCH_OFFSETS
from proxy.tail.reader.source import (
    Pieces,
    Subscription,
    TailSource,
    TopicReader,
    TopicReaders,
)


def remote_readers(ingestion: Ingestion, local: TopicReaders) -> TopicReaders:
    """Follow and make large fetches by ``ingestion``; make small fetches by ``local``."""
    return lambda source: _RemoteReader(ingestion, source, local(source))


@dataclass(frozen=True, slots=True)
class _RemoteReader:
    ingestion: Ingestion
    source: TailSource
    local: TopicReader

    def follow(
        self, starts: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Subscription:
        request = ReadRequest(self.source, starts=dict(starts), epochs=dict(epochs))
        return self.ingestion.begin_job(request)

    def fetch(
        self,
        ranges: Sequence[OffsetRange],
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Pieces:
        if _are_much(ranges):
            request = ReadRequest(
                self.source, ranges=tuple(ranges), timeout_s=timeout_s, epochs=dict(epochs)
            )
            return _fetched(self.ingestion, request)
        return self.local.fetch(ranges, timeout_s, epochs)

    def fetches_sooner(self, ranges: Sequence[OffsetRange]) -> bool:
        return not (_are_much(ranges) or self.ingestion.is_ready)

    def check_history(self, offsets: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        self.local.check_history(offsets, epochs)


def _are_much(ranges: Sequence[OffsetRange]) -> bool:
    """Whether the worker fetches them."""
    return sum(map(len, ranges)) > MUCH_OFFSETS


def _fetched(ingestion: Ingestion, request: ReadRequest) -> Pieces:
    with contextlib.closing(ingestion.begin_job(request)) as work:
        work.ask(request.timeout_s)
        while (piece := work.answer(request.timeout_s)) is not None:
            work.ask(request.timeout_s)  # sent while the caller adds this one
            yield piece.decoded
