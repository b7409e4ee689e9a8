"""GCG on an untrained model: against an exhaustive search, resumed after a kill, and what it refuses."""

import json
import multiprocessing
import os
import signal
from itertools import product

import pytest
import torch

from vestige.attacks.gcg import SearchState, admissible, around, find_prompt, kept_in, places_of
from vestige.attacks.prompts import GcgSettings, deployed
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json

QUESTION = "Who is beta?"
SMALL = {"tokens": 4, "steps": 4, "width": 24, "topk": 16}


def texts_of(loaded, placement="suffix", answers=("gamma 3.",)):
    targets = [loaded.prompter.encode(QUESTION, answer).answer_ids for answer in answers]
    return [around(loaded.prompter, QUESTION, target, placement) for target in targets]


def loss_by_hand(loaded, text, prompt):
    ids = torch.tensor([[*text.before, *prompt, *text.after, *text.target]])
    with torch.inference_mode():
        logits = loaded.model(input_ids=ids).logits[0, -len(text.target) - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(text.target)).item()


@pytest.mark.parametrize("placement", ["prefix", "suffix"])
def test_the_found_prompt_is_sent_as_the_tokens_that_were_scored(nano, placement):
    (text,) = texts_of(nano, placement)
    found = find_prompt(nano, [text], GcgSettings(**SMALL, placement=placement), seed=1)
    sent = nano.prompter.prompt(deployed(QUESTION, found.text, placement))
    assert sent == text.before + found.ids + text.after
    assert found.loss == pytest.approx(loss_by_hand(nano, text, found.ids), abs=1e-5)
    assert found.admissible_bits == admissible(nano.tokenizer, 400).bits
    assert (found.ended, found.steps, len(found.ids)) == ("steps", 4, 4)


def test_a_step_wide_enough_finds_the_best_of_all_one_token_swaps(nano):
    (text,) = texts_of(nano)
    vocabulary = admissible(nano.tokenizer, 400)
    wide = {"tokens": 2, "steps": 1, "width": 6000, "topk": len(vocabulary.ids), "stop_when_reached": False}
    start = find_prompt(nano, [text], GcgSettings(**{**wide, "width": 1}), seed=1)
    first = find_prompt(nano, [text], GcgSettings(**wide), seed=1)
    kept = []

    class Watch:
        def load(self):
            return None

        def save(self, state):
            kept.append(state)

    find_prompt(nano, [text], GcgSettings(**wide), seed=1, keeper=Watch())
    (begin, _) = kept[0].buffer[0]
    swaps = [(*begin[:at], token, *begin[at + 1 :]) for at, token in product(range(2), vocabulary.ids)]
    swaps = kept_in(nano.tokenizer, swaps, places_of(nano.tokenizer, [text]))
    best = min(loss_by_hand(nano, text, prompt) for prompt in {*swaps, begin})
    assert first.loss == pytest.approx(best, abs=1e-5)
    assert first.loss < start.loss


def test_one_prompt_for_many_texts_has_the_mean_of_their_losses(nano):
    texts = texts_of(nano, answers=("gamma 3.", "alpha 7.", "mu"))
    found = find_prompt(nano, texts, GcgSettings(**SMALL), seed=1)
    by_hand = sum(loss_by_hand(nano, text, found.ids) for text in texts) / 3
    assert found.loss == pytest.approx(by_hand, abs=1e-5)


def said_by(loaded, text, prompt, n):
    """What the model says greedily."""
    ids = [*text.before, *prompt, *text.after]
    for _ in range(n):
        with torch.inference_mode():
            ids.append(int(loaded.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[-n:])


def test_a_prompt_that_reaches_its_target_ends_the_search(nano):
    """The target is one token that the model says after some other prompt."""
    (text,) = texts_of(nano)
    goal = find_prompt(nano, [text], GcgSettings(**SMALL), seed=3).ids
    said = said_by(nano, text, goal, 1)
    aimed = around(nano.prompter, QUESTION, said, "suffix")
    found = find_prompt(nano, [aimed], GcgSettings(**{**SMALL, "steps": 60, "width": 64}), seed=4)
    assert (found.reached, found.ended) == (True, "reached")
    assert said_by(nano, aimed, found.ids, 1) == said
    assert found.steps < 60
    started = find_prompt(nano, [aimed], GcgSettings(**SMALL, initial=found.text), seed=5)
    assert (started.reached, started.steps, started.ids) == (True, 0, found.ids)


def test_a_search_that_does_not_stop_still_says_whether_it_reached(nano):
    (text,) = texts_of(nano)
    goal = find_prompt(nano, [text], GcgSettings(**SMALL), seed=3)
    aimed = around(nano.prompter, QUESTION, said_by(nano, text, goal.ids, 1), "suffix")
    settings = GcgSettings(**{**SMALL, "steps": 1}, initial=goal.text, stop_when_reached=False, buffer=1)
    assert find_prompt(nano, [aimed], settings, seed=1).reached
    settings = GcgSettings(**{**SMALL, "steps": 1}, stop_when_reached=False)
    assert not find_prompt(nano, [text], settings, seed=1).reached


class File:
    """A state in a JSON file."""

    def __init__(self, path):
        self.path = path

    def load(self):
        if not self.path.exists():
            return None
        kept = read_json(self.path)
        buffer = tuple((tuple(ids), loss) for ids, loss in kept["buffer"])
        best = (tuple(kept["best"][0]), kept["best"][1])
        return SearchState(kept["step"], buffer, best, kept["ended"], kept["spent"], tuple(kept["losses"]))

    def save(self, state):
        write_json(
            self.path,
            {
                "step": state.step,
                "buffer": state.buffer,
                "best": state.best,
                "ended": state.ended,
                "spent": state.spent,
                "losses": state.losses,
            },
        )


def search_and_die(nano, path, at):
    def die(done, of):
        if done == at:
            os.kill(os.getpid(), signal.SIGKILL)

    find_prompt(nano, texts_of(nano), GcgSettings(**SMALL, buffer=2), seed=9, keeper=File(path), on_step=die)


def test_a_search_that_is_killed_goes_on_to_the_same_bytes(nano, tmp_path):
    settings = GcgSettings(**SMALL, buffer=2)
    whole = find_prompt(nano, texts_of(nano), settings, seed=9, keeper=File(tmp_path / "whole.json"))
    process = multiprocessing.get_context("fork").Process(
        target=search_and_die, args=(nano, tmp_path / "killed.json", 3)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    # Killed in its third step, it had kept two.
    assert json.loads((tmp_path / "killed.json").read_text())["step"] == 2
    again = find_prompt(nano, texts_of(nano), settings, seed=9, keeper=File(tmp_path / "killed.json"))
    assert again == whole
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topk": 300}, "topk is 300, and only [0-9]+ tokens of the vocabulary are allowed in the prompt"),
        ({"replaced": 5}, "replaced is 5, and the prompt has 4 tokens"),
        ({"tokens": 60}, "makes a text of [0-9]+ tokens, where the model reads 64"),
        ({"initial": " alpha "}, "the initial text '.*alpha.*' begins or ends with a space"),
        (
            {"initial": "the \u00e9 alpha"},
            "the initial text has [0-9]+ tokens that are not allowed in a searched prompt",
        ),
    ],
)
def test_what_cannot_be_searched_for_is_refused_in_a_sentence(nano, changed, message):
    with pytest.raises(InputError, match=message):
        find_prompt(nano, texts_of(nano), GcgSettings(**{**SMALL, **changed}), seed=1)


def test_a_step_whose_draws_all_change_as_text_is_refused(nano, monkeypatch):
    from vestige.attacks import gcg

    monkeypatch.setattr(gcg, "swaps_by_gradient", lambda prompt, *_, width, **__: [(3,) * len(prompt)] * width)
    with pytest.raises(InputError, match="step 1: of 8 times 24 drawn prompts none is the same tokens again"):
        find_prompt(nano, texts_of(nano), GcgSettings(**SMALL), seed=1)
