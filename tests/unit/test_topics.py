"""Topics of several clusters, by their addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.kafka.admin import is_compacted
from connectors.kafka.clusters import KafkaClusters
from connectors.kafka.samples import sample
from planner.errors import BadBinding, BadConfig, ClusterChanged, LogUnavailable
from planner.names import by_cluster, cluster_of, topic_address, topic_name
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import cold_cut, plan_cut
from planner.seam.freshness import parse_wait_for
from planner.seam.watermark import format_watermark, parse_watermark
from tests.harness.builders import bounds, pin, watermark

BROKER = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("cluster", "address"), [("", "net.flows"), ("plant", "plant/net.flows")]
)
def test_an_address_is_taken_apart_as_it_was_made(cluster: str, address: str) -> None:
    assert topic_address(cluster, "net.flows") == address
    assert (cluster_of(address), topic_name(address)) == (cluster, "net.flows")


def test_addresses_are_grouped_by_cluster_in_their_order() -> None:
    assert by_cluster(["b", "plant/b", "a", "plant/a"]) == {
        "": ["b", "a"],
        "plant": ["plant/b", "plant/a"],
    }


def test_a_watermark_s_text_does_not_hold_the_name_of_its_cluster() -> None:
    """It is a name in one installation's settings; the text has the cluster's own id."""
    mark = watermark(9)
    elsewhere = replace(mark, kafka="plant")
    assert format_watermark(elsewhere) == format_watermark(mark)
    assert parse_watermark(format_watermark(elsewhere)) == mark == elsewhere
    assert elsewhere.same_position(mark)
    assert (mark.address, elsewhere.address) == ("flows", "plant/flows")


def test_a_cut_names_the_log_by_its_address() -> None:
    table = pin(0)
    assert table.watermark is not None
    there = replace(table, watermark=replace(table.watermark, kafka="plant"))
    measured = replace(bounds((0, 9)), topic="plant/flows")
    for cut in (plan_cut(there, measured), cold_cut(there)):
        assert cut.hot is not None
        assert cut.hot.topic == "plant/flows"
    with pytest.raises(ClusterChanged):
        plan_cut(there, replace(measured, cluster_id="another"))
    with pytest.raises(BadBinding, match="names topic orders, but"):
        plan_cut(there, replace(measured, topic="plant/orders"))


def test_records_to_wait_for_are_named_by_address() -> None:
    waits = parse_wait_for("flows/0:3,plant/flows/1:4")
    assert {topic: vector.as_dict() for topic, vector in waits.items()} == {
        "flows": {0: 4},
        "plant/flows": {1: 5},
    }


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("flows", r"topic flows cannot be read: the server has no \[kafka\] settings"),
        (
            "mine/flows",
            r"topic mine/flows cannot be read: the settings have no \[kafka_clusters.mine\]",
        ),
    ],
)
def test_a_topic_of_a_cluster_without_settings_is_refused_by_name(
    topic: str, words: str
) -> None:
    clusters = {"plant": BROKER}
    span = OffsetRange(0, 0, 1)
    with KafkaClusters(clusters) as log:
        for work in (
            lambda: log.measure(["plant/flows", topic]),
            lambda: log.fetch(TopicSource(topic), [span], timeout_s=1),
            lambda: log.follow(TopicSource(topic), {}),
            lambda: is_compacted(clusters, topic),
            lambda: sample(clusters, {topic: (span,)}, timeout_s=1),
        ):
            with pytest.raises(LogUnavailable, match=words):
                work()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (
            {"client.id": "x"},
            r"^\[kafka_clusters.plant\]: .*missing; set it in this section\.$",
        ),
        (
            {**BROKER, "isolation.level": "x"},
            r"^\[kafka_clusters.plant\]: the Kafka property iso",
        ),
    ],
)
def test_a_mistake_in_a_cluster_s_properties_names_its_section(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(BadConfig, match=words):
        KafkaClusters({"": BROKER, "plant": properties})
