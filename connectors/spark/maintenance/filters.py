"""An Iceberg expression that names some partitions of a table, so that a rewrite reads these alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from connectors.spark.metadata import each, java
from planner.maintenance.facts import PartitionValues

_EPOCH = dt.date(1970, 1, 1)


def partition_filter(
    session: SparkSession, loaded: Any, partitions: Sequence[PartitionValues | None]
) -> Any:
    """Return what selects the files of these partitions; None where values have no literal here, or are of another spec."""
    expressions = java(session).org.apache.iceberg.expressions.Expressions
    fields = list(each(loaded.spec().fields()))
    every = expressions.alwaysTrue()
    chosen = expressions.alwaysFalse()
    for values in partitions:
        if values is None or len(values) != len(fields):
            return None
        one = every
        for field, value in zip(fields, values, strict=True):
            if field.transform().isVoid():
                # A field that was removed: it has no values, and no expression.
                continue
            term = _term(expressions, loaded, field)
            literal = _literal(value)
            if literal is None and value is not None:
                return None
            test = (
                expressions.isNull(term) if value is None else expressions.equal(term, literal)
            )
            one = getattr(expressions, "and")(one, test)
        chosen = getattr(expressions, "or")(chosen, one)
    return chosen


def _term(expressions: Any, loaded: Any, field: Any) -> Any:
    name = loaded.schema().findColumnName(field.sourceId())
    transform = str(field.transform().toString())
    if transform == "identity":
        return expressions.ref(name)
    return expressions.transform(name, field.transform())


def _literal(value: object) -> object:
    """Return a value as Java's expressions take it; None: not this one."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH).days
    return None
