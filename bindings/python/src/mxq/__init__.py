"""Microscaling formats (MXFP8, MXFP6, MXFP4, NVFP4, block FP8) for numpy, torch and everything with DLPack, by libmxq.

    import mxq
    q = mxq.quantize(x, "mxfp8_e4m3")              # x (tokens, inputs)
    w = mxq.quantize(weights, "mxfp8_e4m3")        # weights (outputs, inputs)
    y = mxq.matmul(q, w.T)                         # an array of x's kind and type; or q @ w.T
    back = q.dequantize()                          # and so is this
    print(q, q.sqnr(x), mxq.plan(mxq.matmul, q, w.T))

Nothing is copied: arrays are read where they are, row strides included, and results are arrays of the kind that went in. What
the library refuses is an mxq.Error with its message.
"""
from . import _matmul, _operators, _verbs
from ._activation import Gradients, activate, activate_backward
from ._call import Plan, plan
from ._context import Context
from ._gguf import from_gguf
from ._groups import Groups, Padded
from ._layer import CombineGradients, Routing, combine, combine_backward, expert_layer, route
from ._layouts import pad_groups, swizzle, unpad_groups, unswizzle
from ._library import Error, build, version
from ._log import set_log_callback
from ._matmul import grouped_matmul, matmul
from ._parts import Part
from ._qtensor import QTensor, Transposed
from ._state import dequantize_state_dict, quantize_state_dict, recipe
from ._transformer_engine import from_transformer_engine, to_transformer_engine
from ._verbs import amax, convert, dequantize, quantize, requantize

__all__ = [
    "CombineGradients", "Context", "Error", "Gradients", "Groups", "Padded", "Part", "Plan", "QTensor", "Routing",
    "Transposed", "activate", "activate_backward", "amax", "build", "combine", "combine_backward", "convert",
    "dequantize", "dequantize_state_dict", "expert_layer", "from_gguf", "from_transformer_engine", "grouped_matmul",
    "matmul", "pad_groups", "plan", "quantize", "quantize_state_dict", "recipe", "requantize", "route",
    "set_log_callback", "swizzle", "to_transformer_engine", "unpad_groups", "unswizzle", "version",
]
__version__ = version()

_operators.Functions.matmul = matmul
_operators.Functions.torch_function = _matmul.torch_function
_operators.Functions.dequantize = dequantize
_operators.Functions.sqnr = _verbs.sqnr
