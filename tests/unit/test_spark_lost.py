"""A JVM that is gone, in words: what the gateway raises then, and a stop that has nothing left to stop."""

from __future__ import annotations

import warnings
from typing import cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from connectors.spark.errors import SparkLost, java_errors
from connectors.spark.session import check_alive, stop_session
from planner.errors import InternalError, Unavailable
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
