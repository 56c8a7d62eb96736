"""Bound tables: topic, rights, cut, retention against the watermark, and where their files are.

Grants against the tables they name: a grant that does not fit closes its table to those it is for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from connectors.iceberg.store import IcebergStore
from connectors.kafka.admin import RetentionReader
from connectors.kafka.clusters import KafkaClusters
from connectors.kafka.probe import TopicFacts, topic_facts
from planner.column_statistics import STATISTICS, uuids
from planner.errors import FederationError, PermissionsMismatch, Unavailable
from planner.maintenance.options import parse_maintain
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.permissions import Identity
from planner.ports import Log, TopicSource
from planner.schema import TableSchema
from planner.seam.binding import PIN_GRACE_S
from planner.seam.cut import LogBounds, Pin, plan_cut
from planner.seam.watermark import Watermark
from planner.statement.references import ResolvedTable
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Findings, fail, ok, refused, warn
from thermocline.doctor.stores import is_within
from thermocline.doctor.systems import MAX_SKEW_S
from thermocline.serve.permissions import policy, reading_grants

#: Less than this share of the retention left for the oldest row that is only in the log: tier more often.
LOW_HEADROOM = 0.25

_FETCH_TIMEOUT_S = 10.0


def tables(settings: Settings, names: Sequence[TableName]) -> Findings:
    """Check every bound table among ``names``; what is wrong with one hides nothing about the next."""
    with closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings))) as store:
        pins = []
        granted = []
        for name in names:
            try:
                pin = store.pin(name)
            except FederationError as error:
                page = f"see docs/errors.md: {type(error).__name__}"
                yield refused(f"table {name}", error, page)
                continue
            yield from _placement(settings, pin)
            granted.append((pin.table, pin.schema))
            if pin.binding is not None:
                pins.append(pin)
                yield from _uuids(store, pin)
                yield from _grace(settings, store, pin)
        yield from permissions(settings, granted)
        if pins and settings.clusters:
            yield from _bound(settings, pins)
        elif pins:
            bound = f"{len(pins)} tables are bound to topics"
            yield fail("Kafka", bound, "set bootstrap.servers in [kafka]")


def _placement(settings: Settings, pin: Pin) -> Findings:
    location = pin.metadata_location.rpartition("/metadata/")[0]
    if not any(is_within(location, root) for root in settings.storage_roots):
        yield fail(
            f"files of {pin.table}",
            "they are outside the storage roots, so the server does not read them",
            f"add {location} to server.storage_roots",
        )


def _uuids(store: IcebergStore, pin: Pin) -> Findings:
    """Say by which statistics Spark loses rows (planner.column_statistics)."""
    if not uuids(pin.schema.arrow):
        return
    try:
        statistics = store.uuid_statistics(pin)
    except FederationError as error:
        yield refused(f"uuids of {pin.table}", error)
        return
    fixes = []
    if statistics.to_come:
        pairs = ", ".join(f"'{STATISTICS}{name}' = 'false'" for name in statistics.to_come)
        fixes.append(f"`ALTER TABLE {pin.table} SET TBLPROPERTIES ({pairs})`")
    if statistics.written:
        fixes.append(
            f"`CALL {pin.table.catalog}.system.rewrite_data_files(table => '{pin.table.schema}.{pin.table.name}', "
            f"options => map('rewrite-all', 'true'))`"
        )
    if fixes:
        names = ", ".join(sorted({*statistics.to_come, *statistics.written}))
        have = "have" if statistics.written else "may come to have"
        yield warn(
            f"uuids of {pin.table}",
            f"files {have} statistics of {names}, which Spark reads in another order: its conditions on a uuid find no row "
            f"there; other engines do",
            f"type in Spark SQL: {', then '.join(fixes)}",
        )


def _grace(settings: Settings, store: IcebergStore, pin: Pin) -> Findings:
    """Compare what servers promise with what maintenance of the table leaves in place."""
    check = f"maintenance of {pin.table}"
    try:
        care = parse_maintain(pin.table, store.properties(pin))
    except FederationError as error:
        yield refused(check, error, f"see docs/care.md: {type(error).__name__}")
        return
    server, rest = settings.server, settings.iceberg_rest
    longest_s = server.ticket_ttl_s + (server.answer_timeout_s or 0)
    if rest.port is not None:
        longest_s = max(longest_s, rest.live_ttl_s)
    if care.mode != "off" and longest_s > care.pin_grace_s:
        yield warn(
            check,
            f"answers may take {longest_s:,.0f} s from their plan on, and what they read stays for {care.pin_grace_s:,} s",
            f"set {PIN_GRACE_S} of the table to {longest_s:.0f} at least, or the server's limits lower",
        )


def _bound(settings: Settings, pins: Sequence[Pin]) -> Findings:
    topics = sorted({pin.binding.address for pin in pins if pin.binding is not None})
    facts = topic_facts(settings.clusters, topics)
    with KafkaClusters(settings.clusters) as log:
        for pin in pins:
            if pin.binding is not None:
                topic = pin.binding.address
                described = facts.get(topic)
                yield from _topic(pin.table, topic, described)
                if described is not None and described.exists:
                    yield from _cut(settings, log, pin, described)


def _topic(table: TableName, topic: str, facts: TopicFacts | None) -> Findings:
    check = f"topic {topic}"
    if facts is None:
        yield fail(check, "the brokers do not answer", "see the brokers above")
    elif not facts.exists:
        yield fail(check, f"{table} is bound to it and it does not exist", "create it again only if its records are "
                   "not missed: another topic of that name is refused")  # fmt: skip
    elif not facts.may_describe:
        fix = "allow DESCRIBE and READ on the topic"
        yield fail(check, "this login may not describe it", fix)
    elif facts.may_read is False:
        yield fail(check, "this login may not read it", "allow READ on the topic")
    elif facts.has_id is False:
        yield warn(
            check,
            "the brokers are older than Kafka 2.8 and tell no topic id",
            "upgrade them: a topic that was created again cannot be told from the old one",
        )
    elif facts.cleanup_policy is not None and "compact" in facts.cleanup_policy:
        what = "it is compacted: records removed before they are tiered are gone"
        yield warn(check, what, "set min.compaction.lag.ms above the tiering interval")
    else:
        yield ok(check, "exists, may be described and read, has an id")


def _cut(settings: Settings, log: Log, pin: Pin, facts: TopicFacts) -> Findings:
    check = f"table {pin.table}"
    if pin.binding is None or pin.watermark is None:
        return
    topic = pin.binding.address
    try:
        bounds = log.measure([topic])[topic]
        plan_cut(pin, bounds)
        oldest_s, newest_s = _record_times(log, pin.watermark, bounds)
    except Unavailable as error:
        yield refused(check, error, "see the brokers above")
        return
    except FederationError as error:
        yield refused(check, error)
        return
    lag = sum(each.log_end - pin.watermark.offset(each.partition) for each in bounds.partitions)
    retention = RetentionReader(settings.clusters)([topic]).get(topic)
    retention_s = retention.seconds if retention is not None else None
    now = time.time()
    if oldest_s is None:
        yield ok(check, f"answers, {lag:,} offsets behind; nothing waits to be tiered")
    elif retention_s is None:
        why = "the log keeps everything, or does not say"
        yield ok(check, f"answers, {lag:,} offsets behind; {why}")
    else:
        left = 1 - (now - oldest_s) / retention_s
        text = f"{lag:,} offsets behind; the oldest untiered record has {max(left, 0):.0%} of its retention left"
        fix = "tier now (`thermocline tier --once`), or raise the topic's retention.ms"
        yield warn(check, text, fix) if left < LOW_HEADROOM else ok(check, text)
    if newest_s is not None and newest_s - now > MAX_SKEW_S:
        whose = "the brokers'" if facts.log_append_time else "a producer's"
        yield warn(
            f"clock of {topic}",
            f"its newest record is {newest_s - now:.0f} s in the future: {whose} clock is ahead of this machine's",
            "run a time service on both; ages and retention are told wrongly",
        )


def _record_times(
    log: Log, mark: Watermark, bounds: LogBounds
) -> tuple[float | None, float | None]:
    """Times of the oldest untiered and of the newest record, in seconds since 1970; None: there is none."""
    first = [
        OffsetRange(p.partition, start, start + 1)
        for p in bounds.partitions
        if (start := mark.offset(p.partition)) < p.log_end
    ]
    last = [
        OffsetRange(p.partition, max(p.log_end - 2, p.log_start), p.log_end)
        for p in bounds.partitions
    ]
    oldest, newest = _times(log, bounds, first), _times(log, bounds, last)
    return min(oldest, default=None), max(newest, default=None)


def _times(log: Log, bounds: LogBounds, ranges: Sequence[OffsetRange]) -> list[float]:
    source = TopicSource(bounds.topic, bounds.topic_id)
    batches = log.fetch(source, ranges, timeout_s=_FETCH_TIMEOUT_S)
    return [
        stamp.timestamp()
        for batch in batches
        for stamp in batch["kafka_timestamp"].to_pylist()
        if stamp is not None
    ]


#: Types of an expression do not depend on who asks.
_SOMEBODY = Identity("somebody", frozenset({"some group"}))


def permissions(
    settings: Settings, tables: Sequence[tuple[TableName, TableSchema]]
) -> Findings:
    """Try every grant on every table it covers; nothing where no permissions are configured."""
    if settings.permissions is None:
        return
    with reading_grants() as grants:
        grant_list = policy(settings, grants.expression)
        if grant_list is None:
            return
        fits = 0
        for grant in grant_list.grants:
            check = f"permissions.{grant.name}"
            covered = [entry for entry in tables if grant.covers(entry[0])]
            if not covered:
                yield warn(
                    check, "it covers no table there is", "correct its tables; case counts"
                )
            for table, schema in covered:
                try:
                    grants.fit(grant, _SOMEBODY, ResolvedTable(table), schema)
                    fits += 1
                except PermissionsMismatch as error:
                    yield fail(
                        check,
                        f"on {table}: {error.facts['why']}",
                        "correct the grant; until then it closes the table to those it names",
                    )
        if fits:
            yield ok("permissions", f"grants fit in {fits} cases of grant and table")
