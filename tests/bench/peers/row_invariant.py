#!/usr/bin/env python3
"""What rows cost that have the same bits in any batch, as a factor of the default's time, and whether they do have them.

    row_invariant.py LIBRARY [--pairs mxfp4,mxfp8,fp8,bf16] [--dense 4096x4096] [--grouped 5760x2880] [--experts 32] [--top 4]
                     [--tokens 1,8,16,64,128,512,4096] [--also weights_sm90,...] [--rounds 5] [--loop-ms 1.5]

Pairs are BF16 x MXFP4, MXFP8 x MXFP8, FP8 1x128 x 128x128 and BF16 x FP8 128x128. Each line has us of the default and of
invariant rows, with the implementations that ran; --also times these by name, too, with invariant rows. Before it is timed, the
output of each number of tokens is compared with the first rows of the output of the most: `bits` counts rows that differ.
"""
import argparse
import os
import sys
import time
from ctypes import c_int32

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import FORMATS, Case, quantize  # noqa: E402
from libmxq import Library  # noqa: E402
from timing import in_turns  # noqa: E402

PAIRS = {"mxfp4": ("MXFP4", "BF16"), "mxfp8": ("MXFP8_E4M3", "MXFP8_E4M3"), "fp8": ("FP8_E4M3", "FP8_E4M3"), "bf16": ("FP8_E4M3", "BF16")}
COPIED_BYTES = 130 << 20  # what the copies of weights hold together: twice the L2


class Products:
    """D = A B^T of a pair and a shape: weights in copies, tokens of which a call takes the first, experts that routing draws."""

    def __init__(self, library, pair, n, k, experts, most_rows):
        self.mxq, self.n, self.k, self.experts = library, n, k, experts
        self.weights_format, self.activations = PAIRS[pair]
        shape = (experts, n, k) if experts else (n, k)
        weights = quantize(library, torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02, self.weights_format,
                           FORMATS[self.weights_format][2])
        copies = 1 if experts else max(2, -(-COPIED_BYTES // (n * k * FORMATS[self.weights_format][0] // 8)))
        self.weights = [weights] + [weights.copy() for _ in range(copies - 1)]
        self.rows = torch.randn(most_rows, k, device="cuda", dtype=torch.bfloat16)

    def operands(self, rows, ids):
        """A of the first rows, sorted by their experts, with the ends of these."""
        x, ends, order = self.rows[:rows], None, torch.arange(rows, device="cuda")
        if self.experts:
            order = ids[:rows].argsort(stable=True)
            x, ends = x[order].contiguous(), torch.bincount(ids[:rows], minlength=self.experts).cumsum(0).int()
        if self.activations == "BF16":
            return self.mxq.plain(x, ends), (x, ends), order, ends
        a = quantize(self.mxq, x, self.activations, "1X128" if self.activations == "FP8_E4M3" else None, ends)
        return a.handle, (a, ends), order, ends

    def calls(self, handle, rows, ends, options):
        verb, calls, name = "grouped_gemm" if self.experts else "gemm", [], ""
        out = torch.full((rows, self.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        for weights in self.weights:
            run, name = self.mxq.verb(verb, options, handle, weights.handle, self.mxq.plain(out))
            calls.append(run)
        return calls, out, name


def invariant(library, implementation=None):
    options = library.create("mxq_gemm_options_create")
    library.call("mxq_gemm_options_set_row_invariant", options, c_int32(1))
    if implementation:
        library.call("mxq_gemm_options_set_implementation", options, implementation.encode())
    return options


def measure(library, products, rows, ids, expected, also, arguments):
    handle, keep, order, ends = products.operands(rows, ids)
    candidates, names, bits, failed, outs = {}, {}, {}, {}, []
    for name in ["default", "invariant"] + also:
        try:
            options = None if name == "default" else invariant(library, name if name in also else None)
            calls, out, names[name] = products.calls(handle, rows, ends, options)
            outs.append(out)  # whose memory the graphs write
            calls[0]()
            torch.cuda.synchronize()
            candidates[name] = calls
            if name != "default" and expected is not None:
                same = torch.empty_like(out)
                same[order] = out
                bits[name] = int((same.view(torch.int16) != expected[:rows].view(torch.int16)).any(1).sum())
        except Exception as error:
            failed[name] = (str(error).splitlines() or [type(error).__name__])[0][:120]
    times, untimed = in_turns(candidates, arguments.rounds, arguments.loop_ms)
    return times, names, bits, failed | untimed, keep


def expected_of(library, products, rows, ids):
    handle, keep, order, ends = products.operands(rows, ids)
    calls, out, _ = products.calls(handle, rows, ends, invariant(library))
    calls[0]()
    torch.cuda.synchronize()
    same = torch.empty_like(out)
    same[order] = out
    return same


def run(library, pair, shape, experts, arguments):
    n, k = (int(extent) for extent in shape.split("x"))
    counts = sorted(int(count) * (arguments.top if experts else 1) for count in arguments.tokens.split(","))
    products = Products(library, pair, n, k, experts, counts[-1])
    ids = torch.randint(experts, (counts[-1],), device="cuda") if experts else None
    try:
        expected = expected_of(library, products, counts[-1], ids)
    except Exception as error:
        expected = None
        print(f"{pair:6} declined: {str(error).splitlines()[0][:160]}")
    where = f"{pair} ({n},{k}) " + (f"{experts} experts" if experts else "dense")
    for rows in counts:
        times, names, bits, failed, _ = measure(library, products, rows, ids, expected, arguments.also, arguments)
        base = times.get("default", float("nan"))
        cells = [f"{name} {us:.1f} ({us / base:.2f}) {names[name] if name in ('default', 'invariant') else ''}"
                 + (f" bits {bits[name]}" if name in bits else "") for name, us in times.items()]
        print(f"{where:34} {rows:6} rows  " + " | ".join(cells + [f"{name}: {why}" for name, why in failed.items()]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="LIBRARY")
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--dense", default="4096x4096")
    parser.add_argument("--grouped", default="5760x2880")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top", type=int, default=4)
    parser.add_argument("--tokens", default="1,8,16,64,128,512,4096")
    parser.add_argument("--also", type=lambda text: [name for name in text.split(",") if name], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loop-ms", type=float, default=1.5)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("row_invariant.py: no CUDA device")
    torch.manual_seed(1)
    library = Library(arguments.file)
    print(f"{torch.cuda.get_device_name()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}", flush=True)
    for pair in arguments.pairs.split(","):
        for shape in filter(None, arguments.dense.split(",")):
            run(library, pair, shape, 0, arguments)
        for shape in filter(None, arguments.grouped.split(",")):
            run(library, pair, shape, arguments.experts, arguments)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
