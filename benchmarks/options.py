"""Command line options that several benchmarks have."""

from __future__ import annotations

import click

seed = click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the records."
)
partitions = click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
partition_by = click.option(
    "--partition-by",
    multiple=True,
    metavar="TERM",
    help="Iceberg partition term, e.g. 'day(kafka_timestamp)'.",
)
