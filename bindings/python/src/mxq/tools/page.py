"""The report as one HTML page without scripts or other files: SQNR by layer, scales of blocks, and a table of all tensors.

A tensor that stands out is marked in every picture: far less SQNR than others of its kind, clipped elements, or blocks of zeros.
"""

import html
import re
from statistics import median
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

Row = Dict[str, Any]
_COLORS = ("#4269d0", "#efb118", "#3ca951", "#a463f2", "#6cc5b0", "#9c6b4e", "#97bbf5", "#9498a0", "#ff8ab7", "#38618c")
_BAD = "#d62728"
_LEAST_DB = 3.0  # under the median of its kind
_ZERO_SHARE = 0.01
_SHOWN = 12  # small histograms
_BINADES = 40
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1b1e23; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
figure { margin: 0 } figcaption { color: #555; font-size: .9rem } svg { width: 100%; height: auto; font: 11px system-ui, sans-serif }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 1rem }
.wide { overflow-x: auto } .wide td:first-child { min-width: 14rem } table { border-collapse: collapse; width: 100%; font-size: .85rem } th { text-align: left; border-bottom: 2px solid #999 }
td { border-bottom: 1px solid #ddd; overflow-wrap: anywhere } td, th { padding: .2rem .6rem .2rem 0 }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .bad { color: #d62728; font-weight: 600 }
.key { display: inline-block; margin-right: 1rem } .key i { display: inline-block; width: .7rem; height: .7rem; margin-right: .3rem }
"""


class Tensor(NamedTuple):
    """A quantized tensor of the report. kind: its name without numbers. faults: why it stands out."""

    row: Row
    kind: str
    layer: int
    faults: List[str]


def _kind(name: str) -> str:
    return re.sub(r"\.\d+(?=\.)", ".*", name)


def _layer(name: str, order: int) -> int:
    """The first number of a name, which in checkpoints is the layer; of a name without one its number in the report."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else order


def _faults(row: Row, usual: float) -> List[str]:
    out = []
    if row.get("sqnr_db") is not None and row["sqnr_db"] < usual - _LEAST_DB:
        out.append(f"SQNR {usual - row['sqnr_db']:.1f} dB under the median of its kind")
    if row.get("not_finite"):
        out.append(f"{row['not_finite']:,} NaN or infinite elements")
    if row.get("clipped"):
        out.append(f"{row['clipped']:,} elements clipped")
    if row["zero_blocks"] > _ZERO_SHARE * row["blocks"]:
        out.append(f"{100 * row['zero_blocks'] / row['blocks']:.1f} % of blocks are zero")
    return out


def tensors(report: Row) -> List[Tensor]:
    """The quantized tensors. What is usual is the median of the kind, or of all where a kind has fewer than 3."""
    rows = [row for row in report["tensors"] if "scaling" in row]
    kinds: Dict[str, List[float]] = {}
    for row in rows:
        if row.get("sqnr_db") is not None:
            kinds.setdefault(_kind(row["name"]), []).append(row["sqnr_db"])
    every = [number for numbers in kinds.values() for number in numbers]
    out = []
    for order, row in enumerate(rows):
        kind = _kind(row["name"])
        peers = kinds.get(kind, [])
        usual = median(peers if len(peers) > 2 else every) if every else 0.0
        out.append(Tensor(row, kind, _layer(row["name"], order), _faults(row, usual)))
    return out


def _text(value: Any) -> str:
    return html.escape(str(value))


def _ticks(low: float, high: float) -> List[float]:
    """Round numbers from low to high, at most 8 steps."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if (high - low) / s <= 8)
    first = -(-int(low) // step) * step
    return [float(number) for number in range(first, int(high) + 1, step)]


def _sqnr_picture(found: Sequence[Tensor]) -> str:
    """A dot for each tensor: its layer from left to right, its SQNR upwards."""
    dots = [tensor for tensor in found if tensor.row.get("sqnr_db") is not None]
    if not dots:
        return "<p>No SQNR was measured.</p>"
    width, height, left, bottom = 960, 320, 45, 30
    values, layers = [tensor.row["sqnr_db"] for tensor in dots], [tensor.layer for tensor in dots]
    low, high = min(values) - 1, max(values) + 1
    last = max(max(layers), 1)
    kinds = list(dict.fromkeys(tensor.kind for tensor in dots))
    colors = {kind: _COLORS[number % len(_COLORS)] for number, kind in enumerate(kinds)}

    def point(tensor: Tensor) -> Tuple[float, float]:
        shift = kinds.index(tensor.kind) / max(len(kinds), 1) - 0.5  # side by side inside of a layer
        x = left + 15 + (tensor.layer + 0.6 * shift + 0.3) / (last + 0.6) * (width - left - 35)
        return x, height - bottom - (tensor.row["sqnr_db"] - low) / (high - low) * (height - bottom - 10)

    out = [f'<svg id="sqnr" viewBox="0 0 {width} {height}" role="img" aria-label="SQNR of each tensor by layer">']
    for tick in _ticks(low, high):
        y = height - bottom - (tick - low) / (high - low) * (height - bottom - 10)
        out.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g} dB</text>')
    for tick in _ticks(0, last):
        x = left + 15 + (tick + 0.3) / (last + 0.6) * (width - left - 35)
        out.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>')
    for tensor in sorted(dots, key=lambda tensor: bool(tensor.faults)):
        x, y = point(tensor)
        bad = f' stroke="{_BAD}" stroke-width="3"' if tensor.faults else ""
        title = f"{_text(tensor.row['name'])}: {tensor.row['sqnr_db']:.2f} dB" + "".join(
            f"; {_text(why)}" for why in tensor.faults
        )
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if tensor.faults else 4}" fill="{colors[tensor.kind]}"{bad}>'
        out.append(f"{shape}<title>{title}</title></circle>")
        if tensor.faults:
            side = ("end", -10) if x > width / 2 else ("start", 10)
            name = _text(tensor.row["name"])
            out.append(f'<text x="{x + side[1]:.1f}" y="{y + 4:.1f}" text-anchor="{side[0]}" fill="{_BAD}">{name}</text>')
    keys = [
        f'<span class="key"><i style="background:{colors[kind]}"></i>{_text(kind)}</span>' for kind in kinds[: len(_COLORS)]
    ]
    more = len(kinds) - len(_COLORS)
    return "".join(out) + "</svg><p>" + "".join(keys) + (f"and {more} kinds more" if more > 0 else "") + "</p>"


def _shares(counts: Dict[str, int]) -> Dict[int, float]:
    """The share of blocks by exponent of two, those far below the largest together; scales of zero at -1000."""
    total = max(sum(counts.values()), 1)
    high = max((int(name) for name in counts if name != "zero"), default=0)
    out: Dict[int, float] = {}
    for name, count in counts.items():
        key = -1000 if name == "zero" else max(int(name), high - _BINADES)
        out[key] = out.get(key, 0) + count / total
    return out


def _histogram(name: str, shares: Dict[int, float], behind: Dict[int, float], size: Tuple[int, int], bad: bool) -> str:
    """Bars of how many blocks have which scale, in front of those of all tensors together."""
    width, height = size
    keys = sorted(key for key in {*shares, *behind} if key != -1000)
    low, high = (keys[0], keys[-1]) if keys else (0, 0)
    columns = ([-1000] if -1000 in shares or -1000 in behind else []) + list(range(low, high + 1))
    top = max([*shares.values(), *behind.values(), 1e-9])
    step = (width - 20) / len(columns)
    out = [f'<svg class="scales" viewBox="0 0 {width} {height}" role="img" aria-label="scales of blocks of {_text(name)}">']
    every = max(1, int(22 / step) + 1)
    for column, key in enumerate(columns):
        x = 10 + column * step
        for part, color in ((behind, "#d9dce1"), (shares, _BAD if bad else _COLORS[0])):
            bar = part.get(key, 0) / top * (height - 24)
            inset = 0 if part is behind else step / 4
            if bar:
                what = "scale 0" if key == -1000 else f"2^{key}"
                out.append(
                    f'<rect x="{x + inset:.1f}" y="{height - 18 - bar:.1f}" width="{step - 1 - 2 * inset:.1f}" '
                    f'height="{max(bar, 0.7):.1f}" fill="{color}"><title>{what}: {100 * part[key]:.3g} % of blocks</title></rect>'
                )
        if column % every == 0:
            label = "zero" if key == -1000 else str(key)
            out.append(f'<text x="{x + step / 2:.1f}" y="{height - 5}" text-anchor="middle">{label}</text>')
    return "".join(out) + "</svg>"


def _scale_pictures(found: Sequence[Tensor]) -> str:
    """The scales of all tensors together, and those of the tensors that stand out or have the least SQNR."""
    measured = [tensor for tensor in found if tensor.row.get("scale_log2")]
    if not measured:
        return "<p>No scales were counted.</p>"
    total: Dict[str, int] = {}
    for tensor in measured:
        for key, count in tensor.row["scale_log2"].items():
            total[key] = total.get(key, 0) + count
    behind = _shares(total)
    worst = sorted(
        measured, key=lambda tensor: (not tensor.faults, tensor.row["sqnr_db"] if tensor.row["sqnr_db"] is not None else 1e9)
    )
    out = [
        "<figure>",
        _histogram("all tensors", behind, {}, (960, 180), False),
        "<figcaption>All tensors</figcaption></figure>",
    ]
    out.append('<div class="small">')
    for tensor in worst[:_SHOWN]:
        name, bad = tensor.row["name"], bool(tensor.faults)
        out += ["<figure>", _histogram(name, _shares(tensor.row["scale_log2"]), behind, (320, 120), bad)]
        mark = ' class="bad"' if bad else ""
        out.append(f"<figcaption{mark}>{_text(name)}</figcaption></figure>")
    return "".join(out) + "</div>"


def _number(value: Any, form: str = ",") -> str:
    return "" if value is None else format(value, form)


def _table(found: Sequence[Tensor], kept: Sequence[Row]) -> str:
    heads = ("tensor", "shape", "format", "bytes", "SQNR dB", "clipped", "zero blocks", "rows measured", "")
    out = ["<div class='wide'><table id='tensors'><thead><tr>", *(f"<th>{head}</th>" for head in heads), "</tr></thead><tbody>"]
    for tensor in sorted(found, key=lambda tensor: not tensor.faults):
        row = tensor.row
        measured = f"{row['measured_rows']:,} of {row['rows']:,}" if "rows" in row else ""
        cells = [row["bytes_after"], None, row.get("clipped"), row["zero_blocks"]]
        numbers = [_number(cells[0]), _number(row.get("sqnr_db"), ".2f"), _number(cells[2]), _number(cells[3]), measured]
        out.append("<tr>" if not tensor.faults else '<tr class="bad">')
        out.append(f"<td>{_text(row['name'])}</td><td>{' x '.join(map(str, row['shape']))}</td>")
        out.append(f"<td>{_text(row['format'])} {_text(row['scaling'])}</td>")
        out += [f'<td class="n">{number}</td>' for number in numbers]
        out.append(f"<td>{_text('; '.join(tensor.faults))}</td></tr>")
    out.append("</tbody></table></div>")
    if kept:
        out.append(f"<details><summary>{len(kept)} tensors kept</summary><table>")
        out += [
            f"<tr><td>{_text(row['name'])}</td><td>{_text(row['format'])}</td><td>{_text(row['note'])}</td></tr>"
            for row in kept
        ]
        out.append("</table></details>")
    return "".join(out)


def page(report: Row) -> str:
    """The HTML of a report of quantize.run."""
    found, kept = tensors(report), [row for row in report["tensors"] if "scaling" not in row]
    before, after = (sum(row[key] for row in report["tensors"]) for key in ("bytes_before", "bytes_after"))
    bad = [tensor for tensor in found if tensor.faults]
    sample = {"sample": "of the first 128 of each 2048 rows", "all": "of all rows", "none": "not measured"}[report["measure"]]
    verdict = "No tensor stands out." if not bad else f'<span class="bad">{len(bad)} of {len(found)} tensors stand out.</span>'
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Quantization report</title>
<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>
<h1>Quantization report</h1>
<p>{len(found)} tensors quantized to {_text(report["format"])} {_text(report["scaling"])} in the layout of {_text(report["layout"])},
{len(kept)} kept; {before:,} bytes became {after:,}. libmxq {_text(report["version"])}. <b id="verdict">{verdict}</b></p>
<p>SQNR, clipped elements and scales are {sample}. A tensor stands out if its SQNR is {_LEAST_DB:g} dB under the median of its kind,
if elements are NaN, infinite or clipped, or if more than {100 * _ZERO_SHARE:g} % of its blocks are zero.</p>
<h2>SQNR by layer</h2><figure>{_sqnr_picture(found)}</figure>
<h2>Scales of blocks</h2>
<p>The share of blocks by the exponent of their scale's power of two. Grey: all tensors. A wide or shifted shape tells of outliers,
blocks at "zero" of values that are lost or were zero.</p>
{_scale_pictures(found)}
<h2>Tensors</h2>{_table(found, kept)}
</body></html>
"""
