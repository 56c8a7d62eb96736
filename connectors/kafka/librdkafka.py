"""The part of librdkafka's C interface that reading needs, by way of ctypes.

It is the library that confluent-kafka brings and has loaded already, so no second copy of anything runs.
Only what rdkafka.h declares is used; librdkafka keeps that compatible within version 1 of its shared library.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

Function = Callable[..., Any]

#: ``rd_kafka_type_t``
CONSUMER = 1
#: ``rd_kafka_conf_res_t``
CONF_OK = 0

# What may wait, or run for longer than an interpreter lock should be held.
_RELEASING: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (c_int, ()),
    "conf_new": (c_void_p, ()),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_void_p, c_size_t)),
    "conf_destroy": (None, (c_void_p,)),
    "new": (c_void_p, (c_int, c_void_p, c_void_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "poll_set_consumer": (c_int, (c_void_p,)),
    "queue_get_consumer": (c_void_p, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "topic_partition_list_new": (c_void_p, (c_int,)),
    "topic_partition_list_add": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "topic_partition_list_set_offset": (c_int, (c_void_p, c_char_p, c_int32, c_int64)),
    "topic_partition_list_destroy": (None, (c_void_p,)),
    "assign": (c_int, (c_void_p, c_void_p)),
    "pause_partitions": (c_int, (c_void_p, c_void_p)),
    "resume_partitions": (c_int, (c_void_p, c_void_p)),
    "consumer_poll": (c_void_p, (c_void_p, c_int)),
    "consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "consumer_close": (c_int, (c_void_p,)),
}
# Called once a record: giving the interpreter lock away and asking for it again would cost more than the call.
_HOLDING: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "message_destroy": (None, (c_void_p,)),
}


class Library:
    """Functions by their name without ``rd_kafka_``. Handles and addresses are plain integers.

    Raises:
        OSError, AttributeError: the library or a function cannot be reached from here.
    """

    def __init__(self, path: str) -> None:
        """``path``: a library that is linked with librdkafka; looking a name up finds it there too."""
        self._functions: dict[str, Function] = {}
        for loaded, signatures in (
            (ctypes.CDLL(path), _RELEASING),
            (ctypes.PyDLL(path), _HOLDING),
        ):
            for name, (result, arguments) in signatures.items():
                function = loaded[f"rd_kafka_{name}"]
                function.restype, function.argtypes = result, arguments
                self._functions[name] = function

    def __getattr__(self, name: str) -> Function:
        return self._functions[name]


@functools.cache
def library() -> Library | None:
    """Return the loaded library, or None where it cannot be reached or its structs are not as we read them.

    ``gathering`` reads 64-bit words, lower half first: every platform that confluent-kafka has wheels for but
    32-bit ones. On Windows a module's own imports cannot be looked up through it.
    """
    if sys.byteorder != "little" or ctypes.sizeof(c_void_p) != 8:
        return None
    try:
        loaded = Library(cimpl.__file__)
    except (OSError, AttributeError):
        return None
    return loaded if loaded.version() == confluent_kafka.libversion()[1] else None
