"""The command where the packages that it needs are not installed: it says which ones, and the pages say the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[1]
PAGES = [PYTHON.parents[1] / "docs/checkpoints.md", PYTHON / "README.md"]


def needed():
    """The packages of the extra."""
    text = (PYTHON / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"(.*?)"', re.search(r"^tools = (.*)$", text, re.MULTILINE)[1])


def test_the_command_names_the_packages_that_it_needs():
    code = "import sys; sys.modules['rich'] = None; import mxq.tools.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("mxq-quantize: ")
    assert done.stderr.endswith(f"pip install {' '.join(needed())}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_installs_the_wheel_that_it_built_with_what_the_command_needs(page):
    if not page.exists():
        pytest.skip("the page is not here")
    text = page.read_text(encoding="utf-8")
    assert f"pip install dist/mxq_cpu-*.whl {' '.join(needed())}" in text and "MXQ_CUDA=OFF ./bindings/python/wheel.sh dist" in text
    assert "pip install mxq" not in text and "mxq[" not in text  # an index of packages has no such name
