"""Quantizes the weights of a state dict in memory, under the names and in the shapes that mxq-quantize writes.

A state is planned as a checkpoint of one file is. Its tensors are then quantized where they are, one matrix at a time.
"""

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import numpy

from .. import _kind_numpy
from .._arrays import kind_of
from .._library import Error
from .._names import plain_dtype
from .._verbs import amax, dequantize
from . import layouts
from .plan import Recipe, Step, check_scales, fp8_source, steps_of
from .reader import BITS, Checkpoint, Entry, File, refuse
from .stored import Stored, as_named, find, floats, load
from .weights import needs_amax, of_blocks, quantized, used_amax
from .writer import Output

State = Dict[str, Any]
_STATE, _OUT = Path("state"), Path("out")
_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "U8",  # two codes, as files have them
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
    "complex64": "C64",
}
_NAMES = {"U8": "uint8", "F8_E4M3": "float8_e4m3fn", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _kind(array: Any, name: str, path: Path) -> Any:
    """The kind of an array, whose buffers can be written."""
    kind = kind_of(array, f"{path}[{name!r}]")
    if kind.name == "dlpack":
        raise Error(f"{path}[{name!r}] is a {type(array).__name__}, expected a numpy array or a torch tensor")
    return kind


def _memory(array: Any, name: str, path: Path) -> Any:
    return _kind(array, name, path).memory(array, f"{path}[{name!r}]")


def _checkpoint(state: State) -> Checkpoint:
    """The state as the plan of a checkpoint reads it."""
    entries: Dict[str, Entry] = {}
    for name, array in state.items():
        memory = _memory(array, name, _STATE)
        dtype = _TYPES.get(memory.dtype)
        if dtype is None:
            refuse(_STATE, f"tensor {name!r}", f"a dtype of {', '.join(_TYPES)}", memory.dtype)
        nbytes = int(numpy.prod(memory.shape, dtype=object)) * BITS[dtype] // 8
        entries[name] = Entry(name, dtype, memory.shape, 0, nbytes, _STATE)
    return Checkpoint(_STATE, [File(_STATE, {}, entries)], entries, whole=False)


def _detached(state: Mapping[str, Any]) -> State:
    """The arrays of a state, without gradients."""
    return {name: array.detach() if hasattr(array, "detach") else array for name, array in state.items()}


def _array(state: State, entry: Entry) -> Any:
    """A tensor of the state without gaps, or one expert of it."""
    array = state[entry.name]
    if tuple(array.shape) != entry.shape:
        array = array[entry.start // entry.nbytes]
    return numpy.ascontiguousarray(array) if kind_of(array) is _kind_numpy else array.contiguous()


def _elements(state: State, entry: Entry) -> Any:
    """The elements of a tensor in one dimension, those of 8 bits as bytes."""
    array = _array(state, entry)
    return _bytes(array, entry.dtype).reshape(-1)


def _bytes(array: Any, dtype: str) -> Any:
    """An array of elements of 8 bits as bytes; others as they are."""
    return kind_of(array).view(array, "uint8") if BITS[dtype] == 8 else array


def _values(state: State, source: Stored, dtype: str = "float32") -> Any:
    """A matrix as it is, or one of FP8 as `dtype`."""
    if source.scales is None:
        return _array(state, source.codes)
    tiles = (-(-size // 128) for size in source.shape)
    scales = floats(source.scales, _elements(state, source.scales)).reshape(*tiles)
    return of_blocks(_bytes(_array(state, source.codes), source.codes.dtype), scales, dtype)


# ---- Buffers ---------------------------------------------------------------------------------------------------------


def _check_buffer(buffer: Any, output: Output, like: Any) -> None:
    """Refuses a buffer that cannot take a tensor as it is. like: the tensor that it is made of."""
    where, memory = f"tensor {output.name!r}", _memory(buffer, output.name, _OUT)
    if kind_of(buffer) is not kind_of(like):
        refuse(_OUT, where, f"a {kind_of(like).name} array, as the state has", type(buffer).__name__)
    if tuple(memory.shape) != output.shape:
        refuse(_OUT, where, f"shape {output.shape}", tuple(memory.shape))
    if _TYPES.get(memory.dtype) != output.dtype and not (memory.dtype == "uint8" and BITS[output.dtype] == 8):
        refuse(_OUT, where, f"dtype {_NAMES.get(output.dtype, output.dtype)}", memory.dtype)
    if memory.read_only or not memory.gapless:
        refuse(_OUT, where, "memory without gaps that can be written", "read-only memory" if memory.read_only else "gaps")


def _buffer(output: Output, like: Any, out: Optional[Mapping[str, Any]], keeps: bool) -> Any:
    """Where a tensor goes: the caller's buffer, what it was where nothing changes, or new memory on the device of `like`."""
    if out is None:
        if keeps:
            return like
        memory = _memory(like, output.name, _STATE)
        count = int(numpy.prod(output.shape, dtype=object))
        return kind_of(like).empty((count,), _NAMES[output.dtype], memory.device).reshape(output.shape)
    if output.name not in out:
        refuse(_OUT, f"tensor {output.name!r}", "a buffer of this name", "none")
    buffer = out[output.name]
    buffer = buffer.detach() if hasattr(buffer, "detach") else buffer
    _check_buffer(buffer, output, like)
    return buffer


def _put(buffer: Any, elements: Any, dtype: str, first: int, count: int) -> None:
    """Copies one of `count` equal shares of a buffer."""
    _bytes(buffer, dtype).reshape(count, -1)[first] = elements.reshape(-1)


# ---- Quantize --------------------------------------------------------------------------------------------------------


def _amaxes(state: State, steps: List[Step]) -> Dict[str, float]:
    """The amax of each group of tensors that have one."""
    out: Dict[str, float] = {}
    for step in steps:
        for source in step.sources if step.layout and needs_amax(step.layout) else ():
            found = float(amax(_values(state, source), step.layout.format)[0])  # type: ignore[union-attr]
            out[step.group] = max(out.get(step.group, 0.0), found)
    return out


def _quantize(state: State, step: Step, layout: layouts.Layout, found: float, buffers: State) -> None:
    number = used_amax(layout, found)
    codes, scales = step.outputs[:2]
    for i, source in enumerate(step.sources):
        part = quantized(_values(state, source), layout, number, step.transposed).part("rowwise")
        _put(buffers[codes.name], part.codes, codes.dtype, i, len(step.sources))
        if layout.scaling != "tensor" or i == 0:
            _put(buffers[scales.name], part.scales, scales.dtype, i, 1 if layout.scaling == "tensor" else len(step.sources))
    if layout.global_scale:
        buffers[step.outputs[2].name].reshape(-1)[0] = float(layouts.stored_global_scale(layout, number))


def _copy(state: State, step: Step, buffers: State) -> None:
    """Widens FP8, or copies a tensor into another buffer than its own."""
    output = step.outputs[0]
    if fp8_source(step.sources[0]):
        for i, source in enumerate(step.sources):
            _put(buffers[output.name], _values(state, source, "bfloat16"), output.dtype, i, len(step.sources))
    elif buffers[output.name] is not state[step.name]:
        _bytes(buffers[output.name], output.dtype)[...] = _bytes(state[step.name], output.dtype)


def quantize(
    state: Mapping[str, Any], recipe: Recipe, out: Optional[Mapping[str, Any]] = None, config: Optional[Dict[str, Any]] = None
) -> State:
    state = _detached(state)
    steps = steps_of(_checkpoint(state), recipe, config or {})
    buffers: State = {}
    for step in steps:
        keeps = step.layout is None and not fp8_source(step.sources[0])
        for output in step.outputs:
            buffers[output.name] = _buffer(output, state[step.sources[0].codes.name], out, keeps)
    amaxes = _amaxes(state, steps)
    for step in steps:
        if step.layout is None:
            _copy(state, step, buffers)
        else:
            _quantize(state, step, step.layout, amaxes.get(step.group, 0.0), buffers)
    return buffers


# ---- Dequantize ------------------------------------------------------------------------------------------------------


def dequantize_state(state: Mapping[str, Any], dtype: Any, out: Optional[Mapping[str, Any]] = None) -> State:
    state = _detached(state)
    name_of_dtype = plain_dtype(dtype)
    wanted, buffers, tensors = _TYPES[name_of_dtype], {}, []
    for one in find(_checkpoint(state)):
        check_scales(one, True, "a tensor of values, or codes with the scales that a layout gives them")
        q, like = None, state[one.codes.name]
        if one.scales is not None:
            q = as_named(one, load(one, lambda entry: _elements(state, entry)))
        output = Output(one.name, one.codes.dtype, one.codes.shape) if q is None else Output(one.name, wanted, q.shape)
        buffers[one.name] = _buffer(output, like, out, q is None)
        tensors.append((output, q, like))
    for output, q, like in tensors:
        if q is not None:
            dequantize(q, name_of_dtype, out=buffers[output.name])
        elif buffers[output.name] is not like:
            _bytes(buffers[output.name], output.dtype)[...] = _bytes(like, output.dtype)
    return buffers
