"""Products that libmxq and its peers are timed on: shapes, operands with the same codes for all, and their sums in float64."""
import math
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass

import torch

FORMATS = {"MXFP4": (4, 32, None), "NVFP4": (4, 16, None), "MXFP8_E4M3": (8, 32, None), "FP8_E4M3": (8, 128, "128X128")}
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@dataclass(frozen=True)
class Case:
    """D = A B^T with B (n, k), or (experts, n, k): then A has the tokens' rows, sorted by expert, top rows a token."""
    weights: str  # a key of FORMATS
    activations: str  # BF16, FP8_E4M3 (1x128) or MXFP8_E4M3
    tokens: int
    n: int
    k: int
    experts: int = 0
    top: int = 1
    aligned: int = 1  # groups are multiples of so many rows

    @property
    def rows(self):
        return self.tokens * self.top

    def __str__(self):
        where = f"{self.experts} experts top {self.top}" if self.experts else "dense"
        return f"{self.activations} x {self.weights} ({self.n},{self.k}) {where}, {self.tokens}"


class Quantized:
    """A descriptor of libmxq with the memory of its rowwise part: codes and scales as bytes, the amax of NVFP4."""

    def __init__(self, library, format, shape, scaling=None, ends=None, memory=None, swizzled=False):
        self.mxq, self.format, self.shape, self.scaling, self.ends = library, format, shape, scaling, ends
        self.handle = library._create(format, shape)
        if scaling:
            library.call("mxq_tensor_set_scaling", self.handle, library.constant("SCALING_" + scaling))
        if swizzled:
            library.call("mxq_tensor_set_swizzled", self.handle, 1)
        library._set_groups(self.handle, ends)
        part, codes, scales, amax = library.constant("PART_ROWWISE"), c_uint64(), c_uint64(), c_uint64()
        library.call("mxq_tensor_required_bytes", self.handle, part, byref(codes), byref(scales))
        library.call("mxq_tensor_required_amax_bytes", self.handle, part, byref(amax))
        if memory:
            self.codes, self.scales, self.amax = memory
        else:
            self.codes, self.scales = (torch.empty(max(n.value, 16), dtype=torch.uint8, device="cuda") for n in (codes, scales))
            self.amax = torch.zeros(max(amax.value // 4, 1), device="cuda")
        library.call("mxq_tensor_set_part", self.handle, part, c_void_p(self.codes.data_ptr()), codes,
                     c_void_p(self.scales.data_ptr()), scales)
        if format == "NVFP4":
            library.call("mxq_tensor_set_amax", self.handle, part, c_void_p(self.amax.data_ptr()), amax)

    def copy(self):
        """The same numbers at other addresses."""
        memory = self.codes.clone(), self.scales.clone(), self.amax
        return Quantized(self.mxq, self.format, self.shape, self.scaling, self.ends, memory)

    def swizzle(self):
        """The same codes and amax, with scales that are swizzled."""
        swizzled = Quantized(self.mxq, self.format, self.shape, self.scaling, self.ends, swizzled=True)
        self.mxq.verb("swizzle_scales", None, self.handle, swizzled.handle)[0]()
        swizzled.codes.copy_(self.codes)
        swizzled.amax.copy_(self.amax)
        return swizzled

    def of(self, library):
        """The descriptor that another library has of the same memory."""
        return Quantized(library, self.format, self.shape, self.scaling, self.ends, (self.codes, self.scales, self.amax))


def quantize(library, values, format, scaling=None, ends=None):
    quantized = Quantized(library, format, tuple(values.shape), scaling, ends)
    library.verb("quantize", None, library.plain(values, ends), quantized.handle)[0]()
    return quantized


def decode(quantized, rows, cols, first_row=0):
    """Values (float32) of rows of a compact rowwise part. Torch computes them, so that the reference does not depend on libmxq."""
    bits, block, _ = FORMATS[quantized.format]
    codes = quantized.codes[first_row * cols * bits // 8:][:rows * cols * bits // 8]
    if bits == 4:
        table, pairs = torch.tensor(E2M1, device=codes.device), codes.view(rows, cols // 2).int()
        values = torch.stack((table[pairs & 15], table[pairs >> 4]), -1).view(rows, cols)
    else:
        values = codes.view(torch.float8_e4m3fn).view(rows, cols).float()
    if quantized.scaling == "128X128":
        factors = quantized.scales.view(torch.float32).view(-1, math.ceil(cols / 128))[first_row // 128:][:math.ceil(rows / 128)]
        return values * factors.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
    if quantized.scaling == "1X128":
        factors = quantized.scales.view(torch.float32).view(-1, math.ceil(cols / 128))[first_row:][:rows]
        return values * factors.repeat_interleave(128, 1)[:, :cols]
    blocks = math.ceil(cols / block)
    scales = quantized.scales[first_row * blocks:][:rows * blocks].view(rows, blocks)
    if quantized.format == "NVFP4":
        factors = scales.view(torch.float8_e4m3fn).float() * (quantized.amax[0] / (6 * 448))
    else:
        factors = torch.exp2(scales.float() - 127)
    return values * factors.repeat_interleave(block, 1)[:, :cols]


class Operands:
    """The operands of a case in `variants` copies at other addresses, so that repeated calls do not find them in the L2."""

    def __init__(self, library, case, variants):
        self.case = case
        shape = (case.experts, case.n, case.k) if case.experts else (case.n, case.k)
        weights = torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_(std=0.02)
        self.weights = [quantize(library, weights, case.weights, FORMATS[case.weights][2])]
        for expert in range(max(case.experts, 1)):
            plain = weights[expert] if case.experts else weights
            plain.copy_(decode(self.weights[0], case.n, case.k, expert * case.n))
        self.plain_weights = [weights]
        if not case.experts:  # experts differ by routing
            self.weights += [self.weights[0].copy() for _ in range(variants - 1)]
            self.plain_weights += [weights.clone() for _ in range(variants - 1)]
        else:
            self.weights *= variants
            self.plain_weights *= variants
        self.choices = [self._choices() for _ in range(variants)]
        self.ends = [ends for _, ends in self.choices]
        self.tokens = [torch.randn(case.rows, case.k, device="cuda", dtype=torch.bfloat16) for _ in range(variants)]
        scaling = "1X128" if case.activations == "FP8_E4M3" else None
        self.activations = [x if case.activations == "BF16" else quantize(library, x, case.activations, scaling, ends)
                            for x, ends in zip(self.tokens, self.ends)]

    def _choices(self):
        if not self.case.experts:
            return None, None
        ids = torch.rand(self.case.tokens, self.case.experts, device="cuda").topk(self.case.top, 1).indices.reshape(-1)
        ends = torch.bincount(ids, minlength=self.case.experts).cumsum(0)
        ends[:-1] = (ends[:-1] + self.case.aligned // 2) // self.case.aligned * self.case.aligned
        return ids, ends.clamp(max=self.case.rows).int().contiguous()

    def output(self):
        return torch.full((self.case.rows, self.case.n), float("nan"), device="cuda", dtype=torch.bfloat16)

    def exact(self):
        """Sums of the first variant in float64, from the decoded codes."""
        case, x = self.case, self.tokens[0].float()
        if case.activations != "BF16":
            x = decode(self.activations[0], case.rows, case.k)
        ends = self.ends[0].tolist() if case.experts else [case.rows]
        sums = [x[begin:end].double() @ decode(self.weights[0], case.n, case.k, e * case.n).double().t()
                for e, (begin, end) in enumerate(zip([0] + ends, ends))]
        return torch.cat(sums)


def signal_to_noise(out, exact):
    """In dB; NaN where an element was not written."""
    error = (out.double() - exact).norm()
    return float("inf") if error == 0 else (20 * torch.log10(exact.norm() / error)).item()
