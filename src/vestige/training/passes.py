"""Which rows of a batch go through the model together, so that few tokens are padding and few passes are made."""

from collections.abc import Sequence

# What a pass of its own costs besides its tokens, in tokens: weights read, gradients added, kernels started. Measured
# on the tiny shape of `benchmarks.training`; from a half to twice as many take some 5 % longer at most.
PASS_TOKENS = {"float32": 24, "bfloat16": 96}
# A GPU is filled by thousands of tokens first. Not measured.
GPU_PASS_TOKENS = 2048


def passes_by_length(lengths: Sequence[int], *, pass_tokens: int) -> list[list[int]]:
    """Indices of the rows of each pass: the cheapest split of the rows sorted by length.

    A pass over n rows costs n times its longest row, and `pass_tokens` more. Longest first, so that the largest
    buffers are taken before memory is in pieces.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    # best[k]: the least cost of the k shortest rows; begins[k]: where the last pass over them begins.
    best, begins = [0], [0]
    for stop in range(1, len(order) + 1):
        width = lengths[order[stop - 1]]
        costs = [best[start] + (stop - start) * width + pass_tokens for start in range(stop)]
        best.append(min(costs))
        begins.append(costs.index(best[-1]))
    found: list[list[int]] = []
    stop = len(order)
    while stop:
        found.append(order[begins[stop] : stop])
        stop = begins[stop]
    return found
