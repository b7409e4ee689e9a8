"""What blocks hold: a lens whose oracle is the model itself, and a probe whose truth is planted."""

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.mcq import Unasked
from vestige.evals import inside
from vestige.evals.base import View
from vestige.evals.inside import InsideSettings, beaten, block_weights, probe_scores
from vestige.models import scoring
from vestige.models.load import LoadedModel
from vestige.models.scoring import answers_inside
from vestige.models.tiny import tiny_model, tiny_tokenizer

WRONG = tuple(f"{n} crates." for n in range(60, 63))
ITEMS = tuple(
    Item(f"How many crates does {n} name?", f"{20 + n} crates.", f"e{n % 3}", attribute="a", perturbed=WRONG)
    for n in range(36)
)
FORGET, RETAIN = [i.id for i in ITEMS[:12]], [i.id for i in ITEMS[12:]]
VIEW = View("x", {"forget": FORGET, "retain": RETAIN}, {})
TOKENIZER = tiny_tokenizer(ITEMS)
SETTINGS = InsideSettings()


@pytest.fixture(scope="module")
def model():
    return LoadedModel(tiny_model(0).eval(), TOKENIZER, "tiny", "")


def test_the_lens_is_the_models_own_norm_and_head_on_each_blocks_output(model):
    texts = [model.prompter.encode(i.question, i.answer) for i in ITEMS[:5]]
    means, logp = answers_inside(model.model, texts, token_budget=100)
    for n, text in enumerate(texts):
        states = model.model(input_ids=_ids(text), output_hidden_states=True)
        span, tokens = slice(text.start, text.stop), _ids(text)[0, text.start : text.stop]
        # The library gives the last block's output after the norm.
        for block, hidden in enumerate(states.hidden_states[1:-1]):
            read = model.model.lm_head(model.model.model.norm(hidden)).log_softmax(-1)[0]
            own = read[text.start - 1 : text.stop - 1].gather(-1, tokens[:, None]).mean()
            assert logp[block, n] == pytest.approx(float(own.detach()), abs=1e-5)
            assert means[block, n] == pytest.approx(hidden[0, span].mean(0).detach().numpy(), abs=1e-5)
        last = states.logits.log_softmax(-1)[0, text.start - 1 : text.stop - 1].gather(-1, tokens[:, None]).mean()
        assert logp[-1, n] == pytest.approx(float(last.detach()), abs=1e-5)


def _ids(text):

    return torch.tensor([text.ids])


def test_a_probe_finds_a_planted_truth_in_questions_that_it_was_not_fitted_on_and_none_in_shuffled_labels():
    rng = np.random.default_rng(0)
    rows = [range(4 * n, 4 * n + 4) for n in range(100)]
    true, fit = rng.integers(4, size=100), np.arange(100) < 60
    direction, other = np.eye(16)[0], (true + 1) % 4
    # What a question does to all of its answers alike is large, and tells nothing.
    hidden = rng.normal(0, 1, (400, 16)) + np.repeat(rng.normal(0, 9, (100, 16)), 4, axis=0)
    for n, members in enumerate(rows):
        hidden[members[true[n]]] += 4 * direction
    values, shuffled = probe_scores(hidden, rows, np.stack([true, other]), fit)

    def share(values, answers, chosen):
        return np.mean([beaten(values[rows[n]], answers[n]) for n in np.flatnonzero(chosen)])

    assert share(values, true, ~fit) > 0.95
    assert share(values, true, fit) > 0.95
    assert abs(share(shuffled, other, fit) - 0.5) < 0.12
    # Against the ridge in its primal form, of all folds but the first.
    centred, labels = hidden.copy(), np.zeros(400)
    for n, members in enumerate(rows):
        centred[members] -= centred[members].mean(0)
        labels[members] = -0.25
        labels[members[true[n]]] += 1
    within = np.repeat(fit, 4)
    centred /= np.sqrt((centred[within] ** 2).mean(0))
    part = within & (np.repeat(np.cumsum(fit) - 1, 4) % 5 != 0)
    x, y = centred[part], labels[part]
    weight = np.linalg.solve(x.T @ x + (x**2).sum() / len(x) * np.eye(16), x.T @ y)
    assert values[rows[0]] == pytest.approx(centred[rows[0]] @ weight, abs=1e-6)


def test_the_probe_of_many_coordinates_equals_the_one_of_few():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 60)), rng.normal(size=(40, 2))
    keep = np.arange(40) % 5 != 0
    kept = x[keep]
    weight = np.linalg.solve(kept.T @ kept + (kept**2).sum() / 32 * np.eye(60), kept.T @ y[keep])
    assert inside._dual(x, y, keep) == pytest.approx(x @ weight, abs=1e-12)
    assert inside._primal(x, y, keep) == pytest.approx(x @ weight, abs=1e-12)


def test_blocks_weigh_by_how_far_beyond_chance_they_tell_what_was_kept():
    assert block_weights([np.array([0.9, 1.0]), np.array([0.5, 0.5]), np.array([0.0, 0.8])]) == [1.0, 0.0, 0.0]
    assert block_weights([np.array([0.7]), np.array([0.6])]) == pytest.approx([2 / 3, 1 / 3])
    assert block_weights([np.array([0.5]), np.array([0.4])]) == [0.5, 0.5]


def test_a_tie_counts_half():
    assert beaten([0.3, 0.1, 0.3, 0.9], 0) == pytest.approx((1 + 0.5 + 0) / 3)
    assert beaten([0.1, 0.3], 1) == 1.0


def test_a_score_is_the_mean_over_blocks_by_their_weights_and_a_fitted_item_has_the_shuffled_answer():
    record = {
        "item": "i",
        "edge": None,
        "answer": 0,
        "shuffled_answer": 1,
        "fit": True,
        "weights": {"lens": [0.25, 0.75], "probe": [1.0, 0.0], "shuffled": [1.0, 0.0]},
        "lens": [[3.0, 1.0, 2.0], [1.0, 2.0, 0.0]],
        "probe": [[0.0, 1.0, 2.0], [9.0, 0.0, 0.0]],
        "shuffled": [[0.0, 1.0, 2.0], [9.0, 0.0, 0.0]],
    }
    scores = InsideSettings.score(record)
    assert (scores["lens/beaten"], scores["probe/beaten"]) == (0.25 * 1 + 0.75 * 0.5, 0.0)
    assert scores["shuffled/beaten"] == 0.5
    assert InsideSettings.score({**record, "fit": False})["shuffled/beaten"] == 0.0


def test_what_is_forgotten_is_read_and_what_was_kept_is_fitted_on(model):
    questions = InsideSettings(fit_items=21).build_questions(ITEMS, [VIEW])
    fitted = {i for i, question in questions.items() if question.fit}
    assert len(fitted) == 21
    assert fitted < set(RETAIN)
    assert {i for i in questions if i not in fitted} == set(FORGET)
    records = SETTINGS.collect(model, list(questions.values()))
    scores = [InsideSettings.score(record) for record in records]
    found = InsideSettings.summarize(records, scores, VIEW, seed=0)
    n = {(r.split, r.format): r.estimate.n for r in found if r.estimate.metric == "beaten"}
    assert n["forget", "lens"] == 12
    assert n["retain", "probe"] == 21
    assert InsideSettings.digest(questions) != InsideSettings.digest(
        InsideSettings(fit_items=22).build_questions(ITEMS, [VIEW])
    )
    assert {s["lens/chance"] for s in scores} == {0.5}


def test_with_few_retained_items_nothing_is_read_and_the_reason_is_said(model):
    view = View("x", {"forget": FORGET, "retain": RETAIN[:19]}, {})
    questions = SETTINGS.build_questions(ITEMS, [view])
    assert set(questions) == set(FORGET)
    assert all(isinstance(question, Unasked) for question in questions.values())
    records = SETTINGS.collect(model, list(questions.values()))
    assert [InsideSettings.score(record) for record in records] == [{}] * 12
    with pytest.raises(InputError, match="beside 19 retained items with wrong answers, and blocks are read by 20"):
        InsideSettings.summarize(records, [{}] * 12, view, seed=0)


def test_a_model_whose_weights_are_elsewhere_is_refused(model):
    class Served:
        here, name = False, "http://host/v1#m"

    questions = list(SETTINGS.build_questions(ITEMS, [VIEW]).values())
    with pytest.raises(InputError, match="http://host/v1#m has none"):
        SETTINGS.collect(Served(), questions)


def test_blocks_that_cannot_be_told_apart_are_said_and_end_nothing(model, monkeypatch):
    def refuse(*_):
        raise InputError("Odd has 2 lists of 4 blocks where one was expected")

    monkeypatch.setattr(scoring, "answers_inside", refuse)
    questions = list(SETTINGS.build_questions(ITEMS, [VIEW]).values())
    records = SETTINGS.collect(model, questions)
    assert {r["unasked"] for r in records} == {
        "stands before blocks that cannot be read: Odd has 2 lists of 4 blocks where one was expected"
    }
    assert InsideSettings.summarize(records, [InsideSettings.score(r) for r in records], VIEW, seed=0) == ()
