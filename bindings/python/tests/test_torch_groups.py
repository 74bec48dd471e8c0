"""Ends of groups in mxq.torch: starts and sizes instead are refused, and lists and Groups are taken."""
import pytest
from test_arrays import numbers

import mxq

torch = pytest.importorskip("torch")
mt = pytest.importorskip("mxq.torch")

SIZES = [5, 7, 20]  # ascend, as ends do
ENDS = [5, 12, 32]


def tensor(*shape, seed=0):
    return torch.from_numpy(numbers(*shape, seed=seed)).bfloat16()


X, W = tensor(32, 64), tensor(3, 24, 64, seed=1)
FROZEN = mxq.quantize(W)
CALLS = {
    "quantize": lambda ends: mt.dequantize(mt.quantize(X, ends=ends)),
    "grouped_matmul": lambda ends: mt.grouped_matmul(X, FROZEN.mT, ends=ends),
    "grouped_linear": lambda ends: mt.grouped_linear(X, W, ends),
    "grouped_linear of frozen weights": lambda ends: mt.grouped_linear(X, FROZEN, ends),
}


@pytest.mark.parametrize("call", CALLS)
def test_starts_and_sizes_are_refused(call):
    for wrong in ([0, 5, 12], SIZES, [5, 12, 33], [7, 5, 32]):
        for ends in (wrong, torch.tensor(wrong), torch.tensor(wrong, dtype=torch.int32)):
            with pytest.raises(mxq.Error, match="ends"):
                CALLS[call](ends)
    compiled = torch.compile(CALLS[call], fullgraph=True)
    with pytest.raises(mxq.Error, match="ends"):
        compiled(torch.tensor(SIZES))


@pytest.mark.parametrize("call", CALLS)
def test_lists_tensors_and_groups_are_taken(call):
    expected = CALLS[call](torch.tensor(ENDS))
    assert expected[31].any()
    for ends in (ENDS, tuple(ENDS), torch.tensor(ENDS, dtype=torch.int32), mxq.Groups(ENDS), mxq.Groups(torch.tensor(ENDS), cover_rows=True)):
        assert torch.equal(CALLS[call](ends), expected)


@pytest.mark.parametrize("call", CALLS)
def test_groups_say_for_themselves(call):
    some = CALLS[call](mxq.Groups([5, 12, 20]))
    assert some[:20].any() and not some[20:].any()
    padded = mxq.Groups(ENDS, alignment=(16, 0))
    for wrong, says in ((mxq.Groups([5, 12, 20], cover_rows=True), "ends"), (padded, "without padding"),
                        (mxq.Groups(numbers(3)), "expected a torch tensor or a list")):
        if wrong is not padded or call not in ("quantize", "grouped_linear"):  # whose rows are padded once they are quantized
            with pytest.raises(mxq.Error, match=says):
                CALLS[call](wrong)


def test_gradients_of_layers_know_that_groups_do_not_cover_all_rows():
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    mt.grouped_linear(x, w, mxq.Groups([5, 12, 20])).square().sum().backward()
    assert x.grad[:20].any() and not x.grad[20:].any() and w.grad[2].any()


def test_bias_of_layers_has_its_gradient():
    bias, row = tensor(3, 24, seed=2).requires_grad_(), tensor(1, 24, seed=3)[0].requires_grad_()
    plain = mt.grouped_linear(X, W, ENDS).float()
    y = mt.grouped_linear(X, W, ENDS, bias=bias)
    index = torch.tensor([0] * 5 + [1] * 7 + [2] * 20)
    assert torch.allclose(y.float(), plain + bias.detach().float()[index], rtol=2.0**-7, atol=0.1)
    y.sum().backward()
    assert torch.equal(bias.grad.float()[:, 0], torch.tensor([5.0, 7.0, 20.0]))
    mt.linear(X, W[0].clone(), bias=row).sum().backward()
    assert (row.grad == 32).all()


def test_check_ends_reads_them():
    from mxq._torch_ops import checked_ends_op

    good = torch.tensor(ENDS)
    assert torch.equal(checked_ends_op(good, 32), good) and checked_ends_op(good, 32).data_ptr() != good.data_ptr()
    for wrong in (SIZES[:2], [0, 5, 12], [12, 5, 32], [-1, 5, 32]):
        with pytest.raises(mxq.Error, match="the running sums of the groups"):
            checked_ends_op(torch.tensor(wrong), 32)
    for call in (lambda **o: mt.quantize(X, ends=SIZES, **o), lambda **o: mt.grouped_linear(X, W, mxq.Groups(SIZES), **o),
                 lambda **o: mt.grouped_matmul(X, W.mT, ends=mxq.Groups(SIZES), **o)):
        with pytest.raises(mxq.Error, match="ends"):
            call(check_ends=True)


def test_grouped_linear_takes_rows_of_tokens():
    with pytest.raises(mxq.Error, match=r"x has shape \(2, 35, 32\), expected \(tokens, inputs\)"):
        mt.grouped_linear(torch.zeros(2, 35, 32), torch.zeros(2, 24, 32), [20, 70])
