"""The feeds as Avro behind a schema registry: three schemas of each, and a producer with confluent's own serializer.

Needs the extra ``demo-avro``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.json.wishes import Wishes
from connectors.registry.registries import SchemaRegistries
from planner.schema import Column
from planner.seam.formats import AvroFormat
from thermocline.demo.feeds import DemoFeed, Event
from thermocline.demo.ledger import digest_event
from thermocline.schema_columns import registered

#: The first schema of a feed, that whose number is a long, and that with the later field.
FIRST, WIDENED, WHOLE = 1, 2, 3
#: One event in so many has a number beyond an int, once the schema lets it.
_LARGE = 8


def schema_text(feed: DemoFeed, version: int) -> str:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    fields: list[dict[str, Any]] = [{"name": "ts", "type": millis}]
    for name, (kind, _) in feed.values.items():
        is_wide = name == feed.wider and version >= WIDENED
        fields.append({"name": name, "type": "long" if is_wide else kind})
    if version >= WHOLE:
        fields.append({"name": feed.later, "type": ["null", "string"], "default": None})
    name = feed.table.name.title()
    schema = {"type": "record", "name": name, "namespace": "demo", "fields": fields}
    return json.dumps(schema)


class AvroEvents:
    """``version`` is that of the schema which producers write with; they register it as they first use it."""

    is_later_exact: ClassVar[bool] = True
    bad_values: ClassVar[Sequence[bytes]] = (b"", b"not avro", b"\0\0\0", b'{"ts": "soon"}')

    def __init__(self, feed: DemoFeed, registry_url: str) -> None:
        self.feed = feed
        self.version = FIRST
        client = SchemaRegistryClient({"url": registry_url})
        self._context = SerializationContext(feed.topic, MessageField.VALUE)
        self._serializers = {
            version: AvroSerializer(client, schema_text(feed, version))
            for version in (FIRST, WIDENED, WHOLE)
        }

    def encode(self, event: Event) -> tuple[bytes, int]:
        """See ``Events``."""
        version, wider = self.version, int(str(event[self.feed.wider]))
        if version >= WIDENED and wider % _LARGE == 0:
            event[self.feed.wider] = wider << 24
        if version >= WHOLE:
            event[self.feed.later] = self.feed.later_of(event)
        # None for None alone.
        return self._serializers[version](event, self._context) or b"", digest_event(event)


def register(feed: DemoFeed, registry_url: str) -> tuple[list[Column], AvroFormat]:
    """Register a feed's first schema; return the columns and the format of a table made from it."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        client.register_schema(f"{feed.topic}-value", Schema(schema_text(feed, FIRST), "AVRO"))
    with SchemaRegistries({"": {"url": registry_url}}) as registries:
        schema = registered(registries.of(""), f"{feed.topic}-value")
    columns = columns_from(schema.writer, Wishes()).columns
    return list(columns), schema.format("", None, is_fixed=False)
