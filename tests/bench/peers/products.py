#!/usr/bin/env python3
"""Times of products by libmxq and by the libraries that users take beside it, on the same codes, in turns, in one process.

    products.py LIBRARY [LIBRARY...] --weights MXFP4,NVFP4 [--activations BF16,FP8_E4M3,MXFP8_E4M3] --shape NxK[,NxK...] --tokens 1,16,128
                [--experts E --top T [--aligned 128]] [--rounds 9] [--loop-ms 2] [--peers torch,humming,deep_gemm]
                [--row-invariant] [--swizzled] [--json FILE]

LIBRARY is a built libmxq.so; several take turns, and ratios are those to the last. FP8_E4M3 stands for scales of 1x128 (activations)
and 128x128 (weights). --row-invariant times libmxq with rows that do not depend on others, too, and --swizzled with scales of weights that
were swizzled before, as other libraries order weights once. Every output is compared with sums
in float64 before it is timed; dB stand beside the times. A peer that cannot be imported is listed and left out. Loops of
1000 ms and more (--loop-ms) show what power allows; the default shows single calls of a decoding engine.
"""
import argparse
import importlib
import json
import os
import subprocess
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import FORMATS, Case, Operands, signal_to_noise  # noqa: E402
from libmxq import Library  # noqa: E402
from libmxq_peer import Peer as Libmxq  # noqa: E402
from timing import in_turns  # noqa: E402

COPIED_BYTES = 130 << 20  # what the copies of the operands hold together: twice the L2


def load_peers(names):
    peers, missing = {}, []
    for name in names:
        try:
            module = importlib.import_module(name + "_peer")
            peers[module.NAME] = module.Peer()
        except Exception as error:
            missing.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return peers, missing


def clocks():
    query = "--query-gpu=name,clocks.sm,temperature.gpu,power.draw,clocks_event_reasons.active"
    return subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()


def variants(case):
    if case.experts:
        return 8 if case.tokens <= 16 else 4 if case.tokens <= 128 else 2 if case.tokens <= 2048 else 1
    return max(2, -(-COPIED_BYTES // (case.n * case.k * FORMATS[case.weights][0] // 8))) if case.rows <= 256 else 2


def measure(library, peers, case, rounds, loop_ms):
    operands = Operands(library, case, variants(case))
    exact = operands.exact()
    candidates, decibels, failed = {}, {}, {}
    for name, peer in peers.items():
        if not peer.takes(case):
            continue
        try:
            calls = peer.calls(operands)
            decibels[name] = round(signal_to_noise(calls[0](), exact), 1)
            torch.cuda.synchronize()
            if not decibels[name] > 20:
                raise RuntimeError(f"wrong result: {decibels[name]} dB")
            candidates[name] = calls
        except Exception as error:
            failed[name] = (str(error).splitlines() or [type(error).__name__])[0][:200]
    times, untimed = in_turns(candidates, rounds, loop_ms)
    ours = [name for name in peers if name.startswith("libmxq")][-1]
    return {"case": str(case), "us": times, "dB": decibels, "ours": ours, "implementation": peers[ours].implementation,
            "failed": failed | untimed}


def row(result):
    ours = result["us"].get(result["ours"])
    cells = [f"{name} {us:.1f}" + (f" ({us / ours:.2f})" if ours and name != result["ours"] else "") + f" {result['dB'][name]} dB"
             for name, us in result["us"].items()]
    wrong = [f"{name}: {why}" for name, why in result["failed"].items()]
    return f"{result['case']:66} {result['implementation']:22} " + " | ".join(cells + wrong)


def cases(arguments):
    for shape in arguments.shape.split(","):
        n, k = (int(extent) for extent in shape.split("x"))
        for weights in arguments.weights.split(","):
            for activations in arguments.activations.split(","):
                for tokens in arguments.tokens.split(","):
                    yield Case(weights, activations, int(tokens), n, k, arguments.experts, arguments.top, arguments.aligned)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", metavar="LIBRARY", nargs="+")
    parser.add_argument("--weights", default="MXFP4")
    parser.add_argument("--activations", default="BF16")
    parser.add_argument("--shape", default="4096x4096")
    parser.add_argument("--tokens", default="1,16,64,256,1024,4096")
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--top", type=int, default=1)
    parser.add_argument("--aligned", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop-ms", type=float, default=2.0)
    parser.add_argument("--peers", default="torch,humming,deep_gemm")
    parser.add_argument("--row-invariant", action="store_true")
    parser.add_argument("--swizzled", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("products.py: no CUDA device")
    libraries = [Library(path) for path in arguments.libraries]
    others, missing = load_peers(arguments.peers.split(",") if arguments.peers else [])
    names = ["libmxq"] if len(libraries) == 1 else [f"libmxq {number + 1}" for number in range(len(libraries))]
    if arguments.row_invariant:
        others = {"row invariant": Libmxq(libraries[-1], row_invariant=True)} | others
    if arguments.swizzled:
        others = {"swizzled": Libmxq(libraries[-1], swizzled=True)} | others
    peers = {name: Libmxq(library) for name, library in zip(names, libraries)} | others
    print("gpu      ", clocks())
    print("date     ", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    print("versions ", ", ".join(f"{name} {peer.version}" for name, peer in peers.items()))
    for reason in missing:
        print("left out ", reason)
    print("us a call; in brackets, the peer's time divided by libmxq's", flush=True)
    results, all_cases = [], list(cases(arguments))
    for peer in peers.values():
        if hasattr(peer, "prepare"):
            peer.prepare([case for case in all_cases if peer.takes(case)])
    for case in all_cases:
        results.append(measure(libraries[-1], peers, case, arguments.rounds, arguments.loop_ms))
        print(row(results[-1]), flush=True)
        torch.cuda.empty_cache()
    print("gpu      ", clocks())
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"command": sys.argv, "gpu": clocks(), "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
