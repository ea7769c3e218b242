"""Sphinx's settings; `docs.site.stage` makes the pages."""

from daband_client import __version__

project = "daband"
copyright = "the daband contributors, Apache-2.0"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
html_theme = "furo"
html_title = f"daband {__version__}"
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 4
myst_links_external_new_tab = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
suppress_warnings = ["misc.highlighting_failure"]
