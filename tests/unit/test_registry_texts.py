"""What a registry says of a schema, put together with what it refers to; and the bounds that hold before parsing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connectors.registry.texts import (
    MAX_REFERENCES,
    MAX_TEXT_BYTES,
    Entry,
    Reference,
    UnknownSchema,
    UnusableSchema,
    WriterText,
    resolved,
)


def entry(text: str, *targets: tuple[str, str, int], kind: str = "AVRO") -> Entry:
    return Entry(text, kind, tuple(Reference(*target) for target in targets))


def of(root: Entry, entries: Mapping[tuple[str, int], Entry]) -> object:
    """What becomes of schema id 7; ``entries`` are by subject and version, and each is looked up once."""
    rest = dict(entries)
    lookups: list[Reference] = []

    def lookup(reference: Reference) -> Entry | None:
        target = (reference.subject, reference.version)
        assert target not in [(each.subject, each.version) for each in lookups]
        lookups.append(reference)
        return rest.get(target)

    return resolved(7, root, lookup)


def test_references_come_behind_those_that_they_need() -> None:
    root = entry("root", ("Top", "t", 2), ("Leaf", "l", 1), ("Other", "o", 1))
    entries = {
        ("t", 2): entry("top", ("Middle", "m", 4), ("Leaf", "l", 1)),
        ("m", 4): entry("middle", ("Leaf", "l", 1)),
        ("l", 1): entry("leaf"),
        ("o", 1): entry("other", ("Leaf", "l", 1)),
    }
    answer = of(root, entries)
    texts = {"Leaf": "leaf", "Middle": "middle", "Top": "top", "Other": "other"}
    assert answer == WriterText(7, "root", texts, "AVRO")
    assert isinstance(answer, WriterText)
    assert list(answer.references) == list(texts)


def test_one_name_for_one_text_under_two_versions_is_one_reference() -> None:
    root = entry("root", ("a", "s", 1), ("a", "s", 2))
    entries = {("s", 1): entry("text"), ("s", 2): entry("text")}
    assert of(root, entries) == WriterText(7, "root", {"a": "text"}, "AVRO")


def row(length: int) -> dict[tuple[str, int], Entry]:
    """Schemas of which each refers to the next one, and the last one to none."""
    return {
        ("s", at): entry("x", *([(f"n{at + 1}", "s", at + 1)] if at < length else []))
        for at in range(1, length + 1)
    }


def test_a_row_of_references_up_to_the_bound_is_followed() -> None:
    answer = of(entry("x", ("n1", "s", 1)), row(MAX_REFERENCES))
    assert isinstance(answer, WriterText)
    assert list(answer.references) == [f"n{at}" for at in range(MAX_REFERENCES, 0, -1)]


HALF = "ü" * (MAX_TEXT_BYTES // 4)


@pytest.mark.parametrize(
    ("root", "entries", "why"),
    [
        (
            entry("x", ("n1", "s", 1)),
            row(MAX_REFERENCES + 1),
            f"it refers to more than {MAX_REFERENCES} schemas",
        ),
        (
            entry("a", ("b", "b", 1)),
            {("b", 1): entry("b", ("c", "c", 3)), ("c", 3): entry("c", ("b2", "b", 1))},
            "it refers in a circle, through subject b, version 1",
        ),
        (entry("x" * (MAX_TEXT_BYTES + 1)), {}, "it has more than 1,048,576 bytes"),
        (
            entry(HALF, ("a", "a", 1), ("b", "b", 1)),
            {("a", 1): entry(HALF), ("b", 1): entry("x")},
            "it has more than 1,048,576 bytes with what it refers to",
        ),
        (
            entry("x", ("a", "a", 1), ("a", "a", 2)),
            {("a", 1): entry("one"), ("a", 2): entry("two")},
            "it refers to two schemas as a: subject a, version 1, and subject a, version 2",
        ),
        (
            entry("x", ("a", "a", 2)),
            {("a", 2): entry("two", ("a", "a", 1)), ("a", 1): entry("one")},
            "it refers to two schemas as a",
        ),
        (entry("x", kind="XSD"), {}, "it is of the type 'XSD'"),
    ],
    ids=["row", "circle", "text", "texts", "one name", "one name below itself", "type"],
)
def test_what_is_beyond_a_bound_is_refused_by_name(
    root: Entry, entries: Mapping[tuple[str, int], Entry], why: str
) -> None:
    answer = of(root, entries)
    assert isinstance(answer, UnusableSchema)
    assert answer.id == 7
    assert answer.why.startswith(why)


def test_texts_up_to_the_bound_are_taken() -> None:
    assert isinstance(of(entry(HALF, ("a", "a", 1)), {("a", 1): entry(HALF)}), WriterText)


def test_a_reference_that_is_not_there_makes_the_schema_unknown() -> None:
    assert of(entry("x", ("a", "a", 1)), {}) == UnknownSchema(
        "subject a, version 1, to which schema id 7 refers"
    )


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"schema": 7},
        {"schema": "x", "schemaType": 7},
        {"schema": "x", "id": "7"},
        {"schema": "x", "version": True},
        {"schema": "x", "references": ["a"]},
        {"schema": "x", "references": 7},
        {"schema": "x", "references": [{"name": "a", "subject": "b", "version": "1"}]},
        {"schema": "x", "references": [{"name": "a", "subject": "b"}]},
    ],
)
def test_an_answer_of_another_shape_is_no_schema(answer: object) -> None:
    with pytest.raises(ValueError, match="not a "):
        Entry.of(answer)


def test_an_answer_without_a_type_is_avro() -> None:
    whole = {"schema": "x", "schemaType": None, "references": None, "id": 7, "version": 2}
    assert Entry.of(whole) == Entry("x", "AVRO", (), 7, 2)
    references = [{"name": "a", "subject": "b", "version": 3}]
    assert Entry.of(
        {"schema": "x", "schemaType": "PROTOBUF", "references": references}
    ) == Entry("x", "PROTOBUF", (Reference("a", "b", 3),))
