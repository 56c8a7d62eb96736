"""The hot side of cuts, decoded: once per record while it stays hot, bounded, shared by statements.

A *generation* is what was decoded of one table under one (schema id, shape, topic id): native segments of the engine,
one unbroken offset range per partition, each record in one segment. A statement reads them through the ranges of its
cut. Full segments are *packed*: one compressed copy takes the place of several. A *follower* adds to a generation as
the log grows; what is not followed, the statement fetches itself.

Imports nothing: ``proxy.tail.reader.child`` runs before the kernel locks the file system, and Arrow starts threads.
"""
