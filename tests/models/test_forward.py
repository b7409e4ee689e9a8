"""Which rows share a pass, by hand and against every split there is."""

import itertools
import random

import torch

from vestige.models.forward import GPU_TOKENS, batches_by_length, passes_by_length


def cost(split, lengths, pass_tokens):
    return sum(len(p) * max(lengths[i] for i in p) + pass_tokens for p in split)


def test_one_long_row_goes_alone_where_padding_the_others_to_it_costs_more():
    # Together 4 x 100 + 24 = 424; apart 3 x 10 + 100 + 2 x 24 = 178. At 400 a pass: 800 against 930.
    lengths = [10, 100, 10, 10]
    assert passes_by_length(lengths, pass_tokens=24) == [[1], [0, 2, 3]]
    assert passes_by_length(lengths, pass_tokens=400) == [[0, 2, 3, 1]]


def test_no_split_of_the_rows_is_cheaper_and_each_row_is_in_one_pass():
    rng = random.Random(0)
    for _ in range(30):
        lengths = [rng.randint(1, 40) for _ in range(rng.randint(1, 8))]
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        found = passes_by_length(lengths, pass_tokens=16)
        assert sorted(i for p in found for i in p) == list(range(len(lengths)))
        # An optimal split never separates rows of neighbouring length, so cuts of the sorted rows are all there are.
        cuts = (c for n in range(len(order)) for c in itertools.combinations(range(1, len(order)), n))
        splits = ([order[a:b] for a, b in itertools.pairwise((0, *c, len(order)))] for c in cuts)
        assert cost(found, lengths, 16) == min(cost(s, lengths, 16) for s in splits)


def test_a_card_gets_more_tokens_a_pass_than_a_processor():
    lengths = [10] * 64
    passes = {
        d: [rows for _, rows in batches_by_length(lengths, torch.device(d), token_budget=40)] for d in ("cpu", "cuda")
    }
    assert [max(map(len, passes[d])) for d in ("cpu", "cuda")] == [4, 4 * GPU_TOKENS]
    assert all(sorted(i for rows in split for i in rows) == list(range(64)) for split in passes.values())
    # Rows of unlike length are padded together where a pass of its own costs more.
    assert [
        len(list(batches_by_length([4, 24], torch.device(d), token_budget=100, pass_tokens=8))) for d in passes
    ] == [2, 1]
