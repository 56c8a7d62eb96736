"""The hot side of cuts, decoded: once per record while it stays hot, bounded, shared by statements.

A *generation* is what was decoded of one table under one (schema id, shape, topic id): native segments of the
engine, one unbroken offset range per partition. A statement reads every segment through the ranges of its cut,
so its answer leaves out rows that arrived since and rows that tiering took over. A record is in one segment only, but
under a new schema a generation begins with segments of the one before, which stay that one's.

Full segments are *packed*: one compressed copy takes the place of several, while little arrives or memory is short.

A *follower* adds to a generation as the log grows; a statement waits until its cut is covered. What is not
followed, the statement fetches itself. Nothing here is shared between tables but the engine and the budget.

Imports nothing: ``proxy.tail.reader.child`` runs before the kernel locks the file system, and Arrow starts threads.
"""
