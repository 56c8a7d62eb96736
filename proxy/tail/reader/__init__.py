"""Where a tail's rows come from: the log, read and decoded in this process or in one of its own.

Reading and decoding keep a core busy, much of the time with the interpreter's lock held; statements would wait for
it. So a server has a second process for them, of lower priority, which hands over columns. It holds nothing that
cannot be read again: when it dies, another one goes on.
"""
