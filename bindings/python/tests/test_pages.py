"""The code of the pages runs, and prints what the page says: each block of ```text is the output of the blocks before it."""
import contextlib
import importlib.util
import io
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "pages"))

import blocks  # noqa: E402

# A page names a module with the blocks that need it: these need torch, or torchao, which the tests may be without.
PAGES = [page for page in blocks.pages() if any(block.language == "python" for block in blocks.blocks(page))]


def test_pages_are_found():
    assert {"bindings/python/README.md", "docs/python.md", "docs/torchao.md", "docs/choosing.md"} <= set(PAGES)


def is_there(module):
    """Whether a module is installed; for jax, also the handlers that mxq.jax needs."""
    if module == "jax" and importlib.util.find_spec(module) is not None:
        try:
            import mxq.jax  # noqa: F401
        except ImportError:
            return False
    return importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("page", PAGES)
def test_page(page, monkeypatch):
    monkeypatch.chdir(blocks.ROOT)
    names, printed, ran, code = {}, "", 0, [block for block in blocks.blocks(page) if block.language in ("python", "text")]
    for block in code:
        if block.mark and not is_there(block.mark):
            continue
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * block.line + block.code, page, "exec"), names)
            printed, ran = printed + out.getvalue(), ran + 1
        else:
            assert printed == block.code
            printed = ""
    if ran == 0:
        pytest.skip(f"{page} needs {code[0].mark}")
