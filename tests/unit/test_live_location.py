"""Where live files go: never where tables lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import BadConfig
from thermocline.config.settings import IcebergRest, Server, Settings
from thermocline.serve.live_location import live_locations


def settings(location: str | None, **warehouses: str) -> Settings:
    return Settings(
        catalogs={
            name: {"type": "rest", "uri": "http://x", **({"warehouse": text} if text else {})}
            for name, text in warehouses.items()
        },
        iceberg_rest=IcebergRest(port=1, live_location=location),
    )


@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("s3://lake/tables/", "s3://lake/tables-live"),
        ("file:///data/lake", "file:///data/lake-live"),
        ("/data/lake", "/data/lake-live"),
        ("/data", "/data-live"),
        ("s3://bucket", None),
        ("s3://bucket/", None),
        ("a-name", None),
        ("", None),
    ],
)
def test_beside_the_warehouse_where_it_is_a_place(warehouse: str, place: str | None) -> None:
    expected = {} if place is None else {"lake": place}
    assert live_locations(settings(None, lake=warehouse)) == expected


def test_one_place_for_all_catalogs_where_the_settings_say_so() -> None:
    both = settings("s3://live", lake="s3://lake", pond="a-name")
    assert live_locations(both) == {"lake": "s3://live", "pond": "s3://live"}


@pytest.mark.parametrize(
    "place",
    [
        "s3://lake",
        "s3://lake/",
        "s3://lake/live",
        "s3a://lake/live",
        "S3N://lake//live",
        "s3://lake/./live",
    ],
)
def test_a_place_of_tables_is_refused(place: str) -> None:
    with pytest.raises(BadConfig, match="lies inside a place of tables"):
        live_locations(settings(place, lake="s3://lake"))


def test_a_root_of_storage_is_a_place_of_tables() -> None:
    configured = settings("s3://other/live", lake="s3://lake")
    server = Server(storage_roots=("s3://lake", "s3://other"))
    with pytest.raises(BadConfig, match="lies inside"):
        live_locations(configured.model_copy(update={"server": server}))


@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("lake", "lake/live"),
        ("lake", "link/live"),
        ("link", "lake/live"),
        ("lake", "/lake//live"),
        ("file:lake", "lake"),
        ("file:link/", "lake/live"),
    ],
)
def test_a_folder_is_the_same_by_another_name(
    tmp_path: Path, warehouse: str, place: str
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")

    def of(text: str) -> str:
        scheme, mark, rest = text.rpartition(":")
        return f"{scheme}{mark}{tmp_path}/{rest}"

    with pytest.raises(BadConfig, match="lies inside a place of tables"):
        live_locations(settings(of(place), lake=of(warehouse)))
    assert live_locations(settings(of("lake-live"), lake=of(warehouse)))


@pytest.mark.parametrize("place", ["live", "/data/../etc", "s3://other/../lake"])
def test_a_place_is_absolute(place: str) -> None:
    with pytest.raises(BadConfig, match="not an absolute path"):
        live_locations(settings(place, lake="s3://lake"))
