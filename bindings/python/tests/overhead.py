"""python overhead.py [--device cpu|cuda]: microseconds of a call with a few numbers, the least and the median of many batches.

Calls of mxq.torch, beside each its operator in C++ alone, its C call alone, and the operators in Python; beside all what an eager
operator of torch costs, and the memory of results. Of the CPU also mxq.quantize of numpy. It needs mxq with its library, and for the
operators libmxq_torch.so (native/build.py). Set OMP_NUM_THREADS=1. Times are those of the host, which waits for a GPU between batches.
"""
import argparse
import statistics
import time

import numpy as np

import mxq
from mxq import _library, _verbs

try:
    import torch
except ImportError:
    torch = None


def nothing():
    pass


class Times:
    """wait: what ends the work of a batch, so that the next one finds the device's queue empty."""

    def __init__(self, wait=nothing, batch=50, batches=300):
        self.wait, self.batch, self.batches = wait, batch, batches

    def show(self, name, function):
        times = []
        for _ in range(self.batches):
            self.wait()
            begin = time.perf_counter()
            for _ in range(self.batch):
                function()
            times.append(1e6 * (time.perf_counter() - begin) / self.batch)
        print(f"{name:52}{min(times):8.1f}{statistics.median(times):8.1f}", flush=True)


def c_call(call):
    """The C call of a prepared call, through ctypes, with a workspace where it needs one."""
    function, size = getattr(_library.lib, call.verb), call.plan().workspace_bytes
    memory = call.kind.empty((size + 255,), "uint8", call.device) if size else None
    workspace = -(-memory.data_ptr() // 256) * 256 if size else None
    arguments = (call.context.address, call.options and call.options.value, *call.tensors, workspace, size, call.kind.stream(call.device))
    _library.check(function(*arguments))
    return lambda kept=(call, memory): function(*arguments)


def of_numpy(times):
    x = np.random.default_rng(0).standard_normal((2, 64), dtype="float32")
    times.show("mxq.quantize of numpy", lambda: mxq.quantize(x))
    times.show("    its C call alone, through ctypes", c_call(_verbs._quantize(x)))


def of_torch(times, device):
    import mxq.torch as mt
    from mxq import _torch_eager as eager
    from mxq import _torch_native as native
    from mxq._products import prepare_matmul

    x, weight = torch.ones(2, 64, device=device), mxq.quantize(torch.ones(32, 64, device=device)).T
    q = mt.quantize(x)
    tokens = torch.ones(2, 64, device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)  # a GPU takes no float32
    ids = torch.tensor([[0, 1], [1, 2]], device=device)
    experts = [mxq.quantize(torch.ones(shape, device=device)) for shape in ((4, 64, 64), (4, 64, 32))]
    made = {"codes and scales": (q.rowwise.codes, q.rowwise.scales), "the product": (mt.matmul(q, weight),)}

    times.show("torch: x + 1", lambda: x + 1)
    for name, tensors in made.items():
        like = [(tensor.shape, tensor.dtype) for tensor in tensors]
        times.show(f"torch.empty of {name}", lambda: [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in like])
    operators = {}
    if native.ops is None:
        print(f"no operators in C++: {native.missing}")
    else:
        word = eager._recipe("mxfp8_e4m3", "rowwise", None, False, "tensor", None, 2).word
        (codes, scales, _, of_q, *_), (of_weight, its_scales, _, words, *_) = eager._operand(q, False), eager._operand(weight, False)
        operators = {"mxq.torch.quantize": lambda: eager._quantize_part(x, word),
                     "mxq.torch.dequantize": lambda: eager._dequantize_part(codes, scales, "1" + of_q),
                     "mxq.torch.matmul": lambda: eager._product(codes, scales, of_weight, its_scales, "1 1.0" + of_q + words)}
    calls = {"mxq.torch.quantize": (lambda: mt.quantize(x), _verbs._quantize(x)),
             "mxq.torch.dequantize": (lambda: mt.dequantize(q), _verbs._dequantize(q)),
             "mxq.torch.matmul": (lambda: mt.matmul(q, weight), prepare_matmul(q, weight)),
             "mxq.torch.expert_layer": (lambda: mt.expert_layer(tokens, ids, None, *experts), None),
             "mxq.quantize": (lambda: mxq.quantize(x), None),
             "q @ w.T": (lambda: q @ weight.base.T, None)}
    for name, (call, prepared) in calls.items():
        times.show(name, call)
        if name in operators:
            times.show("    its operator alone", operators[name])
        if prepared is not None:
            times.show("    its C call alone, through ctypes", c_call(prepared))
        if name == "mxq.torch.quantize":
            times.show("    the same of no rows, which launches nothing", c_call(_verbs._quantize(x[:0])))
        ops, native.ops = native.ops, None
        try:
            times.show("    by operators in Python", call)
        finally:
            native.ops = ops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    print(f"{mxq.build()}\n{'torch ' + torch.__version__ if torch else 'no torch'}, {device}, us a call{'least':>20}{'median':>8}")
    times = Times(torch.cuda.synchronize if device == "cuda" else nothing)
    if device == "cpu":
        of_numpy(times)
    if torch is not None:
        of_torch(times, device)


if __name__ == "__main__":
    main()
