"""python overhead.py: what mxq.quantize costs on top of the C call that it makes, for a small array: microseconds, the best of many.

Of numpy, and of torch where it is installed, there on a GPU as well. For torch, set OMP_NUM_THREADS=1.
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


def report(name, x, wait=lambda: None):
    call = _verbs._quantize(x)
    arguments = (call.context.address, None, *call.tensors, None, 0, call.kind.stream(call.device))
    c = microseconds(lambda: _library.lib.mxq_quantize(*arguments), wait)
    whole = microseconds(lambda: mxq.quantize(x), wait)
    print(f"{name}: C call through ctypes {c:.1f} us, mxq.quantize {whole:.1f} us: {whole - c:.1f} us over it")


x = np.random.default_rng(0).standard_normal((2, 64), dtype="float32")
report("numpy", x)
try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    report("torch", torch.from_numpy(x))
    if torch.cuda.is_available() and "without CUDA" not in mxq.build():
        report("torch on CUDA", torch.from_numpy(x).cuda(), torch.cuda.synchronize)
