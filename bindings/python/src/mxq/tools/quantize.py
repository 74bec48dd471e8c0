"""mxq-quantize IN OUT: quantizes the weights of a checkpoint, chunk by chunk in several threads."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

from .. import version
from . import layouts, page
from .chunks import Chunk, chunk_amax, chunks, copy_chunk, quantize_chunk, widen_chunk
from .devices import Device
from .measure import Measure
from .other_files import copy_other_files
from .plan import Recipe, Step, fp8_source, plain_modules, plan, recipe
from .reader import Checkpoint, File, open_checkpoint, read_config, without_quantization
from .weights import needs_amax, used_amax
from .writer import FileWriter, Folder, write_json

__all__ = ["PAGE", "REPORT", "recipe", "run"]
REPORT, PAGE = "quantization_report.json", "quantization_report.html"
_BEGUN = 1 << 28  # bytes of the tensors that are begun before the first of them is complete
_SAVED = 1 << 28  # bytes after which the disk is waited for, so that an interrupted run goes on from there
Row = Dict[str, Any]
Progress = Callable[[int, str], Any]


class _Work:
    """Runs the chunks of the steps of a file in threads, several steps at once. Only what the threads read is in memory."""

    def __init__(self, device: Device, pool: ThreadPoolExecutor, every: Sequence[Step], mode: str, progress: Progress) -> None:
        """every: the steps of all files, of which some share an amax."""
        self._device, self._pool, self._mode, self._progress = device, pool, mode, progress
        self._groups: Dict[str, List[Step]] = {}
        self._amaxes: Dict[str, List["Future[float]"]] = {}
        for step in every:
            self._groups.setdefault(step.group, []).append(step)

    def _chunks(self, step: Step) -> List[Chunk]:
        return chunks(step, self._device.chunk_bytes)

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        return self._pool.submit(work, self._device, *arguments)

    def _advance(self, nbytes: int, name: str) -> None:
        if nbytes:
            self._progress(nbytes, name)

    def begin(self, step: Step) -> None:
        """Starts what must be known of a tensor before any of it is quantized."""
        layout = step.layout
        if layout is None or not needs_amax(layout) or step.group in self._amaxes:
            return
        members = self._groups[step.group]
        self._amaxes[step.group] = [self._submit(chunk_amax, one, chunk) for one in members for chunk in self._chunks(one)]

    def _amax(self, step: Step) -> float:
        found = max((future.result() for future in self._amaxes.get(step.group, [])), default=0.0)
        return used_amax(step.layout, found) if step.layout else found

    def stop(self) -> None:
        """Waits for the chunks that threads are at, and leaves out the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, step: Step, file: FileWriter) -> Callable[[], Row]:
        """Starts a step that was begun. Gives a function that waits for it and tells of it."""
        self.begin(step)
        amax = self._amax(step)
        if step.layout is not None:
            parts = [
                (self._submit(quantize_chunk, step, part, amax, file, self._mode), part.nbytes) for part in self._chunks(step)
            ]
            if step.layout.global_scale:
                file.add(step.outputs[2].name, layouts.stored_global_scale(step.layout, amax))
        elif fp8_source(step.sources[0]):
            parts = [(self._submit(widen_chunk, step, part, file), part.nbytes) for part in self._chunks(step)]
        else:
            size, many = step.sources[0].codes.nbytes, self._device.chunk_bytes
            ends = [(first, min(first + many, size)) for first in range(0, max(size, 1), many)]
            parts = [(self._submit(copy_chunk, step, first, last, file), last - first) for first, last in ends]
        return lambda: self._wait(step, file, parts)

    def _wait(self, step: Step, file: FileWriter, parts: Sequence[Any]) -> Row:
        out: Optional[Measure] = None
        for future, nbytes in parts:
            found = future.result()
            self._advance(nbytes, step.name)
            if out is None:
                out = found
            else:
                out.merge(found)
        for output in step.outputs:
            file.flush(output.name)
        self._advance(step.bytes_before - sum(nbytes for _, nbytes in parts), step.name)
        row: Row = {
            "name": step.name,
            "shape": list(step.shape),
            "bytes_before": step.bytes_before,
            "bytes_after": sum(output.nbytes for output in step.outputs),
        }
        if step.layout is None or out is None:
            return {**row, "format": step.outputs[0].dtype, "note": step.note}
        if len(step.shape) == 3:
            row["axes"] = "experts, inputs, outputs" if step.transposed else "experts, outputs, inputs"
        return {**row, "format": step.layout.format, "scaling": step.layout.scaling, **out.row()}


def _run_steps(steps: Sequence[Step], work: _Work, writer: FileWriter, done: Callable[[Row], None]) -> None:
    """Does steps in their order, of which some are begun while those before them are done."""
    begun: Deque[Step] = deque()
    started: Deque[Callable[[], Row]] = deque()
    ahead = 0
    for step in steps:
        work.begin(step)
        begun.append(step)
        ahead += step.bytes_before
        while ahead > _BEGUN and len(begun) > 1:
            ahead -= begun[0].bytes_before
            started.append(work.start(begun.popleft(), writer))
            if len(started) > 4:
                done(started.popleft()())
    for step in begun:
        started.append(work.start(step, writer))
    for wait in started:
        done(wait())


def _config(checkpoint: Checkpoint, folder: Folder, recipe: Recipe, steps: Sequence[Step]) -> List[str]:
    """Writes config.json with the block of the layout, and copies the files other than weights, such as a tokenizer.

    Gives the names of what is not copied.
    """
    left = copy_other_files(checkpoint.folder, folder, ("config.json", "hf_quant_config.json", REPORT, PAGE), checkpoint)
    block = layouts.config_block(recipe.layout, plain_modules(steps))
    config = without_quantization(read_config(checkpoint))
    write_json(folder.part / "config.json", {**config, "quantization_config": block})
    if recipe.layout.layout == "modelopt" and checkpoint.whole:
        write_json(folder.part / "hf_quant_config.json", layouts.modelopt_file(block))
    return left


def _file(file: File, steps: List[Step], folder: Folder, work: _Work, progress: Progress) -> List[Row]:
    """Writes one file, or what an interrupted run did not write of it."""
    name = file.path.name
    rows = folder.rows(name)
    if rows is not None:
        progress(sum(row["bytes_before"] for row in rows), name)
        return rows
    writer, rows = folder.file(name, [output for step in steps for output in step.outputs], file.metadata)
    unsaved = 0
    for step, row in zip(steps, rows):
        for output in step.outputs:
            writer.skip(output.name)
        progress(row["bytes_before"], step.name)

    def done(row: Row) -> None:
        nonlocal unsaved
        rows.append(row)
        unsaved += row["bytes_before"]
        if unsaved >= _SAVED:
            folder.save(writer, rows)
            unsaved = 0

    try:
        _run_steps(steps[len(rows) :], work, writer, done)
        folder.complete(writer, rows)
    except BaseException:
        work.stop()
        folder.save(writer, rows)
        raise
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
        "experts": recipe.experts,
        "share_global": recipe.share_global,
        "measure": recipe.measure,
        "version": version(),
    }


def _report(recipe: Recipe, device: str, rows: List[Row], left: List[str]) -> Row:
    """left: files of the input that are not copied."""
    row = recipe.layout
    head = {"layout": row.layout, "format": row.format, "scaling": row.scaling, "measure": recipe.measure}
    return {**head, "version": version(), "device": device, "tensors": rows, "not_copied": left}


def run(
    source: Path,
    out: Path,
    recipe: Recipe,
    progress: Progress = lambda count, name: None,
    device: str = "cpu",
    threads: int = 0,
) -> Row:
    """Quantizes a checkpoint into a folder and gives the report. All headers are checked before anything is written.

    threads: by default one for each core; see Device.
    """
    checkpoint = open_checkpoint(source)
    steps = plan(checkpoint, recipe)
    every = [step for part in steps.values() for step in part]
    where = Device(device, threads)
    folder = Folder(out, _identity(checkpoint, recipe))
    pool = ThreadPoolExecutor(where.threads, "mxq-quantize")
    try:
        work = _Work(where, pool, every, recipe.measure, progress)
        rows = [row for file in checkpoint.files for row in _file(file, steps[file.path.name], folder, work, progress)]
        report = _report(recipe, device, rows, _config(checkpoint, folder, recipe, every))
        write_json(folder.part / REPORT, report)
        (folder.part / PAGE).write_text(page.page(report), encoding="utf-8")
        folder.finish(checkpoint.index_name)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        folder.close()
    return report
