"""Lists the fixture plug-ins; each is one concern."""

# One that imports from another stands below it: pytest rewrites a plug-in's asserts when it first loads it.
pytest_plugins = [
    "tests.fixtures.certificates",
    "tests.fixtures.cold",
    "tests.fixtures.duck",
    "tests.fixtures.engine",
    "tests.fixtures.exact",
    "tests.fixtures.fake_broker",
    "tests.fixtures.jdbc",
    "tests.fixtures.kafka",
    "tests.fixtures.log",
    "tests.fixtures.oidc",
    "tests.fixtures.spark",
    "tests.fixtures.tiering",
    "tests.fixtures.server",
    "tests.fixtures.toolchains",
    "tests.fixtures.verification",
    "tests.fixtures.house",
]
