"""What the warehouse of an Iceberg client names: a catalog, and how new its tables are to be.

``lake``, ``lake@cold``, ``lake@max_staleness 5s``, ``lake@wait_for flows/0:1204``, several with ``;`` between them, or
``lake@<cut>``. Clients put the prefix that they are given into addresses as it is, and no two of them encode it alike: a
contract is packed there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.errors import BadParameter
from planner.seam.time_travel import CUT_PREFIX, AtCut, parse_cut
from proxy.flightsql.state.client_session import with_settings
from proxy.rest.errors import UnknownWarehouse
from proxy.session import Session

#: Of a cut or a contract in an address: proxies in between stop at 8 KB for the whole of it.
MAX_CUT_CHARS = 6 * 1024
_MARK = "@"
_PACKED = "f:"
_WAIT_FOR = "wait_for"


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A catalog. ``cut``: what all its tables are read at; None: each load is a cut of its own, as ``settings`` say."""

    catalog: str
    prefix: str
    cut: AtCut | None = None
    text: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    def session(self, session: Session) -> Session:
        """Return a caller's session as the warehouse changes it.

        Raises:
            BadParameter: as ``with_settings``.
        """
        if self.settings:
            return with_settings(replace(session, cut=None, after=None), self.settings)
        return session


def parse_warehouse(text: str | None, catalogs: Sequence[str]) -> Warehouse:
    """Read what a client names, of the ``catalogs`` it may know of; without a text it is the only one.

    Raises:
        UnknownWarehouse: there is no such catalog.
        BadParameter: none is named and there are several; or what follows is malformed or too long.
    """
    if not catalogs:
        raise UnknownWarehouse("there is no catalog that you may read; ask for a grant.")
    if not text:
        if len(catalogs) > 1:
            raise BadParameter(f"name a catalog as the warehouse: {', '.join(catalogs)}.")
        return Warehouse(catalogs[0], catalogs[0])
    if text in catalogs:
        return Warehouse(text, text)
    catalog, mark, rest = text.partition(_MARK)
    if catalog not in catalogs:
        raise UnknownWarehouse(
            f"there is no catalog {catalog[:80]}; there are {', '.join(catalogs)}."
        )
    if not mark:
        return Warehouse(catalog, catalog)
    if len(rest) > MAX_CUT_CHARS:
        raise BadParameter(
            f"the text of the cut has {len(rest):,} characters, and an address has room for {MAX_CUT_CHARS:,}; take a "
            f"cut of fewer tables."
        )
    if rest.startswith(CUT_PREFIX):
        return Warehouse(catalog, text, parse_cut(rest), rest)
    contract = _unpacked(rest.removeprefix(_PACKED)) if rest.startswith(_PACKED) else rest
    warehouse = Warehouse(
        catalog, f"{catalog}{_MARK}{_PACKED}{_packed(contract)}", settings=_settings(contract)
    )
    warehouse.session(Session(""))  # refuses what is malformed, before a table is loaded
    return warehouse


def _settings(contract: str) -> tuple[tuple[str, str], ...]:
    settings: dict[str, str] = {}
    for part in contract.split(";"):
        word, _, rest = part.strip().partition(" ")
        name, value = (_WAIT_FOR, rest) if word == _WAIT_FOR else ("freshness", part.strip())
        if name in settings:
            raise BadParameter(f"the warehouse names {name} twice.")
        settings[name] = value
    return tuple(settings.items())


def _packed(contract: str) -> str:
    return base64.urlsafe_b64encode(contract.encode()).decode().rstrip("=")


def _unpacked(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadParameter("the prefix is not one that this catalog gave out.") from None
