"""Lists the fixture plug-ins; each is one concern."""

import gc

import pytest
from hypothesis import settings

# By default an example that takes 0.2 s is a failure: on a busy machine that is the machine's.
settings.register_profile("other", deadline=None)
# The same examples each time, so that what a change is refused for is of that change. `make soak` looks for others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

# Their asserts say what they compared, as those of tests do.
pytest.register_assert_rewrite("tests.harness")


def pytest_collection_finish() -> None:
    """A fifth of the processor time of unit tests was collecting what was loaded before them, again and again."""
    gc.collect()
    gc.freeze()


# One that imports from another stands below it: pytest rewrites a plug-in's asserts when it first loads it.
pytest_plugins = [
    "pytester",
    "tests.fixtures.certificates",
    "tests.fixtures.cold",
    "tests.fixtures.duck",
    "tests.fixtures.engine",
    "tests.fixtures.exact",
    "tests.fixtures.fake_broker",
    "tests.fixtures.flaky",
    "tests.fixtures.jdbc",
    "tests.fixtures.kafka",
    "tests.fixtures.log",
    "tests.fixtures.object_store",
    "tests.fixtures.oidc",
    "tests.fixtures.postgresql",
    "tests.fixtures.debezium",
    "tests.fixtures.guarded_kafka",
    "tests.fixtures.rest_catalog",
    "tests.fixtures.schema_registry",
    "tests.fixtures.live_harness",
    "tests.fixtures.catalog_on_s3",
    "tests.fixtures.spark",
    "tests.fixtures.tiering",
    "tests.fixtures.server",
    "tests.fixtures.soak_results",
    "tests.fixtures.live",
    "tests.fixtures.live_rest",
    "tests.fixtures.flink",
    "tests.fixtures.engines",
    "tests.fixtures.trino",
    "tests.fixtures.commands",
    "tests.fixtures.toolchains",
    "tests.fixtures.verification",
    "tests.fixtures.permissions",
    "tests.fixtures.priority",
    "tests.fixtures.order",
    "tests.fixtures.workers",
]
