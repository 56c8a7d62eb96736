"""EXPLAIN: what would be read of each table."""

from __future__ import annotations

import pyarrow as pa

from connectors.iceberg.pin_cache import PinCache
from planner.explaining import TableReport, explanation
from planner.ports import ColdStore
from planner.pruning import EVERYTHING
from proxy.query.cut import BoundsCache, Cuts, FreshnessContract
from proxy.query.file_pruning import StatementContext
from proxy.query.parsing import ParsedStatement
from proxy.query.relations import Sources
from proxy.session import Session


class Explainer:
    """Thread-safe."""

    def __init__(
        self, *, pins: PinCache, bounds: BoundsCache, store: ColdStore, sources: Sources
    ) -> None:
        self._pins = pins
        self._bounds = bounds
        self._store = store
        self._sources = sources

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
        bounds = self._bounds.measure(topics) if topics else {}
        ages = {item.table: item.age_s for item in self._pins.status()}
        reports = {}
        for table in parsed.tables:
            cut, rows = cuts[table.key], EVERYTHING
            log_age_s = cut_of_tables.log_age_s if table.at is None else None
            contract_text = str(table.at or contract)
            if self._sources.visible_table(session, table, cut).is_filtered:
                reports[table] = TableReport(
                    ages.get(table.table),
                    is_counted=False,
                    log_age_s=log_age_s,
                    contract=contract_text,
                )
                continue
            if context is not None:
                rows = self._sources.scan_filter(session, table, cut, parsed, context)
            measured = None if cut.hot is None else bounds.get(cut.hot.topic)
            partitions = () if measured is None else measured.partitions
            reports[table] = TableReport(
                metadata_age_s=ages.get(table.table),
                log_age_s=log_age_s,
                contract=contract_text,
                log_starts={item.partition: item.log_start for item in partitions},
                totals=self._store.totals(cut.cold),
                files_to_read=self._store.count_files(cut.cold, rows),
            )
        return explanation(
            parsed.tables, {item: cuts[item.key] for item in parsed.tables}, reports
        )
