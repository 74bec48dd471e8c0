"""Products in jax programs, with the gradients of plain operands and the bias. A quantized tensor is a constant."""
import functools
from typing import Any, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp

from ._jax_calls import QTensor, as_ends, multiply, within
from ._library import Error
from ._names import plain_dtype


class _How(NamedTuple):
    """How a product is made: what is known when a program is traced."""

    dtype: str
    exact: bool
    invariant: bool
    covers: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(how: _How, a: Any, b: Any, ends: Any, bias: Any) -> Any:
    made = multiply(a, b, ends=ends, bias=bias, dtype=how.dtype, exact=how.exact, invariant=how.invariant, covers=ends is not None and how.covers)
    return made if ends is None or how.covers else within(made, ends)


def _forward(how: _How, a: Any, b: Any, ends: Any, bias: Any) -> Tuple[Any, Any]:
    return _product(how, a, b, ends, bias), (a, b, ends, bias)


def _backward(how: _How, kept: Any, dy: Any) -> Tuple[Any, ...]:
    a, b, ends, bias = kept
    da = db = dbias = None
    if not isinstance(a, QTensor):
        da = _product_with_transpose(how._replace(dtype=str(a.dtype)), dy.astype(a.dtype), b, ends)
    if not isinstance(b, QTensor):
        if ends is not None and isinstance(a, QTensor):
            raise Error("b has a gradient, which a quantized a does not give; give a as a plain array, or take jax.lax.stop_gradient(b)")
        db = multiply(a, dy.astype(b.dtype if ends is None else a.dtype), ends=ends, dtype=b.dtype, exact=how.exact, transposed=True)
    if bias is not None:
        dbias = (dy.astype(jnp.float32).sum(0) if ends is None else group_sums(dy, ends)).astype(bias.dtype)
    return da, db, None, dbias


_product.defvjp(_forward, _backward)


def _product_with_transpose(how: _How, dy: Any, b: Any, ends: Any) -> Any:
    """dy b^T: of a quantized b its other part, or the same one read the other way, where that is all."""
    if isinstance(b, QTensor):
        return _product(how, dy, b.mT, ends, None)
    made = multiply(dy, b, ends=ends, dtype=how.dtype, exact=how.exact, invariant=how.invariant, b_transposed=True)
    return made if ends is None or how.covers else within(made, ends)


def group_sums(rows: Any, ends: Any) -> Any:
    """The sum of the rows of each group, in float32: the gradient of a bias."""
    group = jnp.searchsorted(ends, jnp.arange(rows.shape[0], dtype=ends.dtype), side="right")
    return jax.ops.segment_sum(rows.astype(jnp.float32), group, ends.shape[0] + 1)[:-1]


def _how(a: Any, dtype: Any, exact_products: bool, row_invariant: bool, cover_rows: bool) -> _How:
    return _How(plain_dtype(dtype or str(a.dtype)), exact_products, row_invariant, cover_rows)


def matmul(a: Any, b: Any, *, bias: Optional[Any] = None, dtype: Any = None, exact_products: bool = False,
           row_invariant: bool = False) -> Any:
    """a b of plain arrays or quantized tensors, such as matmul(x, w.mT). dtype: of the result, by default that of a."""
    made: Any = _product(_how(a, dtype, exact_products, row_invariant, True), a, b, None, bias)
    return made


def grouped_matmul(a: Any, b: Any, ends: Any = None, *, bias: Optional[Any] = None, dtype: Any = None, exact_products: bool = False,
                   row_invariant: bool = False, cover_rows: bool = False) -> Any:
    """One product for each group of rows of a, such as the tokens of each expert: (rows, K) and (groups, K, N) give (rows, N).

    ends: one past the last row of each group, int32 or int64; those of a quantized a are its own. Rows in no group are zero, or with
    cover_rows there are none. bias: (groups, N).
    """
    if isinstance(a, QTensor):
        if ends is not None:
            raise Error("ends were given with a quantized a, which has its own; quantize it with ends")
        ends = a.ends
    if ends is None:
        raise Error("a has no groups; quantize it with ends, or give ends with an array")
    made: Any = _product(_how(a, dtype, exact_products, row_invariant, cover_rows), a, b, as_ends(ends), bias)
    return made
