"""``thermocline create``: an Iceberg table bound to a topic, with its first watermark."""

from __future__ import annotations

import itertools
import uuid

import click

from connectors.iceberg.create import create_table
from connectors.json.infer import infer_columns
from connectors.kafka.clusters import KafkaClusters
from planner.binding import Binding
from planner.cut import LogBounds
from planner.errors import BadConfig
from planner.names import KAFKA_HEADERS, KAFKA_KEY, KAFKA_VALUE, TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import Log, TopicSource
from planner.schema import METADATA_TYPES, Column
from planner.topics import cluster_of, topic_address, topic_name
from planner.typetext import parse_type
from planner.watermark import Watermark
from thermocline.config.settings import load

#: Newest records of each partition that ``--infer`` looks at.
SAMPLES_PER_PARTITION = 500
SAMPLE_TIMEOUT_S = 30.0


@click.command(
    epilog="Example: thermocline create lake.net.flows --topic flows --column src:string "
    "--column bytes:long --column seen:timestamptz --epoch seen=ms --partition-by 'day(kafka_timestamp)'"
)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option("--topic", required=True, help="The Kafka topic whose records become rows.")
@click.option(
    "--kafka",
    default="",
    metavar="NAME",
    help="The topic's cluster, of [kafka_clusters.NAME]; default: that of [kafka].",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME:TYPE",
    help="A column, in Iceberg's spelling of types.",
)
@click.option("--infer", is_flag=True, help="Take the columns from the topic's newest records.")
@click.option(
    "--epoch",
    "epochs",
    multiple=True,
    metavar="NAME=s|ms|us|ns",
    help="Numbers of this column are times.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="TERM",
    help="day(x), hour(x), bucket(16, x), truncate(8, x), x.",
)
@click.option("--sort-by", multiple=True, metavar="TERM", help="Order of rows inside a file.")
@click.option("--on-error", type=click.Choice(["fail", "null", "skip"]), default="fail", show_default=True,
              help="What a record that does not decode becomes.")  # fmt: skip
@click.option(
    "--json-mode", type=click.Choice(["strict", "lenient"]), default="strict", show_default=True
)
@click.option("--with-key", is_flag=True, help="Keep the record's key as column kafka_key.")
@click.option(
    "--with-headers", is_flag=True, help="Keep the record's headers as column kafka_headers."
)
@click.option("--comment", help="Description of the table.")
@click.pass_obj
def command(
    config: str | None,
    table: str,
    topic: str,
    kafka: str,
    columns: tuple[str, ...],
    infer: bool,
    epochs: tuple[str, ...],
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    on_error: str,
    json_mode: str,
    with_key: bool,
    with_headers: bool,
    comment: str | None,
) -> None:
    """Create an Iceberg table bound to a Kafka topic.

    The first watermark is where the topic's log starts now: everything it retains belongs to the table.
    """
    settings = load(config).require_catalogs()
    name = TableName.parse(table)
    if infer == bool(columns):
        raise BadConfig("give either --column or --infer, and not both.")
    parsed = tuple(_column(i, text) for i, text in enumerate(columns))
    if cluster_of(topic):
        raise BadConfig(
            f"--topic {topic!r} is not a name a Kafka topic can have; a cluster is named with --kafka {cluster_of(topic)}."
        )
    address = topic_address(kafka, topic)
    with KafkaClusters(settings.require_clusters()) as log:
        bounds = log.measure([address])[address]
        if infer:
            parsed = _infer(log, bounds)
    payload = _with_epochs(parsed, epochs)
    extra = [KAFKA_KEY] * with_key + [KAFKA_HEADERS] * with_headers
    binding = Binding(topic=topic, on_error=on_error, json_mode=json_mode, kafka=kafka)  # type: ignore[arg-type]
    first = create_table(
        settings.catalogs,
        name,
        [*(Column(0, key, METADATA_TYPES[key]) for key in extra), *payload],
        binding,
        first_watermark(bounds, binding),
        partition_by=partition_by,
        sort_by=sort_by,
        comment=comment,
    )
    starts = ", ".join(f"{partition}: {offset}" for partition, offset in first.next)
    click.echo(f"created {name} over topic {address}; it starts at offsets {starts}")
    for column in payload:
        click.echo(f"  {column.name}  {column.type}")


def first_watermark(bounds: LogBounds, binding: Binding) -> Watermark:
    """The watermark of a table that holds nothing yet: the log start of every partition."""
    return Watermark(
        cluster_id=bounds.cluster_id,
        topic=topic_name(bounds.topic),
        topic_id=bounds.topic_id,
        next=OffsetVector.of((part.partition, part.log_start) for part in bounds.partitions),
        epochs=bounds.epochs,
        shape=binding.shape,
        run=str(uuid.uuid4()),
    )


def _infer(log: Log, bounds: LogBounds) -> tuple[Column, ...]:
    ranges = [
        OffsetRange(
            part.partition,
            max(part.log_start, part.log_end - SAMPLES_PER_PARTITION),
            part.log_end,
        )
        for part in bounds.partitions
    ]
    batches = log.fetch(TopicSource(bounds.topic), ranges, timeout_s=SAMPLE_TIMEOUT_S)
    samples = list(
        itertools.chain.from_iterable(
            batch[KAFKA_VALUE].drop_null().to_pylist() for batch in batches
        )
    )
    if not samples:
        raise BadConfig(
            f"topic {bounds.topic} holds no record to infer columns from; give them with --column.",
            topic=bounds.topic,
        )
    return infer_columns(samples)


def _column(index: int, text: str) -> Column:
    name, colon, kind = text.partition(":")
    if not (name and colon and kind):
        raise BadConfig(f"--column {text!r} is not NAME:TYPE.", column=text)
    return Column(index + 1, name, parse_type(kind))


def _with_epochs(columns: tuple[Column, ...], epochs: tuple[str, ...]) -> tuple[Column, ...]:
    units = dict(text.partition("=")[::2] for text in epochs)
    names = {column.name for column in columns}
    for name, unit in units.items():
        if name not in names or unit not in ("s", "ms", "us", "ns"):
            raise BadConfig(
                f"--epoch {name}={unit}: it must be a column and one of s, ms, us, ns.",
                column=name,
            )
    return tuple(
        Column(column.field_id, column.name, column.type, epoch_unit=units.get(column.name))  # type: ignore[arg-type]
        for column in columns
    )
