from __future__ import annotations
import pyarrow as pa, pytest
from planner.schema import Column
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]
def test_x(kafka, live):
    topic = kafka.topic(1)
    table = live.bind(topic, (Column(0, "load", pa.float64()),))
    kafka.produce(topic, [b'{"load": "NaN"}', b'{"load": -0.0}', b'{"load": 1.5}'])
    out = []
    for _ in range(2):
        spark = live.through_spark(table)
        out.append([spark("SELECT count(*) FROM {t} WHERE load > 5"), spark("SELECT count(*) FROM {t} WHERE load = 0.0"), spark("SELECT max(load) FROM {t}"), live.ask(f"SELECT count(*) AS n FROM {table} WHERE load > 5").to_pylist()])
        live.tier(table); live.refresh(table)
    raise AssertionError(out)
