"""Reads HTML as a browser would: which elements there are, and what their text is."""

from __future__ import annotations

from html.parser import HTMLParser

#: What tables are made of; nothing here loads, runs or leads away.
HARMLESS = {"div", "table", "thead", "tbody", "tr", "th", "td", "small", "i"}
ATTRIBUTES = {"border", "class", "scope", "title", "style", "colspan", "aria-hidden"}


class Markup(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.text = ""
        self._is_cell = False
        self.feed(text)

    @property
    def is_harmless(self) -> bool:
        return self.elements <= HARMLESS and self.attributes <= ATTRIBUTES

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "td":
            self.cells.append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._is_cell:
            self.cells[-1] += data
