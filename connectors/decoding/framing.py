"""What serializers of schema registries write in front of a record, by its first bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: Of Confluent's: a zero byte, then the schema's id as four bytes, the highest first.
PREFIX_BYTES = 5


def other_framing(raw: bytes) -> str | None:
    """Name a form that is not read; None for ids as Confluent's serializers write them, and for records without any."""
    if len(raw) < PREFIX_BYTES:
        return None
    if raw[0] == 1:
        return (
            "the value begins with byte 01: a GUID in place of a schema id, which is not read"
        )
    if raw[:2] == b"\3\0":
        return "the value begins with bytes 03 00: the header of AWS Glue, which is not read"
    if raw[:PREFIX_BYTES] == bytes(PREFIX_BYTES):
        return (
            "the schema id is 0, which registries do not give: this looks like the 8 bytes of Apicurio's older serializers, "
            "which are not read"
        )
    return None


Side = Literal["value", "key"]

#: Beginnings of headers in which serializers write the schema's id or GUID in place of the front: Confluent's, Apicurio's.
HEADERS_WITH_IDS: Mapping[Side, tuple[str, ...]] = {
    "value": ("__value_schema_id", "apicurio.value."),
    "key": ("__key_schema_id", "apicurio.key."),
}
