"""A step's quantities against plain forward passes, one row at a time."""

import pytest
import torch
from tests.frozen import frozen_reference

from vestige.models import forward
from vestige.models.forward import logits_read_plain
from vestige.training.backward import ForwardStep, PassPlan
from vestige.training.batching import Row, row_of
from vestige.training.step import Needs, Slice

pytestmark = pytest.mark.portable

EVERYTHING = Needs(
    policy=frozenset({"forget", "idk"}), reference=frozenset({"idk"}), distributions=frozenset({"retain"})
)


@pytest.fixture
def loaded(fresh):
    made = fresh()
    made.model.eval()
    return made


@pytest.fixture
def slices(loaded):
    def rows(*pairs) -> list[Row]:
        return [row_of(loaded.prompter.encode(q, a)) for q, a in pairs]

    forget = rows(("What is number 1?", "1 or so."), ("What is number 2 and so on?", "4."))
    retain = rows(("What is number 5 and so on and so on?", "25 or so."), ("What is number 6?", "36."))
    idk = rows(("What is number 1?", "I cannot tell."), ("What is number 2 and so on?", "No idea at all."))
    # As in a micro-batch: the effective batch is twice as large.
    return {
        "forget": Slice(forget, 4, 2 * sum(r.n_tokens for r in forget)),
        "retain": Slice(retain, 4, 2 * sum(r.n_tokens for r in retain)),
        "idk": Slice(idk, 4, 2 * sum(r.n_tokens for r in idk)),
    }


def plain(model, row: Row) -> torch.Tensor:
    """Log-probabilities over the vocabulary at each loss token of one row, from a pass of its own."""
    with torch.no_grad():
        return model(torch.tensor([row.ids])).logits[0, row.start - 1 : row.stop - 1].log_softmax(-1)


def step_of(loaded, slices) -> ForwardStep:
    references = frozen_reference(loaded.model, slices["idk"].rows, distributions=False)
    references |= frozen_reference(loaded.model, slices["retain"].rows, distributions=True)
    return ForwardStep(EVERYTHING, slices, references).run(loaded.model)


def test_each_quantity_equals_a_plain_pass(loaded, slices):
    step = step_of(loaded, slices)
    for split, answers in (("forget", step.policy("forget")), ("idk", step.reference("idk"))):
        for i, row in enumerate(slices[split].rows):
            targets = torch.tensor(row.ids[row.start : row.stop])
            expected = plain(loaded.model, row).gather(-1, targets[:, None]).squeeze(-1)
            torch.testing.assert_close(answers.logp[i][answers.mask[i]], expected, atol=1e-5, rtol=0)
        assert answers.n_rows == 4
        assert answers.n_tokens == 2 * int(answers.mask.sum())
    for distributions in (step.policy_distributions("retain"), step.reference_distributions("retain")):
        for i, row in enumerate(slices["retain"].rows):
            stop = sum(r.n_tokens for r in slices["retain"].rows[: i + 1])
            found = distributions.logp[0, stop - row.n_tokens : stop]
            torch.testing.assert_close(found, plain(loaded.model, row), atol=1e-4, rtol=0)
            assert distributions.tokens[0, stop - row.n_tokens : stop].tolist() == list(row.ids[row.start : row.stop])


def test_the_reference_stays_frozen_while_the_policy_moves(loaded, slices):
    before = step_of(loaded, slices)
    kept = before.reference_distributions("retain").logp.clone()
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    after = ForwardStep(EVERYTHING, slices, before.references).run(loaded.model)
    torch.testing.assert_close(after.reference("idk").logp, before.reference("idk").logp)
    torch.testing.assert_close(after.reference_distributions("retain").logp, kept)
    assert not torch.allclose(after.policy("forget").logp, before.policy("forget").logp)


def test_where_the_head_alone_does_not_explain_the_logits_they_are_kept_whole(loaded, slices, monkeypatch):
    model = loaded.model
    plainly = model.forward

    def with_soft_cap(*args, **kwargs):
        out = plainly(*args, **kwargs)
        out.logits = 0.5 * torch.tanh(out.logits / 0.5)
        return out

    rows = slices["retain"].rows
    small = frozen_reference(model, rows, distributions=True)
    monkeypatch.setattr(model, "forward", with_soft_cap)
    whole = frozen_reference(model, rows, distributions=True)
    for row in rows:
        kept = whole[row.key].distributions
        assert kept.states.shape == (row.n_tokens, model.config.vocab_size)
        assert small[row.key].distributions.states.shape == (row.n_tokens, model.config.hidden_size)
        torch.testing.assert_close(kept.finish(kept.states), plain(model, row), atol=1e-4, rtol=0)


def test_rows_share_passes_by_length_and_come_back_in_their_own_order(loaded, slices):
    together = step_of(loaded, slices)
    for reading in (
        PassPlan(pass_tokens=0),
        PassPlan(pass_tokens=10**9),
        PassPlan(logits=logits_read_plain, aligned=True),
    ):
        other = ForwardStep(EVERYTHING, slices, together.references).run(loaded.model, reading=reading)
        for split in ("forget", "idk"):
            torch.testing.assert_close(other.policy(split).logp, together.policy(split).logp, atol=1e-5, rtol=0)


def test_what_was_not_declared_is_refused(loaded, slices):
    step = step_of(loaded, slices)
    for ask in (
        lambda: step.policy("retain"),
        lambda: step.reference("forget"),
        lambda: step.policy_distributions("idk"),
    ):
        with pytest.raises(KeyError, match="was not declared in needs"):
            ask()


def test_reference_rows_do_not_depend_on_their_batch_but_for_rounding(loaded, slices, monkeypatch):
    rows = [r for s in slices.values() for r in s.rows]
    together = frozen_reference(loaded.model, rows, distributions=False)
    monkeypatch.setattr(forward, "smaller", lambda budget: 1)
    alone = frozen_reference(loaded.model, rows, distributions=False)
    for row in rows:
        torch.testing.assert_close(together[row.key].logp, alone[row.key].logp, atol=1e-5, rtol=0)
