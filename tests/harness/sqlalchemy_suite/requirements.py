"""What the suite may ask of a store that only reads; a reason beside each that is closed."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

#: By why it does not apply.
CLOSED = {
    "Iceberg tables have no keys, indexes, constraints or defaults of the database": (
        "primary_key_constraint_reflection",
        "foreign_keys",
        "foreign_key_constraint_reflection",
        "self_referential_foreign_keys",
        "index_reflection",
        "unique_constraint_reflection",
        "autoincrement_insert",
        "autoincrement_without_sequence",
        "implicitly_named_constraints",
    ),
    "a writer of files: no UPDATE, DELETE, RETURNING or INSERT of a SELECT": (
        "insert_from_select",
        "insert_executemany_returning",
        "insert_returning",
        "update_returning",
        "delete_returning",
        "empty_inserts",
        "empty_inserts_executemany",
        "sane_rowcount",
        "sane_multi_rowcount",
        "sane_rowcount_w_returning",
        "update_where_target_in_subquery",
    ),
    "each statement is a moment of its own: there are no transactions": (
        "get_isolation_level_values",
    ),
    "no views, temporary tables or sequences are made here": (
        "temp_table_reflection",
        "temporary_tables",
        "sequences",
        "sequences_optional",
    ),
    "one set of parameters at a time": ("multivalues_inserts",),
}


class Requirements(SuiteRequirements):
    pass


def _closed(reason: str) -> Any:
    return property(lambda _self: exclusions.skip_if(lambda: True, reason))


for _reason, _names in CLOSED.items():
    for _name in _names:
        setattr(Requirements, _name, _closed(_reason))
