"""A GPU without memory for a pass: it is halved, and what is read stays what it was."""

from collections import Counter

import pytest
import torch

from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.files import read_json
from vestige.models import forward, generation, scoring, variants
from vestige.models.generation import generate
from vestige.models.scoring import score_answers
from vestige.models.variants import Around, Variants


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.setattr(forward, "happened", Counter())


def small_gpu(monkeypatch, module, name, most):
    """A device that holds `most` tokens of `name`'s second argument; all sizes that were tried."""
    tried, real = [], getattr(module, name)

    def within(model, ids, *args, **kwargs):
        tried.append(ids.numel())
        if ids.numel() > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return real(model, ids, *args, **kwargs)

    monkeypatch.setattr(module, name, within)
    return tried


def test_scores_are_read_in_smaller_passes(tiny, items, monkeypatch):
    encoded = [tiny.prompter.encode(i.question, i.answer) for i in items] * 4
    expected = score_answers(tiny.model, encoded)
    tried = small_gpu(monkeypatch, scoring, "logits_at", 300)
    found = score_answers(tiny.model, encoded)
    assert tried[0] > 300 >= tried[-1]
    for a, b in zip(found, expected, strict=True):
        assert a.logp == pytest.approx(b.logp, abs=1e-4)
        assert a.ranks == b.ranks
    n = len(tried)
    score_answers(tiny.model, encoded)
    assert max(tried[n:]) <= 300  # it is not tried with more again


@pytest.mark.parametrize("way", ["plain", "shared"])
def test_prompts_of_a_search_are_scored_in_smaller_passes(tiny, monkeypatch, way):
    texts = [Around((5, 9, 11), (6, 6), (21, 22)), Around((5, 9, 11), (7,), (30,))]
    if way == "plain":
        monkeypatch.setattr(variants, "can_go_on", lambda *_, **__: False)
    prompts = [(n, 40 + n, 60) for n in range(64)]
    scored = Variants(tiny.model, texts)
    assert scored.way.startswith(way)
    expected = scored.losses(prompts)
    tried, real = [], variants._target_scores

    def within(logits, targets):
        tried.append(len(logits))
        if len(logits) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(logits, targets)

    monkeypatch.setattr(variants, "_target_scores", within)
    torch.testing.assert_close(scored.losses(prompts), expected, atol=1e-4, rtol=0)
    assert tried[0] == 64
    assert tried[-1] <= 20


def test_what_no_pass_holds_fails_as_what_it_is(tiny, items, monkeypatch):
    encoded = [tiny.prompter.encode(i.question, i.answer) for i in items]
    small_gpu(monkeypatch, scoring, "logits_at", 0)
    with pytest.raises(torch.OutOfMemoryError):
        score_answers(tiny.model, encoded)


def test_replies_are_the_same_and_the_provenance_says_what_happened(tiny, items, monkeypatch, tmp_path):
    prompts = [tiny.prompter.prompt(i.question) for i in items] * 8
    words = {"end_ids": tiny.prompter.end_ids, "max_new_tokens": 4}
    expected = generate(tiny.model, prompts, **words)
    real = generation.Decoding.prefill

    def prefill(self, given, width):
        if len(given) * width > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, given, width)

    monkeypatch.setattr(generation.Decoding, "prefill", prefill)
    assert [r.ids for r in generate(tiny.model, prompts, **words)] == [r.ids for r in expected]
    monkeypatch.setattr("vestige.artifacts.provenance.happened", forward.happened)
    write_provenance(tmp_path / "p.json", Stopwatch())
    assert read_json(tmp_path / "p.json")["passes_halved_for_want_of_memory"] >= 1
