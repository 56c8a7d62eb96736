"""``thermocline tier --once`` as a process, with properties of a catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from planner.names import TableName
from tests.fixtures.kafka import Kafka


def tiered(
    properties: Mapping[str, str], kafka: Kafka, folder: Path, table: TableName
) -> subprocess.CompletedProcess[str]:
    """Tier what there is of one table; the settings stay in ``folder``."""
    config = folder / "thermocline.toml"
    lake = "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in properties.items())
    config.write_text(
        f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        '[tier]\nmaster = "local[2]"\ndriver_memory = "512m"\n'
    )
    return subprocess.run(
        [sys.executable, "-m", "thermocline", "--config", config, "tier", "--once", str(table)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
