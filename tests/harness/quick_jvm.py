"""Flags of the JVMs that tests start: they end before an optimising compiler has paid, and find their classes loaded.

``tests.harness.class_archive`` makes the archives, once on a machine; without one a JVM starts as ever, only slower.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Literal

import pyspark

from connectors import jars
from thermocline.demo.world import QUICK_JVM

Program = Literal["spark", "kafka"]
#: What the JVM has to say about an archive would go to the standard output of what is tested.
QUIET = "-Xlog:disable"
#: By default the whole heap is collected each time that classes have taken another step of some 20 MB.
_ROOM = "-XX:MetaspaceSize=128m"


def quick_jvm(program: Program) -> tuple[str, ...]:
    archive = archive_of(program)
    if not archive.exists():
        return (*QUICK_JVM, _ROOM)
    return (*QUICK_JVM, _ROOM, f"-XX:SharedArchiveFile={archive}", QUIET)


def archive_of(program: Program) -> Path:
    """The file in the user's cache. It is of one Java, and of jars that lie where they lay."""
    java = os.environ.get("JAVA_HOME") or str(Path(shutil.which("java") or "java").resolve())
    folder = Path(pyspark.__file__).parent / "jars"
    text = f"{java} {folder} {folder.stat().st_mtime_ns} {jars.SETS['kafka']}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return jars.cache_folder().parent / "classes" / f"{program}-{digest}.jsa"
