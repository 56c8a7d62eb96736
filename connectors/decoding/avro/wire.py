"""What stands in front of a record: the id of its schema, as the serializers of schema registries write it."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.framing import PREFIX_BYTES, other_framing
from connectors.decoding.policy import Unfit
from connectors.decoding.writers import FIXED_ID

#: Registries keep ids as int of Java. Confluent's answers to a higher one as to an address that it does not have.
_MAX_ID = (1 << 31) - 1


def schema_id(raw: bytes) -> int:
    """Return the id of a record's schema.

    Raises:
        Unfit: it has none in front, or one in a form of another registry.
    """
    if len(raw) < PREFIX_BYTES:
        raise Unfit(None, f"the value has {len(raw)} bytes, fewer than a schema id takes")
    other = other_framing(raw)
    if other is not None:
        raise Unfit(None, other)
    if raw[0] != 0:
        raise Unfit(
            None,
            f"the value begins with byte {raw[0]:02x}, not with 00 and a schema id; one in a header is not read",
        )
    number = int.from_bytes(raw[1:PREFIX_BYTES])
    if number > _MAX_ID:
        raise Unfit(None, f"the schema id is {number}, beyond those that registries give")
    return number


def schema_of(raw: bytes, *, is_fixed: bool) -> tuple[int, int]:
    """Return the id of a record's schema and where its body begins. Raises as ``schema_id``."""
    return (FIXED_ID, 0) if is_fixed else (schema_id(raw), PREFIX_BYTES)


def ids_of(values: pa.Array, *, is_fixed: bool) -> frozenset[int]:
    """Return the ids of the schemas of records; of those without one, none."""
    if is_fixed:
        return frozenset({FIXED_ID} if len(values) > values.null_count else ())
    ids = set()
    for prefix in pc.unique(pc.binary_slice(values, 0, PREFIX_BYTES)).to_pylist():
        with contextlib.suppress(Unfit):
            if prefix is not None:
                ids.add(schema_id(prefix))
    return frozenset(ids)
