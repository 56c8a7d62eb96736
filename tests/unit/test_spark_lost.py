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
from planner.errors import BadConfig, InternalError, Unavailable
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
