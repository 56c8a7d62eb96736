"""The least rights that brokers, catalogs and stores have to give for the tables there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import urlsplit

#: Commands by what they need: ``serve``, ``sql``, ``status``, ``verify`` and ``explain`` read. ``gap``, ``skip`` and
#: ``accept`` write to the catalog and the store as ``tier`` does.
READ, TIER, CREATE = "read", "tier", "create"
_READING_TABLES = ("SELECT ON iceberg_tables", "SELECT ON iceberg_namespace_properties")


@dataclass(frozen=True, slots=True)
class Right:
    """What ``purpose`` has to be allowed ``on`` a part of a system. ``note`` says what goes on without it."""

    purpose: str
    on: str
    operations: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableAccess:
    """Where the rows of a table are: ``topic`` is None where none is bound, ``location`` is its folder."""

    topic: str | None
    location: str


def least_rights(
    catalogs: Mapping[str, Mapping[str, str]], tables: Sequence[TableAccess]
) -> list[Right]:
    """Return the rights by system: topics, catalogs, folders, each in the order of names."""
    topics = sorted({table.topic for table in tables if table.topic is not None})
    folders = sorted({(table.location, table.topic is not None) for table in tables})
    return [
        *chain.from_iterable(_of_topic(topic) for topic in topics),
        *chain.from_iterable(_of_catalog(name, catalogs[name]) for name in sorted(catalogs)),
        *chain.from_iterable(_of_folder(*folder) for folder in folders),
    ]


def _of_topic(topic: str) -> Iterator[Right]:
    """Kafka's own names of operations. No group is joined, and nothing of the cluster is asked that needs a right."""
    on = f"topic {topic}"
    for purpose in (READ, TIER):
        yield Right(purpose, on, ("Describe", "Read"))
    yield Right(READ, on, ("DescribeConfigs",), "without it verify refuses")
    yield Right(TIER, on, ("DescribeConfigs",), "without it retention is not looked at")


def _of_catalog(name: str, options: Mapping[str, str]) -> Iterator[Right]:
    on = f"catalog {name}"
    scheme = urlsplit(options.get("uri", "")).scheme.partition("+")[0]
    if scheme in ("postgresql", "postgres"):
        yield Right(READ, on, _READING_TABLES)
        yield Right(TIER, on, (*_READING_TABLES, "UPDATE ON iceberg_tables"))
        writing = ("INSERT ON iceberg_tables", "INSERT ON iceberg_namespace_properties")
        note = "the first one makes both tables, and needs CREATE on the schema"
        yield Right(CREATE, on, (*_READING_TABLES, "UPDATE ON iceberg_tables", *writing), note)
    elif scheme == "sqlite":
        yield Right(READ, on, ("read the file",))
        for purpose in (TIER, CREATE):
            yield Right(purpose, on, ("read and write the file", "write its folder"))
    else:
        reading = ("list namespaces", "list tables", "load tables")
        yield Right(READ, on, reading)
        yield Right(TIER, on, (*reading, "commit to tables"))
        making = ("create namespaces", "create tables")
        yield Right(CREATE, on, (*reading, "commit to tables", *making))


def _of_folder(location: str, is_bound: bool) -> Iterator[Right]:
    """List the rights on a folder: only bound tables' are written. Tierers delete what they staged and did not commit."""
    reading: tuple[str, ...] = ("read",)
    writing: tuple[str, ...] = ("write", "delete")
    if urlsplit(location).scheme in ("s3", "s3a", "s3n"):
        reading = ("s3:GetObject", "s3:ListBucket")
        writing = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    yield Right(READ, location, reading)
    for purpose in (TIER, CREATE) if is_bound else ():
        yield Right(purpose, location, (*reading, *writing))
