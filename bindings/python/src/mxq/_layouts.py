"""Verbs that move bytes: pad_groups, unpad_groups, swizzle, unswizzle."""
import functools
from typing import Any, Dict, Optional, Tuple, Union

from . import _raw
from ._arrays import dense, kind_of, plain
from ._call import Call, plain_tensor, verb
from ._context import Context
from ._groups import Padded, alignments, as_groups, group_count, set_groups
from ._library import Error, check, lib
from ._qtensor import QTensor, allocate
from ._shapes import stored_rows
from ._verbs import loose, padded_tensor, plain_output, quantized_input

Alignment = Union[int, Tuple[int, int]]


def _masks(q: QTensor) -> Dict[str, int]:
    return {name: part.hadamard for name, part in q.parts.items() if part.hadamard is not None}


def _realigned(q: QTensor, name: str, alignment: Alignment, context: Optional[Context]) -> Call:
    """The call that copies the groups of a quantized tensor to another alignment."""
    if q.groups is None:
        raise Error("q has no groups, expected a tensor that was quantized with groups")
    handle, groups = q._descriptor(), q.groups._replace(alignment=alignments(alignment, "alignment"))
    out, target = allocate(q.spec, q.shape, tuple(q.parts), groups, _masks(q), q.dtype, q._kind, q._device)
    like = q._like
    return Call(name, context, None, (handle.value, target.value), q._device, q._kind, (q, handle, target),
                functools.partial(out._handed_over, like))


def _pad_groups(x: Any, groups: Any = None, *, alignment: Alignment, context: Optional[Context] = None) -> Call:
    if isinstance(x, QTensor):
        if groups is not None:
            raise Error("groups were given with a quantized tensor, which has its own")
        return _realigned(x, "mxq_pad_groups", alignment, context)
    if isinstance(x, Padded):
        raise Error("x is padded already, expected an array")
    view, kind = plain(x, "x"), kind_of(x)
    device = view.memory.device
    grouped = as_groups(groups, kind, device)
    if grouped is None:
        raise Error("groups is None, expected Groups or their ends")
    source = plain_tensor(view, "x")
    set_groups(source.value, grouped._replace(alignment=(1, 0)), device)

    padded = grouped._replace(alignment=alignments(alignment, "alignment")).owned(device)
    count, ends_type = group_count(grouped), dense(grouped.ends, "groups.ends").dtype
    rows, cols = view.shape[-2], view.shape[-1]
    out = kind.zeros((stored_rows(rows, count, padded.alignment[0]), cols), view.memory.dtype, device)
    starts, ends = kind.empty((count,), ends_type, device), kind.empty((count,), ends_type, device)
    target = padded_tensor(plain(out, "out"), (rows, cols), padded, True)
    first, last = dense(starts, "starts"), dense(ends, "ends")
    size = count * (4 if ends_type == "int32" else 8)
    check(lib.mxq_tensor_set_padded_groups(target.value, _raw.MXQ_PART_ROWWISE, first.address, size, last.address, size))
    return Call("mxq_pad_groups", context, None, (source.value, target.value), device, kind, (x, source, target),
                lambda: Padded(kind.give(out, x), rows, padded, kind.give(starts, x), kind.give(ends, x)))


@verb(_pad_groups)
def pad_groups(x: Any, groups: Any = None, *, alignment: Alignment, context: Optional[Context] = None) -> Any:
    """Pads each group of rows to a multiple of an alignment: of an array to a Padded, of a quantized tensor to another.

    alignment: of rows, or of (rows, columns of columnwise codes), where 0 is the least that the format takes.
    """
    return _pad_groups(x, groups, alignment=alignment, context=context).run()


def _unpad_groups(x: Any, *, alignment: Alignment = 1, out: Any = None, context: Optional[Context] = None) -> Call:
    if isinstance(x, QTensor):
        return _realigned(x, "mxq_unpad_groups", alignment, context)
    if not isinstance(x, Padded):
        raise Error(f"x is a {type(x).__name__}, expected a Padded, as pad_groups makes them, or a QTensor with groups")
    view, kind = plain(x.values, "x.values"), kind_of(x.values)
    device = view.memory.device
    groups = as_groups(x.groups, kind, device)
    if groups is None:
        raise Error("x.groups is None, expected Groups or their ends")
    shape = (x.rows, view.shape[-1])
    source = padded_tensor(view, shape, groups, False)
    given = out is not None
    target, out = plain_output(out, shape, view.memory.dtype, kind, device, loose(groups))
    set_groups(target.value, groups._replace(alignment=(1, 0)), device)
    return Call("mxq_unpad_groups", context, None, (source.value, target.value), device, kind, (x, source, target),
                lambda: out if given else kind.give(out, x.values))


@verb(_unpad_groups)
def unpad_groups(x: Any, *, alignment: Alignment = 1, out: Any = None, context: Optional[Context] = None) -> Any:
    """Takes the padding of groups away again: of a Padded gives the array, of a quantized tensor one of a smaller alignment."""
    return _unpad_groups(x, alignment=alignment, out=out, context=context).run()


def _layout(q: Any, name: str, swizzled: bool, context: Optional[Context]) -> Call:
    """The call that copies the scales to another layout. The result shares the codes."""
    q, handle = quantized_input(q, "q")
    if q.swizzled == swizzled:
        raise Error(f"the scales of q are {'swizzled' if swizzled else 'compact'} already")
    moved, target = allocate(q.spec._replace(swizzled=swizzled), q.shape, tuple(q.parts), q.groups, _masks(q), q.dtype, q._kind,
                             q._device, codes=False)
    like = q._like

    def finish() -> QTensor:
        parts = {part: old._replace(scales=q._kind.give(moved.parts[part].scales, like)) for part, old in q.parts.items()}
        return QTensor(moved.spec, q.shape, q.groups, parts, q.dtype, q._device, q._kind)

    return Call(name, context, None, (handle.value, target.value), q._device, q._kind, (q, handle, target), finish)


def _swizzle(q: Any, *, context: Optional[Context] = None) -> Call:
    return _layout(q, "mxq_swizzle_scales", True, context)


def _unswizzle(q: Any, *, context: Optional[Context] = None) -> Call:
    return _layout(q, "mxq_unswizzle_scales", False, context)


@verb(_swizzle)
def swizzle(q: QTensor, *, context: Optional[Context] = None) -> QTensor:
    """The tensor with its scales in the layout of block-scaled tensor cores. It shares the codes."""
    made: QTensor = _swizzle(q, context=context).run()
    return made


@verb(_unswizzle)
def unswizzle(q: QTensor, *, context: Optional[Context] = None) -> QTensor:
    """The tensor with its scales in compact order again. It shares the codes."""
    made: QTensor = _unswizzle(q, context=context).run()
    return made
