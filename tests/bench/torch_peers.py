#!/usr/bin/env python3
"""Times of torch for what mxq_bench measures: BF16 grouped products, and MXFP8 quantization compiled by torch.compile.

    torch_peers.py [--bench build/tests/bench/mxq_bench] [--size MxNxK,...] [--groups G] [--shape RxC,...] [--json FILE]
    torch_peers.py --suite origins [--report FILE] [--json FILE]

Times are taken as mxq_bench takes them: by events, a median, in turns with a device copy, the L2 flushed in between, on normal
random numbers and the same ragged groups. With --bench, mxq_bench measures the same cases in the same run. The suite has what
mxq_bench --suite origins is compared with; --report is the JSON of that, from the same machine. The JSON has the fields of
mxq_bench's. Needs torch 2.11 or later and a CUDA device; without them it says so and ends with exit code 0.
"""
import argparse
import datetime
import json
import random
import statistics
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    torch = None

WARMUPS, REPEATS = 3, 15
COPIED, FLUSHED = 1 << 30, 256 << 20


def mt19937(seed):
    """The generator of C++'s std::mt19937 with this seed; draws are getrandbits(32)."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, tuple(state) + (624,), None))
    return generator


def ragged_ends(rows, groups):
    """The ends of mxq_bench's groups."""
    draws = mt19937(2024)
    weights = [0.5 + draws.getrandbits(32) / 0xFFFFFFFF for _ in range(groups)]
    total, sum_, before, ends = sum(weights), 0.0, 0, []
    for g, weight in enumerate(weights):
        sum_ += weight
        before = min(max(4 * (int(rows * sum_ / total) // 4) + 1 + g % 2, before), rows)
        ends.append(before)
    ends[-1] = rows
    return ends


def quantize_mxfp8(x):
    """Codes and E8M0 scales (RCEIL) of blocks of 32 along the rows."""
    blocks = x.view(x.shape[0], -1, 32).float()
    amax = blocks.abs().amax(dim=-1, keepdim=True)
    scale = ((amax / 448).view(torch.int32) + 0x7FFFFF) >> 23
    inverse = ((254 - scale).clamp(min=1) << 23).view(torch.float32)
    codes = (blocks * inverse).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.view(x.shape), scale.to(torch.uint8).view(x.shape[0], -1)


class Timer:
    """Takes times of calls in turns with a device copy."""

    def __init__(self):
        self.source = torch.empty(COPIED, dtype=torch.uint8, device="cuda").random_()
        self.target = torch.empty_like(self.source)
        self.flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")

    def times_us(self, call):
        """Medians of the call and of the copy."""
        calls, times = [call, lambda: self.target.copy_(self.source)], [[], []]
        for repeat in range(-WARMUPS, REPEATS):
            events = []
            for each in calls:
                self.flushed.fill_(repeat & 0xFF)
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                each()
                end.record()
                events.append((start, end))
            torch.cuda.synchronize()
            if repeat >= 0:
                for time, (start, end) in zip(times, events):
                    time.append(1e3 * start.elapsed_time(end))
        return [statistics.median(time) for time in times]


def grouped_row(timer, size, groups):
    m, n, k = size
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor(ragged_ends(m, groups), device="cuda", dtype=torch.int32)
    us, copy_us = timer.times_us(lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends))
    shape = "x".join(map(str, size))
    return {
        "options": ["--verb", "grouped_gemm", "--size", shape, "--groups", str(groups)],
        "peer_options": ["--a", "mxfp8_e4m3", "--b", "mxfp8_e4m3"],
        "verb": "grouped_gemm", "case": "nt bf16 x bf16 to bf16", "shape": f"{shape}, {groups} groups",
        "implementation": "torch._grouped_mm", "us": us, "copy_us": copy_us,
        "bytes": 2 * (m * k + groups * n * k + m * n), "rate": 2 * m * n * k / us * 1e-6, "unit": "TFLOP/s",
    }


def quantize_row(timer, shape, compiled):
    rows, cols = shape
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    us, copy_us = timer.times_us(lambda: compiled(x))
    moved = rows * cols * 3 + rows * cols // 32
    text = f"{rows}x{cols}"
    return {
        "options": ["--verb", "quantize", "--shape", text], "peer_options": ["--to", "mxfp8_e4m3"],
        "verb": "quantize", "case": "bf16 to mxfp8_e4m3 rowwise", "shape": text, "implementation": "torch.compile",
        "us": us, "copy_us": copy_us, "bytes": moved, "rate": moved / us * 1e-3, "unit": "GB/s",
    }


def mxq_us(bench, row):
    """mxq_bench's time of the row, and its implementation."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [bench, "--device", "cuda", *row["options"], *row["peer_options"], "--json", file.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.load(open(file.name))["rows"][0]
    return result.get("us"), result.get("implementation", result["figures"][0].get("left_out"))


def reported_us(report):
    """The times of mxq_bench's rows, by verb, case and shape."""
    return {(row["verb"], row["case"], row["shape"]): row.get("us") for row in json.load(open(report))["rows"]} if report else {}


def finish_origin(row, reported):
    """Prints a row of the suite; mxq's time is from the report."""
    us = reported.get((row["verb"], row.pop("mxq_case"), row["shape"]))
    row["options"], row["peer_options"] = ["--suite", "origins"], []
    row = finish(row, None, f"mxq {us:.2f} us: {row['us'] / us:.2f} times as fast" if us else "")
    return {**row, "mxq_us": us} if us else row


def finish(row, bench, text=""):
    """Prints a row, and gives it the fields that mxq_bench's rows have."""
    copy_us, options = row.pop("copy_us"), row.pop("options")
    row["reproduce"] = " ".join(["torch_peers.py", *options])
    row["of_copy"] = row["bytes"] / row["us"] / (2 * COPIED / copy_us)
    row["figures"] = [{"library": "torch", "implementation": row["implementation"], "us": row["us"]}]
    if bench:
        us, implementation = mxq_us(bench, {"options": options, "peer_options": row["peer_options"]})
        row["mxq_us"], row["mxq_implementation"] = us, implementation
        text = f"mxq {us:.2f} us by {implementation}: {row['us'] / us:.2f} times as fast" if us else f"mxq: {implementation}"
    del row["peer_options"]
    print(f"{row['verb']:16} {row['case']:52} {row['shape']:26} {row['implementation']:24} {row['us']:12.2f} "
          f"{row['rate']:9.1f} {row['unit']:7} {100 * row['of_copy']:5.1f}%  {text}", flush=True)
    return row


def numbers(text, count):
    lists = [tuple(int(number) for number in item.split("x")) for item in text.split(",")]
    if any(len(item) != count for item in lists):
        raise argparse.ArgumentTypeError(f"takes lists of {count} numbers joined by x")
    return lists


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="mxq_bench, to measure the same cases in the same run")
    parser.add_argument("--suite", choices=["origins"], help="its rows alone")
    parser.add_argument("--report", help="mxq_bench's report of the suite, to compare with")
    parser.add_argument("--verb", choices=["grouped_gemm", "quantize"], help="this one alone")
    parser.add_argument("--size", type=lambda text: numbers(text, 3), default="32768x2048x7168,32768x8192x5120")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--shape", type=lambda text: numbers(text, 2), default="16384x7168,512x7168")
    parser.add_argument("--json", help="writes the report")
    return parser.parse_args()


def main():
    arguments = parse()
    if torch is None or not torch.cuda.is_available():
        print("skipped: " + ("torch is not installed" if torch is None else "torch finds no CUDA device"))
        return
    command = " ".join(["torch_peers.py", *sys.argv[1:]])
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    timer = Timer()
    copy_gbps = 2 * COPIED / timer.times_us(lambda: None)[1] * 1e-3
    print(f"command  {command}\nmachine  {machine}\ndate     {date}\ntorch    {torch.__version__}")
    print(f"copy     {copy_gbps:.1f} GB/s\n")
    print(f"{'verb':16} {'case':52} {'shape':26} {'implementation':24} {'us':>12} {'rate':>17}   copy")
    rows = []
    if arguments.suite:
        import torch_origins

        reported = reported_us(arguments.report)
        rows += [finish_origin(row, reported) for row in torch_origins.rows(timer)]
    elif arguments.verb != "quantize":
        rows += [finish(grouped_row(timer, size, arguments.groups), arguments.bench) for size in arguments.size]
    if not arguments.suite and arguments.verb != "grouped_gemm":
        compiled = torch.compile(quantize_mxfp8, dynamic=False)
        rows += [finish(quantize_row(timer, shape, compiled), arguments.bench) for shape in arguments.shape]
    if arguments.json:
        report = {"command": command, "machine": machine, "date": date, "settings": "",
                  "libraries": [{"library": "torch", "version": torch.__version__}], "copy_gbps": copy_gbps, "rows": rows}
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
