"""The seam of a table as a picture: per partition what is in Iceberg, and what is in Kafka alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline_client.html import safe
from thermocline_client.sql_text import side_name

if TYPE_CHECKING:
    from thermocline_client.connection import Connection

#: Of more partitions those with the longest tails.
MAX_PARTITIONS = 32
_COLD, _HOT = "#3b82f6", "#fb923c"
_BAR_CHARS = 40


@dataclass(frozen=True)
class PartitionSeam:
    """Exclusive ends: offsets below ``watermark`` are in Iceberg, from there to ``log_end`` in Kafka alone."""

    partition: int
    watermark: int
    log_end: int

    @property
    def tail(self) -> int:
        return max(0, self.log_end - self.watermark)

    @property
    def cold_percent(self) -> float:
        """A tail that is there is never less than a hundredth: it is what the picture is for."""
        if not self.tail:
            return 100.0 if self.log_end else 0.0
        return min(99.0, 100 * self.watermark / self.log_end)


@dataclass(frozen=True)
class SeamPicture:
    """What one statement saw, longest tails first."""

    table: str
    partitions: Sequence[PartitionSeam]

    @property
    def line(self) -> str:
        count = len(self.partitions)
        tail = sum(each.tail for each in self.partitions)
        said = f"{self.table}: {count:,} partition{'' if count == 1 else 's'}, {tail:,} offsets in Kafka alone"
        more = count - MAX_PARTITIONS
        return f"{said}; {more:,} shorter tails are left out" if more > 0 else said

    def __repr__(self) -> str:
        lines = [self.line]
        for each in self.partitions[:MAX_PARTITIONS]:
            cold = int(each.cold_percent * _BAR_CHARS / 100)
            bar = "█" * cold + ("░" if each.tail else " ") * (_BAR_CHARS - cold)
            lines.append(
                f"{each.partition:>6} {bar} {each.watermark:,} | {each.log_end:,} ({each.tail:,})"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return "".join(self._pieces())

    def _pieces(self) -> Iterator[str]:
        yield (
            f"<div><small>{safe(self.line)}</small><table><thead><tr><th scope='col'>partition</th>"
            "<th scope='col'>Iceberg, then Kafka</th><th scope='col'>watermark</th>"
            "<th scope='col'>log end</th><th scope='col'>tail</th></tr></thead><tbody>"
        )
        for each in self.partitions[:MAX_PARTITIONS]:
            cold = each.cold_percent
            bar = (
                f"<div aria-hidden='true' style='display:flex;width:20em;height:1em'>"
                f"<div style='width:{cold:.1f}%;background:{_COLD}'></div>"
                f"<div style='width:{100 - cold if each.tail else 0:.1f}%;background:{_HOT}'></div></div>"
            )
            numbers = (each.watermark, each.log_end, each.tail)
            cells = "".join(
                f"<td style='text-align:right'>{number:,}</td>" for number in numbers
            )
            yield f"<tr><th scope='row'>{each.partition}</th><td>{bar}</td>{cells}</tr>"
        yield "</tbody></table></div>"


def seam_of(connection: Connection, table: str) -> SeamPicture:
    """Ask for the seam of a table as SQL names it, in one cut.

    Raises:
        ValueError: it is no name of a table.
        AnswerError: as ``Connection.ask``; under a row filter a table has no seam to see.
    """
    name = side_name(table, "seam")
    if name is None:
        raise ValueError(
            f"{table!r} is not a table's name; write it as in SQL, lake.net.flows."
        )
    sql = f"SELECT kafka_partition, watermark, log_end FROM {name}"  # noqa: S608 - a quoted name
    rows = connection.ask(sql).arrow().to_pylist()
    each = [
        PartitionSeam(row["kafka_partition"], row["watermark"], row["log_end"]) for row in rows
    ]
    return SeamPicture(table, sorted(each, key=lambda one: (-one.tail, one.partition)))
