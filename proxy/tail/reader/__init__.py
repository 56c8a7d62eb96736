"""Where a tail's rows come from: the log, read and decoded in this process or in one of its own.

Reading and decoding keep a core busy and take the interpreter's lock much of the time, so statements would wait.
A server therefore has a second process for them, of lower priority, which hands over columns. All that it has can be
read again: when it dies, another one goes on.
"""
