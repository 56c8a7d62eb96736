import pytest

from planner.errors import BadConfig
from planner.names import TableName


def test_a_name_reads_and_writes_alike() -> None:
    name = TableName.parse("lake.net.raw.flows")
    assert name == TableName("lake", ("net", "raw"), "flows")
    assert str(name) == "lake.net.raw.flows"
    assert name.schema == "net.raw"


@pytest.mark.parametrize(
    "text", ["", "flows", "net.flows", "lake..flows", ".net.flows", "lake.net."]
)
def test_a_name_without_its_parts_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match=r"write catalog\.namespace\.table"):
        TableName.parse(text)
