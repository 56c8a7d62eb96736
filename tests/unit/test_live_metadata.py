"""The metadata of a live table: the pinned file's own, with one snapshot more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from planner.errors import BadBinding, NotAllowed, UnsupportedFile
from planner.live.metadata import (
    LiveSnapshot,
    check_format,
    check_partition_fields,
    first_row_id,
    is_head,
    live_metadata,
    plain_metadata,
    snapshot_id_of,
    unpartitioned_spec,
    with_referenced_snapshots,
)
from planner.permissions import Grant, Identity, TablePattern, check_files, check_whole
from planner.seam.binding import LIVE_CUT, parse_binding
from tests.harness.builders import FLOWS, pin

DOCUMENT: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": "file:///warehouse/net/flows",
    "last-sequence-number": 7,
    "last-updated-ms": 5_000,
    "last-column-id": 1,
    "current-schema-id": 0,
    "schemas": [
        {"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "day", "type": "date", "required": False}]},
    ],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [
            {"source-id": 1, "field-id": 1000, "name": "day", "transform": "identity"}]},
    ],
    "last-partition-id": 1000,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "properties": {"thermocline.topic": "flows", "thermocline.watermark": "{}", "owner": "anna"},
    "current-snapshot-id": 2,
    "snapshots": [
        {"snapshot-id": 1, "sequence-number": 6, "timestamp-ms": 3_000, "manifest-list": "a",
         "summary": {"operation": "append", "total-records": "10"}, "schema-id": 0},
        {"snapshot-id": 2, "parent-snapshot-id": 1, "sequence-number": 7, "timestamp-ms": 4_000,
         "manifest-list": "b", "summary": {"operation": "append"}, "schema-id": 0},
    ],
    "snapshot-log": [
        {"snapshot-id": 1, "timestamp-ms": 3_000},
        {"snapshot-id": 2, "timestamp-ms": 4_000},
    ],
    "metadata-log": [],
    "refs": {"main": {"snapshot-id": 2, "type": "branch", "max-ref-age-ms": 9}},
    "statistics": [],
    "not-yet-invented": {"keep": ["me"]},
}  # fmt: skip
PIN = pin(0)
LIVE = LiveSnapshot(99, "file:///live/list.avro", 2, 5, 1_000)


def test_the_head_is_a_child_of_the_pin_one_millisecond_younger_and_in_no_log() -> None:
    edited = live_metadata(DOCUMENT, PIN, LIVE, "c:cut")
    (added,) = edited["snapshots"][2:]
    assert added["parent-snapshot-id"] == PIN.snapshot_id == 1
    assert added["timestamp-ms"] == 3_001
    assert added["sequence-number"] == edited["last-sequence-number"] == 8
    assert added["summary"]["total-records"] == "15"
    assert edited["current-snapshot-id"] == 99
    # Snapshot 2 is younger than the pin: it is no part of this cut.
    assert edited["snapshot-log"] == DOCUMENT["snapshot-log"][:1]
    assert edited["refs"]["cold"] == {"snapshot-id": 1, "type": "tag"}
    assert edited["refs"]["main"] == {"snapshot-id": 99, "type": "branch", "max-ref-age-ms": 9}
    assert edited["metadata-log"] == [
        {"timestamp-ms": 5_000, "metadata-file": PIN.metadata_location}
    ]


def test_nothing_else_changes_and_pyiceberg_reads_it() -> None:
    edited = live_metadata(DOCUMENT, PIN, LIVE, "c:cut")
    assert edited["not-yet-invented"] == {"keep": ["me"]}
    changed = {key for key in edited if edited[key] != DOCUMENT.get(key)}
    assert changed == {
        "properties", "metadata-log", "refs", "current-snapshot-id", "snapshots", "snapshot-log",
        "last-sequence-number", "partition-specs", "default-spec-id",
    }  # fmt: skip
    assert DOCUMENT["current-snapshot-id"] == 2  # not changed in place
    metadata = TableMetadataUtil.parse_raw(json.dumps(edited))
    assert metadata.current_snapshot_id == 99


def test_the_binding_is_not_told_and_no_maintenance_runs() -> None:
    edited = live_metadata(DOCUMENT, PIN, LIVE, "c:cut")
    assert edited["properties"] == {
        "owner": "anna",
        "gc.enabled": "false",
        LIVE_CUT: "c:cut",
    }
    with pytest.raises(BadBinding, match="this is a live table; point at the catalog it comes"):
        parse_binding(FLOWS, edited["properties"])


@pytest.mark.parametrize(
    "name", ["s3.endpoint", "py-io-impl", "client.region", "uri", "gcs.service.host", "token"]
)
def test_what_a_tables_owner_says_of_stores_is_not_told(name: str) -> None:
    document = DOCUMENT | {"properties": {name: "http://elsewhere", "write.s3": "kept"}}
    for edited in (live_metadata(document, PIN, LIVE, "c"), plain_metadata(document, PIN, "c")):
        assert edited["properties"].keys() == {"write.s3", "gc.enabled", LIVE_CUT}


def test_without_a_tail_the_head_is_the_pin() -> None:
    edited = live_metadata(DOCUMENT, PIN, None, "c:cut")
    assert edited["current-snapshot-id"] == 1
    assert edited["refs"]["main"]["snapshot-id"] == 1
    assert edited["snapshots"] == DOCUMENT["snapshots"]


def test_a_table_that_passes_through_has_the_pinned_snapshot_as_its_head() -> None:
    newest = replace(PIN, snapshot_id=2)
    assert is_head(DOCUMENT, newest)
    passed = plain_metadata(DOCUMENT, newest, "c:x")
    changed = ("properties", "partition-specs", "default-spec-id")
    assert {**passed, **dict.fromkeys(changed)} == {**DOCUMENT, **dict.fromkeys(changed)}
    assert passed["properties"] == {"owner": "anna", "gc.enabled": "false", LIVE_CUT: "c:x"}
    older = replace(PIN, snapshot_id=1)
    assert not is_head(DOCUMENT, older)
    edited = plain_metadata(DOCUMENT, older, "c:x")
    assert edited["current-snapshot-id"] == edited["refs"]["main"]["snapshot-id"] == 1
    assert edited["refs"]["main"]["max-ref-age-ms"] == 9
    assert [entry["snapshot-id"] for entry in edited["snapshot-log"]] == [1]
    assert TableMetadataUtil.parse_obj(edited).current_snapshot_id == 1


def test_readers_of_version_1_see_the_pinned_columns() -> None:
    columns = {"type": "struct", "schema-id": 0, "fields": []}
    newer = {**columns, "schema-id": 1}
    document = {"current-snapshot-id": 1, "schema": newer, "schemas": [columns, newer]}
    document |= {"current-schema-id": 1, "snapshot-log": [], "partition-spec": []}
    edited = plain_metadata(document, replace(PIN, snapshot_id=1), "c:x")
    assert (edited["schema"], edited["current-schema-id"]) == (columns, 0)
    empty = {"current-snapshot-id": -1, "schema": columns}
    assert is_head(empty, replace(PIN, snapshot_id=None, binding=None, watermark=None))


def test_a_table_of_version_1_with_one_schema_stays_so() -> None:
    first = {
        key: value
        for key, value in DOCUMENT.items()
        if key not in ("schemas", "current-schema-id")
    }
    first |= {"format-version": 1, "schema": DOCUMENT["schemas"][0], "current-snapshot-id": -1}
    edited = plain_metadata(first, replace(PIN, snapshot_id=1), "c:x")
    assert edited["schema"] == DOCUMENT["schemas"][0]
    assert "current-schema-id" not in edited
    assert edited["current-snapshot-id"] == 1


def test_a_tag_of_the_tables_own_stays() -> None:
    own = {"snapshot-id": 2, "type": "tag"}
    document = {**DOCUMENT, "refs": {**DOCUMENT["refs"], "cold": own}}
    assert live_metadata(document, PIN, LIVE, "c:cut")["refs"]["cold"] == own


@pytest.mark.parametrize("live", [LIVE, None], ids=["a tail", "no tail"])
def test_the_default_spec_has_no_fields_and_is_that_of_live_files(
    live: LiveSnapshot | None,
) -> None:
    """Daft 0.7.26 splits a condition by the default spec, and asks files of other specs for the rest of it alone."""
    bound = live_metadata(DOCUMENT, PIN, live, "c:cut")
    for edited in (bound, plain_metadata(DOCUMENT, PIN, "c:cut")):
        assert edited["partition-specs"] == [
            *DOCUMENT["partition-specs"],
            {"spec-id": 1, "fields": []},
        ]
        assert edited["default-spec-id"] == unpartitioned_spec(DOCUMENT) == 1
        assert TableMetadataUtil.parse_obj(edited).spec().is_unpartitioned()


def test_a_table_with_a_spec_without_fields_gets_no_other() -> None:
    specs = [*DOCUMENT["partition-specs"], {"spec-id": 4, "fields": []}]
    document = {**DOCUMENT, "partition-specs": specs}
    assert check_format(PIN, document) == 2
    edited = live_metadata(document, PIN, LIVE, "c:cut")
    assert edited["partition-specs"] == specs
    assert edited["default-spec-id"] == unpartitioned_spec(document) == 4


def test_a_plain_table_of_version_1_keeps_the_spec_that_its_files_have() -> None:
    (spec,) = DOCUMENT["partition-specs"]
    left_out = (
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "last-sequence-number",
    )
    document = {key: value for key, value in DOCUMENT.items() if key not in left_out}
    document |= {
        "format-version": 1,
        "schema": DOCUMENT["schemas"][0],
        "partition-spec": spec["fields"],
    }
    metadata = TableMetadataUtil.parse_obj(plain_metadata(document, PIN, "c:cut"))
    assert metadata.spec().is_unpartitioned()
    assert [spec.spec_id for spec in metadata.partition_specs] == [0, 1]
    assert metadata.partition_specs[0].fields[0].field_id == 1000


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_log_without_the_pin_ends_before_it(is_bound: bool) -> None:
    """An expiry cleared the log before the pin, which a tag retains."""
    before, newer = {"snapshot-id": 7, "timestamp-ms": 2_999}, DOCUMENT["snapshot-log"][1]
    for log, expected in (([newer], []), ([before, newer], [before])):
        document = {**DOCUMENT, "snapshot-log": log}
        if is_bound:
            edited = live_metadata(document, PIN, LIVE, "c:cut")
        else:
            edited = plain_metadata(document, pin(binding=None), "c:cut")
        assert edited["snapshot-log"] == expected
        TableMetadataUtil.parse_obj(edited)


def test_ids_are_the_same_for_the_same_parts_and_none_that_is_there() -> None:
    first = snapshot_id_of(["cut", "replica", "file"], [])
    assert first == snapshot_id_of(["cut", "replica", "file"], [1])
    assert first != snapshot_id_of(["cut", "replica", "file"], [first])
    assert first != snapshot_id_of(["cut", "other", "file"], [])
    assert 0 < first < 2**63


def test_only_snapshots_that_a_ref_names_are_told_where_that_is_enough() -> None:
    edited = with_referenced_snapshots(live_metadata(DOCUMENT, PIN, LIVE, "c:cut"))
    assert [s["snapshot-id"] for s in edited["snapshots"]] == [1, 99]


def test_a_live_snapshot_of_version_3_gives_out_row_ids_that_nobody_has() -> None:
    document = {**DOCUMENT, "format-version": 3, "next-row-id": 40}
    assert check_format(PIN, document) == 3
    edited = live_metadata(document, PIN, replace(LIVE, row_ids=12), "c:cut")
    snapshot = edited["snapshots"][-1]
    assert (snapshot["first-row-id"], snapshot["added-rows"]) == (40, 12)
    assert first_row_id(edited) == 52
    assert first_row_id(DOCUMENT) is None
    assert "next-row-id" not in live_metadata(DOCUMENT, PIN, LIVE, "c:cut")
    TableMetadataUtil.parse_obj(edited)


def test_a_table_of_encrypted_files_is_refused() -> None:
    document = {**DOCUMENT, "properties": {"encryption.key-id": "k"}}
    with pytest.raises(UnsupportedFile, match="those of its tail would not be"):
        check_format(PIN, document)


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(UnsupportedFile, match=f"of version {version}; read it over Flight SQL"):
        check_format(PIN, {**DOCUMENT, "format-version": version})


def test_files_are_for_who_may_read_all_of_a_table_or_is_trusted_with_them() -> None:
    anna = Identity("anna")
    whole = Grant("g", (TablePattern.parse("*"),), frozenset({"anna"}))
    part = replace(whole, without=("ssn",))
    check_files(whole, anna, FLOWS)
    check_files(replace(part, files=True), anna, FLOWS)
    with pytest.raises(NotAllowed, match="engines read whole files"):
        check_files(part, anna, FLOWS)


def test_a_table_is_whole_to_who_sees_all_of_it_whatever_files_he_may_read() -> None:
    anna = Identity("anna")
    whole = Grant("g", (TablePattern.parse("*"),), frozenset({"anna"}))
    check_whole(whole, anna, FLOWS)
    with pytest.raises(NotAllowed, match="you may read a part of it only"):
        check_whole(replace(whole, without=("ssn",), files=True), anna, FLOWS)


@pytest.mark.parametrize(
    "specs",
    [
        {
            "partition-specs": [
                {"spec-id": 0, "fields": [{"field-id": 1000, "name": "user agent"}]}
            ]
        },
        {
            "partition-specs": [
                {"spec-id": 0, "fields": [{"field-id": 1000, "name": "user-agent"}]},
                {"spec-id": 1, "fields": []},
            ],
            "default-spec-id": 1,
        },
        {"partition-spec": [{"field-id": 1000, "name": "user agent"}]},
    ],
)
def test_no_answer_has_a_partition_field_that_ends_a_reader(specs: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFile) as refused:
        check_partition_fields(PIN, {**DOCUMENT, **specs})
    assert refused.value.message == (
        f"{FLOWS}: its partition field 1000 has a name that is not of ASCII letters, digits and underscores alone, which "
        f"ends some of the engines that read Iceberg; read the table over Flight SQL."
    )
    check_partition_fields(PIN, DOCUMENT)


def test_version_1_may_give_a_partition_field_no_id() -> None:
    document = {"partition-spec": [{"name": "user agent"}]}
    with pytest.raises(UnsupportedFile, match="its partition field has a name"):
        check_partition_fields(PIN, document)
