"""What blocks hold: a lens whose oracle is the model itself, and a probe whose truth is planted."""

import json

import numpy as np
import pytest
import torch

from small import SPEC
from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import write_finished, write_spec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.data.mcq import Unasked
from vestige.evals import inside
from vestige.evals.base import View
from vestige.evals.inside import InsideSettings, beaten, block_weights, probe_scores
from vestige.models import scoring
from vestige.models.distances import cosine
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.models.scoring import answers_inside, patched_answers, score_answers
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
    import torch

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
    with pytest.raises(InputError, match="weights of http://host/v1#m are not here"):
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


def test_a_block_is_patched_where_the_answer_is_read_and_nowhere_else(model):
    source, texts = tiny_model(1).eval(), [model.prompter.encode(i.question, i.answer) for i in ITEMS[:5]]
    patched = patched_answers(model.model, source, texts, token_budget=100)
    layers = model.model.model.layers
    # The same by plain hooks on what comes after a block, an item at a time.
    after = [*layers[1:], model.model.model.norm]
    for n, text in enumerate(texts):
        ids, reads = _ids(text), range(text.start - 1, text.stop - 1)
        states = source(input_ids=ids, output_hidden_states=True).hidden_states
        given = [*states[1:-1], _before_the_norm(source, ids)]
        for block, follower in enumerate(after):

            def replaced(_, inputs, block=block, reads=reads, given=given):
                hidden = inputs[0].clone()
                hidden[0, list(reads)] = given[block][0, list(reads)]
                return (hidden, *inputs[1:])

            handle = follower.register_forward_pre_hook(replaced)
            logp = model.model(input_ids=ids).logits.log_softmax(-1)[0]
            handle.remove()
            own = logp[list(reads)].gather(-1, ids[0, text.start : text.stop, None]).mean()
            assert patched[block, n] == pytest.approx(float(own.detach()), abs=1e-5)


def _before_the_norm(source, ids):
    kept = []
    handle = source.model.norm.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    source(input_ids=ids)
    handle.remove()
    return kept[0]


def test_what_is_patched_by_hand(model):
    texts = [model.prompter.encode(i.question, i.answer) for i in ITEMS[:5]]
    own = [np.mean(score.logp) for score in score_answers(model.model, texts)]
    # Patched with its own outputs the target answers as it does.
    assert patched_answers(model.model, model.model, texts) == pytest.approx(np.tile(own, (3, 1)), abs=1e-5)
    # After the last block nothing but norm and head is left, here the same, so that the source answers.
    source = tiny_model(0).eval()
    for weights in (source.model.layers[0].mlp.down_proj, source.model.layers[0].self_attn.o_proj):
        weights.weight.data.zero_()
    others = [np.mean(score.logp) for score in score_answers(source, texts)]
    assert patched_answers(model.model, source, texts)[-1] == pytest.approx(others, abs=1e-5)
    # Cosine of two matrices by hand: (3, 4) and (4, 3) have 24/25.
    first, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    first.weight.data, other.weight.data = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])
    assert cosine(first, other) == pytest.approx(24 / 25)


@pytest.mark.parametrize("of_one_start", [True, False])
def test_models_of_other_initial_weights_are_not_patched(model, monkeypatch, of_one_start):
    other = tiny_model(0 if of_one_start else 1).eval()
    other.model.layers[1].mlp.down_proj.weight.data += 0.02
    subject = LoadedModel(other, TOKENIZER, "subject", "")
    monkeypatch.setattr(inside, "load", lambda settings: model)
    settings = InsideSettings(patch="target", patch_weights=model.digest().weights)
    questions = list(settings.build_questions(ITEMS, [VIEW]).values())
    records = [r for r in settings.collect(subject, questions) if not r["fit"]]
    scores = [InsideSettings.score(r) for r in records]
    texts = [model.prompter.encode(r["question"], r["options"][r["answer"]]) for r in records]
    if of_one_start:
        by_hand = np.exp(patched_answers(model.model, other, texts)[:-1].mean(axis=0))
        assert [s["patched/probability"] for s in scores] == pytest.approx(by_hand.tolist())
        assert all(s["patched/cosine"] > 0.9 for s in scores)
    else:
        assert all("patched/probability" not in s and abs(s["patched/cosine"]) < 0.05 for s in scores)


def test_what_a_model_makes_of_its_last_block_alone_hides_nothing_of_those_below(model, monkeypatch):
    silent = tiny_model(0).eval()
    weight = silent.model.layers[-1].mlp.down_proj.weight
    weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) / 20
    monkeypatch.setattr(inside, "load", lambda settings: model)
    settings = InsideSettings(patch="target", patch_weights=model.digest().weights)
    questions = list(settings.build_questions(ITEMS, [VIEW]).values())
    records = [r for r in settings.collect(LoadedModel(silent, TOKENIZER, "s", ""), questions) if not r["fit"]]
    texts = [model.prompter.encode(r["question"], r["options"][r["answer"]]) for r in records]
    own = [np.exp(np.mean(s.logp)) for s in score_answers(model.model, texts)]
    assert [InsideSettings.score(r)["patched/probability"] for r in records] == pytest.approx(own)
    # What it says is another thing, and stands in the record.
    said = [np.mean(s.logp) for s in score_answers(silent, texts)]
    assert [r["patched"][-1] for r in records] == pytest.approx(said, abs=1e-5)
    assert np.abs(np.array(said) - np.log(own)).max() > 0.1


def test_the_target_to_patch_into_is_in_the_identity_and_another_is_refused(model, monkeypatch, tmp_path):
    settings = InsideSettings(patch="target", patch_weights="0" * 64)
    assert settings.identity() == {**SETTINGS.identity(), "patch_weights": "0" * 64}
    monkeypatch.setattr(inside, "load", lambda settings: model)
    with pytest.raises(InputError, match="target is not the target: it has other weights"):
        settings.collect(model, list(settings.build_questions(ITEMS, [VIEW]).values()))
    folder = SubjectFolder(tmp_path)
    parts = {"weights": "1" * 64}
    write_finished(folder.done, {"model": parts, "digest": content_id(parts, length=64)})
    write_spec(folder.spec, SPEC)
    assert InsideSettings.build({"patch": str(tmp_path)}, where="settings").patch_weights == "1" * 64
    with pytest.raises(InputError, match="'elsewhere' is no finished model that Vestige made"):
        InsideSettings.build({"patch": "elsewhere"}, where="settings")


def test_a_target_of_its_own_code_is_patched_into_where_the_subject_s_code_was_allowed_to_run(model, tmp_path):
    model.model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    config |= {"auto_map": own, "architectures": ["Model"], "model_type": "own"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Config(LlamaConfig):\n    model_type = 'own'\n"
        "class Model(LlamaForCausalLM):\n    config_class = Config\n"
    )
    subject = load(ModelSettings(model=str(tmp_path), device="cpu", trust_remote_code=True))
    settings = InsideSettings(patch=str(tmp_path), patch_weights=subject.digest().weights)
    records = settings.collect(subject, list(settings.build_questions(ITEMS, [VIEW]).values()))
    assert all(r["cosine"] == pytest.approx(1.0) for r in records if not r["fit"])
