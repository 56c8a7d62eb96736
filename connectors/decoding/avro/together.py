"""Records of several schemas, read together as far as their fields are the same: versions of one schema mostly differ at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.avro.columnar import MIN_RECORDS, FieldSteps
from connectors.decoding.avro.lanes import Batch, Ints, Lane
from connectors.decoding.avro.leaves import Read
from connectors.decoding.fields import Field

#: Up to so many doubtful records, the columns are cut at each and put together again, in half the time of a ``take``.
_FEW_CUTS = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one schema; ``rows`` are their positions in the batch, ascending."""

    path: FieldSteps
    rows: Ints


def read_groups(
    batch: Batch, groups: Sequence[Group], first_byte: int, fields: Sequence[Field]
) -> tuple[Ints, list[pa.Array]]:
    """Read records whose bodies begin ``first_byte`` bytes behind their starts.

    Returns the positions of those that are certain, ascending, and one array per field.
    """
    group_of = np.zeros(len(batch.starts), np.int64)
    for number, group in enumerate(groups):
        group_of[group.rows] = number
    rows = np.sort(np.concatenate([group.rows for group in groups]))
    pieces: list[list[tuple[Ints, pa.Array]]] = [[] for _ in fields]
    lane = Lane(batch, rows, batch.starts[rows] + first_byte, batch.ends[rows])
    pending: list[tuple[Lane, Sequence[int], int]] = [(lane, range(len(groups)), 0)]
    while pending:
        lane, numbers, depth = pending.pop()
        by_step: dict[tuple[int | None, Read] | None, list[int]] = {}
        for number in numbers:
            by_step.setdefault(groups[number].path.step(depth), []).append(number)
        for step, together in by_step.items():
            some = lane
            if len(by_step) > 1:
                is_in = np.zeros(len(groups), np.bool_)
                is_in[together] = True
                some = lane.only(np.flatnonzero(is_in[group_of[lane.rows]]))
            if step is None:
                some.doubt(some.at != some.ends)
                continue
            if len(some) < MIN_RECORDS:
                some.doubt(np.ones(len(some), np.bool_))
                continue
            slot, read = step
            column = read(some, None)
            if slot is not None:
                pieces[slot].append((some.rows, column))
            pending.append((some, together, depth + 1))
    for group in groups:
        if group.path.lacks_required:
            batch.is_bad[group.rows] = True
    index_of = np.zeros(len(batch.starts), np.int64)
    index_of[rows] = np.arange(len(rows))
    columns = [
        _joined(field, [(index_of[own], each) for own, each in its], len(rows))
        for field, its in zip(fields, pieces, strict=True)
    ]
    is_bad = batch.is_bad[rows]
    return rows[~is_bad], _without(columns, np.flatnonzero(is_bad), len(rows))


def _joined(field: Field, pieces: Sequence[tuple[Ints, pa.Array]], count: int) -> pa.Array:
    """Put the pieces of a column together; each has the indices of its values. NULL where there is none."""
    if not pieces:
        return build(field, [None] * count, exact_leaf)
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]
    places = np.full(count, -1, np.int64)
    start = 0
    for indices, _ in pieces:
        places[indices] = np.arange(start, start + len(indices))
        start += len(indices)
    arrays = [array for _, array in pieces]
    whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return whole.take(pa.array(places, mask=places < 0))


def _without(columns: list[pa.Array], bad: Ints, count: int) -> list[pa.Array]:
    if not len(bad):
        return columns
    if len(bad) > _FEW_CUTS:
        good = pa.array(np.delete(np.arange(count), bad))
        return [column.take(good) for column in columns]
    ends = [*bad.tolist(), count]
    starts = [0, *(at + 1 for at in bad.tolist())]
    cuts = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
    return [pa.concat_arrays([column.slice(*cut) for cut in cuts]) for column in columns]
