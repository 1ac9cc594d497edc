"""Warns of a page, script or style of the site that would load something from another server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup"]

LOADED = {
    ".html": re.compile(
        r"<(?:link|script|img|iframe|source|object)\b[^>]*\s(?:src|srcset|href|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    ),
    ".css": re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)"),
}
"""A file's suffix → what it would load. Links that a reader follows are not among them."""

_log = logging.getLogger(__name__)


def look(app: Sphinx, error: Exception | None) -> None:
    """At all files, once the site is written."""
    for path in sorted(Path(app.outdir).rglob("*")) if error is None else ():
        if (pattern := LOADED.get(path.suffix)) is None:
            continue
        for address in pattern.findall(path.read_text("utf-8")):
            _log.warning("%s loads %s from another server", path.relative_to(app.outdir), address)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", look)
    return {"parallel_read_safe": True}
