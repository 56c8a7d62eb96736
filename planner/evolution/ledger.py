"""The ledger of a table: which schema each id meant when its records were tiered, as property ``thermocline.schemas``.

A registry that was restored, swapped or reset may give an id to another schema. Then rows would change as they are tiered;
the ledger tells before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from planner.errors import BadBinding, SchemaRegistryChanged, TieringConflict, TooManySchemas
from planner.evolution.writer_types import RULE
from planner.names import TableName, shell_word

SCHEMAS = "thermocline.schemas"

#: Instead of a fingerprint: the registry lacked the id, so its records are bad on both sides of the seam, also when it has it later.
UNKNOWN = "unknown"
#: Instead of a fingerprint: the registry has a schema that is refused, which is the same for all who ask.
UNREADABLE = "unreadable"
#: Entries that say nothing of what the id means.
NO_SCHEMA = frozenset({UNKNOWN, UNREADABLE})

#: Ids in one ledger, each 20 to 47 bytes of every metadata file. Topics of many record types have hundreds.
MAX_IDS = 10_000

_ERA = "era"


@dataclass(frozen=True, slots=True)
class SchemaLedger:
    """Fingerprints by the id of a writer's schema, or UNKNOWN, or UNREADABLE.

    ``era`` counts how often a person has accepted that ids mean other schemas (``thermocline schemas accept``).
    """

    fingerprints: Mapping[int, str] = field(default_factory=dict)
    era: int = 0

    @classmethod
    def parse(cls, table: TableName, text: str | None) -> SchemaLedger:
        """Read the property; without one the ledger is empty.

        Raises:
            BadBinding: it is no ledger; or, with the fact ``rule``, it has fingerprints by a rule that this program lacks.
        """
        if text is None:
            return cls()
        try:
            entries = json.loads(text)
            era = int(entries.pop(_ERA, 0))
            ledger = {int(number): str(each) for number, each in entries.items()}
            rules = {
                at: each[: each.index(":")]
                for at, each in ledger.items()
                if each not in NO_SCHEMA
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise BadBinding(
                f"{table}: property {SCHEMAS} is not a ledger of schemas; restore it from an earlier metadata file, or run "
                f"`thermocline schemas accept {shell_word(str(table))}`.",
                table=str(table),
                property=SCHEMAS,
            ) from None
        for number, rule in rules.items():
            if rule != RULE:
                raise BadBinding(
                    f"{table}: property {SCHEMAS} has schema id {number} by rule {rule[:20]}, and this program goes by rule "
                    f"{RULE}; run the newer Thermocline that wrote it.",
                    table=str(table),
                    property=SCHEMAS,
                    rule=rule,
                )
        return cls(ledger, era)

    @property
    def text(self) -> str:
        """The property, which ``parse`` reads back equal."""
        entries = {str(number): each for number, each in sorted(self.fingerprints.items())}
        if self.era:
            entries[_ERA] = str(self.era)
        return json.dumps(entries, separators=(",", ":"))

    @property
    def unknown(self) -> frozenset[int]:
        return frozenset(at for at, each in self.fingerprints.items() if each == UNKNOWN)

    def lacks(self, ids: Collection[int]) -> frozenset[int]:
        return frozenset(ids) - self.fingerprints.keys()

    def with_schemas(self, fingerprints: Mapping[int, str]) -> SchemaLedger:
        """Return the ledger with more entries. Those that it has stay, but for those without a schema."""
        own = {at: each for at, each in self.fingerprints.items() if each not in NO_SCHEMA}
        return SchemaLedger({**self.fingerprints, **fingerprints, **own}, self.era)

    def has_room(self, ids: Collection[int]) -> bool:
        """Return whether ids would not be too many with those that it has."""
        return len(self.fingerprints) + len(self.lacks(ids)) <= MAX_IDS

    def check_room(self, table: TableName, ids: Collection[int]) -> None:
        """Check that it ``has_room``.

        Raises:
            TooManySchemas: it has none. The registry is not asked for them then.
        """
        if self.has_room(ids):
            return
        new = self.lacks(ids)
        raise TooManySchemas(
            f"{table}: its records have {len(new):,} schema ids ({', '.join(map(str, sorted(new)[:5]))}) beside the "
            f"{len(self.fingerprints):,} of its ledger, which takes {MAX_IDS:,}; if they are no Avro behind ids of its registry, "
            f"correct their producer and skip them (`thermocline skip {shell_word(str(table))}`); entries of property {SCHEMAS} "
            f'that are "{UNKNOWN}" may be removed once their records are tiered.',
            table=str(table),
            ids=len(new),
        )

    def check_published(self, table: TableName, fingerprints: Mapping[int, str]) -> None:
        """Check, on the ledger that a commit of rows builds on, the schemas that their tasks had: it must have each as it was.

        Raises:
            SchemaRegistryChanged: as ``check``.
            TieringConflict: it lacks one, or knows one by now that was unknown. Plan again.
        """
        self.check(table, fingerprints)
        for number, fingerprint in sorted(fingerprints.items()):
            if self.fingerprints.get(number) != fingerprint:
                raise TieringConflict(
                    f"{table}: its ledger of schemas has no longer what id {number} meant when this tiering was planned; plan "
                    f"again.",
                    table=str(table),
                    schema_id=number,
                )

    def check(self, table: TableName, fingerprints: Mapping[int, str]) -> None:
        """Check schemas, as the registry has them now, against those of before.

        Raises:
            SchemaRegistryChanged: an id means another schema.
        """
        for number in self.changed(fingerprints)[:1]:
            raise SchemaRegistryChanged(
                f"{table}: the registry has another schema under id {number} than when records with it were tiered: it was "
                f"restored or replaced; bring back the schemas of before, or run `thermocline schemas accept "
                f"{shell_word(str(table))}` if records from now on are of this one.",
                table=str(table),
                schema_id=number,
            )

    def changed(self, fingerprints: Mapping[int, str]) -> tuple[int, ...]:
        """Return the ids, sorted, that mean another schema in ``fingerprints``, or none any more."""
        # Every statement over a tail compares all ids: only what differs is looked at twice.
        own = self.fingerprints
        others = (at for at, each in fingerprints.items() if own.get(at, each) != each)
        return tuple(sorted(at for at in others if own[at] not in NO_SCHEMA))
