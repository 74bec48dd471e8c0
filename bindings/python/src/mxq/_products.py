"""The calls of products: of two matrices, and of one matrix for each group."""
from typing import Any, NamedTuple, Optional, Tuple

from . import _raw
from ._arguments import array_argument
from ._arrays import kind_of, plain, plain_list
from ._call import Call, Options, make_options, plain_tensor
from ._context import Context
from ._groups import Groups, Padded, as_groups, group_count, set_groups
from ._library import Error
from ._memory import Device, count, device_name
from ._names import FORMAT_OF_DTYPE, ITEM_BYTES
from ._parts import is_list
from ._qtensor import QTensor, Transposed
from ._verbs import loose, padded_tensor, plain_output, result_dtype


def folded(a: Any, b: Any) -> Tuple[Any, Optional[Tuple[int, ...]]]:
    """The rows of an `a` of other than two dimensions, such as (batch, tokens, width), where b is one matrix; and the dimensions
    before the last. An `a` that stays as it is has None."""
    shape: Any = getattr(a, "shape", ())
    if len(shape) in (0, 2) or len(getattr(b, "shape", ())) != 2 or isinstance(a, Transposed):
        return a, None
    lead = tuple(shape[:-1])
    return (_folded_tensor(a) if isinstance(a, QTensor) else a.reshape(count(lead), shape[-1])), lead


def _folded_tensor(q: QTensor) -> QTensor:
    part, (experts, rows, cols) = q.rowwise, q.shape
    one_amax = q.scope == "tensor" or q.format != "nvfp4"
    if part is None or is_list(part.codes) or q.swizzled or not one_amax or q.scaling not in ("1x32", "1x16", "1x128", "row"):
        raise Error(f"a is {q!r}, whose experts cannot be read as the rows of one matrix; quantize x.reshape(-1, {cols})")
    codes, scales = (field.reshape(experts * rows, *field.shape[2:]) for field in (part.codes, part.scales))
    made = {"rowwise": part._replace(codes=codes, scales=scales)}
    return QTensor(q.spec, (experts * rows, cols), None, made, q.dtype, q._device, q._kind)


def _folded_out(out: Any, shape: Tuple[int, ...]) -> Any:
    if tuple(out.shape) != shape:
        raise Error(f"out has shape {tuple(out.shape)}, expected {shape}")
    flat, kind = out.reshape(count(shape[:-1]), shape[-1]), kind_of(out, "out")
    if kind.memory(flat, "out").address != kind.memory(out, "out").address:
        raise Error(f"out has shape {shape} and gaps between its rows, expected none; make a contiguous copy")
    return flat


class _Operand(NamedTuple):
    """An operand of the product, op(A) or op(B), and its tensor, of which it may be the transpose."""

    address: int
    keep: Any
    transposed: bool
    shape: Tuple[int, ...]
    dtype: str
    device: Device
    kind: Any
    groups: Optional[Groups]
    like: Any


def _operand(x: Any, what: str, groups: Any = None) -> _Operand:
    transposed = isinstance(x, Transposed)
    if transposed or isinstance(x, QTensor):
        q = x.base if transposed else x
        if groups is not None and not transposed and q.groups is None:
            q = q.grouped(groups)
        elif groups is not None:
            raise Error(f"groups were given with a quantized {what}, which has its own; quantize it with groups")
        like = q._like
        handle = q._descriptor()
        return _Operand(handle.value, (q, handle), transposed, x.shape, q.dtype, q._device, q._kind, q.groups, like)
    if isinstance(x, Padded):
        view, kind = plain(x.values, f"{what}.values"), kind_of(x.values)
        own = as_groups(x.groups, kind, view.memory.device)
        shape = (x.rows, view.shape[-1])
        handle = padded_tensor(view, shape, own, False)
        return _Operand(handle.value, (x, handle), False, shape, view.memory.dtype, view.memory.device, kind, own, x.values)
    view, like = (plain_list(x, what, what), x[0]) if isinstance(x, (list, tuple)) else (plain(x, what, what), x)
    handle, kind = plain_tensor(view, what), kind_of(like)
    own = as_groups(groups, kind, view.memory.device)
    if own is not None:
        set_groups(handle.value, own, view.memory.device)
    return _Operand(handle.value, (x, handle), view.transposed, view.seen, view.memory.dtype, view.memory.device, kind, own, like)


def _options(a: _Operand, b: _Operand, bias_shape: Tuple[int, ...], alpha: float, beta: float, accumulate: bool, bias: Any,
             exact_products: bool, row_invariant: bool, sm_count: int, implementation: Optional[str]) -> Tuple[Any, Any]:
    """The options of the C function, and the bias that they point to."""
    setters: Options = []
    if (a.transposed, b.transposed) != (False, True):
        flags = {False: _raw.MXQ_TRANSPOSE_N, True: _raw.MXQ_TRANSPOSE_T}
        setters.append(("transpose", (flags[a.transposed], flags[b.transposed])))
    if alpha != 1:
        setters.append(("alpha", (alpha,)))
    if beta != 0:
        setters.append(("beta", (beta,)))
    if accumulate:
        setters.append(("accumulate", (1,)))
    memory = None
    if bias is not None:
        memory = array_argument(bias, "bias", tuple(FORMAT_OF_DTYPE), bias_shape, a.device)
        setters.append(("bias", (FORMAT_OF_DTYPE[memory.dtype], memory.address, ITEM_BYTES[memory.dtype] * count(bias_shape))))
    if exact_products:
        setters.append(("exact_products", (1,)))
    if row_invariant:
        setters.append(("row_invariant", (1,)))
    if sm_count:
        setters.append(("sm_count", (sm_count,)))
    if implementation:
        setters.append(("implementation", (implementation.encode(),)))
    return make_options("gemm", setters), memory


def _product(verb_name: str, a: _Operand, b: _Operand, shape: Tuple[int, ...], zero: bool, out: Any, dtype: Any,
             context: Optional[Context], alpha: float = 1.0, beta: float = 0.0, accumulate: bool = False, bias: Any = None,
             exact_products: bool = False, row_invariant: bool = False, sm_count: int = 0,
             implementation: Optional[str] = None) -> Call:
    if a.device != b.device:
        raise Error(f"a is on {device_name(a.device)}, but b on {device_name(b.device)}; copy one of them")
    if out is None and (accumulate or beta != 0):
        raise Error("out is None, expected the array that accumulate or beta adds to")
    given = out is not None
    target, out = plain_output(out, shape, result_dtype(dtype, out, a.dtype), a.kind, a.device, zero)
    bias_shape = shape[-1:] if a.groups is None else (group_count(a.groups), shape[-1])
    options, memory = _options(a, b, bias_shape, alpha, beta, accumulate, bias, exact_products, row_invariant, sm_count,
                               implementation)
    return Call(verb_name, context, options, (a.address, b.address, target.value), a.device, a.kind,
                (a.keep, b.keep, target, memory), lambda: out if given else a.kind.give(out, a.like))


def prepare_matmul(a: Any, b: Any, *, dtype: Any = None, out: Any = None, context: Optional[Context] = None, **options: Any) -> Call:
    a, lead = folded(a, b)
    left, right = _operand(a, "a"), _operand(b, "b")
    shape = (left.shape[-2], right.shape[-1])
    if lead is None:
        return _product("mxq_gemm", left, right, shape, False, out, dtype, context, **options)
    unfolded = (*lead, shape[-1])
    flat = None if out is None else _folded_out(out, unfolded)
    call = _product("mxq_gemm", left, right, shape, False, flat, dtype, context, **options)
    finish = call.finish
    call.finish = lambda: finish().reshape(unfolded) if out is None else out
    return call


def prepare_grouped_matmul(a: Any, b: Any, *, groups: Any = None, dtype: Any = None, out: Any = None,
                           context: Optional[Context] = None, **options: Any) -> Call:
    left, right = _operand(a, "a", groups), _operand(b, "b")
    if left.groups is None:
        raise Error("a has no groups; quantize it with groups, or give groups with an array")
    if left.transposed:
        shape: Tuple[int, ...] = (group_count(left.groups), left.shape[-2], right.shape[-1])
    else:
        if len(right.shape) != 3:
            raise Error(f"b has shape {right.shape}, expected (groups, inputs, outputs): one matrix for each group")
        shape = (left.shape[-2], right.shape[-1])
    zero = not left.transposed and loose(left.groups)
    return _product("mxq_grouped_gemm", left, right, shape, zero, out, dtype, context, **options)
