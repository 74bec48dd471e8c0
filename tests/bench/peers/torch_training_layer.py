"""An expert layer in torch with gradients: grouped products, and glue that torch.compile makes kernels of. Rows are gathered in both
directions, since adding them by index would be slower."""
import torch


class Gather(torch.autograd.Function):
    """Rows of tokens, sorted by expert."""

    @staticmethod
    def forward(ctx, x, token, choice_rows):
        ctx.save_for_backward(choice_rows)
        return x[token]

    @staticmethod
    def backward(ctx, gradient):
        (choice_rows,) = ctx.saved_tensors
        return gradient[choice_rows].float().sum(1).to(gradient.dtype), None, None


class Combine(torch.autograd.Function):
    """The weighted sum of the rows of each token."""

    @staticmethod
    def forward(ctx, rows, weights, order, choice_rows):
        ctx.save_for_backward(rows, weights, order, choice_rows)
        return (rows[choice_rows].float() * weights[..., None]).sum(1).to(rows.dtype)

    @staticmethod
    def backward(ctx, gradient):
        rows, weights, order, choice_rows = ctx.saved_tensors
        of_rows = gradient[order // weights.shape[1]].float() * weights.reshape(-1)[order, None]
        of_weights = (rows[choice_rows].float() * gradient[:, None].float()).sum(-1)
        return of_rows.to(rows.dtype), of_weights, None, None


def torch_layer(x, ids, weights, gate_up, down):
    """Sizes of groups stay on the device. choice_rows: the row of each choice of each token."""
    sorted_ids, order = torch.sort(ids.reshape(-1), stable=True)
    choice_rows = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device)).view(ids.shape)
    experts = torch.arange(gate_up.shape[0], device=ids.device, dtype=ids.dtype)
    ends = torch.searchsorted(sorted_ids, experts, right=True).to(torch.int32)
    rows = Gather.apply(x, order // ids.shape[1], choice_rows)
    gate, up = torch._grouped_mm(rows, gate_up.transpose(-2, -1), offs=ends).chunk(2, -1)
    rows = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(-2, -1), offs=ends)
    return Combine.apply(rows, weights, order, choice_rows)
