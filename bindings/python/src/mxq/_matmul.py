"""Products: matmul, and grouped_matmul with one matrix for each group. Those that torch must see go through its operators."""
import operator
import sys
from typing import Any, Optional

from ._call import verb
from ._context import Context
from ._products import prepare_grouped_matmul, prepare_matmul
from ._qtensor import QTensor, Transposed


def _torch_follows(*operands: Any) -> bool:
    """Whether torch must see the product as an operator: for a gradient, and inside of torch.compile and torch.func."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    flat = [each for x in operands for each in (x if isinstance(x, (list, tuple)) else (x,))]
    if torch.compiler.is_compiling():
        return any(isinstance(x, (torch.Tensor, QTensor, Transposed)) for x in flat)
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return any(isinstance(x, torch.Tensor) for x in flat)
    return torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in flat)


def _direct(out: Any, beta: float, accumulate: bool, implementation: Any, context: Any) -> Any:
    """The calls of the operators of torch in C++, where these are imported and take a product with these options; None otherwise."""
    if out is not None or beta != 0 or accumulate or implementation is not None or context is not None:
        return None
    return sys.modules.get("mxq._torch_eager")


def _in_cpp(out: Any, beta: float, accumulate: bool, implementation: Any, context: Any) -> Any:
    """The same with lists as arguments, which take more operands in more time."""
    return _direct(out, beta, accumulate, implementation, context) and sys.modules["mxq._torch_native"]


@verb(prepare_matmul)
def matmul(a: Any, b: Any, *, dtype: Any = None, out: Any = None, alpha: float = 1.0, beta: float = 0.0, accumulate: bool = False,
           bias: Any = None, exact_products: bool = False, row_invariant: bool = False, sm_count: int = 0,
           implementation: Optional[str] = None, context: Optional[Context] = None) -> Any:
    """The product alpha a @ b (+ beta out + bias), as an array of `dtype`, by default that of a.

    a, b: quantized tensors, or arrays. An `a` of more dimensions, such as (batch, tokens, inputs), is a matrix of its rows. Blocks
    are along the contraction, so with x (tokens, inputs) and w (outputs, inputs):

        y  = matmul(x, w.T)     rowwise parts of both
        dx = matmul(dy, w)      the rowwise part of dy, the columnwise part of w
        dw = matmul(dy.T, x)    columnwise parts of both

    accumulate: adds to out, which then is float32. exact_products: no implementation that rounds small codes first.
    row_invariant: the bits of a row of the result depend on that row of a and on b, whatever else is in the batch.
    torch: arrays and the bias have gradients; quantized tensors are constants. An `out` is refused where a gradient is wanted.
    """
    eager = _direct(out, beta, accumulate, implementation, context)
    found = eager and eager.product(a, b, None, False, dtype, bias, exact_products, row_invariant, sm_count, alpha)
    if found is not None:
        return found
    options: Any = dict(dtype=dtype, out=out, alpha=alpha, beta=beta, accumulate=accumulate, bias=bias, exact_products=exact_products,
                        row_invariant=row_invariant, sm_count=sm_count, implementation=implementation, context=context)
    if _torch_follows(a, b, bias, out):
        from . import _torch_calls

        return _torch_calls.matmul(a, b, **options)
    native = _in_cpp(out, beta, accumulate, implementation, context)
    found = native and native.product(a, b, None, False, dtype, bias, exact_products, row_invariant, sm_count, alpha)
    if found is not None:
        return found
    return prepare_matmul(a, b, **options).run()


@verb(prepare_grouped_matmul)
def grouped_matmul(a: Any, b: Any, *, groups: Any = None, dtype: Any = None, out: Any = None, alpha: float = 1.0, beta: float = 0.0,
                   accumulate: bool = False, bias: Any = None, exact_products: bool = False, row_invariant: bool = False,
                   sm_count: int = 0, implementation: Optional[str] = None, context: Optional[Context] = None) -> Any:
    """One product for each group of rows, such as the tokens of each expert. x and dy have groups, w is (experts, outputs, inputs):

        y  = grouped_matmul(x, w.mT)     (tokens, outputs)
        dx = grouped_matmul(dy, w)       (tokens, inputs)
        dw = grouped_matmul(dy.T, x)     (experts, outputs, inputs)

    groups: those of an array a; a quantized tensor has its own. Rows that are in no group are zero. bias is (experts, outputs).
    The other options are those of matmul.
    """
    eager = _direct(out, beta, accumulate, implementation, context)
    found = eager and eager.product(a, b, groups, True, dtype, bias, exact_products, row_invariant, sm_count, alpha)
    if found is not None:
        return found
    options: Any = dict(groups=groups, dtype=dtype, out=out, alpha=alpha, beta=beta, accumulate=accumulate, bias=bias,
                        exact_products=exact_products, row_invariant=row_invariant, sm_count=sm_count,
                        implementation=implementation, context=context)
    if _torch_follows(a, b, bias, out):
        from . import _torch_calls

        return _torch_calls.grouped_matmul(a, b, **options)
    native = _in_cpp(out, beta, accumulate, implementation, context)
    found = native and native.grouped_product(a, b, groups, dtype, bias, exact_products, row_invariant, sm_count, alpha)
    if found is not None:
        return found
    return prepare_grouped_matmul(a, b, **options).run()


def torch_function(function: Any, args: Any, kwargs: Any) -> Any:
    """What a function of torch does with a quantized tensor."""
    torch = sys.modules["torch"]
    matmuls = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, operator.matmul)
    if function in matmuls and not kwargs:
        left, right = args
        return matmul(right, left) if function is torch.Tensor.__rmatmul__ else matmul(left, right)
    if function is torch.nn.functional.linear:
        return _linear(*args, **kwargs)
    return NotImplemented


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return matmul(input, weight.T, bias=bias)
