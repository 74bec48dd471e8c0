"""mxq for jax programs: quantize, products and a layer of experts that jit compiles and grad differentiates.

    import mxq.jax as mj
    q = mj.quantize(x, "mxfp8_e4m3")                            # a QTensor of jax arrays, which is a pytree
    y = mj.matmul(q, w.mT)                                      # w: quantized
    y = mj.grouped_matmul(x, w.mT, ends)                        # one product for each group of rows; x has a gradient
    y = mj.expert_layer(x, ids, weights, gate_up, down)         # a mixture of experts, from tokens to tokens

On the CPU and on CUDA devices, by foreign functions of XLA. Products have gradients of plain arrays and biases, expert_layer those of
mxq.torch.expert_layer. quantize and dequantize have none: what they give is a constant. First derivatives in reverse, and no vmap.
"""
from typing import Any, Optional

import jax

from . import _jax_calls
from ._descriptors import make_spec
from ._jax_calls import QTensor
from ._jax_layer import expert_layer
from ._jax_products import grouped_matmul, matmul

__all__ = ["QTensor", "dequantize", "expert_layer", "grouped_matmul", "matmul", "quantize"]


def quantize(x: Any, format: str = "mxfp8_e4m3", *, parts: Any = "rowwise", scaling: Optional[str] = None, swizzled: bool = False,
             scope: str = "tensor", scale_rounding: Optional[str] = None, ends: Any = None) -> QTensor:
    """mxq.quantize inside of jax programs: (rows, cols) or (experts, rows, cols) of float32, float16 or bfloat16. ends: of groups of rows."""
    spec = make_spec(format, scaling, swizzled, scope, 448)
    return _jax_calls.quantize(jax.lax.stop_gradient(x), spec, parts, scale_rounding, ends)


def dequantize(q: QTensor, dtype: Any = None) -> Any:
    """The values of a quantized tensor, by default of the type that was quantized. Rows in no group are zero."""
    return jax.lax.stop_gradient(_jax_calls.dequantize(q, dtype))
