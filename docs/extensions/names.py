"""Finds what a docstring calls by its short name.

A docstring says `Message`, and so does an annotation, wherever they stand. Sphinx looks for such a name in the module
of the docstring; this looks for the only public object that ends so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

__all__ = ["setup"]


def find(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.reference | None:
    """A link to the object, if there is exactly one of that name."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removesuffix("()")
    found = {
        name: entry
        for name, entry in env.domains.python_domain.objects.items()
        if not entry.aliased and name.endswith(f".{target}")
    }
    if len(found) != 1:
        return None
    ((name, entry),) = found.items()
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown, name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("missing-reference", find)
    return {"parallel_read_safe": True}
