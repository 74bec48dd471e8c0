#!/usr/bin/env python3
"""Times of an expert layer: libmxq's one call, its single verbs, and torch's BF16 with compiled glue, in turns, in one process.

    layer.py LIBRARY [--weights MXFP4] [--rows BF16,MXFP8_E4M3,FP8_E4M3] [--width 2880 --hidden 2880 --experts 32 --top 4]
             [--tokens 1,16,128,1024,8192] [--rounds 9] [--loop-ms 2] [--no-torch] [--json FILE]

From tokens (T, width) to tokens: route, product to 2 hidden numbers, SwiGLU, product back, weighted sum. All have the same weights:
torch those that the codes stand for. dB are beside torch's FP32 layer of the same weights, of the first 512 tokens at most.
Every launch counts; graphs rotate through routings.
"""
import argparse
import json
import os
import sys
import time
from ctypes import byref, c_int32, c_int64, c_uint64, c_void_p

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import decode, quantize, signal_to_noise  # noqa: E402
from libmxq import Library  # noqa: E402
from products import clocks  # noqa: E402
from timing import in_turns  # noqa: E402

SCALINGS = {"FP8_E4M3": ("1X128", "128X128")}  # of rows, of weights; others have their default
VARIANTS = 4


def torch_layer(x, ids, weights, gate_up, down):
    """The layer in torch, which leaves sizes of groups on the device."""
    top = ids.shape[1]
    sorted_ids, order = torch.sort(ids.reshape(-1), stable=True)
    experts = torch.arange(gate_up.shape[0], device=ids.device, dtype=ids.dtype)
    ends = torch.searchsorted(sorted_ids, experts, right=True).to(torch.int32)
    token = order // top
    gate, up = torch._grouped_mm(x[token], gate_up.transpose(-2, -1), offs=ends).chunk(2, -1)
    rows = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(-2, -1), offs=ends)
    sums = torch.zeros(x.shape, device=x.device, dtype=torch.float32)
    return sums.index_add(0, token, rows.float() * weights.reshape(-1)[order, None]).to(torch.bfloat16)


class Layer:
    """libmxq's descriptors of one layer."""

    def __init__(self, library, x, ids, weights, gate_up, down, rows):
        self.mxq, self.x, self.rows, self.gate_up, self.down = library, x, rows, gate_up, down
        (self.tokens, self.width), self.top, self.experts, self.hidden = x.shape, ids.shape[1], *down.shape[::2]
        self.kept = [ids, weights]
        self.routing = library.create("mxq_routing_create", c_int64(self.tokens), c_int32(self.top), c_int32(self.experts))
        library.call("mxq_routing_set_ids", self.routing, c_void_p(ids.data_ptr()), c_uint64(ids.nbytes), library.constant("TYPE_INT32"))
        library.call("mxq_routing_set_weights", self.routing, library.constant("FORMAT_F32"), c_void_p(weights.data_ptr()),
                     c_uint64(weights.nbytes))
        size = c_uint64()
        library.call("mxq_routing_required_bytes", self.routing, byref(size))
        library.call("mxq_routing_set_memory", self.routing, self.memory(size.value), size)

    def memory(self, size):
        self.kept.append(torch.empty(max(size, 256), dtype=torch.uint8, device="cuda"))
        return c_void_p(self.kept[-1].data_ptr())

    def step(self, name, options, *tensors):
        """A call of a verb with its workspace, and its implementation."""
        plan = c_void_p()
        self.mxq.call(f"mxq_{name}_query", self.mxq.context, options, *tensors, byref(plan))
        size = c_uint64(self.mxq.functions.mxq_plan_workspace_bytes(plan))
        by = self.mxq.functions.mxq_plan_implementation(plan).decode()
        self.mxq.functions.mxq_plan_destroy(plan)
        workspace = self.memory(size.value)
        return lambda: self.mxq.call(f"mxq_{name}", self.mxq.context, options, *tensors, workspace, size,
                                     c_void_p(torch.cuda.current_stream().cuda_stream)), by

    def one_call(self):
        options = self.mxq.create("mxq_expert_layer_options_create")
        if self.rows != "BF16":
            scaling = SCALINGS.get(self.rows, (None,))[0] or "1X32"
            self.mxq.call("mxq_expert_layer_options_set_row_format", options, self.mxq.constant("FORMAT_" + self.rows),
                          self.mxq.constant("SCALING_" + scaling))
        out = torch.full((self.tokens, self.width), float("nan"), device="cuda", dtype=torch.bfloat16)
        run, by = self.step("expert_layer", options, self.mxq.plain(self.x), self.routing, self.gate_up.handle, self.down.handle,
                            self.mxq.plain(out))
        return lambda: (run(), out)[1], by

    def of_rows(self, cols, by_index=False):
        """Plain rows of experts."""
        tensor = self.mxq._create("BF16", (self.tokens * self.top, cols))
        self.mxq.call("mxq_tensor_set_routing_rows" if by_index else "mxq_tensor_set_routing_groups", tensor, self.routing)
        size = self.x.nbytes if by_index else 2 * self.tokens * self.top * cols
        self.mxq.call("mxq_tensor_set_data", tensor, c_void_p(self.x.data_ptr()) if by_index else self.memory(size), c_uint64(size))
        return tensor

    def quantized_rows(self, cols):
        tensor = self.mxq._create(self.rows, (self.tokens * self.top, cols))
        if self.rows in SCALINGS:
            self.mxq.call("mxq_tensor_set_scaling", tensor, self.mxq.constant("SCALING_" + SCALINGS[self.rows][0]))
        self.mxq.call("mxq_tensor_set_routing_groups", tensor, self.routing)
        part, size = self.mxq.constant("PART_ROWWISE"), c_uint64()
        self.mxq.call("mxq_tensor_total_bytes", tensor, part, byref(size))
        self.mxq.call("mxq_tensor_set_memory", tensor, part, self.memory(size.value), size)
        return tensor

    def single_verbs(self):
        out = torch.full((self.tokens, self.width), float("nan"), device="cuda", dtype=torch.bfloat16)
        first, between = self.of_rows(self.width, by_index=True), self.of_rows(2 * self.hidden)
        second, products = self.of_rows(self.hidden), self.of_rows(self.width)
        steps = [self.step("route", None, self.routing)]
        if self.rows != "BF16":
            tokens, first, second = first, self.quantized_rows(self.width), self.quantized_rows(self.hidden)
            steps.append(self.step("quantize", None, tokens, first))
        steps += [self.step("grouped_gemm", None, first, self.gate_up.handle, between), self.step("activate", None, between, second),
                  self.step("grouped_gemm", None, second, self.down.handle, products),
                  self.step("combine", None, self.routing, products, None, self.mxq.plain(out))]
        return lambda: ([run() for run, _ in steps], out)[1], ", ".join(by for _, by in steps)


def quantized_weights(library, shape, format):
    """Codes, and the numbers that they stand for."""
    plain = torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_(std=0.02)
    codes = quantize(library, plain, format, SCALINGS.get(format, (None, None))[1])
    for expert in range(shape[0]):
        plain[expert].copy_(decode(codes, *shape[1:], expert * shape[1]))
    return codes, plain


def measure(library, weights, rows, tokens, arguments, compiled):
    (gate_up, plain_gate_up), (down, plain_down) = weights
    candidates, names, decibels = {"layer": [], "verbs": [], "torch": []}, {}, {}
    for _ in range(VARIANTS if tokens <= 1024 else 1):
        x = torch.randn(tokens, arguments.width, device="cuda", dtype=torch.bfloat16)
        ids = torch.rand(tokens, arguments.experts, device="cuda").topk(arguments.top, 1).indices.int()
        chosen = torch.softmax(torch.randn(tokens, arguments.top, device="cuda"), -1)
        layer = Layer(library, x, ids, chosen, gate_up, down, rows)
        call, names["layer"] = layer.one_call()
        verbs, names["verbs"] = layer.single_verbs()
        candidates["layer"].append(call), candidates["verbs"].append(verbs)
        if compiled:
            candidates["torch"].append(lambda x=x, ids=ids, chosen=chosen: compiled(x, ids, chosen, plain_gate_up, plain_down))
        if not decibels:
            some = min(tokens, 512)
            exact = torch.zeros(some, arguments.width, device="cuda")
            for token in range(some):
                for expert, weight in zip(ids[token].tolist(), chosen[token]):
                    gate, up = (plain_gate_up[expert].float() @ x[token].float()).chunk(2)
                    exact[token] += weight * (plain_down[expert].float() @ (torch.nn.functional.silu(gate) * up))
            for name in candidates:
                if candidates[name]:
                    decibels[name] = round(signal_to_noise(candidates[name][0]()[:some], exact.double()), 1)
    times, failed = in_turns({name: calls for name, calls in candidates.items() if calls}, arguments.rounds, arguments.loop_ms)
    return {"rows": rows, "tokens": tokens, "us": times, "dB": decibels, "implementations": names, "failed": failed,
            "same_bits": bool((candidates["layer"][0]() == candidates["verbs"][0]()).all())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mxq", metavar="LIBRARY")
    parser.add_argument("--weights", default="MXFP4")
    parser.add_argument("--rows", default="BF16")
    parser.add_argument("--width", type=int, default=2880)
    parser.add_argument("--hidden", type=int, default=2880)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top", type=int, default=4)
    parser.add_argument("--tokens", default="1,16,128,1024,8192")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop-ms", type=float, default=2.0)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("layer.py: no CUDA device")
    library = Library(arguments.mxq)
    compiled = None if arguments.no_torch else torch.compile(torch_layer, dynamic=True)
    print("gpu  ", clocks(), "\ndate ", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    print(f"layer {arguments.weights} ({arguments.experts}, {2 * arguments.hidden}, {arguments.width}), top {arguments.top}; us", flush=True)
    weights = [quantized_weights(library, (arguments.experts, *shape), arguments.weights)
               for shape in ((2 * arguments.hidden, arguments.width), (arguments.width, arguments.hidden))]
    results = []
    for rows in arguments.rows.split(","):
        for tokens in arguments.tokens.split(","):
            results.append(measure(library, weights, rows, int(tokens), arguments, compiled))
            result = results[-1]
            cells = [f"{name} {us:.1f} ({result['dB'][name]} dB)" for name, us in result["us"].items()]
            print(f"{rows:12} {tokens:>5}  " + " | ".join(cells) + f" | {result['implementations']['layer']}"
                  + ("" if result["same_bits"] else " | OTHER BITS") + "".join(f" | {n}: {w}" for n, w in result["failed"].items()), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"command": sys.argv, "gpu": clocks(), "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
