import inspect, types
import pytest
from connectors.spark.publish import changes, publish, row_delta, target as target_module
from tests.integration import test_keyed_tiering as T
from tests.integration.test_keyed_tiering import devices  # noqa

pytestmark = pytest.mark.spark

def mutate(monkeypatch, module, name, old, new):
    fn = getattr(module, name)
    src = inspect.getsource(inspect.unwrap(fn))
    assert src.count(old) == 1, (name, src.count(old))
    ns = dict(vars(module))
    exec(compile("from __future__ import annotations\n" + src.replace(old, new), "m", "exec"), ns)
    for m in (module, target_module, publish):
        if getattr(m, name, None) is fn:
            monkeypatch.setattr(m, name, ns[name])

CASES = {
    "rows_of": (publish, "decide_publish", "check_rows_of(staged.base, history, head, plan.pin.table)", "pass",
                lambda d: T.test_another_writer_between_stage_and_publish_costs_no_row(d, "update")),
    "by_time": (changes, "folded", "F.struct(*map(_named, schema.fieldNames())), offset)", "F.struct(*map(_named, schema.fieldNames())), F.col('kafka_timestamp'))",
                lambda d: T.test_every_change_has_one_outcome(d)),
    "two_parts_delete": (changes, "_delete", "AND (k.{KAFKA_PARTITION} = t.{KAFKA_PARTITION} OR {apart})", "",
                lambda d: T.test_a_key_in_two_partitions_is_no_guess(d, (1, 0))),
    "two_parts_fold": (changes, "folded", "if apart is not None:", "if False:",
                lambda d: T.test_a_key_in_two_partitions_is_no_guess(d, (0, 0))),
    "no_remove": (row_delta, "replace_staged", "update.removeDeletes(file.copy())", "pass",
                lambda d: T.test_deletes_replace_those_of_before_in_both_format_versions(d, "2")),
    "no_exist": (row_delta, "replace_staged", "update.validateDataFilesExist(files).validateDeletedFiles()", "pass",
                lambda d: T.test_another_writer_between_stage_and_publish_costs_no_row(d, "compaction")),
    "delete_u_only": (changes, "_delete", "fold.changes.select(", "fold.changes.where(F.col(KAFKA_OP)=='u').select(",
                lambda d: T.test_each_publish_leaves_the_newest_row_of_each_key(d)),
}

@pytest.mark.parametrize("name", CASES)
def test_mutation(devices, monkeypatch, name):
    module, fn, old, new, run = CASES[name]
    mutate(monkeypatch, module, fn, old, new)
    with pytest.raises(BaseException) as caught:
        run(devices)
    print("MUTATION", name, type(caught.value).__name__, str(caught.value)[:300].replace("\n", " "))
