"""What mxq_bench --suite origins is compared with, in torch: code that torch.compile makes kernels of, and BF16 grouped products.
torch_peers.py --suite origins runs it."""
import torch

from torch_peers import ragged_ends

ALIGNMENT = 32
EXPERTS = (1, 8, 32)
MATRICES = ((8192, 5120), (7168, 2048))
WIDTHS = (1536, 2048, 5120, 7168)
LAYERS = ((16384, 8192, 5120), (128000, 2048, 7168))
FORWARD_ALONE = (98304, 8192, 5120)


def swizzled(scales):
    """Scales of (experts, lines, blocks), whole tiles of 128 x 4, in the order of block-scaled tensor cores."""
    experts, lines, blocks = scales.shape
    tiles = scales.view(experts, lines // 128, 4, 32, blocks // 4, 4)
    return tiles.permute(0, 1, 4, 3, 2, 5).reshape(experts, -1)


def quantize_columnwise(weights, square, floor):
    """Codes of (experts, columns, rows), and E8M0 scales of blocks of 32 rows, or of 32 x 32, swizzled."""
    experts, rows, cols = weights.shape
    blocks = weights.transpose(1, 2).reshape(experts, cols, rows // 32, 32).float()
    amax = blocks.abs().amax(dim=-1)
    if square:
        amax = amax.view(experts, cols // 32, 32, -1).amax(dim=2, keepdim=True).expand(-1, -1, 32, -1).reshape(experts, cols, -1)
    if floor:
        scale = ((amax.view(torch.int32) >> 23) - 8).clamp(min=0)
    else:
        scale = ((amax / 448).view(torch.int32) + 0x7FFFFF) >> 23
    inverse = ((254 - scale).clamp(min=1) << 23).view(torch.float32)
    codes = (blocks * inverse[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.view(experts, cols, rows), swizzled(scale.to(torch.uint8))


def pad_on_device(x, ends):
    """Rows with each group at a multiple of ALIGNMENT, and the starts and ends of groups; no size reaches the host."""
    sizes = torch.diff(ends, prepend=ends.new_zeros(1))
    padded = (sizes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    padded_ends = padded.cumsum(0, dtype=torch.int32)
    starts = padded_ends - padded
    rows = torch.arange(x.shape[0], device=x.device, dtype=torch.int32)
    group = torch.searchsorted(ends, rows, right=True)
    to = rows - (ends - sizes)[group] + starts[group]
    out = x.new_zeros(x.shape[0] + ALIGNMENT * ends.shape[0], x.shape[1])
    out[to] = x
    return out, starts, padded_ends


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def device_ends(rows, groups):
    return torch.tensor(ragged_ends(rows, groups), device="cuda", dtype=torch.int32)


def measured(timer, call, moved, operations=0, **fields):
    us, copy_us = timer.times_us(call)
    rate = {"rate": operations / us * 1e-6, "unit": "TFLOP/s"} if operations else {"rate": moved / us * 1e-3, "unit": "GB/s"}
    return {"us": us, "copy_us": copy_us, "bytes": moved, **rate, **fields}


def quantize_rows(timer):
    for square in (False, True):
        for floor in (False, True):
            compiled = torch.compile(quantize_columnwise, dynamic=True)
            for rows, cols in MATRICES:
                for experts in EXPERTS:
                    weights = random(experts, rows, cols)
                    case = f"bf16 to mxfp8_e4m3{':32x32' * square} columnwise, swizzled{', floor' * floor}"
                    yield measured(timer, lambda: compiled(weights, square, floor), weights.numel() * (3 + 1 / 32), verb="quantize",
                                   case=case, mxq_case=case, shape=f"{experts}x{rows}x{cols}", implementation="torch.compile")


def pad_rows(timer):
    compiled = torch.compile(pad_on_device, dynamic=True)
    for groups in (1, 4, 8, 16):
        for cols in WIDTHS:
            x, ends = random(16384, cols), device_ends(16384, groups)
            yield measured(timer, lambda: compiled(x, ends), x.numel() * 4, verb="pad_groups", case="bf16",
                           mxq_case=f"bf16, starts and ends, groups of {ALIGNMENT}x0", shape=f"16384x{cols}, {groups} groups",
                           implementation="torch.compile")


def layer_row(timer, verb, size, groups):
    m, n, k = size
    x, w, dy, ends = random(m, k), random(groups, n, k), random(m, n), device_ends(m, groups)

    def forward():
        torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)

    def training():
        forward()
        torch._grouped_mm(dy, w, offs=ends)
        torch._grouped_mm(dy.t(), x, offs=ends)

    products = 3 if verb == "training" else 1
    return measured(timer, training if verb == "training" else forward, 2 * products * (m * k + groups * n * k + m * n),
                    2 * products * m * n * k, verb=verb, case="bf16 x bf16 to bf16", mxq_case="mxfp8_e4m3 x mxfp8_e4m3:32x32 to bf16",
                    shape=f"{m}x{n}x{k}, {groups} groups", implementation="torch._grouped_mm")


def rows(timer):
    yield from quantize_rows(timer)
    yield from pad_rows(timer)
    for verb in ("forward", "training"):
        for size in LAYERS:
            for groups in (1, 2, 4, 8):
                yield layer_row(timer, verb, size, groups)
    for groups in (4, 8):
        yield layer_row(timer, "forward", FORWARD_ALONE, groups)
