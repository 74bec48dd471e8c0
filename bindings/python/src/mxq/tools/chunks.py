"""Does a step in chunks of rows: each is read, quantized, measured and written by one thread, in memory of a few MB."""

from typing import Any, List, NamedTuple

import numpy

from .. import amax
from .devices import Cpu, Device
from .layouts import TILE_ROWS
from .measure import Measure, not_finite
from .plan import Step, fp8_source
from .reader import Entry, read_into
from .stored import Stored, typed
from .weights import of_blocks, quantized
from .writer import FileWriter


class Chunk(NamedTuple):
    """Rows of a source, or all of a transposed one. out_row: the row of the output that the first becomes."""

    source: Stored
    first: int
    last: int
    out_row: int
    nbytes: int


def _rows_of_tile(step: Step) -> int:
    """Rows that only together can be read or quantized."""
    if fp8_source(step.sources[0]):
        return 128
    return TILE_ROWS.get(step.layout.scaling, 1) if step.layout else 1


def chunks(step: Step, chunk_bytes: int) -> List[Chunk]:
    """The chunks of a step that reads matrices, in the order of their bytes."""
    out, tile, out_row = [], _rows_of_tile(step), 0
    for source in step.sources:
        rows, cols = source.shape
        row_bytes = max(source.codes.nbytes // max(rows, 1), 1)
        many = max(chunk_bytes // row_bytes, 1)
        many = rows if step.transposed else max(many // 128 * 128 or many // tile * tile, tile)
        for first in range(0, rows, max(many, 1)):
            last = min(first + many, rows)
            out.append(Chunk(source, first, last, out_row + first, (last - first) * row_bytes))
        out_row += cols if step.transposed else rows
    return out


def _read(here: Cpu, entry: Entry, first: int, last: int, row_elements: int, again: bool, name: str = "source") -> Any:
    """Rows of a tensor, in memory that the next call takes again."""
    row_bytes = entry.nbytes // entry.shape[0]
    data = here.buffer(name, (last - first) * row_bytes)
    read_into(entry, first * row_bytes, data, again)
    return typed(entry, data).reshape(last - first, row_elements)


def _codes(here: Cpu, source: Stored, first: int, last: int, again: bool = False) -> Any:
    """Rows of a source in host memory: values, or codes of FP8."""
    return _read(here, source.codes, first, last, source.shape[1], again)


def _values(here: Cpu, source: Stored, first: int, last: int, host: Any, dtype: str = "float32") -> Any:
    """Rows of a source on the device: as they are, or those of FP8 with scales of 128x128 as `dtype`. host: of _codes()."""
    codes = here.on_device(host)
    if source.scales is None:
        return codes
    rows, cols = (first // 128, -(-last // 128)), source.shape[1]
    scales = _read(here, source.scales, rows[0], rows[1], -(-cols // 128), True, "scales").astype(numpy.float32)
    return of_blocks(codes, here.on_device(scales), dtype, here.context)


def chunk_amax(device: Device, step: Step, chunk: Chunk) -> float:
    """The largest magnitude of a chunk, as the format needs it."""
    assert step.layout is not None
    host = _codes(device.here, chunk.source, chunk.first, chunk.last, again=True)
    x = _values(device.here, chunk.source, chunk.first, chunk.last, host)
    return float(amax(x, step.layout.format, context=device.here.context)[0])


def quantize_chunk(device: Device, step: Step, chunk: Chunk, amax: float, file: FileWriter, mode: str) -> Measure:
    """Quantizes a chunk and writes its codes and scales. amax: that of the tensor, if its scaling has one."""
    layout, here = step.layout, device.here
    assert layout is not None
    host = _codes(here, chunk.source, chunk.first, chunk.last)
    x = _values(here, chunk.source, chunk.first, chunk.last, host)
    q = quantized(x, layout, amax, step.transposed, here.context)
    part = q.part("rowwise")
    codes, scales = here.host(part.codes), here.host(part.scales)
    file.add_chunk(step.outputs[0].name, chunk.out_row * codes.nbytes // len(codes), codes)
    if layout.scaling != "tensor" or chunk.out_row == 0:
        tile = 128 if layout.scaling == "128x128" else 1
        file.add_chunk(step.outputs[1].name, -(-chunk.out_row // tile) * (scales.nbytes // len(scales)), scales)
    out = Measure(layout.format, layout.scaling)
    out.add(here, x.T if step.transposed else x, q, mode, chunk.first)
    out.not_finite = not_finite(host)
    return out


def widen_chunk(device: Device, step: Step, chunk: Chunk, file: FileWriter) -> None:
    """Writes rows of FP8 as BF16."""
    here = device.here
    host = _codes(here, chunk.source, chunk.first, chunk.last)
    x = here.host(_values(here, chunk.source, chunk.first, chunk.last, host, "bfloat16"))
    file.add_chunk(step.outputs[0].name, chunk.out_row * x.nbytes // len(x), x)


def copy_chunk(device: Device, step: Step, first: int, last: int, file: FileWriter) -> None:
    """Copies bytes of a tensor."""
    data = device.here.buffer("source", last - first)
    read_into(step.sources[0].codes, first, data, again=False)
    file.add_chunk(step.outputs[0].name, first, data)
