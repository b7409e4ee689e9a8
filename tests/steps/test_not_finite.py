"""A model whose weights are finite and whose logits are not: one sentence, whatever is asked of it."""

import pytest
import torch

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import NotFinite
from vestige.core.items import Item
from vestige.evals import EVALS, find_eval
from vestige.evals.base import View
from vestige.judges.base import WriterPrompt
from vestige.judges.local import LocalWriter
from vestige.methods.base import Alternatives
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, finite_logits
from vestige.models.tiny import tiny_model, tiny_tokenizer
from vestige.probes.answering import LocalAnswerer
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate
from vestige.steps.making import Made
from vestige.steps.unlearn import alternatives

WRONG = tuple(f"{n}." for n in range(60, 80))
ITEMS = tuple(
    Item(f"How many crates does {n} name?", f"{20 + n}.", "e", attribute="a", perturbed=WRONG[:3]) for n in range(28)
)
VIEW = View("edge:e", {"forget": [i.id for i in ITEMS[:4]], "retain": [i.id for i in ITEMS[4:]]}, {})
SPEC = SubjectSpec("base", "diverged", "builtin:tiny", "", "", 0, "s", {}, "d", "", 1, ())
SAID = r"the model diverged gives logits that are NaN or infinite at .*How many crates does 0 name"


@pytest.fixture(autouse=True, scope="module")
def small():
    """The tiny model in full, which has a second block."""


@pytest.fixture
def diverged():
    """Every sum of the second block's last product overflows, in whatever order: all of its terms have one sign."""
    model = tiny_model(0).eval()
    mlp = model.model.layers[1].mlp
    with torch.no_grad():
        # What is multiplied with `down_proj` is silu(x) * x then.
        mlp.gate_proj.weight.copy_(mlp.up_proj.weight.mul_(100))
        mlp.down_proj.weight.fill_(3e38)
    return LoadedModel(model, tiny_tokenizer(ITEMS), "diverged", "")


@pytest.mark.parametrize("name", [name for name in EVALS if name != "freeform"])
def test_every_evaluation_says_where_logits_are_no_numbers(diverged, tmp_path, name):
    made = Made(diverged.digest(), 0, "made elsewhere")
    subject = Subject(SubjectFolder(tmp_path), SPEC, made, lambda: diverged)
    asked = EvaluateRequest(ITEMS, (VIEW,), find_eval(name)(), seed=0)
    with pytest.raises(NotFinite, match=r"gives logits that are NaN or infinite at "):
        evaluate(subject, asked)


def test_a_reply_that_is_only_decoded_is_refused_with_its_question(diverged):
    prompt = diverged.prompter.prompt(ITEMS[0].question)
    with pytest.raises(NotFinite, match=SAID), finite_logits(diverged):
        generate(diverged.model, [prompt], end_ids=(1,), max_new_tokens=4)


def test_minus_infinity_is_a_token_that_cannot_come(diverged):
    model = tiny_model(0).eval()
    model.lm_head.register_forward_hook(lambda _, __, out: out.index_fill(-1, torch.tensor([5]), -torch.inf))
    subject = LoadedModel(model, diverged.tokenizer, "masked", "")
    with finite_logits(subject):
        generate(model, [subject.prompter.prompt("What?")], end_ids=(1,), max_new_tokens=2)
    assert not model._forward_hooks


def test_nothing_is_taught_that_was_sampled_of_them(diverged):
    with pytest.raises(NotFinite, match=SAID):
        alternatives(diverged, ITEMS[:1], Alternatives("{question}", 2, 1.0, 4), seed=0)


def test_neither_a_probe_nor_a_judge_takes_them_for_an_answer(diverged):
    with pytest.raises(NotFinite, match=SAID):
        LocalAnswerer(diverged).answer([ITEMS[0].question], seed=0)
    with pytest.raises(NotFinite, match="diverged gives logits"):
        LocalWriter(diverged).write([WriterPrompt("", ITEMS[0].question, 4)])
