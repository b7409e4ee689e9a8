"""`vestige probe variance`: how far a finished probe's scores vary over models, generations and judges."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun, say
from vestige.cli.options import DryStudy
from vestige.cli.probe_words import JUDGES, JudgeWords, PlaceWords, placebo_names
from vestige.cli.spread import spread
from vestige.cli.variance_told import print_variance
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from vestige.models.embedder import Embedder
    from vestige.probes.answering import Grader, Served
    from vestige.steps.subjects import Asked

TargetName = Annotated[str, typer.Argument(help="The model that knows: the target of the probe in the folder.")]
UnlearnedNames = Annotated[
    list[str], typer.Argument(help="Unlearned models, such as trainings of one method at several seeds.")
]
JudgeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="WHO",
        help="grounded (by default), local:MODEL, or server:URL#MODEL (key: VESTIGE_JUDGE_KEY). May be repeated.",
    ),
]
EmbedderName = Annotated[
    str | None,
    typer.Option("--embedder", help="The grounded judge's: a folder or hub id; by default all-MiniLM-L6-v2."),
]
Generations = Annotated[int, typer.Option(min=1, help="How often each model answers each prompt.")]
Criteria = Annotated[
    bool, typer.Option("--criteria", help="Grade relevancy, accuracy, completeness, fluency and consistency as well.")
]


@spread
def variance_command(
    target: TargetName,
    unlearned: UnlearnedNames,
    judge: JudgeNames = None,
    generations: Generations = 3,
    criteria: Criteria = False,
    embedder: EmbedderName = None,
    dry_run: DryStudy = False,
    *,
    place: PlaceWords,
) -> None:
    """How far the scores of a finished probe vary: its prompts answered anew, several times, by several models.

    Mean and SD over runs before and after, tests of the change, agreement of judges. Nothing is paid for twice.
    """
    refuse_torchrun("probe variance")
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.variance import VarianceRequest, count_variance, probed_answers, variance

    if len(set(unlearned)) < len(unlearned):
        raise InputError(f"an unlearned model is given twice ({', '.join(map(one_line, unlearned))}); give each once")
    judges = {name: judge_words(name, embedder) for name in judge or ["grounded"]}
    own = probed_answers(place.folder).identity()
    answers = AnswerSettings.build(own | place.values("answers"), where="settings of answers")
    if dry_run:
        count = count_variance(
            place.folder,
            n_unlearned=len(unlearned),
            n_judges=len(judges),
            generations=generations,
            criteria=criteria,
        )
        typer.echo(json.dumps(count._asdict(), indent=2) if place.as_json else f"at most; nothing was asked: {count}")
        return
    cast = _Cast(target, JudgeWords(embedder=embedder), place)
    request = VarianceRequest(
        target=cast.target,
        unlearned={label: cast.model(name) for label, name in placebo_names(unlearned).items()},
        judges={name: cast.grader(who) for name, who in judges.items()},
        answers=answers,
        generations=generations,
        criteria=criteria,
        seed=place.seed,
        on_stage=say,
    )
    table = variance(place.folder, request)
    if place.as_json:
        typer.echo(json.dumps(asdict(table), indent=2))
        return
    print_variance(table)


def judge_words(name: str, embedder: str | None) -> JudgeWords:
    """What --judge WHO says: grounded, local:MODEL or server:URL#MODEL."""
    kind, _, rest = name.partition(":")
    if name == "grounded":
        return JudgeWords(embedder=embedder)
    if kind == "local" and rest:
        return JudgeWords(judge=kind, judge_model=rest, embedder=embedder)
    url, _, model = rest.partition("#")
    if kind == "server" and url and model:
        return JudgeWords(judge=kind, judge_url=url, judge_model=model, embedder=embedder)
    known = {"local": "local:MODEL, as in local:builtin:smollm2", "server": "server:URL#MODEL"}
    meant = known.get(kind, f"known: {', '.join(JUDGES)}, as grounded, local:MODEL or server:URL#MODEL")
    raise InputError(f"no judge {one_line(name)!r}; {meant}")


@dataclass(frozen=True)
class _Cast:
    """Target and embedder, each loaded once when it is first wanted, and how other models and judges are taken."""

    target_name: str
    embedding: JudgeWords
    place: PlaceWords

    @cached_property
    def target(self) -> "Asked | Served":
        return self.place.taking_part(self.target_name)

    @cached_property
    def embedder(self) -> "tuple[Embedder, str]":
        return self.embedding.embeds(self.place.device)

    def model(self, name: str) -> "Callable[[], Asked | Served]":
        return lambda: self.place.taking_part(name)

    def grader(self, who: JudgeWords) -> "Callable[[], Grader]":
        # Only the grounded judge embeds.
        return lambda: who.grader(self.place, self.target, *(self.embedder if who.judge == "grounded" else (None, "")))
