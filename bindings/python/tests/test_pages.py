"""The code of the pages runs, and prints what the page says: each block of ```text is the output of the blocks before it."""
import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(python|text)( torch)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("page, blocks", [("bindings/python/README.md", 1), ("docs/python.md", 12)])
def test_page(page, blocks):
    names, printed, ran = {}, "", 0
    for kind, torch, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if torch and not TORCH:
            continue
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, page, "exec"), names)
            printed, ran = printed + out.getvalue(), ran + 1
        else:
            assert printed == text
            printed = ""
    assert ran == blocks + (TORCH and page == "docs/python.md")
