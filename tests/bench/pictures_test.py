#!/usr/bin/env python3
"""pictures_test.py SIZES.json PRODUCTS.json: pictures.py draws every case and product of the reports, into small PNGs."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import pictures


def drawn(panel):
    """Label -> places of the marks, in the order in which they were drawn."""
    return {artist.get_label(): artist for artist in panel.lines + panel.collections if not artist.get_label().startswith("_")}


def rows_of(report, products):
    return [row for row in report["rows"] if "of_copy" in row and row["verb"].endswith("gemm") == products]


def test_every_case_has_its_line(report):
    figure = pictures.share_of_copy(report)
    panels = {panel.get_title(): drawn(panel) for panel in figure.axes}
    by_case = {}
    for row in rows_of(report, products=False):
        case = row["case"].replace(", graph", "") + ", Nx" + row["shape"].split("x")[1]
        by_case.setdefault((row["verb"], case), []).append((row["bytes"] / 1e6, row["of_copy"]))
    by_case = {name: points for name, points in by_case.items() if len({x for x, _ in points}) >= 3}
    assert by_case, "the report has no case of three sizes"
    assert sum(len(lines) for lines in panels.values()) == len(by_case)
    for (verb, case), points in by_case.items():
        line = panels[verb][case]
        assert sorted(zip(line.get_xdata(), line.get_ydata())) == sorted(points), (verb, case)
    return len(by_case)


def test_every_product_has_its_mark(report):
    marks = drawn(pictures.roofline(report).axes[0])
    rows = rows_of(report, products=True)
    for name in {(row["verb"], row["implementation"]) for row in rows}:
        own = [row for row in rows if (row["verb"], row["implementation"]) == name]
        places = marks.pop(f"{name[0]}: {name[1]} ({len(own)})").get_offsets()
        assert len(places) == len(own), name
        for (x, y), row in zip(places, own):
            assert abs(y * 1e6 * row["us"] / row["bytes"] - x) < 1e-3 * x, row
            tera = row["rate"] if row["unit"] == "TFLOP/s" else row["rate"] / 1e3
            assert abs(y - tera) < 1e-6 * tera, row
    ceilings = 3 if report["machine"].startswith("NVIDIA H") else 1
    assert len(marks) == ceilings, list(marks)
    return len(rows)


def test_pngs(sizes, products):
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(__file__).with_name("pictures.py")
        subprocess.run([sys.executable, script, sizes, products, folder], check=True, stdout=subprocess.DEVNULL)
        written = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
    assert sorted(written) == ["roofline.png", "share_of_copy.png"]
    for name, png in written.items():
        width, height = struct.unpack(">8x8x2I", png[:24])
        assert png.startswith(b"\x89PNG") and width == 1000 and 400 < height < 1600, (name, width, height)
        assert 5_000 < len(png) < 150_000, (name, len(png))


def main():
    sizes, products = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:3])
    cases, marks = test_every_case_has_its_line(sizes), test_every_product_has_its_mark(products)
    test_pngs(*sys.argv[1:3])
    print(f"{cases} cases, {marks} products")


if __name__ == "__main__":
    main()
