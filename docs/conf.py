"""Sphinx's settings for the site; `scripts/docs` builds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # examples are small: more threads only slow them down

import surefoot  # noqa: E402 - after the settings above

project = "surefoot"
author = "The surefoot developers"
project_copyright = "2026, the surefoot developers"
version = release = surefoot.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "readable",
]
exclude_patterns = ["_build", "_ext", "_templates", "auto_examples/**/*.ipynb"]
templates_path = ["_templates"]
default_role = "name"  # `this` in docstrings: code, and a link where it is a public name
smartquotes = False  # "auto" is to be typed as it stands
toc_object_entries_show_parents = "hide"
nitpicky = True
nitpick_ignore_regex: list[tuple[str, str]] = []
# sphinx-gallery's settings hold functions, which cannot be stored between builds
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4  # links to headings, as GitHub forms them

autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"  # docstrings say types in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the page of a class lists them itself
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # its page asks other hosts for scripts
    "capture_repr": ("_repr_html_", "__repr__"),
    "reset_modules": ("matplotlib",),
    "show_memory": False,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"surefoot {version}"
html_logo = "_static/mark.svg"
html_favicon = "_static/mark.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # else the theme complains of it at the first visit
html_sidebars = {"index": [], "changelog": [], "cost": [], "comparison": [], "start": []}
html_theme_options = {
    "logo": {"text": "surefoot"},
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "navigation_with_keys": False,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
