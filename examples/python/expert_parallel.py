"""A layer of experts over several processes, with torch.distributed and mxq.torch: tokens travel as MXFP8 codes and scales.

    torchrun --nproc-per-node 2 expert_parallel.py      # over NCCL where each process has a GPU, else over gloo on CPUs
    python expert_parallel.py                           # one process

Each process compares the result of its tokens with that of a layer that has all experts in one process: the bits are the same.
"""
import os
from typing import Any, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

import mxq
import mxq.torch as mt

FORMAT = "mxfp8_e4m3"


class Route:
    """Where the slots of this rank's tokens go: slot t * top + j is choice j of token t. The host learns the counts once."""

    def __init__(self, choices: Tensor, experts: int, group: Any = None, ranks: int = 1) -> None:
        self.group, self.ranks, self.top, own = group, ranks, choices.shape[1], experts // ranks
        rank = dist.get_rank(group) if ranks > 1 else 0
        self.order = torch.argsort(choices.flatten(), stable=True)  # the rows that leave, by expert
        counts = torch.bincount(choices.flatten(), minlength=experts)
        everyones = [torch.empty_like(counts) for _ in range(ranks)]
        if ranks > 1:
            dist.all_gather(everyones, counts, group=group)
        else:
            everyones = [counts]
        table = torch.stack(everyones).cpu()  # (ranks, experts)
        arriving = table[:, rank * own : (rank + 1) * own]
        self.sent = table[rank].view(ranks, own).sum(1).tolist()
        self.received = arriving.sum(1).tolist()
        # Rows arrive sorted by source, and for each source by expert; products want them by expert.
        expert_of_row = torch.arange(own).repeat(ranks).repeat_interleave(arriving.flatten())
        self.by_expert = torch.argsort(expert_of_row, stable=True).to(choices.device)
        self.ends = arriving.sum(0).cumsum(0).int().to(choices.device)

    def _exchange(self, rows: Tensor, sent: Any, received: Any) -> Tensor:
        if self.ranks == 1:
            return rows
        out = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=self.group)
        return out

    def there(self, of_slots: Tensor) -> Tensor:
        return self._exchange(of_slots, self.sent, self.received)[self.by_expert]

    def back(self, rows: Tensor) -> Tensor:
        by_source = torch.empty_like(rows)
        by_source[self.by_expert] = rows
        returned = self._exchange(by_source, self.received, self.sent)
        of_slots = torch.empty_like(returned)
        of_slots[self.order] = returned
        return of_slots

    def quantized_there(self, x: Tensor) -> mxq.QTensor:
        """Quantizes each token once, and sends its codes and scales to each of its experts."""
        q, tokens = mt.quantize(x, FORMAT), self.order // self.top
        codes, scales = self.there(q.rowwise.codes[tokens]), self.there(q.rowwise.scales[tokens])
        return mxq.QTensor.from_parts(FORMAT, codes.shape, rowwise=(codes, scales), groups=self.ends, dtype=x.dtype)

    def sums_back(self, rows: Tensor) -> Tensor:
        of_slots = self.back(rows)
        return of_slots.view(-1, self.top, rows.shape[1]).float().sum(1).to(rows.dtype)


class Experts(torch.autograd.Function):
    """y = sum over a token's choices of weight * down silu(up x); up (experts, hidden, width), down (experts, width, hidden)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, up: Tensor, down: Tensor, route: Route) -> Tensor:
        ctx.route, ctx.up, ctx.down = route, mt.quantize(up, FORMAT, parts="both"), mt.quantize(down, FORMAT, parts="both")
        ctx.x = route.quantized_there(x)
        ctx.weights = route.there(weights.flatten()[route.order])[:, None]
        ctx.z = mt.grouped_matmul(ctx.x, ctx.up.mT)
        h = (ctx.weights * torch.nn.functional.silu(ctx.z.float())).to(x.dtype)
        ctx.h = mt.quantize(h, FORMAT, parts="both", ends=route.ends)
        return route.sums_back(mt.grouped_matmul(ctx.h, ctx.down.mT))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Any, ...]:
        route, z = ctx.route, ctx.z.float()
        arrived = route.quantized_there(dy.contiguous())
        dh = mt.grouped_matmul(arrived, ctx.down).float()
        s = torch.sigmoid(z)
        dz = (ctx.weights * dh * s * (1 + z * (1 - s))).to(dy.dtype)
        qdz = mt.quantize(dz, FORMAT, parts="both", ends=route.ends)
        dx = route.sums_back(mt.grouped_matmul(qdz, ctx.up))
        dweights = route.back((dh * z * s).sum(1)).view(-1, route.top)
        columns = [mxq.requantize(q, FORMAT, parts="columnwise") for q in (ctx.x, arrived)]
        d_up = mt.grouped_matmul(qdz.T, columns[0], dtype=torch.float32)
        d_down = mt.grouped_matmul(columns[1].T, ctx.h, dtype=torch.float32)
        return dx, dweights, d_up, d_down, None


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def run(device: torch.device, rank: int, ranks: int) -> None:
    tokens, width, hidden, experts, top = 96 + 32 * rank, 256, 128, 8, 2
    own = slice(rank * experts // ranks, (rank + 1) * experts // ranks)
    x, dy = (numbers(tokens, width, seed=2 * rank + i).to(device) for i in (0, 1))
    choices = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(rank)).topk(top).indices.to(device)
    choices[: tokens // 2] = torch.tensor([0, 1])  # half of the tokens choose the same two
    weights = torch.softmax(numbers(tokens, top, seed=99 + rank).float(), 1).to(device)
    up, down = (numbers(experts, hidden, width, seed=7) / 16).to(device), (numbers(experts, width, hidden, seed=8) / 8).to(device)

    def step(route: Route, part: slice) -> Tuple[Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (x, weights, up[part].float(), down[part].float())]
        y = Experts.apply(leaves[0], leaves[1], leaves[2], leaves[3], route)
        y.backward(dy)
        return (y.detach(), *(leaf.grad for leaf in leaves))

    spread = step(Route(choices, experts, None, ranks), own)
    alone = step(Route(choices, experts), slice(None))
    for name, a, b in zip(("y", "dx", "gradients of weights"), spread, alone):
        if not torch.equal(a, b):
            raise SystemExit(f"rank {rank}: {name} differs from that of one process")
    for name, a, b in zip(("up", "down"), spread[3:], alone[3:]):
        if ranks > 1:  # one process had the tokens of this rank alone
            dist.all_reduce(b)
        worst = ((a - b[own]).abs().max() / b.abs().max()).item()
        if not worst < 0.05:  # blocks along the tokens of all ranks have other scales than those along one rank's
            raise SystemExit(f"rank {rank}: the gradient of {name} is off by {worst:.3f}")
    exact = torch.zeros(tokens, width)
    for j in range(top):
        chosen = choices[:, j].cpu()
        z = torch.einsum("tw,thw->th", x.cpu().float(), up.cpu().float()[chosen])
        exact += weights[:, j : j + 1].cpu() * torch.einsum("th,twh->tw", torch.nn.functional.silu(z), down.cpu().float()[chosen])
    error = (spread[0].cpu().float() - exact).square().sum() / exact.square().sum()
    print(f"rank {rank} of {ranks} on {device}: {tokens} tokens, the bits of one process, {-10 * error.log10():.1f} dB", flush=True)


def main() -> None:
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast needs rights that shared hosts do not give
    if ranks > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    run(device, rank, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
