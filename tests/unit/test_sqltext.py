from planner.sql_text import identifier, literal


def test_quotes_inside_names_and_texts_are_doubled() -> None:
    assert identifier('a"b') == '"a""b"'
    assert literal("it's") == "'it''s'"
