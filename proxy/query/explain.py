"""EXPLAIN: what would be read of each table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.cuts import BoundsCache
from connectors.iceberg.pin_cache import PinCache
from planner.explain import TableReport, explanation
from planner.ports import ColdStore
from planner.reading.plan import ColdMode
from proxy.query.cut import Cuts, FreshnessContract
from proxy.query.file_pruning import StatementContext
from proxy.query.parsing import ParsedStatement
from proxy.query.relations import Sources
from proxy.session import Session


@dataclass(frozen=True, slots=True)
class Explainer:
    """Thread-safe."""

    pins: PinCache
    bounds: BoundsCache
    store: ColdStore
    sources: Sources

    def explain(
        self,
        session: Session,
        parsed: ParsedStatement,
        cut_of_tables: Cuts,
        contract: FreshnessContract,
        context: StatementContext | None,
    ) -> pa.RecordBatch:
        """Return a row for each table; without ``context``, which has the parameters, no files are pruned."""
        cuts = cut_of_tables.by_key
        hot = [cut.hot for cut in cuts.values() if cut.hot is not None and cut.hot.ranges]
        topics = sorted({side.topic for side in hot})
        bounds = self.bounds.measure(topics) if topics else {}
        ages = {item.table: item.age_s for item in self.pins.status()}
        reads = self.sources.reads(session, parsed, cuts, context)
        reports = {}
        for table, read in reads.items():
            cut = read.cut
            report = TableReport(
                ages.get(table.table),
                log_age_s=cut_of_tables.log_age_s if table.at is None else None,
                contract=str(table.at or contract),
            )
            if self.sources.visible_table(session, table, cut).is_filtered:
                reports[table] = replace(report, is_counted=False)
                continue
            measured = None if cut.hot is None else bounds.get(cut.hot.topic)
            partitions = () if measured is None else measured.partitions
            reports[table] = replace(
                report,
                log_starts={item.partition: item.log_start for item in partitions},
                totals=self.store.totals(cut.cold),
                files_to_read=0
                if read.cold is ColdMode.COUNTED
                else self.store.count_files(cut.cold, read.rows),
            )
        return explanation(reads, reports)
