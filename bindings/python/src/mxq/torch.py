"""mxq for torch programs that compile and train: the verbs as custom operators, linear layers with gradients, and torchao.

    import mxq.torch as mt
    y = mt.linear(x, weight, "mxfp8_e4m3")                      # x weight^T of quantized operands, differentiable
    y = mt.grouped_linear(x, weights, ends, "mxfp8_e4m3")       # one weight for each group of rows
    y = mt.linear(mt.quantize(x, parts="both"), weight)         # x arrived quantized
    y = mt.expert_layer(x, ids, weights, gate_up, down)         # a mixture of experts, from tokens to tokens
    y = mt.linear(x, mt.quantize(weight))                       # frozen weights: x has a gradient
    q = mt.quantize(x, "nvfp4"); y = mt.matmul(q, w.T)          # inside of torch.compile, too

Products have gradients of plain tensors and biases; quantize and dequantize have none, and what they give is a constant.

ends: one past the last row of each group, as a tensor or a list, which must cover all rows; or mxq.Groups, which say for
themselves (cover_rows), and whose alignment is that of rows once they are quantized. The CPU checks them. On a GPU the host does not know them, and rows that are in no group are zero;
check_ends=True compares them there, for which the host waits for the device.

mxq.quantize and the others take torch tensors as well, with all options; these here are for graphs.
"""
from ._torch_experts import expert_layer
from ._torch_linear import grouped_linear, linear
from ._torch_verbs import dequantize, grouped_matmul, matmul, quantize
from ._torch_weights import Weights
from ._torchao import from_mxtensor, to_mxtensor
from ._transformer_engine import from_transformer_engine, to_transformer_engine

__all__ = [
    "Weights", "dequantize", "expert_layer", "from_mxtensor", "from_transformer_engine", "grouped_linear", "grouped_matmul", "linear",
    "matmul", "quantize", "to_mxtensor", "to_transformer_engine",
]
