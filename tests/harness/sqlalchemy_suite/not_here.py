"""Tests of SQLAlchemy's suite that do not apply, by why: whole classes, or one test of a class."""

from __future__ import annotations

_WHY: dict[str, tuple[str, ...]] = {
    "a store that only reads: it makes no views (of which those of HasTableTest are), and says no to what the suite's writer has no way for": (
        "HasTableTest",
        "InsertBehaviorTest",
        "ReturningGuardsTest",
        "TableViaSelectTest",
        "EnumTest.test_round_trip_executemany_returning",
        "ComponentReflectionTest.test_get_view_names",
        "ExceptionTest.test_integrity_error",
        "ExceptionTest.test_exception_with_non_ascii",
    ),
    "Iceberg's tables have no keys, constraints, defaults, lengths of text or indexes": (
        "ComponentReflectionTest.test_autoincrement_col",
        "ComponentReflectionTestExtra",
        "CompositeKeyReflectionTest",
        "LongNameBlowoutTest",
        "QuotedNameArgumentTest",
    ),
    "the suite's writer makes no comments and views, and a table of its own is there": (
        "ComponentReflectionTest.test_get_multi_columns",
        "ComponentReflectionTest.test_get_table_names",
    ),
    "the suite's writer goes by the type of a column, and Iceberg has none for it, or pyarrow takes no such value": (
        "BinaryTest.test_pickle_roundtrip",
        "CastTypeDecoratorTest.test_special_type",
    ),
    "the suite's writer does not see a value that is written into its INSERT": (
        "NumericTest.test_render_literal_float",
        "NumericTest.test_render_literal_numeric",
        "NumericTest.test_render_literal_numeric_asfloat",
        "UuidTest.test_literal_nonnative_text",
        "UuidTest.test_literal_nonnative_uuid",
        "UuidTest.test_literal_text",
        "UuidTest.test_literal_uuid",
    ),
    "the engine divides decimals in floating point": ("TrueDivTest.test_truediv_divisor",),
    "DISTINCT ON is the engine's too, so nothing warns": ("DistinctOnTest.test_distinct_on",),
}
NOT_HERE = {name: why for why, names in _WHY.items() for name in names}
