"""python overhead.py: what mxq.quantize costs beside the C call that it makes, for a small array: microseconds, the best of many."""
import time

import numpy as np

import mxq
from mxq import _library, _verbs

x = np.random.default_rng(0).standard_normal((2, 64), dtype="float32")
call = _verbs._quantize(x)
arguments = (call.context.address, None, *call.tensors, None, 0, None)


def microseconds(function, batch=50, batches=400):
    best = float("inf")
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(batch):
            function()
        best = min(best, (time.perf_counter() - begin) / batch)
    return 1e6 * best


c = microseconds(lambda: _library.lib.mxq_quantize(*arguments))
whole = microseconds(lambda: mxq.quantize(x))
print(f"C call through ctypes {c:.1f} us, mxq.quantize {whole:.1f} us: {whole - c:.1f} us over it")
