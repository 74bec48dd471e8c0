"""The HTML page of the report, and what a browser shows of it. Skipped without Playwright and a Chromium.

pip install playwright && playwright install chromium    (or Debian's: apt install chromium)
"""

import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("ml_dtypes", reason="the tools need ml_dtypes and rich")
pytest.importorskip("rich", reason="the tools need ml_dtypes and rich")
from mxq.tools import page, quantize  # noqa: E402
from test_tools import save  # noqa: E402

BAD = "model.layers.5.mlp.up_proj.weight"
ZERO = "model.layers.2.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint of 8 layers in MXFP4, in which one tensor has outliers and one has rows of zeros."""
    folder, rng = tmp_path_factory.mktemp("page"), np.random.default_rng(0)
    tensors = {}
    for layer in range(8):
        for module in ("mlp.up_proj", "mlp.down_proj", "self_attn.o_proj"):
            tensors[f"model.layers.{layer}.{module}.weight"] = rng.standard_normal((64, 128), "float32") * 0.02
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = np.ones(128, "float32")
    tensors[BAD][:, ::32] = 0.02 * 13  # far above the others of its block, which get few codes
    tensors[ZERO][:8] = 0
    save(folder / "m.safetensors", tensors)
    report = quantize.run(folder / "m.safetensors", folder / "out", quantize.recipe("compressed-tensors", "mxfp4"))
    return report, folder / "out" / quantize.PAGE


def test_tensors_that_stand_out_are_named_with_the_reason(made):
    report, _ = made
    faults = {tensor.row["name"]: tensor.faults for tensor in page.tensors(report) if tensor.faults}
    assert set(faults) == {BAD, ZERO}
    assert "dB under the median of its kind" in faults[BAD][0] and faults[ZERO] == ["12.5 % of blocks are zero"]


class Elements(HTMLParser):
    """Counts elements, and refuses those that are not closed."""

    def __init__(self):
        super().__init__()
        self.counts, self.open, self.links = {}, [], []

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "link", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_other_file(made):
    report, path = made
    found, text = Elements(), path.read_text(encoding="utf-8")
    found.feed(text)
    assert not found.open and found.links == ["data:,"] and "http" not in text and "url(" not in text
    assert found.counts["svg"] == 14 and found.counts["circle"] == 24 and found.counts["tr"] == 1 + 24 + 8
    assert "script" not in found.counts


def test_names_are_text_in_the_page():
    row = {"name": "<b>&.weight", "shape": [1, 1], "bytes_before": 2, "bytes_after": 1, "format": "mxfp4", "scaling": "1x32"}
    row |= {"sqnr_db": 1.0, "clipped": 1, "zero_blocks": 0, "blocks": 1, "rows": 1, "measured_rows": 1, "scale_log2": {"0": 1}}
    head = {"layout": "l", "format": "f", "scaling": "s", "measure": "all", "version": "v", "device": "cpu"}
    text = page.page({**head, "tensors": [row]})
    assert "<b>&" not in text and "&lt;b&gt;&amp;.weight" in text
    assert "No SQNR was measured" in page.page({**head, "tensors": [{**row, "sqnr_db": None, "scale_log2": {}}]})


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            found = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium starts: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.mark.parametrize("width", [1200, 400])
def test_a_browser_shows_the_pictures(made, browser, width):
    _, path = made
    tab, said = browser.new_page(viewport={"width": width, "height": 900}), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None)
    tab.goto(path.as_uri())
    assert tab.locator("svg").count() == 14
    for picture in tab.locator("svg").all():
        box = picture.bounding_box()
        assert picture.is_visible() and box["width"] > 250 and box["height"] > 60 and box["x"] >= 0
        assert box["x"] + box["width"] <= width
    dots = [dot.bounding_box() for dot in tab.locator("#sqnr circle").all()]
    frame = tab.locator("#sqnr").bounding_box()
    assert len({(dot["x"], dot["y"]) for dot in dots}) == 24
    assert all(frame["x"] <= dot["x"] and dot["x"] + dot["width"] <= frame["x"] + frame["width"] for dot in dots)
    assert all(frame["y"] <= dot["y"] and dot["y"] + dot["height"] <= frame["y"] + frame["height"] for dot in dots)
    bars = [bar.bounding_box() for bar in tab.locator("svg.scales").first.locator("rect").all()]
    assert len(bars) > 3 and max(bar["height"] for bar in bars) > 4 * min(bar["height"] for bar in bars) > 0
    assert tab.locator("#verdict").inner_text() == "2 of 24 tensors stand out."
    marked = tab.locator("#tensors tr.bad td:first-child").all_inner_texts()
    assert sorted(marked) == sorted([BAD, ZERO])
    lowest = max(tab.locator("#sqnr circle").all(), key=lambda dot: dot.bounding_box()["y"])
    assert re.match(re.escape(BAD), lowest.locator("title").text_content()) and lowest.get_attribute("stroke") == "#d62728"
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth") and not said
    tab.close()
