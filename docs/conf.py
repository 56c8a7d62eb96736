"""Builds the Markdown of this repository into a site: ``make docs``.

The source folder is the repository's root, so that a link works on a page of the site as it does in a file
browser. A broken link or anchor is an error (``-W``). The pages are plain Markdown; the navigation is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: A page of docs/ that is not listed stands at the end of "Run it".
NAVIGATION = {
    "Use it": [
        "quickstart",
        "quickstart-s3",
        "concepts",
        "clients",
        "notebooks",
        "tools/superset",
        "tools/jupyter",
        "tools/marimo",
        "tools/sqlline",
        "tools/by-pattern",
        "console",
        "engines",
        "spark",
        "spark-sql-differences",
    ],
    "Run it": [
        "install",
        "configuration",
        "security",
        "production",
        "operating",
        "system-tables",
        "tiering",
        "keyed-tables",
        "table-properties",
        "cli",
        "schemas",
        "verify",
        "ways-out",
        "errors",
    ],
    "Rely on it": [
        "limits",
        "records",
        "json-types",
        "avro-types",
        "change-data",
        "comparison",
        "../benchmarks/README",
    ],
    "Change it": [
        "internals/architecture",
        "internals/seam",
        "internals/watermark",
        "internals/tail",
        "internals/schema-registry",
        "internals/engine",
        "internals/protocol",
        "seam-rules",
        "decisions/index",
        "../benchmarks/notes/README",
        "../CHANGELOG",
    ],
}

project = "Thermocline"
copyright = "The Thermocline authors"  # Sphinx's name
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "benchmarks/README.md",
    "benchmarks/notes/*.md",
    "CHANGELOG.md",
]
exclude_patterns = ["build", ".venv*", ".*"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

html_theme = "furo"
html_title = "Thermocline"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_root"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f6fb2",
        "color-brand-content": "#1f6fb2",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb6ff",
        "color-brand-content": "#6cb6ff",
    },
}


def _completed(app: Any, page: str, source: list[str]) -> None:
    """Add what a page of the site has and its Markdown does not: navigation, the example's text."""
    example = "<!-- thermocline.example.toml -->"
    if example in source[0]:
        text = (Path(app.srcdir) / "thermocline.example.toml").read_text(encoding="utf-8")
        source[0] = source[0].replace(example, f"```toml\n{text}```")
    if page == root_doc:
        listed = {name for names in NAVIGATION.values() for name in names} | {"index"}
        written = sorted(file.stem for file in (Path(app.srcdir) / "docs").glob("*.md"))
        NAVIGATION["Run it"] += [name for name in written if name not in listed]
        source[0] += "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n"
            + "\n".join(names)
            + "\n```\n"
            for caption, names in NAVIGATION.items()
        )
    if page in ("docs/decisions/index", "benchmarks/notes/README"):
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _completed)
