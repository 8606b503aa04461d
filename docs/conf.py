"""Sphinx configuration. `python3 dev.py docs` builds with warnings as errors."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "kernelhub"
author = "The kernelhub maintainers"
release = installed("kernelhub")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "from_code",  # docs/_ext: tables made from the code
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["adr/README.md"]
default_role = "literal"  # docstrings put code into single backticks
html_theme = "furo"
html_title = f"kernelhub {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["triton"]
napoleon_use_rtype = False
nitpicky = False
