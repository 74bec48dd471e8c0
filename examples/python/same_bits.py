"""A token has the same bits in any batch: a small network of expert layers whose products are row-invariant.

    python same_bits.py [rows ...]      numbers of tokens of further batches; 20 random ones by default

A layer chooses two of eight experts for each token, and multiplies its MXFP8 numbers with the MXFP4 weights of these. All
tokens go through the network once in one batch. Then batches of random tokens do, and each token's output is compared bit by
bit. Without row_invariant=True, products of other numbers of rows may sum in another order.
"""
import sys
from typing import Any, List

import numpy as np

import mxq

TOKENS, WIDTH, EXPERTS, TOP, LAYERS = 2000, 256, 8, 2, 3


def quantized(x: np.ndarray, **options: Any) -> mxq.QTensor:
    return mxq.quantize(x, "mxfp8_e4m3", **options)


class Layer:
    def __init__(self, rng: np.random.Generator) -> None:
        draw = lambda *shape: rng.standard_normal(shape, dtype="float32") / np.float32(np.sqrt(WIDTH))  # noqa: E731
        self.router = mxq.quantize(draw(EXPERTS, WIDTH), "mxfp8_e4m3")
        self.up = mxq.quantize(draw(EXPERTS, 2 * WIDTH, WIDTH), "mxfp4")
        self.down = mxq.quantize(draw(EXPERTS, WIDTH, 2 * WIDTH), "mxfp4")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        logits = mxq.matmul(quantized(x), self.router.T, dtype="float32", row_invariant=True)
        chosen = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
        order = np.argsort(chosen.ravel(), kind="stable")  # rows sorted by expert
        ends = np.bincount(chosen.ravel(), minlength=EXPERTS).cumsum().astype(np.int32)
        rows = x[order // TOP]
        hidden = mxq.grouped_matmul(quantized(rows, groups=ends), self.up.mT, dtype="float32", row_invariant=True)
        hidden = np.maximum(hidden, 0) ** 2
        y = mxq.grouped_matmul(quantized(hidden, groups=ends), self.down.mT, dtype="float32", row_invariant=True)
        back = np.empty_like(y)
        back[order] = y
        return x + back.reshape(len(x), TOP, WIDTH).sum(axis=1)


def network(layers: List[Layer], x: np.ndarray) -> np.ndarray:
    for layer in layers:
        x = layer(x)
    return x


def main() -> None:
    rng = np.random.default_rng(0)
    layers = [Layer(rng) for _ in range(LAYERS)]
    x = rng.standard_normal((TOKENS, WIDTH), dtype="float32")
    expected = network(layers, x)
    sizes = [int(text) for text in sys.argv[1:]] or rng.integers(1, 400, 20).tolist()
    compared = differ = 0
    for size in sizes:
        tokens = rng.integers(0, TOKENS, size)
        got = network(layers, x[tokens])
        differ += int((got.view(np.uint32) != expected[tokens].view(np.uint32)).any(axis=1).sum())
        compared += size
    print(f"{compared} tokens in {len(sizes)} batches: {differ} differ")
    sys.exit(differ != 0)


if __name__ == "__main__":
    main()
