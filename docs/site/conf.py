"""Sphinx's settings for the documentation site. script/site prepares the sources and calls Sphinx."""

import os
import re
from pathlib import Path

import latex2mathml.converter
from docutils import nodes

SOURCES = Path(os.environ["SACCADE_SITE_SOURCES"])

project = "saccade"
copyright = "the saccade developers"
SETTINGS = Path("../../CMakeLists.txt").read_text()
version = re.search(r"project\(saccade VERSION ([0-9.]+)", SETTINGS)[1]
version += re.search(r'set\(SACCADE_VERSION_SUFFIX "([^"]*)"\)', SETTINGS)[1]
release = version
root_doc = "index"
extensions = ["breathe", "myst_parser", "autoapi.extension"]
html_theme = "furo"
html_title = f"saccade {version}"
html_show_search_summary = False  # summaries are fetched, which a page from a disk may not do
html_copy_source = False
html_static_path = [str(SOURCES / "_static")]
exclude_patterns = ["_static"]

myst_heading_anchors = 3
myst_fence_as_directive = ["math"]  # the form that GitHub shows
html_math_renderer = "mathml"  # browsers show it without a script
suppress_warnings = ["autoapi.python_import_resolution", "duplicate_declaration"]

breathe_projects = {"saccade": str(SOURCES.parent / "site-doxygen" / "xml")}
breathe_default_project = "saccade"
breathe_default_members = ("members",)
breathe_domain_by_file_pattern = {"*c_api.h": "c"}

autoapi_dirs = [str(SOURCES / "python" / "saccade")]
autoapi_root = "api/python"
autoapi_options = ["members", "inherited-members", "imported-members", "undoc-members"]
autoapi_add_toctree_entry = False
autoapi_keep_files = False
autoapi_python_class_content = "both"


def autoapi_skip(app, what, name, obj, skip, options):
    """Private modules are documented where the package shows their names."""
    return skip or any(part.startswith("_") for part in name.split(".")[1:])


def visit_formula(translator, node):
    is_block = node.tagname == "math_block"
    formula = latex2mathml.converter.convert(node.astext(), display="block" if is_block else "inline")
    translator.body.append(f"<p>{formula}</p>" if is_block else formula)
    raise nodes.SkipNode


def forbid_network(app, pagename, templatename, context, doctree):
    """The chapters, which compute, may load nothing but files of the site."""
    if re.match(r"docs/tutorial/(.*/)?[0-9]", pagename):
        own = "'self' file:"
        policy = f"default-src 'none'; script-src {own} 'unsafe-inline' 'wasm-unsafe-eval'; "
        policy += f"style-src {own} 'unsafe-inline'; img-src {own} data:; font-src {own}"
        context["metatags"] += f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">'


def setup(app):
    app.connect("html-page-context", forbid_network)
    app.connect("autoapi-skip-member", autoapi_skip)
    app.add_html_math_renderer("mathml", inline_renderers=(visit_formula, None), block_renderers=(visit_formula, None))
