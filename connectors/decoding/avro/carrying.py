"""Which writers' records have a row under another schema of their table that can be made from the row that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.decoding.avro.plan import Plan, plan_root
from connectors.decoding.fields import Field
from planner.evolution.conversions import Conversion
from planner.evolution.promotions import holds
from planner.evolution.table_types import table_type
from planner.evolution.writer_types import WriterSchema


def carries_over(
    writer: WriterSchema,
    before: Sequence[Field],
    after: Sequence[Field],
    steps: Mapping[str, Conversion],
    *,
    record: str | None,
    is_all_good: bool,
) -> bool:
    """Return whether every record of ``writer`` becomes the row of ``after`` that ``steps`` make of its row of ``before``.

    ``record`` as for ``plan_root``. ``is_all_good``: the policy is ``fail``, so that each record with a row was read whole.
    Under other policies one may have been a bad one for a field that ``after`` reads otherwise.
    """
    old, new = plan_root(writer, before, record), plan_root(writer, after, record)
    if new.is_other:
        return True
    if new.plan.how != "record":
        return False
    old_items, new_items = _items(old.plan, before), _items(new.plan, after)
    old_fields = {field.field_id: field for field in before}
    equal = set()
    for field in after:
        step, item = steps[field.path], new_items.get(field.field_id)
        if step == "null":
            # The old row has nothing to read it from.
            if item is not None or field.required:
                return False
            continue
        if old_items.get(field.field_id) != item:
            return False
        source = old_fields[field.field_id]
        if not is_all_good and (
            source.required != field.required
            or (step == "cast" and item is not None and not _fits(old.plan.items[item], source))
        ):
            return False
        equal.add(field.field_id)
    # A bad value of a column that is gone makes no bad record any more.
    return is_all_good or equal == old_fields.keys()


def _items(plan: Plan, fields: Sequence[Field]) -> Mapping[int, int]:
    """Return which of the writer's fields fills each column that one does, by the column's id."""
    return {
        fields[slot].field_id: item for item, slot in enumerate(plan.slots) if slot is not None
    }


def _fits(plan: Plan, field: Field) -> bool:
    """Whether no value of the writer's type is beyond the column's."""
    kind = table_type(plan.writer)
    return kind is not None and holds(field.type, kind)
