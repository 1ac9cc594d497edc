"""How Sphinx builds the site: ``make docs``.

The source directory is the repository, so that links between README.md, CONTRIBUTING.md and the pages here lead to
the same places in a checkout, on a forge and on the site.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "extensions"))

import consumer_sdk  # noqa: E402 - the path comes first

project = "consumer_sdk"
author = "The consumer_sdk authors"
version = release = consumer_sdk.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "linked_files",
    "names",
    "no_requests",
]
root_doc = "docs/index"
include_patterns = ["*.md", "changes/README.md", "docs/*.md", "docs/api/*.rst"]
exclude_patterns = [".*", "adapters", "spark_bridge", "trackers", "build", "consumer_sdk", "tests"]

# Pages. A link to a page or a heading that does not exist is a warning, and `make docs` fails on warnings.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

# The reference, from docstrings.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Cancellation", "Cause", "Concurrency", "What to do"]

# The theme. Its fonts are the reader's own, and its scripts come with it: nothing is asked of another server.
html_theme = "furo"
html_title = f"consumer_sdk {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to-first-page.html"}
templates_path = ["templates"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
