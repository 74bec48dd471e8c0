#!/usr/bin/env python3
"""Fits the table of src/dispatch/product_costs.cpp to reports of `mxq_bench --device cuda --suite dispatch --json FILE`.

    fit_costs.py FILE [FILE...] [--multiprocessors 132]

Prints a row for each implementation and class of weights: the tile that fits best, and numbers that are not negative, with the
least squares of relative errors. Then what the choice by them loses against the fastest, each fifth of the problems by a table
that is fitted to the others. Needs numpy and scipy.
"""
import argparse
import json
import math
import random
from collections import defaultdict

import numpy as np
from scipy.optimize import nnls

TILES = [(8, 64, 8), (8, 128, 4), (16, 128, 2), (16, 256, 1), (32, 128, 2), (64, 64, 2), (64, 128, 1), (64, 128, 2), (64, 256, 1),
         (128, 128, 1), (128, 192, 1), (128, 256, 1), (256, 128, 1)]
BITS = {"bf16": 16, "f16": 16, "f32": 32, "nvfp4": 4}


def bits(name):
    return BITS.get(name) or (4 if "fp4" in name else 6 if "fp6" in name else 8)


def weights(problem):
    name, scaling = problem["b_format"], problem["b_scaling"]
    if name == "nvfp4":
        return "Nvfp4"
    if name in BITS:
        return "Plain"
    if name.startswith("mx"):
        return f"Mx{bits(name)}"
    return "Blocks" if scaling == "128x128" else "Lines"


def terms(problem, tile, multiprocessors):
    """What the numbers of a row multiply; product_costs.cpp has the same."""
    rows, columns, ctas = tile
    m, n, k, groups = problem["m"], problem["n"], problem["k"], problem["groups"]
    if problem["a_format"] == "f16" and problem["b_format"] not in BITS:
        m *= 2
    filled = groups * -math.expm1(-m / groups) if groups else 1
    if not groups:
        row_tiles = math.ceil(m / rows)
    elif m > groups * rows / 2:
        row_tiles = m / rows + groups / 2 * -math.expm1(-2 * m / groups / rows)
    else:
        row_tiles = filled
    tiles, steps, slots = row_tiles * math.ceil(n / columns), math.ceil(k / 128), multiprocessors * ctas
    rounds = max(1, math.ceil(tiles / slots - 1e-9))
    outputs = m * n * (2 if problem["d_format"] == "f32" else 1)
    return [1, rounds * steps, tiles * steps / slots, filled * n * k * bits(problem["b_format"]) / 8e6, m * k / 1e6, outputs / 1e6]


def fit(problems, multiprocessors):
    samples = defaultdict(list)
    for problem in problems:
        for name, us in problem["us"].items():
            samples[name, weights(problem)].append((problem, us))
    table = {}
    for key, of in samples.items():
        us = np.array([time for _, time in of])
        fits = []
        for tile in TILES:
            matrix = np.array([terms(problem, tile, multiprocessors) for problem, _ in of]) / us[:, None]
            numbers, error = nnls(matrix, np.ones(len(us)), maxiter=3000)
            fits.append((error, tile, numbers))
        table[key] = min(fits, key=lambda each: each[0])
    return table


def ratio(problem, table, multiprocessors):
    """The time of the choice by its costs, divided by the least."""
    costs = {name: np.dot(terms(problem, table[key][1], multiprocessors), table[key][2])
             for name in problem["us"] if (key := (name, weights(problem))) in table}
    return problem["us"][min(costs, key=costs.get)] / min(problem["us"].values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--multiprocessors", type=int, default=132)
    arguments = parser.parse_args()
    problems = []
    for name in arguments.files:
        with open(name) as file:
            problems += [problem for problem in json.load(file)["problems"] if problem.get("us")]
    table = fit(problems, arguments.multiprocessors)
    for (name, kind), (_, tile, numbers) in sorted(table.items()):
        print(f"    {{&cuda::{name}, Kind::{kind}, " + ", ".join(f"{each:g}" for each in tile) + ", "
              + ", ".join(f"{each:.3g}" for each in numbers) + "},")
    random.Random(1).shuffle(problems)
    fifths, ratios = 5, []
    for part in range(fifths):
        others = fit([each for i, each in enumerate(problems) if i % fifths != part], arguments.multiprocessors)
        ratios += [ratio(each, others, arguments.multiprocessors) for i, each in enumerate(problems) if i % fifths == part]
    before = [each["us"][each["choice"]] / min(each["us"].values()) for each in problems]
    for what, of in (("by these costs", ratios), ("in the reports", before)):
        print(f"{what}: {len(of)} choices, {sum(r > 1.1 for r in of)} lose more than 10%, geometric mean "
              f"{math.exp(np.mean(np.log(of))):.3f}, worst {max(of):.2f}")


if __name__ == "__main__":
    main()
