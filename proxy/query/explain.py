"""EXPLAIN: what would be read of each table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from planner.explain import TableReport, explanation
from planner.reading.parsed_statement import ParsedStatement
from planner.reading.plan import ColdMode
from planner.statement.ast import parameters as parameters_of
from planner.ticket import Ticket
from proxy.query.cut import Cuts, FreshnessContract
from proxy.query.relations import Relations
from proxy.query.tickets import context_of
from proxy.session import Session


def explain(
    relations: Relations,
    session: Session,
    parsed: ParsedStatement,
    cut_of_tables: Cuts,
    contract: FreshnessContract,
    ticket: Ticket,
) -> pa.RecordBatch:
    """Return a row for each table; files are pruned if the ticket has all parameters."""
    sources = relations.sources
    cuts, context = cut_of_tables.by_key, context_of(parsed, ticket)
    is_bound = len(context.values) == len(parameters_of(parsed.tree))
    hot = [cut.hot for cut in cuts.values() if cut.hot is not None and cut.hot.ranges]
    topics = sorted({side.topic for side in hot})
    bounds = sources.bounds.measure(topics) if topics else {}
    ages = {item.table: item.age_s for item in sources.pins.status()}
    reads = relations.reads(session, parsed, cuts, context if is_bound else None)
    reports = {}
    for table, read in reads.items():
        cut = read.cut
        report = TableReport(
            ages.get(table.table),
            log_age_s=cut_of_tables.log_age_s if table.at is None else None,
            contract=str(table.at or contract),
        )
        if relations.visible_table(session, table, cut).is_filtered:
            reports[table] = replace(report, is_counted=False)
            continue
        measured = None if cut.hot is None else bounds.get(cut.hot.topic)
        partitions = () if measured is None else measured.partitions
        reports[table] = replace(
            report,
            log_starts={item.partition: item.log_start for item in partitions},
            totals=sources.store.totals(cut.cold),
            files_to_read=0
            if read.cold is ColdMode.COUNTED
            else sources.store.count_files(cut.cold, read.rows),
        )
    return explanation(reads, reports)
