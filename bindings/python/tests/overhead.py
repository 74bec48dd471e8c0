"""python overhead.py: what mxq.quantize costs on top of the C call that it makes, for a small array: microseconds, the best of many.

Of numpy, and of torch where it is installed, there on a GPU as well. For torch, set OMP_NUM_THREADS=1. Then what calls of mxq.torch
cost with the operators in C++, where these are there, and without.
"""
import time

import numpy as np

import mxq
from mxq import _library, _verbs


def microseconds(function, wait, batch=50, batches=200):
    """wait: what ends the work of a batch, so that the next one finds the device's queue empty."""
    best = float("inf")
    for _ in range(batches):
        wait()
        begin = time.perf_counter()
        for _ in range(batch):
            function()
        best = min(best, (time.perf_counter() - begin) / batch)
    return 1e6 * best


def c_call(call, wait):
    """What the C call of a prepared call takes through ctypes; None where it needs a workspace."""
    function = getattr(_library.lib, call.verb)
    arguments = (call.context.address, call.options and call.options.value, *call.tensors, None, 0, call.kind.stream(call.device))
    return microseconds(lambda: function(*arguments), wait) if function(*arguments) == 0 else None


def report(name, x, wait=lambda: None):
    call = _verbs._quantize(x)
    c, whole = c_call(call, wait), microseconds(lambda: _verbs._quantize(x).run(), wait)
    print(f"{name}: C call through ctypes {c:.1f} us, mxq.quantize through it {whole:.1f} us: {whole - c:.1f} us over it")


def report_operators(device, wait=lambda: None):
    """Calls of mxq.torch, and of the operators beneath them alone."""
    import mxq.torch as mt
    from mxq import _torch_eager
    from mxq import _torch_native as native
    from mxq._products import prepare_matmul

    if native.ops is None:
        print(f"torch {torch.__version__}: no operators in C++: {native.missing}")
        return
    x, weight = torch.ones(2, 64, device=device), mxq.quantize(torch.ones(32, 64, device=device)).T
    q = mt.quantize(x)
    (codes, scales, _, of_q, *_), (of_weight, its_scales, _, words, *_) = _torch_eager._operand(q, False), _torch_eager._operand(weight, False)
    word = _torch_eager._recipe("mxfp8_e4m3", "rowwise", None, False, "tensor", None, 2).word
    tokens = torch.ones(2, 64, device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)  # a GPU takes no float32
    ids = torch.tensor([[0, 1], [1, 2]], device=device)
    experts = [mxq.quantize(torch.ones(shape, device=device)) for shape in ((4, 64, 64), (4, 64, 32))]
    product = "1 1.0" + of_q + words
    calls = {"mxq.quantize": (lambda: mxq.quantize(x), None, None),
             "q @ w.T": (lambda: q @ weight.base.T, None, None),
             "mxq.torch.quantize": (lambda: mt.quantize(x), lambda: _torch_eager._quantize_part(x, word), _verbs._quantize(x)),
             "mxq.torch.dequantize": (lambda: mt.dequantize(q), lambda: _torch_eager._dequantize_part(codes, scales, "1" + of_q),
                                      _verbs._dequantize(q)),
             "mxq.torch.matmul": (lambda: mt.matmul(q, weight),
                                  lambda: _torch_eager._product(codes, scales, of_weight, its_scales, product), prepare_matmul(q, weight)),
             "mxq.torch.expert_layer": (lambda: mt.expert_layer(tokens, ids, None, *experts), None, None)}
    ops = native.ops
    for name, (call, operator, prepared) in calls.items():
        c = prepared and c_call(prepared, wait)
        of_operator = f", its operator alone {microseconds(operator, wait):.1f} us" if operator else ""
        with_it = microseconds(call, wait)
        try:
            native.ops = None
            in_python = microseconds(call, wait)
        finally:
            native.ops = ops
        c_text = f", the C call through ctypes {c:.1f} us" if c else ""
        print(f"torch {torch.__version__} on {device}, {name}: {with_it:.1f} us{of_operator}{c_text}; in Python {in_python:.1f} us")


def main():
    x = np.random.default_rng(0).standard_normal((2, 64), dtype="float32")
    report("numpy", x)
    if torch is None:
        return
    report("torch", torch.from_numpy(x))
    report_operators("cpu")
    if torch.cuda.is_available() and "without CUDA" not in mxq.build():
        report("torch on CUDA", torch.from_numpy(x).cuda(), torch.cuda.synchronize)
        report_operators("cuda", torch.cuda.synchronize)


try:
    import torch
except ImportError:
    torch = None
if __name__ == "__main__":
    main()
