"""A schema registry: schemas by id and by subject, each id asked for once in a process for a table.

What it says of ids is kept as long as the process lives, so statements over these go on while it is away. That it does not
answer is never kept, and neither is for ever that it does not know an id: such an id may come to life. Each table asks by a
memory of its own (``SchemaRegistry.without_memory``).
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from cachetools import TTLCache

from connectors.registry.http import RegistryHttp
from connectors.registry.options import UNKNOWN_ID_GRACE_S
from connectors.registry.texts import (
    Answer,
    Entry,
    Reference,
    UnknownSchema,
    UnusableSchema,
    WriterText,
    resolved,
)
from planner.errors import BadConfig, SchemaRegistryUnavailable

#: How often an id is asked for that the registry does not know yet.
_ASK_AGAIN_S = 1.0
#: Ids that are remembered as unknown; records that are not Avro have as many as there are records.
_MAX_UNKNOWN = 10_000
#: How long after its last request, and the grace time, an id is as if it had never been asked for.
_FORGOTTEN_AFTER_S = 60.0

#: Statuses by which a registry says that it does not take a request.
_NO_SUCH_REQUEST = (404, 405, 501)

#: Subjects and versions of an id; None: the registry cannot say.
Subjects = tuple[tuple[str, int], ...] | UnknownSchema | None


@dataclass(frozen=True, slots=True)
class _Missing:
    """An id that the registry does not know, by the clock: since when, and when it is asked for again."""

    answer: UnknownSchema
    since: float
    ask_again: float


class SchemaRegistry:
    """One registry. Thread-safe. Every call ends within its ``timeout_s``, but for the OAuth token's own request.

    Every call raises:
        SchemaRegistryUnavailable: no answer in time. Retry.
        BadConfig: wrong login or certificate, or what answers is no registry.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        name: str = "",
        unknown_id_grace_s: float = UNKNOWN_ID_GRACE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``options`` are confluent's; no registry needs to answer yet.

        Raises:
            BadConfig: an option, or the content of a file.
        """
        self._grace_s = unknown_id_grace_s
        self._clock, self._sleep = clock, sleep
        self._http = RegistryHttp(options, name, clock=clock, sleep=sleep)
        #: By subject, the numbers of its versions, and when they were asked for: soon asked for again, so for all tables.
        self._versions: dict[str, tuple[float, tuple[int, ...] | None]] = {}
        self._begin_memory()

    def _begin_memory(self) -> None:
        self._texts: dict[int, WriterText | UnusableSchema] = {}
        self._missing: TTLCache[int, _Missing] = TTLCache(
            _MAX_UNKNOWN, self._grace_s + _FORGOTTEN_AFTER_S, timer=self._clock
        )
        self._version_ids: dict[tuple[str, int], int] = {}
        self._subjects: dict[int, tuple[float, Subjects]] = {}
        self._running: set[int] = set()
        self._changed = threading.Condition()

    def without_memory(self) -> SchemaRegistry:
        """Return the same registry as if it had not been asked yet. Closing one closes both."""
        other = copy.copy(self)
        other._begin_memory()
        return other

    def by_ids(
        self,
        ids: Iterable[int],
        *,
        timeout_s: float,
        anew: bool = False,
        waits: bool = True,
    ) -> dict[int, Answer]:
        """Return the schemas of these ids.

        One that the registry does not know is asked for again until the grace time since the first such answer is over;
        all ids wait at the same time. After that it is answered as unknown, and asked for once in a grace time; one that
        no call wanted for a minute begins anew. ``anew``: unknown ones are asked for now. Unless it ``waits``, one that the
        registry does not know is answered as unknown at once.

        Raises:
            SchemaRegistryUnavailable: also where ``timeout_s`` ends before the grace time does.
        """
        end = self._clock() + timeout_s
        answers: dict[int, Answer] = {}
        open_ids = sorted(set(ids))
        while True:
            for schema_id in open_ids:
                answer = self._one(schema_id, end, anew=anew, waits=waits)
                if answer is not None:
                    answers[schema_id] = answer
            open_ids = [schema_id for schema_id in open_ids if schema_id not in answers]
            if not open_ids:
                return answers
            if end - self._clock() <= _ASK_AGAIN_S:
                ids_text = ", ".join(map(str, open_ids[:5]))
                raise SchemaRegistryUnavailable(
                    f"{self._http.who} does not know schema id {ids_text} yet; retry in {self._grace_s:g} s.",
                    schema_ids=tuple(open_ids),
                )
            self._sleep(_ASK_AGAIN_S)

    def by_subject(self, subject: str, version: int, *, timeout_s: float) -> Answer:
        """Return one version of a subject, also where it was deleted softly. Its id is the answer's."""
        end = self._clock() + timeout_s
        entry = self._version(subject, version, end)
        if entry is None:
            return UnknownSchema(f"subject {subject}, version {version}")
        if entry.id is None:
            raise self._strange("a version with its id")
        # One text has one id in all subjects, and one with other references another: the answer for the id is this one.
        return self._texts.get(entry.id) or resolved(entry.id, entry, self._lookup(end))

    def versions(
        self, subject: str, *, timeout_s: float, max_age_s: float = 0.0
    ) -> dict[int, int] | UnknownSchema:
        """Return the ids of a subject's versions, without those that were deleted: one request, and one for each new one.

        ``max_age_s``: how old a list of versions may be that is answered without a request.
        """
        end = self._clock() + timeout_s
        since_s, numbers = self._versions.get(subject, (-math.inf, None))
        if self._clock() - since_s >= max_age_s:
            since_s = self._clock()
            numbers = self._numbers(subject, timeout_s)
            self._versions[subject] = (since_s, numbers)
        if numbers is None:
            return UnknownSchema(f"subject {subject}")
        ids = {}
        for version in numbers:
            if (subject, version) not in self._version_ids:
                entry = self._entry(f"{_path(subject)}/versions/{version}", {}, end)
                if entry is None:  # deleted since
                    continue
                if entry.id is None:
                    raise self._strange("a version with its id")
                self._version_ids[subject, version] = entry.id
            ids[version] = self._version_ids[subject, version]
        return ids

    def _numbers(self, subject: str, timeout_s: float) -> tuple[int, ...] | None:
        answer = self._http.get(f"{_path(subject)}/versions", timeout_s=timeout_s)
        if answer is None:
            return None
        if not isinstance(answer, list) or not all(isinstance(item, int) for item in answer):
            raise self._strange("a list of versions")
        return tuple(answer)

    def subject_versions_of(
        self, schema_id: int, *, timeout_s: float, max_age_s: float = 0.0
    ) -> Subjects:
        """Return the subjects and versions that an id is registered as, sorted; None from a registry that cannot say.

        ``max_age_s`` as for ``versions``; an unknown id is asked for at once.
        """
        since_s, subjects = self._subjects.get(schema_id, (-math.inf, None))
        if self._clock() - since_s >= max_age_s:
            since_s = self._clock()
            subjects = self._subjects_of(schema_id, timeout_s)
            if not isinstance(subjects, UnknownSchema):
                self._subjects[schema_id] = (since_s, subjects)
        return subjects

    def _subjects_of(self, schema_id: int, timeout_s: float) -> Subjects:
        try:
            answer = self._http.get(f"schemas/ids/{schema_id}/versions", timeout_s=timeout_s)
        except BadConfig as error:
            if error.facts.get("status") in _NO_SUCH_REQUEST:
                return None
            raise
        if answer is None:
            return UnknownSchema(f"schema id {schema_id}")
        pairs = []
        for item in answer if isinstance(answer, list) else (answer,):
            match item:
                case {"subject": str(subject), "version": int(version)}:
                    pairs.append((subject, version))
                case _:
                    raise self._strange("a list of subjects and versions")
        return tuple(sorted(pairs))

    def subjects(self, *, timeout_s: float) -> tuple[str, ...]:
        """Return the names of all subjects that were not deleted."""
        answer = self._http.get("subjects", timeout_s=timeout_s)
        if not isinstance(answer, list) or not all(isinstance(item, str) for item in answer):
            raise self._strange("a list of subjects")
        return tuple(answer)

    @property
    def counts(self) -> tuple[int, int]:
        """Requests, and those of them that failed."""
        return self._http.requests, self._http.failures

    @property
    def silent_s(self) -> float:
        """Seconds since the last answer; before the first, since this was made."""
        return self._http.silent_s

    def close(self) -> None:
        """Close connections; what is known stays."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, schema_id: int, end: float, *, anew: bool, waits: bool) -> Answer | None:
        """Return what is known of an id, or ask once; None while it ``waits`` for the grace time of an unknown one."""
        with self._alone(schema_id, end):
            text = self._texts.get(schema_id)
            if text is not None:
                return text
            with self._changed:  # a cache changes when it is read
                missing = self._missing.get(schema_id)
            if missing is None or anew or self._clock() >= missing.ask_again:
                answer = self._ask(schema_id, end)
                if not isinstance(answer, UnknownSchema):
                    self._texts[schema_id] = answer
                    return answer
                now = self._clock()
                since = now if missing is None else missing.since
                wait = self._grace_s if now - since >= self._grace_s else _ASK_AGAIN_S
                missing = _Missing(answer, since, now + wait)
                with self._changed:
                    self._missing[schema_id] = missing
            is_over = self._clock() - missing.since >= self._grace_s
            return missing.answer if is_over or not waits else None

    @contextlib.contextmanager
    def _alone(self, schema_id: int, end: float) -> Iterator[None]:
        """Let one thread ask for an id at one time."""
        with self._changed:
            left = max(0.0, end - self._clock())
            if not self._changed.wait_for(lambda: schema_id not in self._running, left):
                raise self._http.unavailable("did not answer in time")
            self._running.add(schema_id)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(schema_id)
                self._changed.notify_all()

    def _ask(self, schema_id: int, end: float) -> Answer:
        entry = self._entry(f"schemas/ids/{schema_id}", {}, end)
        if entry is None:
            return UnknownSchema(f"schema id {schema_id}")
        return resolved(schema_id, entry, self._lookup(end))

    def _lookup(self, end: float) -> Callable[[Reference], Entry | None]:
        return lambda reference: self._version(reference.subject, reference.version, end)

    def _version(self, subject: str, version: int, end: float) -> Entry | None:
        """Return a version, also one that was deleted softly."""
        return self._entry(f"{_path(subject)}/versions/{version}", {"deleted": "true"}, end)

    def _entry(self, path: str, query: Mapping[str, str], end: float) -> Entry | None:
        answer = self._http.get(path, query, timeout_s=max(0.0, end - self._clock()))
        try:
            return None if answer is None else Entry.of(answer)
        except ValueError:
            raise self._strange("a schema") from None

    def _strange(self, what: str) -> BadConfig:
        return self._http.strange(f"answered JSON that is not {what}")


def _path(subject: str) -> str:
    return f"subjects/{quote(subject, safe='')}"
