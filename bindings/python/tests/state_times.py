"""python state_times.py [cpu|cuda]: times of mxq.quantize_state_dict into buffers that are there, and the memory that it takes on top.

Of 16 matrices of 4096 x 4096 in BF16. Times are the best of five, in seconds. Memory is the most that the process (on a GPU: torch)
had at once during a call, less what it had before.
"""
import ctypes
import resource
import sys
import threading
import time

import torch

import mxq

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
LAYOUTS = [("compressed-tensors", "mxfp8_e4m3"), ("compressed-tensors", "mxfp4"), ("compressed-tensors", "nvfp4"), ("deepseek", "fp8_e4m3")]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Peak:
    """The most memory while a block runs, which a thread looks at each millisecond."""

    def __enter__(self):
        ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, and counts again once it is used
        self.before, self.most, self.running = resident(), 0, True
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while self.running:
            self.most = max(self.most, resident() - self.before)
            time.sleep(0.001)

    def __exit__(self, *exception):
        self.running = False
        self.thread.join()


def once(function):
    begin = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


state = {f"layers.{i}.mlp.down_proj.weight": torch.randn(4096, 4096, device=device).to(torch.bfloat16) for i in range(16)}
for layout, format in LAYOUTS:
    recipe = mxq.recipe(layout, format)
    buffers = mxq.quantize_state_dict(state, recipe)
    call = lambda: mxq.quantize_state_dict(state, recipe, out=buffers)  # noqa: E731
    back = lambda: mxq.dequantize_state_dict(buffers, "bfloat16")  # noqa: E731
    best, best_back = min(once(call) for _ in range(5)), min(once(back) for _ in range(5))
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        most = torch.cuda.max_memory_allocated() - before
    else:
        with Peak() as peak:
            call()
        most = peak.most
    print(f"{layout} {format} on {device}: {best:.3f} s, {most / 1e6:.1f} MB on top; back {best_back:.3f} s", flush=True)
