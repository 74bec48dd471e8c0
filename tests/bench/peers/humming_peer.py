"""humming-kernels: quantized weights in an order of its own, made once; its own heuristics choose the kernel."""
import json
from concurrent.futures import ThreadPoolExecutor

import torch
import humming  # noqa: F401  (the import registers its operators)
from humming import dtypes, ops
from humming.config.enum import WeightScale2Type, WeightScaleType
from humming.kernel.humming import HummingKernel
from humming.schema import HummingInputSchema, HummingWeightSchema
from humming.transform import prepare_fp16_e8m0_scale, prepare_layer_config, transform_humming_tensors
from humming.tune import get_heuristics_config

NAME = "humming"


def _weight_schema(format):
    e2m1, e4m3, e8m0 = dtypes.float4e2m1, dtypes.float8e4m3, dtypes.float8e8m0
    if format == "NVFP4":
        return HummingWeightSchema(b_dtype=e2m1, bs_dtype=e4m3, weight_scale_group_size=16,
                                   weight_scale_type=WeightScaleType.GROUP, weight_scale_2_type=WeightScale2Type.TENSOR)
    if format == "FP8_E4M3":
        return HummingWeightSchema(b_dtype=e4m3, bs_dtype=dtypes.float32, weight_scale_group_size=128,
                                   weight_scale_group_size_n=128, weight_scale_type=WeightScaleType.BLOCK)
    return HummingWeightSchema(b_dtype=e2m1 if format == "MXFP4" else e4m3, bs_dtype=e8m0, weight_scale_group_size=32)


def _config(case):
    inputs = HummingInputSchema(a_dtype=dtypes.bfloat16)
    if case.activations == "FP8_E4M3":
        inputs = HummingInputSchema(a_dtype=dtypes.float8e4m3, input_scale_group_size=128)
    padding = (256, 128) if case.experts else (1, 1)
    return prepare_layer_config(shape_n=case.n, shape_k=case.k, weight_schema=_weight_schema(case.weights), input_schema=inputs,
                                num_experts=case.experts or None, pad_n_to_multiple=padding[0], pad_k_to_multiple=padding[1],
                                torch_dtype=torch.bfloat16, device=0)


def _kernel(config, case):
    """The kernel that humming's own heuristics choose, and how many SMs it takes."""
    kind = "grouped_contiguous" if case.experts else "dense"
    tuning = dict(get_heuristics_config(config, shape_m=case.rows, gemm_type=kind, device=0))
    layer, compute, tuning = HummingKernel._resolve_configs(config.to_str(), json.dumps({"gemm_type": kind}), tuning, 0)
    arguments = layer | compute | tuning
    sms = arguments.pop("num_sms", 0)
    with torch.cuda.device(0):
        return HummingKernel(**arguments), sms


class Layer:
    """The weights of a case in humming's order."""

    def __init__(self, case, weights):
        lead, count = ((case.experts,), case.experts) if case.experts else ((), 1)
        bits = 4 if "FP4" in case.weights else 8
        n, k = case.n, case.k
        self.config = _config(case)
        codes, scales = weights.codes[:count * n * k * bits // 8].clone(), weights.scales.clone()
        tensors = {"weight": codes.view(torch.int32).view(*lead, n, k * bits // 32)}
        if case.weights == "NVFP4":
            tensors["weight_scale"] = scales[:count * n * k // 16].view(torch.float8_e4m3fn).view(*lead, n, k // 16)
            tensors["weight_scale_2"] = (weights.amax[:1] / (6 * 448)).repeat(count)
        elif case.weights == "FP8_E4M3":
            blocks = (n // 128, k // 128)
            tensors["weight_scale"] = scales.view(torch.float32)[:count * blocks[0] * blocks[1]].view(*lead, *blocks)
        else:
            tensors["weight_scale"] = scales[:count * n * k // 32].view(torch.float8_e8m0fnu).view(*lead, n, k // 32)
        self.config, tensors = prepare_fp16_e8m0_scale(self.config, tensors)
        self.tensors = transform_humming_tensors(self.config, tensors)
        self.locks = torch.zeros(2048, dtype=torch.int32, device="cuda")

    def kernel(self, case):
        kernel, sms = _kernel(self.config, case)
        return torch.tensor([0, 1 << 30, kernel.kernel_id, sms], dtype=torch.int64)


class Peer:
    version = "humming-kernels"

    def takes(self, case):
        return case.activations in ("BF16", "FP8_E4M3")

    def prepare(self, cases):
        """Compiles the kernels of all cases, on all cores."""
        def compile(case):
            try:
                _kernel(_config(case), case)
            except Exception:
                pass  # its call says why

        with ThreadPoolExecutor() as threads:
            list(threads.map(compile, cases))

    def calls(self, operands):
        case = operands.case
        first = Layer(case, operands.weights[0])
        layers = [first] + [first if w is operands.weights[0] else Layer(case, w) for w in operands.weights[1:]]
        kernel = first.kernel(case)
        calls = []
        for layer, x, ends in zip(layers, operands.activations, operands.ends):
            scales = None
            if case.activations != "BF16":
                scales = x.scales.view(torch.float32)[:case.rows * (case.k // 128 + (case.k % 128 > 0))].view(case.rows, -1)
                x = x.codes[:case.rows * case.k].view(torch.float8_e4m3fn).view(case.rows, case.k)
            layout = torch.nn.functional.pad(ends.long(), (1, 0)).contiguous() if case.experts else None
            calls.append(self._call(kernel, layer, x, scales, layout, operands.output()))
        return calls

    @staticmethod
    def _call(kernel, layer, x, scales, layout, out):
        def call():
            ops.launch_kernel(configs=kernel, inputs=x, outputs=out, weight=layer.tensors["weight"],
                              weight_scale=layer.tensors["weight_scale"], weight_scale_2=layer.tensors.get("weight_scale_2"),
                              input_scale=scales, expert_layout=layout, sorted_ids=None, expert_ids=None, num_tokens_padded=None,
                              locks=layer.locks, top_k=1)
            return out

        return call
