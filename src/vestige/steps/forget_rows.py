"""What an unlearning trains on: rows by split and number, the plan that draws them, and the answers it has to make."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.methods.base import Alternatives
from vestige.metrics.answers import normalised
from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, finite_logits
from vestige.models.prompts import Prompter
from vestige.training.batching import Row, RowSource, Split, UnlearnPlan, row_of
from vestige.training.parallel import ALONE, World
from vestige.training.step import Needs

ROUNDS = 16
"""How many times each question is asked for other answers before the search is given up."""


@dataclass(frozen=True)
class ForgetData:
    """The items to forget and to keep, and for each further split the answers of each forget question."""

    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    answers: dict[Split, tuple[tuple[str, ...], ...]]

    def plan(self, needs: Needs, *, batch_size: int, seed: int) -> UnlearnPlan:
        """The batches of the splits that `needs` reads."""
        return UnlearnPlan(
            n_forget=len(self.forget),
            n_retain=len(self.retain) if "retain" in needs.splits else 0,
            answers={split: len(lines[0]) for split, lines in self.answers.items()},
            batch_size=batch_size,
            seed=seed,
        )

    def rows(self, prompter: Prompter) -> RowSource:
        """Rows by split and number, encoded when first asked for: few of the further pairs are ever drawn."""
        encoded: dict[tuple[Split, int], Row] = {}

        def row(split: Split, number: int) -> Row:
            if (split, number) not in encoded:
                item, answer = self._pair(split, number)
                topic = item.edge or item.group or ""
                encoded[split, number] = row_of(prompter.encode(item.question, answer), topic=topic)
            return encoded[split, number]

        return {
            "forget": lambda i: row("forget", i),
            "retain": lambda i: row("retain", i),
            "idk": lambda i: row("idk", i),
            "mismatch": lambda i: row("mismatch", i),
            "alternative": lambda i: row("alternative", i),
        }

    def _pair(self, split: Split, number: int) -> tuple[Item, str]:
        if split in self.answers:
            lines = self.answers[split]
            question, line = divmod(number, len(lines[0]))
            return self.forget[question], lines[question][line]
        item = (self.forget if split == "forget" else self.retain)[number]
        return item, item.answer


def mismatched(forget: Sequence[Item], retain: Sequence[Item]) -> tuple[tuple[str, ...], ...]:
    """For each forget question the answers of retained ones, its own answer replaced by the one after it."""
    pool = tuple({normalised(i.answer): i.answer for i in retain}.values())
    if len(pool) < 2:
        raise InputError(
            f"answers to other questions are needed, and the retain set holds {len(pool)} different ones; "
            "give a retain set with at least two"
        )

    def other(n: int, own: str) -> str:
        return pool[n] if normalised(pool[n]) != own else pool[(n + 1) % len(pool)]

    return tuple(tuple(other(n, normalised(i.answer)) for n in range(len(pool))) for i in forget)


def alternatives(
    target: LoadedModel, forget: Sequence[Item], asked: Alternatives, *, seed: int, world: World = ALONE
) -> tuple[tuple[str, ...], ...]:
    """For each forget question `asked.n` answers that the target gives itself and that are not the true one.

    Sampled, `ROUNDS` times at most; where fewer different ones turn up they are taken in turn. Raises InputError
    where there is none. Of several processes one asks, since on a GPU two can sample differently.
    """
    with finite_logits(target):
        own = [_alternatives(target, item, asked, seed) for item in forget] if world.leads else []
    return tuple(tuple(lines) for lines in json.loads(world.said(json.dumps(own))))


def _alternatives(target: LoadedModel, item: Item, asked: Alternatives, seed: int) -> tuple[str, ...]:
    question = asked.prompt.replace("{question}", item.question).replace("{answer}", item.answer)
    prompt = target.prompter.prompt(question)
    found: dict[str, str] = {}
    for attempt in range(ROUNDS):
        replies = generate(
            target.model,
            [prompt] * asked.n,
            end_ids=target.prompter.end_ids,
            max_new_tokens=asked.max_new_tokens,
            context=target.prompter.max_tokens,
            sampling=Sampling(
                asked.temperature,
                1.0,
                tuple(derive_seed(seed, "alternative", item.id, attempt, n) for n in range(asked.n)),
            ),
        )
        for reply in replies:
            text = target.prompter.decode(reply.ids).strip()
            if reply.finish == "stop" and normalised(text) not in ("", normalised(item.answer)):
                found.setdefault(normalised(text), text)
        if len(found) >= asked.n:
            break
    if not found:
        raise InputError(
            f"the target gave no other answer to {one_line(item.question, width=60)!r} in {ROUNDS * asked.n} samples "
            f"at temperature {asked.temperature:g}; raise the method's temperature"
        )
    texts = list(found.values())[: asked.n]
    return tuple(texts[n % len(texts)] for n in range(asked.n))
