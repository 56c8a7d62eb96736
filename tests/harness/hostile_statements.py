"""Statements that are large or deep beyond what anybody means."""

LARGE = {
    "deep parentheses": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "deep subqueries": "SELECT * FROM (" * 1_200 + "SELECT 1" + ")" * 1_200,
    "deep sums": "SELECT " + " + ".join(["1"] * 5_000),
    "deep cases": "SELECT " + "CASE WHEN true THEN " * 800 + "1" + " END" * 800,
    "deep lists": "SELECT " + "[" * 310 + "]" * 310,
    "deep casts": "SELECT 1" + "::INT" * 3_000,
    "deep types": "SELECT NULL::INT" + "[]" * 3_000,
    "deep calls": "SELECT " + "abs(" * 310 + "1" + ")" * 310,
    "deep lists of a column": "SELECT " + "[" * 112 + "bytes" + "]" * 112 + " FROM flows",
    "deep structs of a column": "SELECT "
    + "{'x': " * 112
    + "bytes"
    + "}" * 112
    + " FROM flows",
    "a long text that is no SQL": "\U0001f9ca" * 20_000,
    "more than a megabyte": "SELECT '" + "x" * (1 << 20) + "'",
    "sixty thousand values": "SELECT 1 IN (" + ",".join(["1"] * 60_001) + ")",
    "a cube of twenty": "SELECT 1 GROUP BY CUBE (" + ",".join(map(str, range(1, 21))) + ")",
}
