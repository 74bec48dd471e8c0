#!/usr/bin/env python3
"""Times of a training step of an expert layer, forward and backward: mxq.torch.expert_layer in 8 bits beside torch in BF16, in turns,
in one process.

    training_layer.py [--rows 32768] [--k 7168,5120] [--i 2048,8192] [--experts 8] [--top 2] [--rounds 9]

Rows are tokens times the experts that each token goes to. K and I are lists of the same length, which belong together. Every step
gives the gradients of tokens, router's weights and both weights. libmxq quantizes the weights and all rows in each step. torch runs
torch._grouped_mm, and everything else compiled. All outputs are compared with torch's before they are timed: dB, 20 of which are a
tenth of the signal. Needs the package mxq, torch 2.11 and a CUDA device; what is missing is left out, and the reason is printed.
From a build: PYTHONPATH=bindings/python/src MXQ_LIBRARY=build/src/libmxq.so training_layer.py
"""
import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch

    from torch_training_layer import torch_layer
except ImportError:
    torch = None

LAYERS = {"MXFP8, weights in 32x32": ("mxfp8_e4m3", "32x32"), "FP8, a scale a row": ("fp8_e4m3", "row")}
TORCH = "torch BF16"
OUTPUTS = ("y", "dx", "dweights", "dgate_up", "ddown")
LEAST_DECIBELS = 15  # less is no error of rounding
WARMUPS = 2


def reason(error):
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def operands(tokens, top, experts, k, i, device="cuda"):
    """The leaves and the ids of a layer, and the gradient of its result."""
    def random(*shape, std=1.0):
        return torch.empty(shape, device=device, dtype=torch.bfloat16).normal_(std=std)

    ids = torch.rand(tokens, experts, device=device).topk(top, 1).indices.int()
    weights = torch.softmax(torch.randn(tokens, top, device=device), -1)
    leaves = random(tokens, k), weights, random(experts, 2 * i, k, std=k**-0.5), random(experts, k, i, std=i**-0.5)
    return [leaf.requires_grad_() for leaf in leaves], ids, random(tokens, k)


def step_of(layer, leaves, ids, dy):
    """A call that gives the result and the gradient of each leaf."""
    def step():
        y = layer(leaves[0], ids, *leaves[1:])
        return (y.detach(), *torch.autograd.grad(y, leaves, dy))

    return step


def layers():
    """Layers by their names, torch's first, and why others are not there."""
    found, missing = {}, {}
    if hasattr(torch, "_grouped_mm"):
        found[TORCH] = torch.compile(torch_layer, fullgraph=True, dynamic=False)
    else:
        missing[TORCH] = f"torch {torch.__version__} has no _grouped_mm"
    try:
        import mxq.torch
    except Exception as error:
        return found, missing | {"mxq": reason(error)}
    for name, (format, scaling) in LAYERS.items():
        found[name] = lambda x, ids, *rest, format=format, scaling=scaling: mxq.torch.expert_layer(
            x, ids, *rest, format=format, scaling=scaling)
    return found, missing


def decibels(got, expected):
    """Signal to error, summed in pieces, since weights have billions of numbers."""
    signal = noise = 0.0
    for ours, right in zip(got.flatten().split(1 << 26), expected.flatten().split(1 << 26)):
        signal += right.float().square().sum().item()
        noise += (ours.float() - right.float()).square().sum().item()
    return -10 * torch.log10(torch.tensor(noise / signal)).item()


def checked(steps):
    """The steps that run and agree with the first one's results, their dB, and why others are left out."""
    good, quality, failed, expected = {}, {}, {}, None
    for name, step in steps.items():
        try:
            made = step()
            if expected is None and name == TORCH:
                expected = made
            elif expected is not None:
                quality[name] = [decibels(*pair) for pair in zip(made, expected)]
                if not min(quality[name]) > LEAST_DECIBELS:
                    raise RuntimeError("other results than torch's: " + ", ".join(f"{d:.1f}" for d in quality[name]) + " dB")
            good[name] = step
        except Exception as error:  # one layer's failure must not end the others
            failed[name] = reason(error)
    return good, quality, failed


def milliseconds(steps, rounds):
    """Medians, the steps in turns."""
    times = {name: [] for name in steps}
    for turn in range(-WARMUPS, rounds):
        for name, step in steps.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end))
    return {name: statistics.median(own) for name, own in times.items()}


def print_table(times, quality, failed):
    print(f"  {'layer':26} {'ms':>9} {'torch / it':>11}   " + " ".join(f"{name:>9}" for name in OUTPUTS) + "  dB")
    for name, ms in times.items():
        ratio = f"{times[TORCH] / ms:.2f}" if TORCH in times else "-"
        print(f"  {name:26} {ms:9.3f} {ratio:>11}   " + " ".join(f"{each:9.1f}" for each in quality.get(name, [])))
    for name, why in failed.items():
        print(f"  {name:26} left out: {why}")
    sys.stdout.flush()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--k", default="7168,5120")
    parser.add_argument("--i", default="2048,8192")
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parsed = parser.parse_args(arguments)
    try:
        widths = [[int(width) for width in text.split(",")] for text in (parsed.k, parsed.i)]
    except ValueError as error:
        parser.error(f"--k and --i take numbers separated by commas: {error}")
    if len(widths[0]) != len(widths[1]):
        parser.error(f"--k and --i belong together, got {len(widths[0])} and {len(widths[1])} numbers")
    if not 1 <= parsed.top <= parsed.experts or parsed.rows < 1 or parsed.rows % parsed.top:
        parser.error(f"--rows takes a multiple of --top, and --top at most --experts; got {parsed.rows}, {parsed.top}, {parsed.experts}")
    return parsed, list(zip(*widths))


def main():
    arguments, shapes = parse()
    if torch is None or not torch.cuda.is_available():
        print(f"skipped: needs {'torch' if torch is None else 'a CUDA device'}")
        return
    found, missing = layers()
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    print(f"training_layer.py, {torch.cuda.get_device_name()}, torch {torch.__version__}, {date}")
    for name, why in missing.items():
        print(f"left out: {name}: {why}")
    for k, i in shapes:
        tokens = arguments.rows // arguments.top
        print(f"{arguments.rows} rows ({tokens} tokens, top {arguments.top}), K {k}, I {i}, {arguments.experts} experts")
        leaves, ids, dy = operands(tokens, arguments.top, arguments.experts, k, i)
        good, quality, failed = checked({name: step_of(layer, leaves, ids, dy) for name, layer in found.items()})
        print_table(milliseconds(good, arguments.rounds), quality, failed)


if __name__ == "__main__":
    main()
