"""Commits a person's decision: an empty append with a watermark, its mirror and its tag (no Spark).

pyiceberg 0.12 builds a refused append again on the newer head and commits that (``commit.retry.num-retries``,
default 4): a watermark text would land on a head it does not name and was not decided on. Here every attempt
is one try on one head, and the decision is made again for the next.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, TableProperties

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import add_watermark
from connectors.iceberg.history_facts import TableEvidence, read_facts
from connectors.repairs import Decide
from connectors.store.catalog_roots import CatalogRoots
from planner.errors import BadConfig, CatalogUnavailable, ColdStoreUnavailable
from planner.names import TableName
from planner.seam.watermark import SUMMARY_KEY, Watermark, parse_watermark

_ATTEMPTS = 10
_BACKOFF_S = 0.05


class IcebergRepairCommitter:
    """``connectors.repairs.RepairCommitter`` over pyiceberg catalogs. ``close`` ends their connections.

    ``before_commit`` is called between the decision and each commit: for another writer of a test.
    """

    def __init__(
        self,
        catalogs: Mapping[str, Mapping[str, str]],
        roots: CatalogRoots | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogs = Catalogs(catalogs, roots)
        self._sleep = sleep
        self._before_commit = before_commit

    def look(self, table: TableName, decide: Decide) -> Watermark:
        loaded = self._catalogs.load(table)
        return decide(read_facts(table, loaded), TableEvidence(table, loaded))

    def amend(
        self,
        table: TableName,
        decide: Decide,
        properties: Callable[[], Mapping[str, str]] = dict,
    ) -> Watermark:
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(_BACKOFF_S * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - jitter
            loaded = self._catalogs.load(table)
            mark = decide(read_facts(table, loaded), TableEvidence(table, loaded))
            self._before_commit()
            try:
                with self._catalogs.using(table.catalog, table):
                    _commit(table, loaded, mark, properties())
            except _Moved:
                continue
            except (CatalogUnavailable, ColdStoreUnavailable):
                # Whether it was committed may be unknown.
                if self._landed(table, mark):
                    return mark
                raise
            return mark
        raise CatalogUnavailable(
            f"{table}: other writers committed first {_ATTEMPTS} times in a row; nothing was changed, try again.",
            table=str(table),
        )

    def _landed(self, table: TableName, mark: Watermark) -> bool:
        loaded = self._catalogs.load(table)
        texts = (
            snapshot.summary.additional_properties.get(SUMMARY_KEY)
            for snapshot in loaded.metadata.snapshots
            if snapshot.summary is not None
            and snapshot.parent_snapshot_id == mark.prev_snapshot_id
        )
        return any(text is not None and parse_watermark(text).run == mark.run for text in texts)

    def close(self) -> None:
        self._catalogs.close()


class _Moved(Exception):
    """Another commit came first."""


def _commit(
    table: TableName, loaded: Table, mark: Watermark, properties: Mapping[str, str]
) -> None:
    """Try once. The producer asserts that the main branch is where it was loaded from."""
    metadata = loaded.metadata
    if metadata.format_version > 2:
        raise BadConfig(
            f"{table}: it has format version {metadata.format_version}, and this program writes up to 2.",
            table=str(table),
        )
    once = {**metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    loaded.metadata = metadata.model_copy(update={"properties": once})
    transaction = loaded.transaction()
    add_watermark(transaction, mark)
    if properties:
        transaction.set_properties(dict(properties))
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise _Moved from error
