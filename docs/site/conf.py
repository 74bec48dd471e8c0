"""Settings of Sphinx for docs/build.sh, which gives it a copy of the tree as its source."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

project = "libmxq"
author = copyright = "the libmxq contributors"
release = ".".join(re.findall(r"#define MXQ_VERSION_[A-Z]+ (\d+)", (ROOT / "include/mxq/mxq.h").read_text(encoding="utf-8")))
version = release

extensions = ["myst_parser", "breathe"]
root_doc = "index"
include_patterns = ["*.md", "docs/*.md", "bindings/*/README.md", "src/README.md", "src/**/README.md", "tests/README.md", "tests/**/README.md"]

# Headings have the anchors that a forge gives them. A link or an anchor that does not exist is a warning, and warnings are errors.
myst_heading_anchors = 4
nitpicky = True
# Names of other headers, the insides of handles, and names of C in the header for C++.
nitpick_ignore_regex = [
    ("c:identifier", r"u?int\d+_t|size_t|mxq_\w+_s"),
    ("cpp:identifier", r"u?int\d+_t|size_t|mxq|(mxq|MXQ)_\w+"),
]

breathe_default_project = "mxq"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False

html_theme = "furo"
html_title = f"libmxq {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["wide.css"]
html_css_files = ["wide.css"]
