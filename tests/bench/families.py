#!/usr/bin/env python3
"""What numbers of very different size cost the guarded FP8 kernel for Hopper: the steps that take references of their own, the
rate of the product, and its error beside the exact product, for families of operands.

    families.py LIBMXQ [--size MxNxK] [--scaling 1X32] [--json FILE]

A step is 128 codes of a tile of 128 x 192. "moved": columns have another reference than that of their line, which takes two
operations an element in place of one; "split": blocks of 32 are added up one by one. Both by the rule of docs/numerics.md, from
the scales. Needs torch and a Hopper GPU; without them it says so and ends with exit code 0.
"""
import argparse
import datetime
import json
import statistics
import sys

try:
    import torch

    from libmxq import Library
except ImportError:
    torch = None

NEAR, REPEATS, CHECKED_ROWS = 10, 11, 64


def lognormal(sigma):
    """Positions of the contraction of very different size, the same in all lines."""
    return lambda x: x * torch.exp(sigma * torch.randn(x.shape[1], device="cuda"))


def outliers(share, factor):
    """Some positions of the contraction, others in each operand."""
    return lambda x: x * (1 + (factor - 1) * (torch.rand(x.shape[1], device="cuda") < share))


def outlier_lines(x):
    return x * (1 + 999 * (torch.rand(x.shape[0], 1, device="cuda") < 0.02))


def student_t(x):
    degrees = torch.randn_like(x) ** 2 + torch.randn_like(x) ** 2
    return x / torch.sqrt(degrees / 2)


def drift(x):
    return x * torch.exp2(torch.linspace(0, 16, x.shape[1], device="cuda"))


FAMILIES = {
    "normal": lambda x: x,
    "lognormal positions, sigma 1": lognormal(1),
    "lognormal positions, sigma 2.5": lognormal(2.5),
    "student t, 2 degrees of freedom": student_t,
    "2% of lines x 1000": outlier_lines,
    "a drift of 2^16 along the line": drift,
    "1% of positions x 1000": outliers(0.01, 1e3),
    "0.05% of positions x 30000": outliers(0.0005, 3e4),
    "10% of positions x 2^20": outliers(0.1, 2.0**20),
}


def tiles_of(marks, lines):
    """Whether any of so many neighbouring lines has a mark, for each step."""
    padding = -marks.shape[0] % lines
    return torch.nn.functional.pad(marks, (0, 0, 0, padding)).view(-1, lines, marks.shape[1]).any(1).float()


def marked_steps(scales_a, scales_b):
    """The shares of steps that are moved but not split, and that are split."""
    a, b = (scales.int().clamp(min=1).view(scales.shape[0], -1, 4) for scales in (scales_a, scales_b))
    split_a, split_b = (tiles_of(x.amax(2) - x.amin(2) > NEAR, lines) for x, lines in ((a, 128), (b, 192)))
    moved_b = tiles_of(b.amax((1, 2), keepdim=True)[:, 0] - b.amin(2) > NEAR, 192)
    split = 1 - (1 - split_a.mean(0)) * (1 - split_b.mean(0))
    any_mark = 1 - (1 - split_a.mean(0)) * (1 - torch.maximum(moved_b, split_b).mean(0))
    return (any_mark - split).mean().item(), split.mean().item()


def median_ms(call):
    times = []
    for repeat in range(REPEATS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        if repeat >= 2:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def quantize(library, values, scaling):
    tensor, memory = library.quantized("MXFP8_E4M3", values.shape, scaling=scaling)
    library.verb("quantize", None, library.plain(values), tensor)[0]()
    return tensor, memory


def dequantized(library, tensor, shape):
    values = torch.empty(shape, device="cuda")
    library.verb("dequantize", None, tensor, library.plain(values))[0]()
    return values


def measure(library, family, size, scaling):
    m, n, k = size
    torch.manual_seed(7)
    a, b = (FAMILIES[family](torch.randn(lines, k, device="cuda")) for lines in (m, n))
    (qa, bytes_a), (qb, bytes_b) = (quantize(library, values, scaling) for values in (a, b))
    d = torch.empty(m, n, device="cuda")
    rate = {}
    for name in ("BF16", "F32"):
        out = d.bfloat16() if name == "BF16" else d
        options = library.product_options("NT", "wgmma_fp8_sm90")
        rate[name] = 2e-9 * m * n * k / median_ms(library.verb("gemm", options, qa, qb, library.plain(out))[0])
    rows = slice(0, CHECKED_ROWS)
    exact = dequantized(library, qa, a.shape)[rows].double() @ dequantized(library, qb, b.shape).double().t()
    error = exact - d[rows].double()
    lines = exact.norm(dim=1) ** 2 / error.norm(dim=1).clamp(min=1e-300) ** 2
    moved, split = marked_steps(*(memory[lines_ * k:lines_ * (k + k // 32)].view(lines_, -1)
                                  for memory, lines_ in ((bytes_a, m), (bytes_b, n))))
    db = lambda ratio: 10 * torch.log10(ratio).item()
    return {"family": family, "moved": moved, "split": split, "bf16_tflops": rate["BF16"], "f32_tflops": rate["F32"],
            "db": db(exact.norm() ** 2 / error.norm() ** 2), "worst_row_db": db(lines.min())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="LIBMXQ")
    parser.add_argument("--size", default="16384x8192x7168")
    parser.add_argument("--scaling", default="1X32")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("skipped: needs torch and a GPU of compute capability 9.0")
        return
    library, size = Library(arguments.path), [int(text) for text in arguments.size.split("x")]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(f"families.py {' '.join(sys.argv[2:])}, {torch.cuda.get_device_name()}, {date}; MXFP8 E4M3, {arguments.size}")
    print(f"{'family':34} {'moved':>7} {'split':>7} {'to BF16':>8} {'to F32':>8} TFLOP/s {'dB':>7} {'worst row':>10}")
    rows = []
    for family in FAMILIES:
        row = measure(library, family, size, arguments.scaling)
        rows.append(row)
        print(f"{family:34} {row['moved']:7.1%} {row['split']:7.1%} {row['bf16_tflops']:8.0f} {row['f32_tflops']:8.0f}"
              f" {'':7} {row['db']:7.1f} {row['worst_row_db']:10.1f}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"date": date, "size": arguments.size, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
