"""EXPLAIN: what would be read of each table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.cuts import BoundsCache
from connectors.iceberg.pin_cache import PinCache
from planner.explain import TableReport, explanation
from planner.ports import ColdStore
from planner.reading.filters import EVERYTHING
from planner.statement.ast import parameters as parameters_of
from planner.ticket import Ticket
from proxy.query.cut import Cuts, FreshnessContract
from proxy.query.parsing import ParsedStatement
from proxy.query.relations import Relations
from proxy.query.tickets import context_of
from proxy.session import Session


@dataclass(frozen=True, slots=True)
class Explainer:
    """Thread-safe."""

    pins: PinCache
    bounds: BoundsCache
    store: ColdStore
    relations: Relations

    def explain(
        self,
        session: Session,
        parsed: ParsedStatement,
        cut_of_tables: Cuts,
        contract: FreshnessContract,
        ticket: Ticket,
    ) -> pa.RecordBatch:
        """Return a row for each table; files are pruned if the ticket has all parameters."""
        cuts, context = cut_of_tables.by_key, context_of(parsed, ticket)
        is_bound = len(context.values) == len(parameters_of(parsed.document))
        hot = [cut.hot for cut in cuts.values() if cut.hot is not None and cut.hot.ranges]
        topics = sorted({side.topic for side in hot})
        bounds = self.bounds.measure(topics) if topics else {}
        ages = {item.table: item.age_s for item in self.pins.status()}
        # A bare count asks the list of manifests.
        is_cold_counted = self.relations.cold_rows(session, parsed, cuts) is not None
        reports = {}
        for table in parsed.tables:
            cut, rows = cuts[table.key], EVERYTHING
            report = TableReport(
                ages.get(table.table),
                log_age_s=cut_of_tables.log_age_s if table.at is None else None,
                contract=str(table.at or contract),
            )
            if self.relations.visible_table(session, table, cut).is_filtered:
                reports[table] = replace(report, is_counted=False)
                continue
            if is_bound:
                rows = self.relations.scan_filter(session, table, cut, parsed, context)
            measured = None if cut.hot is None else bounds.get(cut.hot.topic)
            partitions = () if measured is None else measured.partitions
            reports[table] = replace(
                report,
                log_starts={item.partition: item.log_start for item in partitions},
                totals=self.store.totals(cut.cold),
                is_cold_counted=is_cold_counted,
                files_to_read=0 if is_cold_counted else self.store.count_files(cut.cold, rows),
            )
        return explanation(
            parsed.tables, {item: cuts[item.key] for item in parsed.tables}, reports
        )
