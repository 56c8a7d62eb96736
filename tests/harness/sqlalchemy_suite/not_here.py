"""Tests of SQLAlchemy's suite that do not apply, by why; 2.x and 1.4 name some differently, and each has some of its own."""

from __future__ import annotations

_READS = "a store that only reads: it makes no views, and says no to what the suite's writer has no way for"
_NO_KEYS = "Iceberg's tables have no keys, constraints, lengths of text or indexes"
_IN_BOTH: dict[str, tuple[str, ...]] = {
    _NO_KEYS: (
        "ExceptionTest.test_integrity_error",
        "LongNameBlowoutTest.test_long_convention_name",
    ),
    "the suite's writer goes by the type of a column, and Iceberg has none for it, or pyarrow takes no such value": (
        "BinaryTest.test_pickle_roundtrip",
        "CastTypeDecoratorTest.test_special_type",
    ),
    "DISTINCT ON is the engine's too, so nothing warns": ("DistinctOnTest.test_distinct_on",),
}
_IN_2: dict[str, tuple[str, ...]] = {
    _READS: (
        "ComponentReflectionTest.test_get_view_names",
        "InsertBehaviorTest.test_no_results_for_non_returning_insert",
        "ReturningGuardsTest.test_insert_single",
        "TableViaSelectTest.test_without_metadata",
    ),
    _NO_KEYS: ("ComponentReflectionTestExtra.test_string_length_reflection",),
    "a table of the writer's own is there, without which the schema would be none": (
        "ComponentReflectionTest.test_get_multi_columns",
        "ComponentReflectionTest.test_get_table_names",
    ),
    "the engine divides decimals in floating point": ("TrueDivTest.test_truediv_divisor",),
}
_IN_1_4: dict[str, tuple[str, ...]] = {
    _NO_KEYS: (
        "ComponentReflectionTest.test_get_indexes",
        "ComponentReflectionTestExtra.test_varchar_reflection",
        "HasIndexTest.test_has_index",
        "HasIndexTest.test_has_index_schema",
        "QuotedNameArgumentTest.test_get_foreign_keys",
        "QuotedNameArgumentTest.test_get_indexes",
    ),
}
#: By the version of SQLAlchemy.
NOT_HERE = {
    version: {name for names in (*_IN_BOTH.values(), *own.values()) for name in names}
    for version, own in (("2", _IN_2), ("1.4", _IN_1_4))
}
