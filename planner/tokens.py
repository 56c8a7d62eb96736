"""Texts that clients keep, positions and cuts: compressed JSON behind a prefix that names the kind.

They only narrow what a statement may read anyway, so they are checked for form and not signed. Reading one is
reading hostile input: it does not inflate without bound.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

#: 10,000 partitions need about 0.1 MB.
MAX_PACKED_BYTES = 4 * 1024 * 1024
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
#: The best level makes offsets of 1,000 partitions one percent smaller, in three times the time.
_LEVEL = 3
#: Bits of the window, and what else memory goes by. By default zlib takes 268 KB for each text: the system's pages, as
#: they are given back each time, and five times the time of a text that fits a window of 4 KB.
_MUCH, _LITTLE, _SHORT = (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL), (12, 5), 1 << 12
#: Errors of reading a document from outside, checks included.
MALFORMED = (binascii.Error, zlib.error, ValueError, KeyError, TypeError, RecursionError)


def pack(prefix: str, document: dict[str, Any]) -> str:
    """Write ``document`` as one word of letters, digits and ``-_=:``; the same document gives the same text."""
    text = _ENCODE(document).encode()
    packing = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, *(_LITTLE if len(text) <= _SHORT else _MUCH)
    )
    packed = packing.compress(text) + packing.flush()
    return prefix + base64.urlsafe_b64encode(packed).decode()


def unpack(prefix: str, text: str) -> Any:
    """Read what ``pack`` wrote.

    Raises:
        MALFORMED: it is something else.
    """
    if not text.startswith(prefix):
        raise ValueError("another kind of text")
    inflate = zlib.decompressobj()
    plain = inflate.decompress(
        base64.b64decode(text[len(prefix) :], altchars=b"-_", validate=True), MAX_PACKED_BYTES
    )
    if not inflate.eof:
        raise ValueError("too large")
    return json.loads(plain)
