"""`vestige finetune`, `vestige unlearn` and `vestige find-rate`: the learning rate at which a method reaches a goal."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige import api
from vestige.cli.command import Call, Given, Part, command, numbers
from vestige.cli.data import SOURCE
from vestige.core.errors import GoalNotReached, InputError, NotLearned
from vestige.core.progress import say
from vestige.core.text import Fields, Record, one_line
from vestige.experiments.rates import find_rate
from vestige.report.text import print_json, print_table

if TYPE_CHECKING:
    from vestige.api import Model

TRAINING = Part(
    "vestige.training.settings:TrainingSettings",
    "Training",
    first=("learning_rate", "epochs", "batch_size", "max_steps", "schedule", "lora_rank"),
    panels={"lora_": "LoRA"},
)
UNLEARNING = TRAINING._replace(home="vestige.training.settings:UnlearningSettings")
WATCH = Part("vestige.training.stopping:TrajectorySettings", "Trajectory", first=("every", "stop_when", "choose"))
CHECKED = Part("vestige.steps.trajectory:ValidationSettings", "Trajectory", "trajectory")


@command(
    api.finetune,
    parts={"training": TRAINING, "data": SOURCE},
    common="data output_dir forget seed learning_rate epochs batch_size lora_rank device fresh config",
)
def finetune_command(call: Call, as_json: bool = False) -> None:
    """Train MODEL on a data set. With --forget, on all items but those.

    The output folder holds the model (a Hugging Face folder in model/), its training log and its provenance.
    `builtin:tiny` has its own default settings, the rest PISTOL's. Exit code 3: the model is kept, and has not learned
    the answers.
    """
    from vestige.api.output import say_next

    model = call.run()
    loss = _last_loss(model)
    learned = loss is None or loss <= _LEARNT or not _of_answers(model)
    if _printed(model, as_json=as_json):
        if loss is not None:
            say(f"last epoch: mean loss {loss:.2f} nats a token")
        if learned:
            say_next("evaluate", model.path, *call.data_words())
    # torchrun would treat one process's exit code as a failure of the training.
    if not learned and "RANK" not in os.environ:
        raise NotLearned(
            f"{model.path}: the model has not learned the answers (mean loss {loss:.2f} nats a token). Train longer "
            "(--epochs), faster (--learning-rate), or all weights (--lora-rank 0), with --fresh into the same folder."
        )


def method_names(typed: Record, given: Given) -> list[str]:
    """Return the prefix of the method's own settings, which is its name. Reject another method's settings."""
    from vestige.methods import ALIASES, METHODS, find_method

    method = typed["method"]
    # This check comes first: with a mistyped method, every setting would be an unknown key.
    find_method(method)
    # This check comes before the search for misspelt keys, which would suggest wrong names.
    for key in given.others(method):
        owner = key.rpartition(".")[0]
        if owner in (*METHODS, *ALIASES):
            raise InputError(f"--set {one_line(key)} is a setting of {owner}, and the method is {method}. Leave it out")
    return [method]


@command(
    api.unlearn,
    parts={"training": UNLEARNING, "trajectory": WATCH, "validation": CHECKED, "data": SOURCE},
    without=("method_settings",),
    open_names=method_names,
    common="method data forget output_dir retain seed learning_rate epochs lora_rank choose fresh",
)
def unlearn_command(call: Call, as_json: bool = False) -> None:
    """Unlearn part of the data from MODEL by one method.

    Prefix the method's settings with its name: --set dpo.beta=0.2 (`vestige list settings dpo`). The method retrain
    repeats MODEL's training without the forget set. For an external model, give --base and settings. The output folder
    holds the unlearned model (a Hugging Face folder in model/), its training log and its provenance.

    With a trajectory option, the model is scored during training on validation items: forget, retain, forget_nll,
    retain_nll, and harm with --harm-judge. The curve is in train/trajectory.jsonl. Exit code 7: no checkpoint met
    --choose. The nearest is kept.
    """
    from vestige.api.output import say_next

    method_settings = call.given.named(call.arguments["method"])
    model = call.run(method_settings=method_settings)
    if _printed(model, as_json=as_json):
        _say_state(model)
        say_next("evaluate", model.path, *call.data_words())
    # The check comes last, after all output: the nearest checkpoint is kept anyway.
    if model.chosen and not model.chosen["met"]:
        raise GoalNotReached(
            f"{model.path}: {model.chosen['why']}, and was kept (step {model.chosen['step']}). Train longer, or at "
            "another learning rate"
        )


def _printed(model: "Model", *, as_json: bool) -> bool:
    """Print a model. Whether there is more to say about it for people."""
    # Only the leading process prints.
    if os.environ.get("RANK", "0") != "0":
        return False
    if as_json:
        row = {"output_dir": str(model.path), "digest": model.digest, "steps": model.steps, "stopped": model.stopped}
        if model.chosen:
            row["chosen"] = model.chosen
        print_json(row)
        return False
    steps = f"{model.steps} step{'s' * (model.steps != 1)}, {model.stopped}"
    if model.chosen:
        steps += f"; kept step {model.chosen['step']}, {model.chosen['why']}"
    typer.echo(f"{model.path}: {steps}; model {model.digest[:12]}")
    return True


_LEARNT = 1.0
"""Nats a token. Trainings whose answers were exact ended at 0.3 and below, one that had learnt nothing at 7."""


def _last_loss(model: "Model") -> float | None:
    """The mean loss of the last epoch in nats a token. None without a step."""
    steps = model.training_log()
    losses: list[float] = [step["loss"] for step in steps if step["epoch"] == steps[-1]["epoch"]]
    if losses:
        return sum(losses) / len(losses)
    return None


def _of_answers(model: "Model") -> bool:
    """Whether the loss states that the answers were learned.

    A loss on whole texts includes questions, which nobody can foresee. Those of builtin:tiny come from templates.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.artifacts.records import read_spec

    spec = read_spec(SubjectFolder(Path(model.path)).spec)
    return spec.settings["loss_on"] == "answer" or spec.model.startswith("builtin:tiny")


RUINED = 0.5
"""A model below this share of the target's score on the retain set gets a warning."""


def _say_state(model: "Model") -> None:
    """Print whether the model still answers the retain set, by its trajectory."""
    from vestige.artifacts.layout import SubjectFolder
    from vestige.artifacts.records import read_trajectory

    # If a checkpoint was chosen, its scores are the model's and not the last ones.
    step = (model.chosen or {"step": model.steps})["step"]
    scores = {}
    for point in read_trajectory(SubjectFolder(model.path).trajectory):
        if point.model != "policy" or point.step == step:
            scores[point.model] = point.scores["retain"]
    if not {"target", "policy"} <= scores.keys():
        return say(
            "the next command shows what it still knows of the forget set, and whether the retain set was ruined"
        )
    retain, of = scores["policy"], scores["target"]
    state = "it kept the rest"
    if retain < RUINED * of:
        state = "ruined: it lost what it was to keep; take a lower --learning-rate"
    say(f"retain score {retain:.3f}, the target's {of:.3f}: {state}")


# The tried learning rates replace that of the training.
TRAINED = UNLEARNING._replace(renamed={"learning_rate": ""})


@command(
    find_rate,
    parts={"training": TRAINED, "data": SOURCE},
    repeated=("rates",),
    without=("method_settings",),
    open_names=method_names,
    common="method goal rates data forget output_dir retain metric items epochs seed config",
)
def find_rate_command(call: Call, as_json: bool = False) -> None:
    """Unlearn at each rate and choose the one that reaches the goal best: 'forget<=0.3' or 'retain>=0.9'.

    Exit code 7: no rate reaches the goal. Vestige prints the nearest one.
    """
    from vestige.api.output import say_next

    changes: Fields = {"method_settings": call.given.named(call.arguments["method"])}
    if call.arguments.get("rates"):
        changes["rates"] = numbers(call.arguments["rates"], "--rates")
    found = call.run(**changes)
    if as_json:
        print_json({**asdict(found), "candidates": found.rows})
    else:
        _print(found)
    if not found.reached:
        raise GoalNotReached(f"no rate reaches {found.goal}. Try others with --rates, or train longer with --epochs")
    models = ("--target", call.arguments["model"], "--unlearned", f"{call.arguments['output_dir']}/rate-{found.rate:g}")
    say_next("audit", *models, "--retrained", "RETRAINED", *call.data_words(), "--output-dir", "RUN")


def _print(found: Any) -> None:
    rows = []
    for candidate in found.candidates:
        scores = [candidate.broke_down, ""]
        if not candidate.broke_down:
            scores = [f"{candidate.forget:.3f}", f"{candidate.retain:.3f}"]
        rows.append([f"{candidate.rate:g}", *scores, "chosen" * (candidate.rate == found.rate)])
    print_table(f"{found.metric}, questions that choose", ["rate", "forget", "retain", ""], rows)
    if found.rate is not None:
        typer.echo(f"chosen: {found.rate:g}; on other questions forget {found.forget:.3f}, retain {found.retain:.3f}")
