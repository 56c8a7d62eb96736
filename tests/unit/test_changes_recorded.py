"""What Debezium's engine wrote of a PostgreSQL table: its changes come to what a SELECT gave there in the end.

Recorded with Debezium 3.6.1.Final and PostgreSQL 15, REPLICA IDENTITY DEFAULT: a snapshot of four rows, then updates, a column
that becomes NULL beside its default, a delete, its key again, a change of a key, a delete and an insert in one transaction, one
that was rolled back, an upsert, an update that changes nothing.
"""

from __future__ import annotations

import pytest

from planner.errors import ValueUnavailable
from planner.schema import Column
from tests.harness.changes import changes, decoded, keyed_binding, keyed_schema
from tests.harness.recorded import COLUMNS, FINAL, FORMS, left_out, records, row_of

#: Of each form: how many records are changes, and how many of these deletes. A delete is an event and a NULL.
COUNTS = {
    "events": (22, 8),
    "events_with_schema": (22, 8),
    "flat": (22, 8),
    "flat_by_default": (18, 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_changes_come_to_the_rows_of_their_source(form: str) -> None:
    schema = keyed_schema(*COLUMNS)
    result = decoded(schema, keyed_binding(schema, FORMS[form]), *records(form))
    rows = {}
    for change in result.rows.to_pylist():
        if change["kafka_op"] == "u":
            rows[change["id"]] = row_of(change)
        else:
            rows.pop(change["id"], None)
    assert [rows[key] for key in sorted(rows)] == FINAL
    assert (result.rows.num_rows, result.outcomes.deletes) == COUNTS[form]


def test_an_update_of_another_column_leaves_out_a_large_value() -> None:
    title, body = Column(5, "title", COLUMNS[1].type), Column(6, "body", COLUMNS[1].type)
    schema = keyed_schema(COLUMNS[0], title, body)
    with pytest.raises(ValueUnavailable) as error:
        changes(schema, keyed_binding(schema, "debezium"), left_out())
    assert error.value.facts["field"] == "body"
