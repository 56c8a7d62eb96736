"""Tests of SQLAlchemy's suite that do not apply, by why."""

from __future__ import annotations

_WHY: dict[str, tuple[str, ...]] = {
    "a store that only reads: it makes no views, and says no to what the suite's writer has no way for": (
        "ComponentReflectionTest.test_get_view_names",
        "InsertBehaviorTest.test_no_results_for_non_returning_insert",
        "ReturningGuardsTest.test_insert_single",
        "TableViaSelectTest.test_without_metadata",
    ),
    "Iceberg's tables have no keys, constraints, lengths of text or indexes": (
        "ComponentReflectionTestExtra.test_string_length_reflection",
        "ExceptionTest.test_integrity_error",
        "LongNameBlowoutTest.test_long_convention_name",
    ),
    "a table of the writer's own is there, without which the schema would be none": (
        "ComponentReflectionTest.test_get_multi_columns",
        "ComponentReflectionTest.test_get_table_names",
    ),
    "the suite's writer goes by the type of a column, and Iceberg has none for it, or pyarrow takes no such value": (
        "BinaryTest.test_pickle_roundtrip",
        "CastTypeDecoratorTest.test_special_type",
    ),
    "the engine divides decimals in floating point": ("TrueDivTest.test_truediv_divisor",),
    "DISTINCT ON is the engine's too, so nothing warns": ("DistinctOnTest.test_distinct_on",),
}
NOT_HERE = {name: why for why, names in _WHY.items() for name in names}
