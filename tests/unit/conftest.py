"""Saves what a worker of pytest-xdist has covered while its session ends: it is killed ten seconds after that, busy machine or not."""

from coverage import Coverage


def pytest_sessionfinish() -> None:
    if measuring := Coverage.current():
        measuring.stop()
        measuring.save()
