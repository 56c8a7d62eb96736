"""DuckDB's extensions, from the wheels installed beside it: nothing is ever downloaded."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import duckdb

from planner.errors import BadConfig
from planner.sql_text import literal

AVRO = ("avro",)
#: Loaded in this order: iceberg reads its manifests with avro.
LOCAL = (*AVRO, "iceberg")
#: What storage roots like s3:// need besides.
REMOTE = ("httpfs",)


def load(connection: duckdb.DuckDBPyConnection, names: tuple[str, ...]) -> None:
    """Load extensions by file. Raises BadConfig: a wheel is missing, or built for another DuckDB."""
    for name in names:
        path = _file(name)
        try:
            connection.execute(f"LOAD {literal(str(path))}")
        except duckdb.Error as error:
            raise BadConfig(
                f"DuckDB's extension {name} does not load into DuckDB {duckdb.__version__}; install "
                f"duckdb-extension-{name}=={duckdb.__version__}.",
                extension=name,
            ) from error


def _file(name: str) -> Path:
    package = f"duckdb-extension-{name}"
    try:
        files = distribution(package).files or ()
    except PackageNotFoundError as error:
        raise BadConfig(
            f"the package {package} is not installed for {sys.executable.rsplit('/', 1)[-1]}; "
            f"install {package}=={duckdb.__version__}.",
            extension=name,
        ) from error
    for file in files:
        if file.name == f"{name}.duckdb_extension":
            return Path(str(file.locate()))
    raise BadConfig(f"the package {package} holds no extension.", extension=name)
