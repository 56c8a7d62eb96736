"""Tables that a version before ISO 8601's short times created: each is tiered on, or named with its way out."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.store import IcebergStore
from connectors.repairs import moving_shape
from planner.errors import BadParameter, ShapeMismatch
from planner.names import TableName
from planner.seam.watermark import Outcomes
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.publish import advance
from tests.compatibility.policies import MODES, PAYLOADS, POLICIES, properties
from tests.harness.builders import bounds
from tests.harness.earlier_version import unpack
from tests.harness.forked_python import plain_python

OLD = "e9728f6"
LOG = bounds((0, 5))
#: Where a bad record of then may be a row of today: it was skipped, or it is a row of NULLs.
MOVES = {
    f"{policy}_strict_{name}" for policy in ("null", "skip") for name in ("text", "nested")
}
NAMES = ["_".join(each) for each in itertools.product(POLICIES, MODES, PAYLOADS)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    old, root = (
        unpack(OLD, tmp_path_factory.mktemp("old")),
        str(tmp_path_factory.mktemp("lake")),
    )
    script = Path(__file__).with_name("policies.py")
    done = subprocess.run(
        [sys.executable, script, old, root],
        cwd=old,
        env={**plain_python(), "PYTHONPATH": str(old)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_before_is_tiered_without_a_word_or_moved_on_purpose(
    name: str, lake: str
) -> None:
    table = TableName("lake", ("net",), name)
    catalogs = properties(lake)
    with (
        contextlib.closing(IcebergStore(catalogs)) as store,
        contextlib.closing(IcebergRepairCommitter(catalogs)) as committer,
    ):
        pin = store.pin(table)
        assert pin.watermark is not None
        assert pin.binding is not None
        if name in MOVES:
            with pytest.raises(ShapeMismatch, match=f"`thermocline shape accept {table}`"):
                plan_tiering(pin, LOG, TieringBudget())
            moved = committer.amend(table, moving_shape(pin))
            assert moved.shape == pin.binding.shape != pin.watermark.shape
            assert (moved.next, moved.prev_snapshot_id) == (pin.watermark.next, pin.snapshot_id)
            pin = store.pin(table)
        plan = plan_tiering(pin, LOG, TieringBudget())
        after = advance(plan, Outcomes(rows=5), run="new", head=1)
        assert after.next.as_dict() == {0: 5}
        if name.startswith("fail") or "lenient" in name:
            # The older program goes on with the table, too.
            assert after.shape == store.pin(table).watermark.shape  # type: ignore[union-attr]
        with pytest.raises(BadParameter, match="there is nothing to accept"):
            committer.amend(table, moving_shape(pin))
