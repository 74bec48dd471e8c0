"""The command line of mxq-quantize."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

try:
    import ml_dtypes  # noqa: F401  numpy has no bfloat16 without it
    import numpy  # noqa: F401
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Table
    from rich.text import Text
except ImportError as missing:
    sys.exit(f"mxq-quantize: {missing}; install the packages that it needs: pip install numpy ml_dtypes rich")

from .._library import Error
from .compare import compare, inspect
from .devices import KINDS
from .families import KEPT, MATRICES
from .layouts import LAYOUTS
from .plan import EXPERTS, FUSED, MEASURE, recipe
from .quantize import PAGE, REPORT, run
from .reader import open_checkpoint
from .recipes import recipes

Row = Dict[str, Any]
LONGEST = 60  # rows of a table in the terminal


def _parser() -> argparse.ArgumentParser:
    layouts = list(dict.fromkeys(row.layout for row in LAYOUTS))
    formats = list(dict.fromkeys(row.format for row in LAYOUTS))
    scalings = list(dict.fromkeys(row.scaling for row in LAYOUTS))
    parser = argparse.ArgumentParser(
        prog="mxq-quantize",
        description="Quantizes the weights of a checkpoint of .safetensors files.",
        epilog="mxq-quantize inspect FILE says what a checkpoint has and which tensors libmxq takes as they are. "
        "mxq-quantize compare A B compares the values of two checkpoints. "
        "mxq-quantize recipes FILE says what formats and scalings cost on the weights of a checkpoint.",
    )
    parser.add_argument("input", type=Path, help="a .safetensors file, an index, or their folder")
    parser.add_argument("output", type=Path, help="the folder to make; it appears when it is complete")
    parser.add_argument("--format", required=True, choices=formats)
    parser.add_argument("--scaling", choices=scalings, help="by default the usual one of the layout")
    parser.add_argument(
        "--layout", default=layouts[0], choices=layouts, help="whose names and config block (default: %(default)s)"
    )
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN", help=f"instead of {' '.join(MATRICES)}")
    usual = " ".join(row.pattern for row in KEPT if not row.model_types)
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help=f"instead of {usual}")
    parser.add_argument(
        "--experts",
        default=EXPERTS[0],
        choices=EXPERTS,
        help="split: a tensor for each expert of a stack (experts, outputs, inputs); stack: a stack of the tensors of all experts "
        "(default: %(default)s, as they are)",
    )
    parser.add_argument(
        "--share-global",
        action="store_true",
        help=f"one global scale of NVFP4 for tensors that engines join: {', '.join('/'.join(names) for names in FUSED)}",
    )
    parser.add_argument(
        "--measure",
        default=MEASURE[0],
        choices=MEASURE,
        help="the rows that SQNR and clipped elements are of: the first 128 of each 2048, all, or none (default: %(default)s)",
    )
    parser.add_argument(
        "--device", default="cpu", choices=list(KINDS), help="cuda needs the package torch (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=0, help="by default one for each core, for cuda at most 8")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _small(name: str, count: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"mxq-quantize {name}")
    parser.add_argument("paths", nargs=count, type=Path, metavar="CHECKPOINT")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " x ".join(map(str, value))
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """columns: keys of rows. The name is folded where the terminal is narrow, the others are not."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        right = any(isinstance(row.get(column), (int, float)) for row in rows)
        table.add_column(
            column.replace("_", " "), justify="right" if right else "left", overflow="fold", no_wrap=column != "name"
        )
    for row in rows:
        table.add_row(*(Text(_text(row.get(column))) for column in columns))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _worst(rows: List[Row]) -> List[Row]:
    """The rows with the least SQNR, if there are too many for a terminal."""
    if len(rows) <= LONGEST:
        return rows
    return sorted(rows, key=lambda row: row["sqnr_db"] if row.get("sqnr_db") is not None else -1e9)[:LONGEST]


def _by(rows: Sequence[Row], key: str) -> List[Tuple[str, List[str]]]:
    """The values of a key, the most frequent first, each with the names of its rows."""
    names: Dict[str, List[str]] = {}
    for row in rows:
        if key in row:
            names.setdefault(row[key], []).append(row["name"])
    return sorted(names.items(), key=lambda found: -len(found[1]))


def _some(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _remarks(report: Row) -> List[str]:
    """What a reader of the terminal should know in addition to the table."""
    tensors = report["tensors"]
    lines = [f"{row['name']}: NaN or infinite elements: {row['not_finite']:,}" for row in tensors if row.get("not_finite")]
    if len(lines) > LONGEST:
        lines = [*lines[:LONGEST], f"... and {len(lines) - LONGEST} tensors more"]
    lines += [f"read as ({axes}): {_some(names)}" for axes, names in _by(tensors, "axes")]
    kept = [f"kept: {_some(names)}: {note}" for note, names in _by([row for row in tensors if "scaling" not in row], "note")]
    lines += kept[:LONGEST]
    if report["not_copied"]:
        shown = ", ".join(report["not_copied"][:5]) + (", ..." if len(report["not_copied"]) > 5 else "")
        lines.append(f"not copied: {shown}")
    return lines


def _quantize(arguments: argparse.Namespace) -> None:
    chosen = recipe(
        arguments.layout,
        arguments.format,
        arguments.scaling,
        arguments.include,
        arguments.exclude,
        arguments.experts,
        arguments.share_global,
        arguments.measure,
    )
    total = sum(entry.nbytes for entry in open_checkpoint(arguments.input).entries.values())
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=total)
        report = run(
            arguments.input,
            arguments.output,
            chosen,
            lambda count, name: progress.update(task, advance=count, description=name[-40:]),
            arguments.device,
            max(arguments.threads, 0),
        )
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    rows = [row for row in report["tensors"] if "scaling" in row]
    kept = [row for row in report["tensors"] if "scaling" not in row]
    shown = _worst(rows)
    sampled = any(row.get("measured_rows", 0) < row.get("rows", 0) for row in rows)
    title = f"{len(rows)} tensors quantized" + (f", the {len(shown)} with the least SQNR" if len(shown) < len(rows) else "")
    title += "; SQNR, clipped: of measured rows, the first 128 of each 2048" if sampled else ""
    _table(title, ["name", "shape", "format", "scaling", "bytes_after", "sqnr_db", "clipped", "zero_blocks"], shown)
    for line in _remarks(report):
        print(line)
    before, after = (sum(row[key] for row in report["tensors"]) for key in ("bytes_before", "bytes_after"))
    print(
        f"{len(kept)} tensors kept; {before:,} bytes became {after:,}; all tensors are in {arguments.output / REPORT}, pictures in {PAGE}"
    )


def _main(argv: List[str]) -> None:
    if argv[:1] == ["inspect"]:
        arguments = _small("inspect", 1).parse_args(argv[1:])
        columns, rows = ["name", "family", "dtype", "shape", "descriptor", "needs"], inspect(arguments.paths[0])
    elif argv[:1] == ["compare"]:
        arguments = _small("compare", 2).parse_args(argv[1:])
        columns, rows = ["name", "a", "b", "sqnr_db", "note"], list(compare(*arguments.paths))
    elif argv[:1] == ["recipes"]:
        arguments = _small("recipes", 1).parse_args(argv[1:])
        rows = list(recipes(arguments.paths[0]))
        columns = [
            "format",
            "scaling",
            "option",
            "bytes",
            "bits",
            "weights_db",
            *(["layer_db"] if "layer_db" in rows[0] else []),
        ]
    else:
        _quantize(_parser().parse_args(argv))
        return
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        _table(" ".join(map(str, arguments.paths)), columns, rows)


def main(argv: Optional[List[str]] = None) -> int:
    try:
        _main(sys.argv[1:] if argv is None else argv)
    except (Error, OSError) as error:
        print(f"mxq-quantize: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mxq-quantize: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
