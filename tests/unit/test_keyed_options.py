"""The key of a new keyed table, as ``thermocline create`` is told it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import BadConfig
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.keys import RecordKey, Upsert
from thermocline.keyed_options import KeyedOptions
from thermocline.new_table_options import NewTableOptions

VALUES = (Column(0, "id", pa.int64()), Column(0, "state", pa.string()))


def keyed(*keys: str, **options: Any) -> KeyedOptions:
    facts = {"key_from": None, "envelope": None, "key_format": None, "key_schema": None}
    return KeyedOptions.of(keys, **(facts | options))


def chosen(**options: Any) -> NewTableOptions:
    nothing: dict[str, Any] = dict.fromkeys(each.name for each in fields(NewTableOptions))
    return NewTableOptions(**(nothing | {"mode": "append"} | options))


def test_columns_that_only_keys_have_come_first() -> None:
    options = keyed("tenant:string", "id")
    assert options.names == ("tenant", "id")
    assert options.with_key(VALUES) == (Column(0, "tenant", pa.string()), *VALUES)


@pytest.mark.parametrize(
    ("options", "key", "upsert"),
    [
        ({}, RecordKey("json"), Upsert(())),
        ({"key_from": "value"}, None, Upsert((), "value")),
        (
            {"key_from": "value", "key_format": "json", "envelope": "debezium"},
            RecordKey("json"),
            Upsert((), "value", "debezium"),
        ),
    ],
)
def test_keys_of_records_are_read_as_json_where_nothing_else_is_said(
    options: dict[str, Any], key: RecordKey | None, upsert: Upsert
) -> None:
    binding = keyed("id", **options).bound(Binding("flows"), VALUES, {}, "")
    assert (binding.key, binding.upsert) == (key, upsert)


def test_a_key_that_is_one_value_fills_one_column_of_its_type() -> None:
    text = (Column(0, "id", pa.string()),)
    binding = keyed("id", key_format="string").bound(Binding("flows"), text, {}, "")
    assert binding.key == RecordKey("string")


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (
            lambda: keyed(),
            "--mode upsert needs the columns that the table has one row of: --key NAME.",
        ),
        (lambda: keyed("id", "id"), "--key names a column twice among id, id."),
        (
            lambda: keyed("a.b"),
            "--key 'a.b' is not NAME or NAME:TYPE; a name with a dot stands in double quotes.",
        ),
        (
            lambda: keyed("other").with_key(VALUES),
            "--key other: no column of the values is called so; where records have it in their keys alone, give its type: --key "
            "other:string.",
        ),
        (
            lambda: keyed("id:string").with_key(VALUES),
            "--key id: the column is int64 among the values; leave its type out.",
        ),
        (
            lambda: keyed("other:string", key_from="value").with_key(VALUES),
            "--key-from value takes the key from the values, and they have no column other.",
        ),
        (
            lambda: keyed("id", key_format="string").bound(Binding("flows"), VALUES, {}, ""),
            "--key-format string: such a key is one value, for one column of type string; --key names id.",
        ),
        (lambda: chosen(keys=("id",)).keyed(), "--key goes with --mode upsert."),
        (lambda: chosen(key_from="key").keyed(), "--key-from goes with --mode upsert."),
        (
            lambda: chosen(mode="upsert", keys=("id",), key_column="k").keyed(),
            "--key-column is for --mode append; in a keyed table keys fill the columns of --key.",
        ),
        (
            lambda: chosen(
                mode="upsert", keys=("id",), infer=True, envelope="debezium"
            ).keyed(),
            "--infer takes columns from whole values, and with --envelope debezium the row is inside; give each column with "
            "--column.",
        ),
    ],
)
def test_options_that_do_not_go_together_say_what_to_type(attempt: Any, sentence: str) -> None:
    with pytest.raises(BadConfig) as caught:
        attempt()
    assert caught.value.message == sentence


def test_a_table_with_a_row_for_each_record_has_no_key() -> None:
    assert chosen().keyed() is None
