"""The error tree, by what the caller does next.

==================  ===================================================================
RequestError        the statement, ticket or setting is wrong: fix it, do not retry
Unavailable         a system is unreachable or too slow: retry the same call
StalePlan           the plan's facts expired: plan again, then retry
LimitExceeded       the answer would be too large: narrow it, or raise the limit
Inconsistent        stored state breaks our promises: stop, a person must look
InternalError       our own bug: report it
==================  ===================================================================

A message is one sentence: what, where, what to do. It never holds a setting, a credential, a path of the
server or another user's data. Facts (table, topic, partition, offsets, snapshot id) are attributes too.
"""

from __future__ import annotations

from functools import partial


class FederationError(Exception):
    """The root. ``facts`` holds what the message says, by name, for logs and clients."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        """Facts survive pickling: Spark executors send these errors to the driver."""
        return partial(type(self), self.message, **self.facts), ()


class RequestError(FederationError):
    """The request is wrong. Do not retry it unchanged."""


class BadStatement(RequestError):
    """The text does not parse, or names and types do not bind."""


class UnsupportedStatement(RequestError):
    """The statement parses, but the gate does not allow something in it."""


class UnknownTable(RequestError):
    """No catalog of this server has the table."""


class UnknownTopic(RequestError):
    """The cluster has no such topic."""


class NotAllowed(RequestError):
    """What was asked is about more than the user's permissions cover."""


class BadParameter(RequestError):
    """A bound parameter is missing, surplus or of a type that does not fit."""


class CutExpired(RequestError):
    """A cut, version or time is asked for that is not kept any more, or never was."""


class BadTicket(RequestError):
    """The ticket was not issued by this server, or was altered."""


class BadConfig(RequestError):
    """A configuration file, variable or flag is wrong."""


class BadBinding(RequestError):
    """A table's ``thermocline.*`` properties do not describe a valid binding."""


class UnsupportedType(RequestError):
    """A column's type cannot be held on both sides of the seam."""


class NotForKeyedTables(RequestError):
    """What was asked has no meaning, or no way yet, for a table with one row per key."""


class UnsupportedFile(RequestError):
    """A table has files, or asks for files, of a format, codec or encryption that this program does not read."""


class Unavailable(FederationError):
    """A system is unreachable or too slow. The same call may succeed later."""


class CatalogUnavailable(Unavailable):
    """The Iceberg catalog does not answer."""


class ColdStoreUnavailable(Unavailable):
    """A data or metadata file could not be read just now."""


class LogUnavailable(Unavailable):
    """A broker or partition does not answer in time."""


class SchemaRegistryUnavailable(Unavailable):
    """A schema registry does not answer in time, or lacks a schema that it may get within seconds."""


class DeadlineExceeded(Unavailable):
    """The statement ran longer than its limit."""


class NotYetCommitted(Unavailable):
    """A record the statement was to wait for is not committed, or did not become visible in time."""


class Cancelled(Unavailable):
    """The client cancelled the statement."""


class Overloaded(Unavailable):
    """Too many statements are waiting."""


class StalePlan(FederationError):
    """What the plan was built on is gone. Plan again, then retry."""


class SnapshotExpired(StalePlan):
    """The pinned snapshot or one of its files is gone."""


class OffsetsExpired(StalePlan):
    """The log no longer holds offsets of the cut."""


class TicketExpired(StalePlan):
    """The ticket's time is over."""


class GrantsChanged(StalePlan):
    """What the user may read has changed since the statement was planned."""


class TieringConflict(StalePlan):
    """The offset compare-and-set was refused: another tierer published first."""


class SchemasNeeded(StalePlan):
    """Records have schemas that the process which reads them was not given. Fact ``ids``: their ids."""


class LimitExceeded(FederationError):
    """The answer would be too large. Narrow the statement or raise the named limit."""


class TailTooLarge(LimitExceeded):
    """The tail exceeds ``max_tail_rows`` or ``max_tail_bytes``."""


class Inconsistent(FederationError):
    """Stored state breaks a promise. Nothing is answered until a person has looked."""


class TailGap(Inconsistent):
    """The log starts above the watermark: records were lost before they were tiered."""


class LogTruncated(Inconsistent):
    """The watermark is above the log end: the log lost records that cold holds."""


class TopicRecreated(Inconsistent):
    """The topic's id is not the one the watermark names."""


class ClusterChanged(Inconsistent):
    """The Kafka cluster is not the one the watermark names."""


class SchemaRegistryChanged(Inconsistent):
    """The registry has another schema under an id than when records with that id were tiered."""


class SchemaIncompatible(Inconsistent):
    """A writer's schema has a field that no change of the table makes fit, and the table is set to stop then."""


class TooManySchemas(Inconsistent):
    """Records of a table have more schema ids than its ledger takes."""


class WatermarkMissing(Inconsistent):
    """A bound table has no watermark that its ancestry, or tag and mirror together, prove."""


class WatermarkUnreadable(Inconsistent):
    """The watermark text is malformed, or of a version newer than this program."""


class ForeignCommit(Inconsistent):
    """Another writer added rows above the last watermark."""


class ForeignFile(Inconsistent):
    """A table lists a file outside its own places, or deletes as rows."""


class ShapeMismatch(Inconsistent):
    """The table was tiered with another decoder, policy or transform."""


class PermissionsMismatch(Inconsistent):
    """A grant names columns the table does not have, or its expressions do not fit them."""


class UndecodableRecord(Inconsistent):
    """A record does not decode and the error policy is ``fail``."""


class ValueUnavailable(UndecodableRecord):
    """A change leaves out a value that its source did not send: a large one of PostgreSQL's that an update did not touch."""


class KeyInTwoPartitions(Inconsistent):
    """A key of a keyed table has changes in two partitions: their offsets do not say which is newer."""


class TombstonesExpired(Inconsistent):
    """The log of a compacted topic may have lost deletes that a keyed table has not seen."""


class InternalError(FederationError):
    """A bug of ours. The message is generic; the log has the rest."""


def not_for_keyed(table: object, what: str, way: str) -> NotForKeyedTables:
    """Say that ``what`` is not for a keyed table, and the ``way`` that is."""
    return NotForKeyedTables(
        f"{table}: {what} is not for a keyed table, which has the newest row of each key alone; {way}.",
        table=str(table),
    )


def in_two_partitions(table: object, what: str, **facts: object) -> KeyInTwoPartitions:
    """Say that ``what`` of a key's changes is not known, and what prevents it."""
    return KeyInTwoPartitions(
        f"{table}: {what} is not known; have producers choose the partition by the key alone, and bind a new table to a topic "
        f"that was written so.",
        table=str(table),
        **facts,
    )


def keep_history(table: object, what: str) -> NotForKeyedTables:
    """Say that ``what`` needs the changes of before, which a keyed table does not keep."""
    return not_for_keyed(
        table,
        what,
        "an append table of the same topic keeps every change: `thermocline create` one beside it",
    )
