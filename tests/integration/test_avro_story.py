"""Histories of schemas on real parts: after each step SQL over Flight is what fastavro makes of every record.

Seed: ``THERMOCLINE_SEED``; how many steps: ``THERMOCLINE_SCHEMA_STEPS``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import running_schema_registry
from tests.fixtures.spark import SparkLake
from tests.harness.avro_story import STEPS, AvroStory, schedule, telling
from tests.harness.tcp_proxy import tcp_proxy

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak]

SEED = int(os.environ.get("THERMOCLINE_SEED", "43"))
COUNT = int(os.environ.get("THERMOCLINE_SCHEMA_STEPS", "1000"))
#: A story goes on for so many steps; the next one has a table of its own.
STORY_STEPS = 70


def test_every_record_is_its_row_wherever_the_watermark_is_and_whatever_the_registry_does(
    lake: SparkLake, kafka: Kafka, tmp_path: Path
) -> None:
    for number, first in enumerate(range(0, COUNT, STORY_STEPS)):
        rng = random.Random(f"{SEED} {number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        with running_schema_registry(folder) as registry, tcp_proxy() as proxy:
            story = AvroStory(rng, lake, kafka, registry, proxy)
            steps = schedule(rng, min(STORY_STEPS, COUNT - first))
            with telling(story) as tell:
                for at, step in enumerate(steps):
                    print(f"story {number}, step {at}: {step}", flush=True)
                    tell(step)
            print(dict(story.events), flush=True)
        # While the registry is away an answer may wait, by name.
        assert story.events["equal"] >= len(steps) // 3
        assert STEPS.keys() <= story.events.keys()
