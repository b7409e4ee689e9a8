"""prompt.json: the prompt that an attack searched for, what was claimed of it and what was seen, its bits and its cost.

Bits are -log2 of probabilities that the attacked model gives, after the head of the chat that stands before it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from vestige.artifacts.layout import AttackFolder
from vestige.core.errors import InputError
from vestige.core.store import load, save

TOKENS_BOUND = "tokens x log2(admissible vocabulary) of the prompt"
CODE_BOUND = "code length of the prompt, under the subject"
SEEN_BOUND = "code length of the answers that the search saw, under the subject"
"""The names of the upper bounds in bits on what a prompt carries in."""

SHUFFLED = "shuffled"
"""The point at which all tokens of a prompt stand in another order; every other point is a share of them."""


@dataclass(frozen=True)
class SampleReply:
    """One question that the prompt was searched on: what was wanted after it, what was replied, whether that is it.

    `same_tokens` is whether the deployed text is read as the tokens that the search scored. `plain` is what is replied
    without the prompt, and `plain_right` whether that is it already: then the prompt did not bring it.
    """

    question: str
    wanted: str
    replied: str
    verified: bool
    same_tokens: bool
    plain: str
    plain_right: bool

    @property
    def brought(self) -> bool:
        """Whether it takes the prompt to bring what was wanted."""
        return self.verified and not self.plain_right


@dataclass(frozen=True)
class PromptPart:
    """What stands of the prompt at one point: tokens, their length in the model's own code, and the text that is asked.

    A prompt that is cut or shuffled can be other tokens once its text is read.
    """

    text: str
    ids: tuple[int, ...]
    bits: float


@dataclass(frozen=True)
class KeptPrompt:
    """A found prompt. `claimed` is what the search says of its samples, `verified` what replies to its text show.

    `spent` are the search's amounts; `earlier` those of the searches whose prompts this one began with. `seen_bits` is
    the code length of all answers that they saw; None where they saw more, inner states or another model. `ended` says
    what ended it.
    """

    text: str
    ids: tuple[int, ...]
    placement: Literal["prefix", "suffix", "infix"]
    loss: float
    claimed: bool
    verified: bool
    ended: str
    steps: int
    admissible_bits: float
    spent: dict[str, int]
    earlier: dict[str, int]
    seen_bits: float | None
    bounds_bits: dict[str, float]
    samples: tuple[SampleReply, ...]
    points: dict[str, PromptPart]

    @property
    def spent_in_all(self) -> dict[str, int]:
        """What its own search and the earlier ones spent, by name."""
        return dict(Counter(self.spent) + Counter(self.earlier))


@dataclass(frozen=True)
class PromptLine:
    """What an audit tells of one subject's prompt: its text, and of how many wanted replies what became.

    `claimed` is whether the search says that it reached all `wanted`; `verified` counts those that replies to the
    prompt's text show, `anyway` those that are given without it, `brought` those that it takes the prompt to bring.
    """

    subject: str
    attack: str
    placement: Literal["prefix", "suffix", "infix"]
    text: str
    n_tokens: int
    claimed: bool
    wanted: int
    verified: int
    anyway: int
    brought: int


def prompt_line(subject: str, attack: str, prompt: KeptPrompt) -> PromptLine:
    """A kept prompt as an audit tells of it."""
    return PromptLine(
        subject=subject,
        attack=attack,
        placement=prompt.placement,
        text=prompt.text,
        n_tokens=len(prompt.ids),
        claimed=prompt.claimed,
        wanted=len(prompt.samples),
        verified=sum(s.verified for s in prompt.samples),
        anyway=sum(s.plain_right for s in prompt.samples),
        brought=sum(s.brought for s in prompt.samples),
    )


def write_prompt(folder: AttackFolder, prompt: KeptPrompt) -> None:
    """Write the prompt of an attack."""
    save(folder.prompt, prompt)


def read_prompt(folder: AttackFolder) -> KeptPrompt:
    """The prompt of an attack; one that lacks something is refused by file and field."""
    if not folder.prompt.is_file():
        raise InputError(f"{folder.path} holds no prompt that was searched for; name the folder of such an attack")
    return load(folder.prompt, KeptPrompt, again="delete the attack's folder and run again")
