#!/usr/bin/env python3
"""Forward, input gradient and weight gradient of a grouped linear layer in MXFP8, every quantize included, in turns with torch's
BF16 grouped products.

    training_step.py LIBMXQ [--size MxNxK,...] [--groups G] [--scaling 1X32] [--weights 32X32] [--json FILE]

M tokens in G ragged groups, K inputs, N outputs; all results are BF16. In each step the tokens and the gradient of the outputs
are quantized to both parts, and so are the weights, which serve both products. Needs torch 2.11 and a CUDA device.
"""
import argparse
import datetime
import json
import statistics
import sys

try:
    import torch

    from libmxq import Library
    from torch_peers import ragged_ends
except ImportError:
    torch = None

WARMUPS, REPEATS = 3, 11


class Step:
    """The calls of a step, in order, with their names."""

    def __init__(self, library, size, ends, scaling, weight_scaling):
        m, n, k = size
        groups = len(ends)
        random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.x, self.w, self.dy = random(m, k), random(groups, n, k), random(m, n)
        self.y, self.dx, self.dw = random(m, n), random(m, k), random(groups, n, k)
        self.kept, self.calls = [], []
        tensors = []
        for values, scale, of in ((self.x, scaling, ends), (self.w, weight_scaling, None), (self.dy, scaling, ends)):
            tensor, memory = library.quantized("MXFP8_E4M3", values.shape, "BOTH", scale, ends=of)
            self.kept.append(memory)
            self._add(library, "quantize", None, library.plain(values, of), tensor)
            tensors.append(tensor)
        x, w, dy = tensors
        for transposes, a, b, d, of in (("NT", x, w, self.y, ends), ("NN", dy, w, self.dx, ends), ("TN", dy, x, self.dw, None)):
            self._add(library, "grouped_gemm", library.product_options(transposes), a, b, library.plain(d, of))

    def _add(self, library, verb, options, *tensors):
        run, implementation = library.verb(verb, options, *tensors)
        self.calls.append((f"{verb} {implementation}", run))

    def run(self):
        for _, call in self.calls:
            call()


def torch_step(step, ends):
    w, x, dy = step.w, step.x, step.dy
    torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)
    torch._grouped_mm(dy, w, offs=ends)
    torch._grouped_mm(dy.t(), x, offs=ends)


def times_ms(calls):
    """Medians, the calls in turns."""
    times = [[] for _ in calls]
    for repeat in range(WARMUPS + REPEATS):
        for own, call in zip(times, calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            if repeat >= WARMUPS:
                own.append(start.elapsed_time(end))
    return [statistics.median(own) for own in times]


def measure(library, size, groups, scaling, weight_scaling):
    ends = torch.tensor(ragged_ends(size[0], groups), device="cuda", dtype=torch.int32)
    step = Step(library, size, ends, scaling, weight_scaling)
    ours, theirs = times_ms([step.run, lambda: torch_step(step, ends)])
    parts = times_ms([call for _, call in step.calls])
    return {"size": size, "groups": groups, "ms": ours, "torch_ms": theirs,
            "parts": [(name, ms) for (name, _), ms in zip(step.calls, parts)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="LIBMXQ")
    parser.add_argument("--size", default="32768x2048x7168,32768x8192x5120")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--scaling", default="1X32")
    parser.add_argument("--weights", default="32X32")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("skipped: needs torch and a CUDA device")
        return
    library = Library(arguments.path)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(f"training_step.py {' '.join(sys.argv[2:])}, {torch.cuda.get_device_name()}, torch {torch.__version__}, {date}")
    rows = []
    for text in arguments.size.split(","):
        size = [int(number) for number in text.split("x")]
        row = measure(library, size, arguments.groups, arguments.scaling, arguments.weights)
        rows.append(row)
        print(f"{text}, {arguments.groups} groups: {row['ms']:.3f} ms, torch BF16 {row['torch_ms']:.3f} ms,"
              f" {row['torch_ms'] / row['ms']:.2f} times as fast")
        for name, ms in row["parts"]:
            print(f"    {name:44} {ms:8.3f} ms", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"date": date, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
