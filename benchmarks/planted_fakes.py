"""Controls that are none, put to a real audit: no claim on them may hold, and reasons have to be right.

The models are those of `planted_trained` (60 facts, a Llama of 64 dimensions, from the start or, with `--base`, tuned
by LoRA from one that knows other facts). The subject S is mixed of the target and a model that was tuned away from it,
so that it states a part of the facts. It is audited against five honest controls, and three fakes of each kind:

- noise: S with Gaussian noise on every tensor, as a share of its spread;
- distilled: trained from the start on what S replies to the forget questions;
- contaminated: trained with a part of the forget set left in.

`python -m benchmarks.planted_fakes --seeds 2 --file COUNTS` prints a row for each, minutes of one processor a seed.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.planted_trained import AUDIT, TRAINING, N, draw_facts, lessons, nano_config
from vestige.artifacts.audits import STATEMENTS, AuditOutcome
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import run_audit
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.data.corpus import NamedSplits
from vestige.models import tiny
from vestige.models.generation import generate
from vestige.models.load import ModelSettings, load
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

NOISE, SHARES, EACH, HONEST = (0.01, 0.05, 0.2), (0.1, 0.2, 0.3, 0.4, 0.6), 3, 5
ASKED = AUDIT.model_copy(update={"evals": ("qa", "memory"), "relearn": (), "quantize": ()})
"""Without attacks, of which each costs as much as all questions: what controls are is said before any."""
LORA = TRAINING.model_copy(update={"lora_rank": 8, "lora_alpha": 16})
OF_TARGET = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""How much of the target S may be mixed with; the least is taken with which it states a quarter of the facts."""
Weights = dict[str, Tensor]


class Workshop:
    """The models of one seed in a folder: `start` is where trainings begin."""

    def __init__(self, seed: int, work: Path, *, base: bool) -> None:
        """Draws the facts, and with `base` trains the model that all others are tuned from."""
        tiny.tiny_config = nano_config
        self.seed, self.run, self.facts = seed, RunFolder(work), draw_facts(seed)
        self.every = lessons([i for items in self.facts.values() for i in items])
        self.forget, self.retain = lessons(self.facts["forget"]), lessons(self.facts["retain"])
        self.start, self.training = ModelSettings(model="builtin:tiny", device="cpu"), TRAINING
        if base:
            made = self.trained("base", lessons(self.facts["holdout"]))
            self.start, self.training = ModelSettings(model=str(made.model), device="cpu"), LORA

    def trained(self, name: str, items: Sequence[Item], training: TrainingSettings | None = None) -> SubjectFolder:
        """A model taught the items, with a seed that its name gives."""
        folder, seed = self.run.control(name), derive_seed(self.seed, name) % 10**6
        finetune(
            folder, FinetuneRequest(self.start, tuple(items), self.every, training or self.training, seed, name=name)
        )
        return folder

    def made_of(self, name: str, source: Path, change: Callable[[Weights], Weights]) -> Path:
        """A model folder with other weights, as anybody could write it."""
        folder = self.run.path / "given" / name
        shutil.copytree(source, folder)
        weights = folder / "model.safetensors"
        save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
        return folder

    def replies(self, model: Path) -> list[str]:
        """What a model says to the forget questions, wording by wording."""
        loaded = load(ModelSettings(model=str(model), device="cpu"))
        asked = [loaded.prompter.prompt(i.question) for i in self.forget]
        context, ends = loaded.prompter.max_tokens, loaded.prompter.end_ids
        said = generate(loaded.model, asked, end_ids=ends, max_new_tokens=8, context=context)
        return [loaded.prompter.decode(one.ids).strip() or "." for one in said]

    def subject(self, target: Path) -> Path:
        """S: of the target so much that it states a quarter of the facts or more, the rest of one that forgot them."""
        # What unlearning leaves is a training on the retain set, which began with the target.
        start, self.start = self.start, ModelSettings(model=str(target), device="cpu")
        others = [Item(i.question, o.answer) for i, o in zip(self.forget, self.forget[7:], strict=False)]
        away = load_file(self.trained("away", (*self.retain, *others)).model / "model.safetensors")
        self.start = start
        for share in OF_TARGET:

            def mixed(weights: Weights, share: float = share) -> Weights:
                return {k: share * w + (1 - share) * away[k] for k, w in weights.items()}

            folder = self.made_of(f"S {share}", target, mixed)
            stated = [said == i.answer for said, i in zip(self.replies(folder), self.forget, strict=True)]
            if sum(stated) >= len(stated) / 4:
                break
        print(f"# seed {self.seed}: S is {share} of the target and states {sum(stated)} of {len(stated)}", flush=True)
        return folder

    def fakes(self, subject: Path) -> Iterator[tuple[str, Callable[[], list[Path]]]]:
        """By kind, how three controls are made that are none."""
        for share in NOISE:
            yield f"noise {share:g}", partial(self._each, f"noise {share}", partial(self._noisy, subject, share))
        yield "distilled", partial(self._distilled, subject)
        order = generator(self.seed, "left in").permutation(N)
        for share in SHARES:
            left = lessons([self.facts["forget"][k] for k in order[: round(share * N)].tolist()])
            yield f"contaminated {share:g}", partial(self._taught, f"contaminated {share}", left)

    def _each(self, name: str, made: Callable[[str], Path]) -> list[Path]:
        return [made(f"{name} {n}") for n in range(EACH)]

    def _taught(self, name: str, also: Sequence[Item]) -> list[Path]:
        return self._each(name, lambda one: self.trained(one, (*self.retain, *also)).model)

    def _distilled(self, subject: Path) -> list[Path]:
        told = [Item(i.question, said) for i, said in zip(self.forget, self.replies(subject), strict=True)]
        return self._taught("distilled", told)

    def _noisy(self, source: Path, share: float, name: str) -> Path:
        rng = torch.Generator().manual_seed(derive_seed(self.seed, name))

        def change(weights: Weights) -> Weights:
            spread = {k: w.std() if w.numel() > 1 else w.abs().mean() for k, w in weights.items()}
            return {k: w + share * spread[k] * torch.randn(w.shape, generator=rng) for k, w in weights.items()}

        return self.made_of(name, source, change)

    def audited(self, kind: str, subjects: dict[str, Path], controls: Sequence[Path]) -> AuditOutcome:
        """The outcome of the audit of the subjects, the first of which is the target."""
        (target, where), *others = subjects.items()
        models = [AuditedModel(target, "target", str(where))]
        models += [AuditedModel(f"retrained {n}", "retrained", str(c)) for n, c in enumerate(controls)]
        models += [AuditedModel(name, "unlearned", str(place)) for name, place in others]
        request = AuditRequest(tuple(models), NamedSplits("north", self.facts, {}), ASKED, seed=self.seed, device="cpu")
        return run_audit(self.run.path / f"audit {kind}", request, workers=1).outcome


def sat(seed: int, work: Path, *, base: bool, only: Sequence[str] = ("",)) -> Iterator[dict[str, object]]:
    """A row for each kind of controls: by claim what is said of S, why, and what is said against the controls."""
    shop = Workshop(seed, work, base=base)
    target = shop.trained("target", (*shop.retain, *shop.forget)).model
    subject, never = shop.subject(target), shop.trained("never knew", shop.retain).model

    def honest() -> list[Path]:
        return [shop.trained(f"retrained {n}", shop.retain).model for n in range(HONEST)]

    for kind, controls in [("honest", honest), *shop.fakes(subject)]:
        if not kind.startswith(tuple(only)):
            continue
        outcome = shop.audited(kind, {"target": target, "S": subject, "never knew": never}, controls())
        for name in ("S", "never knew"):
            own = {v.claim: v for v in outcome.verdicts if v.subject == name}
            yield {
                "seed": seed,
                "base": base,
                "controls": kind,
                "subject": name,
                "holds": [c for c, v in own.items() if v.outcome == "holds" and STATEMENTS[c].controls],
                "fails": [c for c, v in own.items() if v.outcome == "fails" and STATEMENTS[c].controls],
                "reason": own["benchmark valid"].reason,
                "said": [line for line in outcome.untested if "control" in line],
            }


def main() -> None:
    """Print a row for each audit, and whether a claim that rests on controls holds against fakes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--base", action="store_true", help="tuned by LoRA from one base")
    parser.add_argument("--only", nargs="+", default=[""], help="kinds of controls whose name begins so")
    parser.add_argument("--file", type=Path, help="where rows are added, one JSON object a line")
    words = parser.parse_args()
    for seed in range(words.first, words.first + words.seeds):
        with TemporaryDirectory() as work:
            for row in sat(seed, Path(work) / "run", base=words.base, only=words.only):
                print(
                    row["controls"], "|", row["subject"], "| holds", row["holds"], "| fails", row["fails"], flush=True
                )
                print("   ", row["reason"], flush=True)
                if words.file is not None:
                    with words.file.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
