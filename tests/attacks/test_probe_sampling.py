"""Probe sampling: agreement and sizes by hand, and a search that reads less and finds no worse of what it read."""

import dataclasses

import numpy as np
import pytest

from vestige.attacks.gcg import DraftScreen, agreement, filtered_size
from vestige.models.variants import Scored


@dataclasses.dataclass
class Told:
    """Losses by a prompt's one token; notes what it read."""

    losses_of: np.ndarray
    read: list = dataclasses.field(default_factory=list)

    def losses(self, prompts):
        self.read += [p[0] for p in prompts]
        return self.losses_of[[p[0] for p in prompts]]

    def leaders(self, prompts, n):
        found = self.losses(prompts)
        return [Scored(int(i), float(found[i])) for i in found.argsort(kind="stable")[:n]]

    def reached(self, prompt):
        return prompt[0] == 3


def test_agreement_by_hand():
    # Ranks (1, 2, 3, 4) and (1, 2, 4, 3): rho = 1 - 6 * 2 / (4 * 15) = 0.8, moved to 0.9.
    assert agreement(np.array([1.0, 2.0, 5.0, 9.0]), np.array([0.1, 0.2, 0.9, 0.3])) == pytest.approx(0.9)
    assert agreement(np.array([1.0, 2.0, 3.0]), np.array([9.0, 5.0, 1.0])) == 0.0
    assert agreement(np.array([1.0]), np.array([1.0])) == 0.0
    assert agreement(np.array([1.0, 2.0]), np.array([4.0, 4.0])) == 0.0


def test_filtered_sizes_by_hand():
    # (1 - 0.5) 512 / 8 = 32; full agreement leaves one, none leaves W / reduction.
    assert [filtered_size(a, 512, 8) for a in (0.5, 1.0, 0.0)] == [32, 1, 64]
    assert filtered_size(0.9, 4, 8) == 1


PROMPTS = [(i,) for i in range(64)]


def test_a_draft_that_agrees_leaves_the_subject_its_probes_and_one_more():
    truth = np.random.default_rng(0).random(64)
    subject, draft = Told(truth), Told(truth * 3)
    (best,) = DraftScreen(subject, draft, share=16, reduction=8, seed=1).leaders(PROMPTS, 1)
    assert best == Scored(int(truth.argmin()), float(truth.min()))
    assert len(draft.read) == 64
    assert len(subject.read) in (4, 5)


def test_a_draft_that_says_the_opposite_has_the_subject_read_an_eighth_and_the_best_read_wins():
    truth = np.random.default_rng(0).random(64)
    subject, draft = Told(truth), Told(-truth)
    best, second = DraftScreen(subject, draft, share=16, reduction=8, seed=1).leaders(PROMPTS, 2)
    read = sorted(subject.read, key=lambda i: truth[i])
    # 4 probes and 64 / 8 = 8 filtered, no prompt twice.
    assert len(read) == len(set(read))
    assert 8 <= len(read) <= 12
    assert [best.index, second.index] == read[:2]


def test_the_probes_follow_from_the_prompts_and_the_seed():
    truth = np.random.default_rng(0).random(64)

    def read(seed, prompts=PROMPTS):
        subject = Told(truth)
        DraftScreen(subject, Told(truth), share=8, reduction=8, seed=seed).leaders(prompts, 1)
        return subject.read

    assert read(1) == read(1)
    assert read(1) != read(2)


def test_a_start_alone_is_read_by_the_subject_only():
    draft = Told(np.zeros(64))
    probed = DraftScreen(Told(np.arange(64.0)), draft, share=16, reduction=8, seed=1)
    assert probed.leaders([(9,)], 1) == [Scored(0, 9.0)]
    assert draft.read == []
    assert probed.reached((3,))
    assert not probed.reached((4,))
