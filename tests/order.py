"""The order of the files: what takes longest begins first, or one worker waits at the end for the other."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Longest first; of two neighbours one is mostly processes of its own (brokers, Spark, servers), one is not.
#: What is not named takes less than half a minute.
FIRST = (
    "tests/chaos/test_kills.py",
    "tests/rules/test_each_rule_bites.py",
    "tests/chaos/test_rivals.py",
    "tests/properties/test_doubles_machine.py",
    "tests/integration/test_tier_command.py",
    "tests/integration/test_spark_foreign.py",
    "tests/integration/test_spark_processes.py",
    "tests/integration/test_invariance.py",
    "tests/integration/test_demo.py",
    "tests/integration/test_replicas.py",
    "tests/docs/test_examples.py",
    "tests/properties/test_seam_machine.py",
    "tests/integration/test_end_to_end_commands.py",
    "tests/contract/test_tiering_target.py",
    "tests/integration/test_spark_cluster.py",
    "tests/chaos/test_backfill.py",
    "tests/integration/test_doctor.py",
    "tests/integration/test_bad_input.py",
    "tests/packaging/test_wheel.py",
    "tests/integration/test_supervisor.py",
    "tests/integration/test_demo_files.py",
    "tests/integration/test_spark_tiering.py",
    "tests/protocol/test_attacks.py",
    "tests/properties/test_decoding.py",
    "tests/integration/test_landlock.py",
    "tests/integration/test_status.py",
    "tests/unit/test_exact.py",
    "tests/unit/test_statement_rewrite.py",
    "tests/unit/test_names.py",
    "tests/unit/test_tail.py",
    "tests/unit/test_patterns.py",
    "tests/unit/test_decoding_json.py",
    "tests/unit/test_tail_packing.py",
    "tests/unit/test_tail_followers.py",
)
_RANKS = {ROOT / name: rank for rank, name in enumerate(FIRST)}


# Last, so that only what comes in no order here is in the order of chance.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if gone := [str(path) for path in _RANKS if not path.exists()]:
        raise pytest.UsageError(f"tests/order.py names {', '.join(gone)}, which is gone.")
    items.sort(key=lambda item: _RANKS.get(item.path, len(_RANKS)))
