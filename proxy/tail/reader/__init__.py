"""Where a tail's rows come from: the log, read and decoded in this process or in one of its own.

That keeps a core and the interpreter's lock busy, so a server has a second process for it, of lower priority. All that
it has can be read again: when it dies, another one goes on.
"""
