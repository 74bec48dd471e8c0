"""A layer of experts over several processes, with torch.distributed and mxq.torch: a token travels once to each process that has
one of its experts, as MXFP8 codes and scales, and comes back as one row.

    torchrun --nproc-per-node 2 expert_parallel.py      # over NCCL where each process has a GPU, else over gloo on CPUs
    python expert_parallel.py                           # one process

Each process compares the result of its tokens with that of one process that takes the experts of one rank after another, rounds
each sum to BF16, and adds them in order: the bits are the same.
"""
import os
from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

import mxq
import mxq.torch as mt

FORMAT = "mxfp8_e4m3"


class Route:
    """Where the tokens of this rank go: once to each rank that has one of their experts. The host learns the counts once."""

    def __init__(self, choices: Tensor, experts: int, group: Any = None, ranks: int = 1) -> None:
        self.choices, self.experts, self.group, self.ranks, self.own = choices.int(), experts, group, ranks, experts // ranks
        self.first = self.own * (dist.get_rank(group) if ranks > 1 else 0)
        self.most = min(ranks, choices.shape[1])  # ranks that a token may go to
        owners = torch.where(choices < 0, ranks, choices // self.own).sort(1).values
        owners[:, 1:][owners[:, 1:] == owners[:, :-1]] = ranks  # each rank once
        owners = owners.sort(1).values[:, : self.most]
        self.leaving = mxq.route(torch.where(owners == ranks, -1, owners).int().contiguous(), ranks)
        of_ranks = torch.bincount(torch.where(choices < 0, ranks, choices // self.own).flatten(), minlength=ranks + 1)[:ranks]
        mine = torch.stack([self.leaving.ends.diff(prepend=self.leaving.ends.new_zeros(1)), of_ranks], 1).int()
        theirs = self._exchange(mine, [1] * ranks, [1] * ranks)
        self.sent, received, rows = torch.stack([mine[:, 0], theirs[:, 0], theirs[:, 1]]).tolist()
        self.received, self.rows = received, sum(rows)  # tokens from each rank, and rows of the experts here
        self.tokens = self.leaving.row_tokens[: sum(self.sent)]

    def _exchange(self, rows: Tensor, sent: Any, received: Any) -> Tensor:
        if self.ranks == 1:
            return rows
        out = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=self.group)
        return out

    def there(self, *of_tokens: Tensor) -> List[Tensor]:
        """Sends what a token has, side by side, as one message to each rank."""
        return self._travel([rows[self.tokens] for rows in of_tokens], self.sent, self.received)

    def _travel(self, fields: Sequence[Tensor], sent: Any, received: Any) -> List[Tensor]:
        wide = [field.contiguous().view(torch.uint8) for field in fields]
        arrived = self._exchange(torch.cat(wide, 1), sent, received).split([field.shape[1] for field in wide], 1)
        return [part.contiguous().view(field.dtype) for part, field in zip(arrived, fields)]

    def learn(self, ids: Tensor, weights: Tensor) -> None:
        """Takes the experts and weights of the tokens that arrived."""
        here = (self.first, self.own)
        self.arrived = mxq.route(ids, self.experts, weights, local_experts=here)
        self.unweighted = mxq.route(ids, self.experts, local_experts=here)
        self.ends, self.index = self.arrived.ends, self.arrived.row_tokens[: self.rows]
        self.weights = self.arrived.row_weights[: self.rows]

    def rows_of_experts(self, codes: Tensor, scales: Tensor, dtype: Any) -> mxq.QTensor:
        """The rows of each expert; products read no quantized rows by index."""
        codes, scales = codes[self.index], scales[self.index]
        return mxq.QTensor.from_parts(FORMAT, codes.shape, rowwise=(codes, scales), groups=self.ends, dtype=dtype)

    def back(self, routing: mxq.Routing, rows: Tensor, of_rows: Optional[Tensor] = None) -> Tuple[Tensor, Optional[Tensor]]:
        """Sums the rows of each token here, sends the sums back, and adds those of all ranks in order. So does a number of each row."""
        fields = [total(routing, rows)]
        if of_rows is not None:
            fields.append(torch.where(routing.choice_rows < 0, 0, of_rows[routing.choice_rows]))
        returned = [total(self.leaving, field) for field in self._travel(fields, self.received, self.sent)]
        return returned[0], returned[1] if of_rows is not None else None


def total(routing: mxq.Routing, rows: Tensor) -> Tensor:
    """mxq.combine, which wants a row for each choice, of the rows that there are."""
    padded = rows.new_empty(routing.tokens * routing.choices, rows.shape[1])
    padded[: rows.shape[0]] = rows
    return mxq.combine(routing, padded)


class Experts(torch.autograd.Function):
    """y = sum over a token's choices of weight * down silu(up x); up (experts, hidden, width), down (experts, width, hidden)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, up: Tensor, down: Tensor, route: Route) -> Tensor:
        ctx.route, ctx.up, ctx.down = route, mt.quantize(up, FORMAT, parts="both"), mt.quantize(down, FORMAT, parts="both")
        q = mt.quantize(x, FORMAT)
        codes, scales, ids, of_choices = route.there(q.rowwise.codes, q.rowwise.scales, route.choices, weights)
        route.learn(ids, of_choices)
        ctx.x = route.rows_of_experts(codes, scales, x.dtype)
        ctx.z = mt.grouped_matmul(ctx.x, ctx.up.mT)
        h = mxq.activate(ctx.z, "silu", groups=route.ends, format=FORMAT)
        return route.back(route.arrived, mt.grouped_matmul(h, ctx.down.mT))[0]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Any, ...]:
        route, z = ctx.route, ctx.z.float()
        q = mt.quantize(dy.contiguous(), FORMAT)
        arrived = route.rows_of_experts(*route.there(q.rowwise.codes, q.rowwise.scales), dy.dtype)
        dh = mt.grouped_matmul(arrived, ctx.down).float()
        s = torch.sigmoid(z)
        dz = (route.weights[:, None] * dh * s * (1 + z * (1 - s))).to(dy.dtype)
        qdz = mt.quantize(dz, FORMAT, parts="both", ends=route.ends)
        dx, dweights = route.back(route.unweighted, mt.grouped_matmul(qdz, ctx.up), (dh * z * s).sum(1))
        columns = [mxq.requantize(rows, FORMAT, parts="columnwise") for rows in (ctx.x, arrived)]
        h = mxq.activate(ctx.z, "silu", row_weights=route.weights, groups=route.ends, format=FORMAT, parts="columnwise")
        d_up = mt.grouped_matmul(qdz.T, columns[0], dtype=torch.float32)
        d_down = mt.grouped_matmul(columns[1].T, h, dtype=torch.float32)
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
    alone = [torch.zeros_like(t, dtype=torch.float32) for t in (x, x, weights, up, down)]
    for part in range(ranks):
        others = choices * ranks // experts != part
        for sums, of_part in zip(alone, step(Route(choices.masked_fill(others, -1), experts), slice(None))):
            sums += of_part
    for name, a, b in zip(("y", "dx", "gradients of weights"), spread, alone):
        if not torch.equal(a, b.to(a.dtype)):
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
