import math

import pytest
import torch
from tests.near import near

from vestige.models.scoring import score_answers, token_scores

pytestmark = pytest.mark.portable


@pytest.fixture(scope="module")
def encoded(tiny, items):
    return [tiny.prompter.encode(i.question, i.answer) for i in items]


def test_ranks_count_from_one_and_ties_share_the_mean():
    # Logits 3 2 2 1: ranks 1, 2.5, 2.5, 4. All equal: (1 + 4) / 2 = 2.5 for everyone.
    logits = torch.tensor([[[3.0, 2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]])
    for target, rank in enumerate([1.0, 2.5, 2.5, 4.0]):
        logp, ranks = token_scores(logits, torch.tensor([[target, target]]))
        assert ranks.tolist() == [[rank, 2.5]]
        assert logp[0, 1].item() == pytest.approx(math.log(1 / 4))


def test_scores_equal_a_plain_forward_pass_item_by_item(tiny, encoded):
    for code, score in zip(encoded, score_answers(tiny.model, encoded), strict=True):
        with torch.inference_mode():
            logits = tiny.model(torch.tensor([code.ids])).logits[0].double()
        for j in range(code.start, code.stop + 1):
            before, token = logits[j - 1], code.ids[j]
            expected = before.log_softmax(-1)[token].item()
            place = j - code.start
            measured = score.logp[place] if j < code.stop else score.end_logp
            assert measured == pytest.approx(expected, abs=1e-5)
            # An oracle by sorting: the target's place in descending order.
            rank = before.argsort(descending=True).tolist().index(token) + 1
            assert abs((score.ranks[place] if j < code.stop else score.end_rank) - rank) <= 1


def test_an_items_numbers_do_not_depend_on_its_batch(tiny, encoded):
    together = score_answers(tiny.model, encoded)
    assert near([score_answers(tiny.model, [e])[0] for e in encoded], together)
    assert near(score_answers(tiny.model, encoded[::-1])[::-1], together)
    assert near(score_answers(tiny.model, encoded, token_budget=100), together)
    assert score_answers(tiny.model, []) == []
