"""Steps of the expert layer on rows by index, and products along the rows: what its gradients are made of."""
from typing import Any, Optional, Tuple

from ._arrays import kind_of, plain
from ._call import Call, set_plain_data
from ._descriptors import checked_spec, new_tensor
from ._layer import Routing
from ._library import Handle, check, lib
from ._products import _Operand, _operand, _product
from ._qtensor import QTensor, allocate
from ._verbs import _quantize_options, parts_of


def _token_rows(routing: Routing, x: Any) -> Tuple[Handle, Tuple[int, int]]:
    """The descriptor of the rows of tokens that a routing sorts by expert, as a matrix with the groups of the experts."""
    view = plain(x, "x")
    shape = (routing.tokens * routing.choices, view.shape[-1])
    handle = new_tensor(view.format, shape)
    if view.row_stride != view.shape[-1]:
        check(lib.mxq_tensor_set_row_stride(handle.value, view.row_stride))
    check(lib.mxq_tensor_set_routing_rows(handle.value, routing.handle.value))
    set_plain_data(handle.value, view, False)
    return handle, shape


def quantize_token_rows(routing: Routing, x: Any, format: str, parts: str, scaling: Optional[str],
                        scale_rounding: Optional[str]) -> QTensor:
    """The rows of tokens of each expert, quantized; x is read by index."""
    source, shape = _token_rows(routing, x)
    kind, memory = kind_of(x, "x"), plain(x, "x").memory
    out, target = allocate(checked_spec(format, scaling, False, "tensor", 448), shape, parts_of(parts), routing.groups, {},
                           memory.dtype, kind, memory.device)
    options, random = _quantize_options(kind, memory.device, scale_rounding)
    made: QTensor = Call("mxq_quantize", None, options, (source.value, target.value), memory.device, kind,
                         (x, routing, source, target, random), lambda: out).run()
    return made


def token_rows_operand(routing: Routing, x: Any) -> _Operand:
    """The rows of tokens of each expert as an operand of a grouped product; x is read by index."""
    handle, shape = _token_rows(routing, x)
    memory, kind = plain(x, "x").memory, kind_of(x, "x")
    return _Operand(handle.value, (x, routing, handle), False, shape, memory.dtype, memory.device, kind, routing.groups, x)


def rows_operand(routing: Routing, rows: Any) -> _Operand:
    """Rows that are sorted by expert, quantized with the groups of the routing or plain."""
    return _operand(rows, "rows", None if isinstance(rows, QTensor) else routing.groups)


def product(rows: _Operand, weights: Any, out: Any, bias: Any = None) -> Any:
    """rows weights for each expert, written to out; rows of no expert are left alone."""
    right = _operand(weights, "weights")
    shape = (rows.shape[-2], right.shape[-1])
    return _product("mxq_grouped_gemm", rows, right, shape, False, out, None, None, bias=bias).run()


def outer_product(gradient: _Operand, rows: _Operand, out: Any, accumulate: bool) -> Any:
    """gradient^T rows for each expert, written to out or, with `accumulate`, added to it: the gradient of weights."""
    left = gradient._replace(transposed=True, shape=(gradient.shape[-1], gradient.shape[-2]))
    shape = tuple(out.shape)
    return _product("mxq_grouped_gemm", left, rows, shape, False, out, None, None, accumulate=accumulate).run()
