"""mxq-quantize IN OUT: quantizes the weights of a checkpoint, one tensor at a time."""

import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from .. import amax, quantize, version
from .._qtensor import QTensor
from . import layouts
from .layouts import Layout
from .measure import measure
from .reader import Checkpoint, Entry, File, open_checkpoint, read_bytes, read_json, refuse
from .stored import Stored, array, find, load
from .writer import FileWriter, Folder, Output, write_json

INCLUDE = {2: ("*.weight",), 3: ("*.experts.gate_up_proj", "*.experts.down_proj")}
EXCLUDE = ("*embed*", "*lm_head*", "*norm*", "*router*", "*.gate.weight")
REPORT = "quantization_report.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
Row = Dict[str, Any]
Progress = Callable[[int, str], Any]


class Recipe(NamedTuple):
    """What is asked for: how weights are stored, and which tensors are weights."""

    layout: Layout
    include: Tuple[str, ...]
    exclude: Tuple[str, ...]


class Step(NamedTuple):
    """What happens to a tensor: it is quantized to a layout, widened from FP8 to BF16, or copied, for the reason in `note`."""

    source: Stored
    layout: Optional[Layout]
    note: str
    outputs: List[Output]


def recipe(
    layout: str, format: str, scaling: Optional[str] = None, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Recipe:
    """include, exclude: patterns of the shell, in place of INCLUDE and EXCLUDE."""
    row = layouts.choose(layout, format, scaling)
    return Recipe(row, tuple(include) or INCLUDE[row.rank], tuple(exclude) or EXCLUDE)


def _any(patterns: Sequence[str], name: str) -> Optional[str]:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _fp8_source(source: Stored) -> bool:
    return source.format == "fp8_e4m3" and source.scaling == "128x128" and len(source.shape) == 2


def _step(source: Stored, recipe: Recipe) -> Step:
    """Decides what happens to a tensor."""
    layout, fp8 = recipe.layout, _fp8_source(source)
    if source.scales is not None and not fp8:
        refuse(
            source.codes.path,
            f"tensor {source.name!r}",
            "F32, F16, BF16, or FP8 with a scale for each 128x128",
            f"{source.format} {source.scaling} {source.convert}".strip(),
        )
    matched, excluded = _any(recipe.include, source.name), _any(recipe.exclude, source.name)
    dtype = "BF16" if fp8 else source.codes.dtype
    note = ""
    if not matched:
        note = "not included"
    elif excluded:
        note = f"excluded by {excluded}"
    elif not source.name.endswith(layout.suffix):
        note = f"its name does not end with {layout.suffix}"
    else:
        note = layouts.unfit(layout, dtype, source.shape)
    if not note:
        return Step(source, layout, "", layouts.outputs(layout, source.name, source.shape))
    return Step(source, None, note, [Output(source.name, dtype, source.shape)])


def plan(checkpoint: Checkpoint, recipe: Recipe) -> Dict[str, List[Step]]:
    """The steps for each file. A tensor that a name of the output would replace is refused."""
    out: Dict[str, List[Step]] = {file.path.name: [] for file in checkpoint.files}
    names: Dict[str, str] = {}
    for source in find(checkpoint):
        step = _step(source, recipe)
        for output in step.outputs:
            if output.name in names:
                refuse(
                    source.codes.path,
                    f"tensor {source.name!r}",
                    f"{output.name!r} once in the output",
                    f"it from {names[output.name]!r}, too",
                )
            names[output.name] = source.name
        out[source.codes.path.name].append(step)
    if not any(step.layout for steps in out.values() for step in steps):
        refuse(
            checkpoint.folder, "tensors", f"a weight that {', '.join(recipe.include)} include and that fits the layout", "none"
        )
    return out


def _experts(entry: Entry) -> Any:
    """Experts (E, inputs, outputs) as one matrix (E * outputs, inputs), which is read and transposed expert by expert."""
    count, inputs, outs = entry.shape
    step = entry.nbytes // count
    out: Any = None
    for expert in range(count):
        part = entry._replace(shape=(inputs, outs), start=entry.start + expert * step, end=entry.start + (expert + 1) * step)
        one = array(part)
        if out is None:
            out = numpy.empty((count, outs, inputs), one.dtype)
        out[expert] = one.T
    return out.reshape(count * outs, inputs)


def _quantized(x: Any, layout: Layout) -> QTensor:
    if layout.format != "nvfp4":
        return quantize(x, layout.format, scaling=layout.scaling)
    return quantize(x, "nvfp4", scaling=layout.scaling, amax=layouts.power_of_two_amax(float(amax(x, "nvfp4")[0])))


def _run(step: Step, file: FileWriter) -> Row:
    """Does a step and tells of it."""
    source, before = step.source, step.source.codes.nbytes + (step.source.scales.nbytes if step.source.scales else 0)
    row: Row = {
        "name": source.name,
        "shape": list(source.shape),
        "bytes_before": before,
        "bytes_after": sum(output.nbytes for output in step.outputs),
    }
    fp8 = _fp8_source(source)
    if step.layout is None:
        file.add(step.outputs[0].name, load(source).dequantize("bfloat16") if fp8 else read_bytes(source.codes))
        return {**row, "format": step.outputs[0].dtype, "note": step.note}
    x = load(source).dequantize("float32") if fp8 else _experts(source.codes) if step.layout.rank == 3 else array(source.codes)
    q = _quantized(x, step.layout)
    for output, made in zip(step.outputs, layouts.arrays(step.layout, q)):
        file.add(output.name, made)
    return {**row, "format": step.layout.format, "scaling": step.layout.scaling, **measure(x, q)}


def _plain_modules(steps: Sequence[Step]) -> List[str]:
    """Modules with a weight of two dimensions or more that stays plain: what readers must not take for quantized."""
    return sorted(
        {
            step.source.name[: -len(".weight")]
            for step in steps
            if step.layout is None and step.source.name.endswith(".weight") and len(step.source.shape) > 1
        }
    )


def _config(source: Path, folder: Folder, layout: Layout, steps: Sequence[Step]) -> None:
    """Writes config.json with the block of the layout, and copies what else lies beside the weights, such as a tokenizer."""
    block = layouts.config_block(layout, _plain_modules(steps))
    config = read_json(source / "config.json") if (source / "config.json").exists() else {}
    for path in sorted(source.iterdir()):
        if (
            path.is_file()
            and not path.name.endswith(_WEIGHTS)
            and path.name not in ("config.json", "hf_quant_config.json", REPORT)
        ):
            shutil.copyfile(path, folder.part / path.name)
    write_json(folder.part / "config.json", {**config, "quantization_config": block})
    if layout.layout == "modelopt":
        write_json(folder.part / "hf_quant_config.json", layouts.modelopt_file(block))


def _file(file: File, steps: List[Step], folder: Folder, progress: Progress) -> List[Row]:
    """Writes one file, or takes what an interrupted run wrote of it."""
    name = file.path.name
    rows = folder.rows(name)
    if rows is not None:
        progress(sum(row["bytes_before"] for row in rows), name)
        return rows
    rows = []
    writer = folder.file(name, [output for step in steps for output in step.outputs], file.metadata)
    try:
        for step in steps:
            rows.append(_run(step, writer))
            progress(rows[-1]["bytes_before"], step.source.name)
        folder.complete(writer, rows)
    finally:
        writer.close()
    return rows


def _identity(checkpoint: Checkpoint, recipe: Recipe) -> Dict[str, Any]:
    """What an interrupted run must have in common with the one that goes on."""
    files = [[str(file.path.resolve()), file.path.stat().st_size, file.path.stat().st_mtime_ns] for file in checkpoint.files]
    row = recipe.layout
    return {
        "files": files,
        "layout": row.layout,
        "format": row.format,
        "scaling": row.scaling,
        "include": recipe.include,
        "exclude": recipe.exclude,
        "version": version(),
    }


def run(source: Path, out: Path, recipe: Recipe, progress: Progress = lambda count, name: None) -> Dict[str, Any]:
    """Quantizes a checkpoint into a folder and gives the report. All headers are checked before anything is written."""
    checkpoint = open_checkpoint(source)
    steps = plan(checkpoint, recipe)
    folder = Folder(out, _identity(checkpoint, recipe))
    try:
        rows = [row for file in checkpoint.files for row in _file(file, steps[file.path.name], folder, progress)]
        row = recipe.layout
        report = {"layout": row.layout, "format": row.format, "scaling": row.scaling, "version": version(), "tensors": rows}
        every = [step for part in steps.values() for step in part]
        if Path(source).is_dir() or Path(source).suffix == ".json":
            _config(checkpoint.folder, folder, row, every)
        else:
            write_json(folder.part / "config.json", {"quantization_config": layouts.config_block(row, _plain_modules(every))})
        write_json(folder.part / REPORT, report)
        folder.finish(index=len(checkpoint.files) > 1)
    finally:
        folder.close()
    return report
