"""The fast path: one value of all records at a time, on numpy.

It gives a value only where that is provably the value of the exact path (``exact``), and leaves records with anything in doubt
to it. What it has no way for, it reads by the exact path's functions, value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.avro.cursor import Cursor, least_bytes
from connectors.decoding.avro.exact import Reads
from connectors.decoding.avro.lanes import Bools, Ints, Lane
from connectors.decoding.avro.leaves import LEAVES, Read
from connectors.decoding.avro.plan import Plan, RootPlan
from connectors.decoding.fields import Field
from connectors.decoding.policy import Unfit
from planner.evolution.writer_types import WriterSchema, walk

#: With fewer records, numpy's calls take longer than reading them one by one.
MIN_RECORDS = 16
#: Of arrays with more elements than this, so many records are read at once, or none.
_SHORT, _MANY = 32, 128


class FieldSteps:
    """How records of one schema are read as the fields of a table, field by field. Thread-safe.

    ``common`` has the functions that schemas of one table share, by their plans: equal plans have one function.
    """

    def __init__(self, root: RootPlan, common: dict[Plan, Read]) -> None:
        nodes = Nodes(root.schema)
        self.lacks_required = bool(root.plan.required)
        self._steps: list[tuple[int | None, Read]] = []
        for slot, item in zip(root.plan.slots, root.plan.items, strict=True):
            read = nodes.of(item)
            if not any(each.kind == "again" for each in walk(item.writer)):
                read = common.setdefault(item, read)
            self._steps.append((slot, read))

    @classmethod
    def of(cls, root: RootPlan, common: dict[Plan, Read]) -> FieldSteps | None:
        """Build it, or return None for what is rarely sent: records in a union, bytes alone, elements without bytes."""
        is_plain = root.plan.how == "record" and root.branch is None and not root.is_other
        has_rest = any(item.how == "rest" for item in root.plan.items)
        if not is_plain or has_rest or _has_empty_items(root.schema):
            return None
        return cls(root, common)

    def step(self, number: int) -> tuple[int | None, Read] | None:
        """Return how the n-th field of a record is read, and which column it fills, if any; None behind the last."""
        return self._steps[number] if number < len(self._steps) else None


def _has_empty_items(schema: WriterSchema) -> bool:
    """Return whether elements take no bytes: the bound on their number is one of the whole record."""
    return any(
        each.kind == "array" and not least_bytes(each.items[0], schema)
        for each in walk(schema.root)
    )


class Nodes:
    """Builds the reading functions of one schema."""

    def __init__(self, schema: WriterSchema) -> None:
        self._schema = schema
        self._exact = Reads(schema)
        #: How many functions read value by value.
        self._by_values = 0

    def of(self, plan: Plan) -> Read:
        if plan.how in LEAVES:
            leaf = LEAVES[plan.how](plan)
            if leaf is not None:
                return leaf
        make = getattr(self, f"_{plan.how}", self._by_value)
        return make(plan)

    def _by_value(self, plan: Plan) -> Read:
        """Read by the exact path's function."""
        self._by_values += 1
        read, field = self._exact.of(plan), plan.field

        def read_each(lane: Lane, present: Bools | None) -> pa.Array | None:
            batch, at = lane.batch, lane.at.copy()
            values: list[Any] = [None] * len(lane)
            indices = range(len(lane)) if present is None else np.flatnonzero(present)
            for index in indices:
                row = lane.rows[index]
                if batch.is_bad[row]:
                    continue
                start = int(batch.starts[row])
                cursor = Cursor(batch.raw(row), int(at[index]) - start)
                try:
                    values[index] = read(cursor)
                except (Unfit, IndexError, struct.error):
                    batch.is_bad[row] = True
                    continue
                at[index] = start + cursor.at
            lane.at = at
            return None if field is None else build(field, values, exact_leaf)

        return read_each

    def _null(self, plan: Plan) -> Read:
        def read(lane: Lane, present: Bools | None) -> pa.Array | None:
            if plan.is_required:
                lane.doubt(np.ones(len(lane), np.bool_), present)
            return None if plan.field is None else _nulls(plan.field, len(lane))

        return read

    def _record(self, plan: Plan) -> Read:
        reads, field = [self.of(item) for item in plan.items], plan.field

        def read(lane: Lane) -> pa.Array | None:
            columns: list[pa.Array | None] = [None] * len(field.children if field else ())
            for slot, read in zip(plan.slots, reads, strict=True):
                column = read(lane, None)
                if slot is not None:
                    columns[slot] = column
            if plan.required:
                lane.doubt(np.ones(len(lane), np.bool_))
            return None if field is None else _struct(lane, field, columns, None)

        return _of_some(read, field)

    def _of_elements(self, plan: Plan) -> list[Read] | None:
        """Build those of an array's or map's items; None: one reads by value, which copies the record for each element."""
        before = self._by_values
        reads = [self.of(item) for item in plan.items]
        return reads if self._by_values == before else None

    def _array(self, plan: Plan) -> Read:
        reads = self._of_elements(plan)
        if reads is None:
            return self._by_value(plan)
        field = plan.field

        def read_items(lane: Lane, present: Bools | None) -> pa.Array | None:
            owners, (items,) = _read_items(lane, present, reads)
            if field is None:
                return None
            offsets = _offsets(owners, len(lane))
            items = build(field.children[0], [], exact_leaf) if items is None else items
            return pa.ListArray.from_arrays(
                offsets, items, type=field.type, mask=_mask(present, len(lane))
            )

        return read_items

    def _map(self, plan: Plan) -> Read:
        reads = self._of_elements(plan)
        if reads is None or plan.items[0].how != "text":
            return self._by_value(plan)
        field = plan.field

        def read(lane: Lane, present: Bools | None) -> pa.Array | None:
            owners, (keys, values) = _read_items(lane, present, reads)
            if field is None:
                return None
            if keys is None or values is None:
                keys, values = (build(child, [], exact_leaf) for child in field.children)
            _doubt_doubles(lane, owners, keys)
            return pa.MapArray.from_arrays(
                _offsets(owners, len(lane)),
                keys,
                values,
                type=field.type,
                mask=_mask(present, len(lane)),
            )

        return read

    def _optional(self, plan: Plan) -> Read:
        reads = [self.of(item) for item in plan.items]
        nulls = [at for at, item in enumerate(plan.items) if item.how == "null"]
        others = [at for at, item in enumerate(plan.items) if item.how != "null"]
        field = plan.field
        if len(others) > 1:
            return self._by_value(plan)

        def read(lane: Lane, present: Bools | None) -> pa.Array | None:
            branches = _indices(lane, present, len(reads))
            for null in nulls:
                if plan.is_required:
                    lane.doubt(branches == null, present)
            if not others:
                return None if field is None else _nulls(field, len(lane))
            has_value = branches == others[0]
            if present is not None:
                has_value &= present
            return reads[others[0]](lane, None if has_value.all() else has_value)

        return read

    def _union(self, plan: Plan) -> Read:
        reads, field = [self.of(item) for item in plan.items], plan.field
        nulls = [at for at, item in enumerate(plan.items) if item.how == "null"]
        if plan.required:
            return self._by_value(plan)

        def read(lane: Lane, present: Bools | None) -> pa.Array | None:
            branches = _indices(lane, present, len(reads))
            has_value = np.ones(len(lane), np.bool_) if present is None else present.copy()
            for null in nulls:
                if plan.is_required:
                    lane.doubt(branches == null, present)
                has_value &= branches != null
            columns: list[pa.Array | None] = [None] * len(field.children if field else ())
            for branch, (slot, read) in enumerate(zip(plan.slots, reads, strict=True)):
                column = read(lane, has_value & (branches == branch))
                if slot is not None:
                    columns[slot] = column
            return None if field is None else _struct(lane, field, columns, has_value)

        return read


def _of_some(read: Callable[[Lane], pa.Array | None], field: Field | None) -> Read:
    """Read the records that are present in a lane of their own."""

    def read_some(lane: Lane, present: Bools | None) -> pa.Array | None:
        if present is None:
            return read(lane)
        indices = np.flatnonzero(present)
        some = lane.only(indices)
        if not len(some):
            return None if field is None else _nulls(field, len(lane))
        values = read(some)
        lane.at = lane.at.copy()
        lane.back(indices, some)
        if values is None:
            return None
        places = np.zeros(len(lane), np.int64)
        places[indices] = np.arange(len(indices))
        return values.take(pa.array(places, mask=~present))

    return read_some


def _read_items(
    lane: Lane, present: Bools | None, reads: Sequence[Read]
) -> tuple[Ints, list[pa.Array | None]]:
    """Read the elements of arrays or maps, the n-th of all records at a time; ``reads`` are of one element.

    Returns the index in the lane of each element's record, ascending, and what each of ``reads`` gave. Doubtful are arrays
    of more than one block, and those that are longer than almost all.
    """
    counts = lane.longs(present)
    if present is not None:
        counts = counts * present
    has_size = counts < 0
    stops = lane.at
    if has_size.any():
        sizes = lane.longs(has_size)
        counts, stops = np.abs(counts), lane.at + sizes
    is_odd = (counts < 0) | (counts > lane.ends - lane.at)
    lane.doubt(is_odd)
    counts[is_odd] = 0
    has_items = counts > 0
    owners: list[Ints] = []
    steps: list[list[pa.Array]] = [[] for _ in reads]
    lane.at = lane.at.copy()
    indices = np.flatnonzero(has_items)
    done = 0
    while len(indices):
        some = lane.only(indices)
        if len(indices) < (_MANY if done >= _SHORT else MIN_RECORDS):
            some.doubt(np.ones(len(indices), np.bool_))
            break
        for step, read in zip(steps, reads, strict=True):
            step.append(read(some, None))
        lane.back(indices, some)
        owners.append(indices)
        done += 1
        indices = indices[(counts[indices] > done) & (some.at <= some.ends)]
    lane.doubt(lane.at != stops, has_size)
    # The empty block at the end.
    lane.doubt(lane.batch.octets(lane.at) != 0, has_items)
    lane.at += has_items
    if not owners:
        return np.zeros(0, np.int64), [None for _ in reads]
    of_all = np.concatenate(owners)
    if len(owners) == 1:
        return of_all, [step[0] for step in steps]
    order = np.argsort(of_all, kind="stable")
    places = pa.array(order)
    return of_all[order], [
        None if step[0] is None else pa.concat_arrays(step).take(places) for step in steps
    ]


def _doubt_doubles(lane: Lane, owners: Ints, keys: pa.Array) -> None:
    """Leave records to the exact path that have a key of a map twice."""
    if len(owners) < 2:
        return
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    both = np.sort(owners * (int(codes.max()) + 1) + codes)
    twice = both[1:][both[1:] == both[:-1]] // (int(codes.max()) + 1)
    if len(twice):
        lane.batch.is_bad[lane.rows[twice]] = True


def _indices(lane: Lane, present: Bools | None, count: int) -> Ints:
    """Read the indices of branches; those out of bounds are doubtful, and -1, as are those that are not present."""
    indices = lane.longs(present)
    is_odd = (indices < 0) | (indices >= count)
    if is_odd.any():
        lane.doubt(is_odd, present)
        indices[is_odd] = -1
    if present is not None:
        indices[~present] = -1
    return indices


def _offsets(owners: Ints, count: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    return pa.array(offsets)


def _mask(present: Bools | None, count: int) -> pa.Array:
    """Return where NULL is."""
    return pa.array(np.zeros(count, np.bool_) if present is None else ~present)


def _nulls(field: Field, count: int) -> pa.Array:
    return build(field, [None] * count, exact_leaf)


def _struct(
    lane: Lane, field: Field, columns: Sequence[pa.Array | None], present: Bools | None
) -> pa.Array:
    """Return the structs of a lane from what was read of each member; None: it is NULL in all."""
    members = [
        _nulls(child, len(lane)) if column is None else column
        for child, column in zip(field.children, columns, strict=True)
    ]
    mask = None if present is None else pa.array(~present)
    return pa.StructArray.from_arrays(members, fields=list(field.type), mask=mask)
