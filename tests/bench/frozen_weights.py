#!/usr/bin/env python3
"""The input gradient through weights that were quantized along their rows alone, (N,N), by each implementation that reads them,
beside torch's product of BF16 weights.

    frozen_weights.py LIBMXQ [--size MxNxK,...] [--groups G] [--a bf16] [--weights mxfp4]

A format may have a scaling behind it, as fp8_e4m3:128x128 has.
M rows of gradients of N outputs, weights of N x K in G ragged groups (0: without groups); the gradient of K inputs is BF16. Needs
torch 2.11 and a CUDA device. cuBLASLt from 13.7 on takes groups whose ends are on the device alone.
"""
import argparse
import datetime
import sys

try:
    import torch

    from libmxq import Library
    from torch_peers import ragged_ends
    from training_step import times_ms
except ImportError:
    torch = None

IMPLEMENTATIONS = ("mma_bf16", "mma_bf16_widen", "mma_bf16_transpose", "wgmma_fp8_transpose", "wgmma_plain_widen",
                   "cublaslt_widen", "cublaslt_grouped_widen")


def quantized(library, format, shape, ends=None):
    name, _, scaling = format.upper().partition(":")
    return library.quantized(name, shape, scaling=scaling or None, ends=ends)


def measure(library, size, groups, a_format, weights_format):
    """Returns (name, ms) of what was chosen first, of each implementation that takes the product, and of torch."""
    m, n, k = size
    ends = torch.tensor(ragged_ends(m, groups), device="cuda", dtype=torch.int32) if groups else None
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    dy, w, dx = random(m, n), random(*([groups] if groups else []), n, k), random(m, k)
    weights, kept = quantized(library, weights_format, w.shape)
    library.verb("quantize", None, library.plain(w), weights)[0]()
    gradient = library.plain(dy, ends)
    if a_format != "bf16":
        gradient, kept_gradient = quantized(library, a_format, dy.shape, ends)
        library.verb("quantize", None, library.plain(dy, ends), gradient)[0]()
    verb, calls = "grouped_gemm" if groups else "gemm", []
    for wanted in (None,) + IMPLEMENTATIONS:
        try:
            run, name = library.verb(verb, library.product_options("NN", wanted), gradient, weights, library.plain(dx, ends))
            calls.append((name if wanted else f"chosen: {name}", run))
        except RuntimeError:
            continue  # declined
    calls.append(("torch BF16", (lambda: torch._grouped_mm(dy, w, offs=ends)) if groups else (lambda: torch.mm(dy, w, out=dx))))
    return [(name, ms) for (name, _), ms in zip(calls, times_ms([call for _, call in calls]))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="LIBMXQ")
    parser.add_argument("--size", default="32768x2048x7168,32768x8192x5120")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--a", default="bf16")
    parser.add_argument("--weights", default="mxfp4")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("skipped: needs torch and a CUDA device")
        return
    library = Library(arguments.path)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(f"frozen_weights.py {' '.join(sys.argv[2:])}, {torch.cuda.get_device_name()}, torch {torch.__version__}, {date}")
    for text in arguments.size.split(","):
        size = [int(number) for number in text.split("x")]
        for name, ms in measure(library, size, arguments.groups, arguments.a, arguments.weights):
            print(f"{text}, {arguments.groups} groups: {name:32} {1000 * ms:10.1f} us", flush=True)


if __name__ == "__main__":
    main()
