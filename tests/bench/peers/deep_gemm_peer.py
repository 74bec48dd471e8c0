"""DeepGEMM: FP8 1x128 by FP8 128x128, dense and in groups of rows that are multiples of 128."""
import deep_gemm
import torch

NAME = "DeepGEMM"


class Peer:
    version = getattr(deep_gemm, "__version__", "checkout")

    def takes(self, case):
        return case.activations == case.weights == "FP8_E4M3"

    def calls(self, operands):
        case, blocks = operands.case, operands.case.k // 128
        calls = []
        for x, w, ends in zip(operands.activations, operands.weights, operands.ends):
            a = x.codes[:case.rows * case.k].view(torch.float8_e4m3fn).view(case.rows, case.k)
            # Scales of rows lie side by side.
            sa = x.scales.view(torch.float32)[:case.rows * blocks].view(case.rows, blocks).t().contiguous().t()
            lead = (case.experts,) if case.experts else ()
            count = max(case.experts, 1)
            b = w.codes[:count * case.n * case.k].view(torch.float8_e4m3fn).view(*lead, case.n, case.k)
            sb = w.scales.view(torch.float32)[:count * (case.n // 128) * blocks].view(*lead, case.n // 128, blocks)
            calls.append(self._call(case, (a, sa), (b, sb), ends, operands.output()))
        return calls

    @staticmethod
    def _call(case, a, b, ends, out):
        if not case.experts:
            return lambda: (deep_gemm.fp8_gemm_nt(a, b, out), out)[1]
        sizes = torch.diff(ends, prepend=ends.new_zeros(1))
        if (sizes % 128).any():
            raise RuntimeError("groups must be multiples of 128 rows")
        experts = torch.arange(case.experts, device="cuda", dtype=torch.int32).repeat_interleave(sizes)
        return lambda: (deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, out, experts), out)[1]
