"""Shows the files and folders of the repository that a page links to: a program of ``examples``, say.

Each gets a page of the site with its text. A page that links to a path which does not exist is warned of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup"]

LEXERS = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash"}
FILES = "linked files"
"""The key of a page's metadata, which Sphinx keeps between builds."""


class LinksToFiles(SphinxTransform):
    """Puts a link to the file's page in place of a download."""

    default_priority = 5

    def apply(self, **_options: Any) -> None:
        """Called for each page."""
        for node in list(self.document.findall(_leads_to_path)):
            name = self._name(node["reftarget"])
            if name is None or (Path(self.env.srcdir) / name).suffix in {".md", ".rst"}:
                continue
            self.env.metadata[self.env.docname].setdefault(FILES, set()).add(name)
            here = self.app.builder.get_target_uri(self.env.docname)
            uri = relative_uri(here, f"{_page(name)}.html")
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))

    def _name(self, target: str) -> str | None:
        """The path below the repository; None for a heading, or for what does not exist."""
        root = Path(self.env.srcdir)
        path = (root / self.env.docname).parent / target.partition("#")[0]
        inside = os.path.relpath(path, root)
        return inside if path.exists() and not target.startswith("#") else None


def _leads_to_path(node: nodes.Node) -> bool:
    return isinstance(node, download_reference | pending_xref) and node.get("reftype") == "myst"


def _page(name: str) -> str:
    return f"files/{name}"


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page of each file."""
    found = (each.get(FILES, ()) for each in app.env.metadata.values())
    for name in sorted(set().union(*found)):
        path = Path(app.srcdir) / name
        body = _folder(path) if path.is_dir() else _text(app, path)
        yield _page(name), {"title": name, "body": f"<h1>{escape(name)}</h1>\n{body}"}, "page.html"


def _text(app: Sphinx, path: Path) -> str:
    lexer = LEXERS.get(path.suffix, "text")
    highlighter: Any = app.builder.highlighter  # type: ignore[attr-defined]  # of HTML's builder
    shown: str = highlighter.highlight_block(path.read_text("utf-8"), lexer, linenos=False)
    return f'<div class="highlight-{lexer} notranslate">{shown}</div>'


def _folder(path: Path) -> str:
    names = sorted(each.name for each in path.iterdir() if not each.name.startswith(("_", ".")))
    return "<ul>" + "".join(f"<li><code>{escape(name)}</code></li>" for name in names) + "</ul>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(LinksToFiles)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True}
