from thermocline.doctor.least_rights import CREATE, READ, TIER, Right, TableAccess, least_rights


def purposes(rights: list[Right], on: str) -> dict[str, set[str]]:
    operations: dict[str, set[str]] = {}
    for right in rights:
        if right.on == on:
            operations.setdefault(right.purpose, set()).update(right.operations)
    return operations


def test_a_topic_of_two_tables_is_told_once_and_no_group_or_cluster_is() -> None:
    places = [TableAccess("flows", f"s3://b/{name}") for name in ("one", "two")]
    rights = least_rights({}, places)
    assert purposes(rights, "topic flows") == {
        purpose: {"Describe", "Read", "DescribeConfigs"} for purpose in (READ, TIER)
    }
    assert len([right for right in rights if right.on == "topic flows"]) == 4
    assert not [right for right in rights if "group" in right.on or "cluster" in right.on]


def test_readers_write_nowhere() -> None:
    catalogs = {
        "rest": {"type": "rest", "uri": "https://catalog.example"},
        "postgres": {"type": "sql", "uri": "postgresql+psycopg2://u:p@h/d"},
        "sqlite": {"type": "sql", "uri": "sqlite:////lake/catalog.db"},
    }
    places = [
        TableAccess("a", "s3://b/t"),
        TableAccess("b", "file:///lake/t"),
    ]
    rights = least_rights(catalogs, places)
    on = {right.on for right in rights if not right.on.startswith("topic")}
    assert on == {
        "catalog rest",
        "catalog postgres",
        "catalog sqlite",
        "s3://b/t",
        "file:///lake/t",
    }
    for part in on:
        by = purposes(rights, part)
        assert set(by) == {READ, TIER, CREATE}
        assert by[TIER] - by[READ]
    reading = {
        operation for right in rights if right.purpose == READ for operation in right.operations
    }
    assert not [
        operation
        for operation in reading
        if any(
            word in operation
            for word in ("write", "UPDATE", "INSERT", "Put", "Delete", "commit")
        )
    ]


def test_a_table_without_a_topic_is_read_only() -> None:
    rights = least_rights({}, [TableAccess(None, "s3://b/t")])
    assert [(right.purpose, right.on) for right in rights] == [(READ, "s3://b/t")]
