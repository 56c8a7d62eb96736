"""``mapInArrow`` without its demand that pandas be installed, which nothing of ours uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """Run ``function`` over the column ``id`` of ``rows``, on executors."""
    if not hasattr(rows, "_jdf"):
        return rows.mapInArrow(
            function, schema
        )  # Spark Connect, whose client needs pandas anyway
    # pyspark 4.1, sql/pandas/map_ops.py.
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    column = UserDefinedFunction(function, schema, evalType=kind)(rows["id"])
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
