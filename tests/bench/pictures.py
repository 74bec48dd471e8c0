#!/usr/bin/env python3
"""Draws reports of mxq_bench: the share of the copy rate against size, and the roofline of the products.

    pictures.py SIZES.json PRODUCTS.json FOLDER

SIZES is a report of `mxq_bench --suite sizes --json SIZES.json`, PRODUCTS one with gemm and grouped_gemm, such as runs/h200.json.
One report may serve as both. Writes share_of_copy.png and roofline.png into the folder. Needs matplotlib.
"""
import io
import json
import pathlib
import sys

import matplotlib
from PIL import Image  # matplotlib needs it, too

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend comes first)

# Dense rates of the datasheet (NVIDIA H100 and H200, SXM; FP8 1979 and BF16 989.5 TFLOP/s without sparsity). Under load clocks
# are lower: a loop of FP8 tensor core instructions alone reaches about 1700.
TENSOR_CORES = {"FP8": 1979.0, "BF16": 989.5}
CHIPS_WITH_THEM = ("NVIDIA H100", "NVIDIA H200")
PER_SECOND = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
MARKERS = "osD^vP*Xd<>p"


def measured(report):
    """The rows that have a time of the device: neither left out nor of the host alone."""
    return [row for row in report["rows"] if row.get("us") and "of_copy" in row]


def is_product(row):
    return row["verb"] in ("gemm", "grouped_gemm")


def operations(row):
    value, unit = row["rate"], row["unit"]
    return value * PER_SECOND[unit] * row["us"] * 1e-6


def share_families(report):
    """Rows of one verb, case and width by growing size: {(verb, case, width and groups): rows}, without those of few sizes."""
    families = {}
    for row in measured(report):
        if not is_product(row):
            width = row["shape"].split("x")[-1]
            families.setdefault((row["verb"], row["case"].replace(", graph", ""), width), []).append(row)
    return {name: sorted(rows, key=lambda row: row["bytes"]) for name, rows in families.items()
            if len({row["bytes"] for row in rows}) > 2}


def product_families(report):
    """Rows of products by what ran them: {(verb, implementation): rows}."""
    families = {}
    for row in measured(report):
        if is_product(row):
            families.setdefault((row["verb"], row["implementation"]), []).append(row)
    return families


def caption(report):
    versions = ", ".join(f"libmxq {library['version']}" for library in report["libraries"] if library.get("version"))
    return f"{report['machine'].split(',')[0]}, {report['date'].split()[0]}, {versions}"


def new_figure(width, height, report, title):
    figure = pyplot.figure(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")
    figure.suptitle(f"{title}\n{caption(report)}", fontsize=11)
    return figure


def share_of_copy(report):
    """A panel for each verb, a line for each case. Hollow marks are replays of a graph, others single calls."""
    families = share_families(report)
    if not families:
        raise SystemExit("the report of sizes has no case of three sizes")
    verbs = list(dict.fromkeys(verb for verb, _, _ in families))
    columns = min(2, len(verbs))
    figure = new_figure(10, 1 + 3.6 * -(-len(verbs) // columns), report,
                        "Share of the copy rate against bytes read and written (hollow: replays of a graph)")
    most_cases = max(sum(of == verb for of, _, _ in families) for verb in verbs)
    panels = figure.subplots(-(-len(verbs) // columns), columns, sharex=True, sharey=True, squeeze=False).flat
    for verb, panel in zip(verbs, panels):
        cases = [(f"{case}, Nx{width}", rows) for (of, case, width), rows in families.items() if of == verb]
        for marker, (case, rows) in zip(MARKERS * len(cases), cases):
            sizes, shares = [row["bytes"] / 1e6 for row in rows], [row["of_copy"] for row in rows]
            line, = panel.plot(sizes, shares, linewidth=1.2, marker=marker, markersize=5, label=case)
            at = [i for i, row in enumerate(rows) if row["case"].endswith(", graph")]
            panel.scatter([sizes[i] for i in at], [shares[i] for i in at], s=25, marker=marker, zorder=3, facecolor="white",
                          edgecolor=line.get_color())
        panel.axhline(1, color="black", linewidth=0.8, linestyle="--")
        panel.set(title=verb, xscale="log")
        panel.set_ylim(0, 1.15 + 0.065 * most_cases)  # so that the names stand above the lines
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7, loc="upper left")
        panel.tick_params(labelbottom=True)
    for panel in panels:
        panel.remove()
    figure.supxlabel("MB read and written", fontsize=9)
    figure.supylabel("share of the copy rate", fontsize=9)
    return figure


def draw_ceilings(panel, report, ends):
    """The rate of the copy, and of tensor cores where the chip is known."""
    memory = report["copy_gbps"] * 1e9
    known = report["machine"].startswith(CHIPS_WITH_THEM)
    flat = {name: rate * 1e12 for name, rate in TENSOR_CORES.items()} if known else {}
    highest = max(flat.values(), default=memory * ends[1])
    ends = [ends[0], max(ends[1], 2 * highest / memory)]
    panel.plot([ends[0], highest / memory], [memory * ends[0] / 1e12, highest / 1e12], color="black",
               label=f"copy, {memory / 1e12:.3g} TB/s")
    for style, (name, rate) in zip(("--", "-."), flat.items()):
        panel.plot([rate / memory, ends[1]], [rate / 1e12] * 2, color="black", linestyle=style,
                   label=f"{name} tensor cores, {rate / 1e12:.0f} TFLOP/s (datasheet)")


def roofline(report):
    """A mark for each product: operations a second against operations for each byte of A, B and D."""
    families = product_families(report)
    if not families:
        raise SystemExit("the report of products has none")
    figure = new_figure(10, 6.5, report, "Roofline of the products")
    panel = figure.subplots()
    points = {name: [(operations(row) / row["bytes"], operations(row) / row["us"] * 1e-6) for row in rows]
              for name, rows in families.items()}
    intensities = [x for marks in points.values() for x, _ in marks]
    draw_ceilings(panel, report, [min(intensities) / 2, max(intensities) * 2])
    colors = pyplot.get_cmap("tab20").colors
    for i, ((verb, implementation), marks) in enumerate(points.items()):
        panel.scatter(*zip(*marks), s=26, color=colors[i % 20], marker=MARKERS[i % len(MARKERS)], zorder=3,
                      label=f"{verb}: {implementation} ({len(marks)})")
    panel.set(xscale="log", yscale="log", xlabel="operations a byte of A, B and D", ylabel="TFLOP/s")
    panel.grid(alpha=0.3, which="both")
    panel.legend(fontsize=8, loc="lower right")
    return figure


def save(figure, path):
    """Writes a PNG of 256 colours, a third of the bytes that matplotlib writes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sizes, products = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:3])
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("share_of_copy", share_of_copy(sizes)), ("roofline", roofline(products))):
        save(figure, folder / f"{name}.png")


if __name__ == "__main__":
    main()
