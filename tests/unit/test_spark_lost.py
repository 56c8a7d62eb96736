"""A JVM that is gone, in words: what the gateway raises then, and a stop that has nothing left to stop."""

from __future__ import annotations

import warnings
from typing import cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connectors.spark.errors import SparkLost, java_errors, statement_errors
from connectors.spark.session import check_alive, stop_session
from planner.errors import BadBinding, BadConfig, InternalError, Unavailable
from tests.harness.builders import FLOWS

GONE = [
    ConnectionRefusedError(111, "Connection refused"),
    BrokenPipeError(32, "Broken pipe"),
    Py4JNetworkError("Answer from Java side is empty"),
]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_gateway_that_does_not_answer_is_no_bug(error: Exception) -> None:
    with pytest.raises(SparkLost) as caught, java_errors(FLOWS):
        raise error
    assert isinstance(caught.value, Unavailable)
    assert caught.value.message == f"{FLOWS}: Spark does not answer; try again."


def test_what_java_says_otherwise_is_translated_as_before() -> None:
    with pytest.raises(InternalError, match="failed inside Spark"), java_errors(FLOWS):
        raise Py4JError("An error occurred")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("ModuleNotFoundError: No module named 'pyarrow'", "has no module pyarrow"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker", "is of another version"),
    ],
)
def test_executors_that_lack_our_environment_are_named(words: str, what: str) -> None:
    with pytest.raises(BadConfig, match=what) as caught, java_errors(FLOWS):
        raise PySparkException(f"Job aborted: Task 0 lost: Traceback\n  File\n{words}\n")
    assert "tier.environment" in caught.value.message
    with pytest.raises(BadConfig, match=r"spark\.archives"), statement_errors():
        raise PySparkException(words)


APART = """java.lang.IllegalStateException: Incoming records violate the writer assumption that records are clustered by \
spec and by partition within each spec. Either cluster the incoming records or switch to fanout writers.
Encountered records that belong to already closed files:
partition 'd=-0.0/a: b_bucket=3' in spec [
  1000: d: identity(4)
  1001: a: b_bucket: bucket[4](5)
]
\tat org.apache.iceberg.io.ClusteredWriter.write(ClusteredWriter.java:103)"""


def test_rows_that_come_apart_are_named_by_their_fields() -> None:
    with pytest.raises(InternalError) as caught, java_errors(FLOWS):
        raise PySparkException(APART)
    assert caught.value.message == (
        f"{FLOWS}: Iceberg's writer got the rows of a partition (d, a: b_bucket) apart, as it will again; report it, and "
        f"drop the partition field whose values Spark sorts in another way (ALTER TABLE ... DROP PARTITION FIELD ...). "
        f"Then the table is tiered again."
    )


def test_a_decimal_that_cannot_be_wider_has_one_way_out() -> None:
    words = "IllegalArgumentException: Cannot write value as decimal(38,6), too large: -1E32"
    with (
        pytest.raises(BadBinding, match=r"its row; drop the partition field"),
        java_errors(FLOWS),
    ):
        raise PySparkException(words)


class Dead:
    """A session whose JVM was killed."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def sparkContext(self) -> object:
        raise self._error

    def stop(self) -> None:
        warnings.warn(
            "Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1
        )
        raise self._error


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_dead_session_says_so_and_stops_without_a_word(error: Exception) -> None:
    session = cast("SparkSession", Dead(error))
    with pytest.raises(SparkLost, match="Spark has ended under the tierer; start it again"):
        check_alive(session)
    with warnings.catch_warnings(record=True) as said:
        stop_session(session)
    assert not said
