"""`vestige attack`, `vestige evaluate` and `vestige probe`: the commands that ask a model.

An attack asks the model before and after it. `gcg` with a question and answer of the user's own searches for a prompt
that brings the answer, and sends it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from vestige import api
from vestige.cli.command import Call, Part, command, settings_rows
from vestige.cli.data import SOURCE
from vestige.core.errors import InputError
from vestige.core.progress import progress_bar
from vestige.core.text import Fields, Record, closest, half_character, one_line
from vestige.evals import EVALS
from vestige.report.text import bits_at_most, print_attack, print_holes, print_json, print_results

if TYPE_CHECKING:
    from vestige.api import Results
    from vestige.attacks.gcg import GcgSettings
    from vestige.models.load import ModelSettings

EVALUATIONS = tuple(Part(home, f"Evaluation {name}", name) for name, home in EVALS.items())
NO_EVIDENCE = (
    "without the same attack on a model that never knew (retrained), a gain does not show that anything was "
    "recovered: `vestige audit` runs both"
)
RENAMED = {"relearn": {"also": ""}, "in_context": {"facts": "items"}}
FIRST = {
    "relearn": ("material", "items", "rate", "epochs", "rank"),
    "gcg": ("items", "placement", "tokens", "steps", "width"),
    "prefix": ("items", "tokens", "steps", "candidates"),
}
"""The settings of an attack that --help shows first."""
COMMON = (
    "data forget output_dir evals max_new_tokens retain role seed device json items material bits question answer "
    "control target"
)


_ARGS = """

Args:
    preset: The paper's settings: zephyr-7b, phi-1.5, llama-3.2-1b-instruct.
    question: One question of your own in place of data; nothing is stored.
    answer: The answer to --question that the prompt is to bring.
    control: With --question, a model that never knew the answer: the same search on it.
"""


def attack_command(kind: str) -> Callable[..., None]:
    """The command of one attack. Packages can add attacks.

    A plug-in's settings use `--set NAME.KEY=VALUE`, like a method's.
    """
    from vestige.attacks import known_attacks

    attack = known_attacks()[kind]
    part = Part(attack.home, "Attack", renamed=RENAMED.get(kind, {}), first=FIRST.get(kind, ()))
    how: Fields = {
        "parts": {"attack": part, "data": SOURCE, "evals": EVALUATIONS},
        # Only a prefix is searched by the target's words.
        "required" if kind == "prefix" else "without": ("target",),
        # The settings of another package's attack are in no table, and have a key behind its name.
        "open_names": lambda typed, given: () if settings_rows(part.home) else (kind,),
        "common": COMMON,
    }

    def settings_of(call: Call, defaults: Record) -> Any:
        from vestige.attacks.planning import find_attack

        # The table, of which options are made, knows the classes of this package alone.
        given = {**call.given.of(part), **call.given.named(kind)}
        return find_attack(kind).build({**defaults, **given}, where=f"attack {kind}")

    def run(call: Call, as_json: bool = False) -> None:
        print_attack(call.run(attack=settings_of(call, {})), note=NO_EVIDENCE, as_json=as_json)

    def relearn(call: Call, preset: str = "", as_json: bool = False) -> None:
        from vestige.attacks.relearn import PRESETS

        if preset and preset not in PRESETS:
            raise InputError(f"no preset {one_line(preset)!r}. {closest(preset, list(PRESETS))}")
        settings = settings_of(call, PRESETS[preset].settings if preset else {})
        print_attack(call.run(attack=settings), note=NO_EVIDENCE, as_json=as_json)

    def gcg(call: Call, question: str = "", answer: str = "", control: str = "", as_json: bool = False) -> None:
        settings = settings_of(call, {})
        _check(call.arguments, question, answer, control)
        if question:
            return _own_text(call, settings, question, answer, control, as_json=as_json)
        print_attack(call.run(attack=settings), note=NO_EVIDENCE, as_json=as_json)

    # An f-string within the function would be no docstring, and --help has its words from there.
    run.__doc__ = (
        f"{attack.about}\n\nMODEL is asked about the forget items before and after, and stays as it is.{_ARGS}"
    )
    relearn.__doc__ = gcg.__doc__ = run.__doc__
    if kind == "relearn":
        return command(api.attack, **how)(relearn)
    if kind == "gcg":
        return command(api.attack, optional=("data", "forget"), **how)(gcg)
    return command(api.attack, **how)(run)


def _check(arguments: Record, question: str, answer: str, control: str) -> None:
    """Refuse half of a text of one's own or of data, or a mixture."""
    data, forget = arguments.get("data"), arguments.get("forget")
    if not any((question, answer, control)):
        if not data or not forget:
            raise InputError("give --data and --forget, or one text of your own by --question and --answer")
    elif data or forget:
        raise InputError("--question replaces the data. Leave --data and --forget out")
    elif not question.strip() or not answer.strip():
        raise InputError("one text of your own is --question with --answer, and neither may be empty. Give both")
    elif half_character(question + answer):
        raise InputError("--question or --answer is not valid UTF-8. Give it in UTF-8")


def _own_text(call: Call, settings: "GcgSettings", question: str, answer: str, control: str, *, as_json: bool) -> None:
    from vestige.api import requests
    from vestige.api.inputs import reading
    from vestige.api.output import refuse_torchrun

    refuse_torchrun("attack")
    given = call.arguments
    read = reading(given)
    # By one seed, so that the two searches differ by the model alone.
    searched = {}
    for name, model in (("model", given["model"]), ("control", control)):
        if model:
            loaded = requests.model_settings(model, read)
            searched[name] = _search_for_text(loaded, question, answer, settings, given["seed"])
    if as_json:
        beside = {"control": searched["control"]} if control else {}
        return print_json(searched["model"] | beside)
    for name, prompt in searched.items():
        if control:
            typer.echo(f"{name}:")
        _print_text_prompt(prompt)


def _search_for_text(model: "ModelSettings", question: str, answer: str, settings: "GcgSettings", seed: int) -> Fields:
    """A prompt that brings the answer to one question: the text, the replies with and without it, and bits.

    `loss` is in nats a token of the answer. `bits` is the capacity of that many admissible tokens, `needed` the
    answer's code length without the prompt.
    """
    import numpy as np

    from vestige.attacks.gcg import around, deployed, find_prompt, target_of
    from vestige.metrics.information import code_length
    from vestige.models.generation import generate
    from vestige.models.load import load
    from vestige.models.scoring import score_answers

    loaded = load(model)
    prompter, placement = loaded.prompter, settings.placement
    target = target_of(prompter, question, answer, placement)
    with progress_bar("gcg") as show:
        prompt = find_prompt(
            loaded,
            [around(prompter, question, target, placement)],
            settings,
            seed=seed,
            on_step=lambda done, of: show(done / of, ""),
        )
    sent = deployed(question, prompt.text, placement)
    (alone,) = score_answers(loaded.model, [prompter.encode(question, answer)])
    # The search's claim is not believed: the prompt is sent as text, and the model replies from a fresh cache.
    reply, plain = generate(
        loaded.model,
        [prompter.prompt(sent), prompter.prompt(question)],
        end_ids=prompter.end_ids,
        # What a model says after so many tokens is not compared.
        max_new_tokens=len(target),
        context=prompter.max_tokens,
    )
    return {
        "prompt": prompt.text,
        "ids": prompt.ids,
        "sent": sent,
        "reply": prompter.decode(reply.ids),
        "plain": prompter.decode(plain.ids),
        "loss": prompt.loss,
        "claimed": prompt.reached,
        "verified": reply.ids[: len(target)] == target,
        "plain_right": plain.ids[: len(target)] == target,
        "ended": prompt.ended,
        "steps": prompt.steps,
        "spent": dict(prompt.spent),
        "bits": len(prompt.ids) * prompt.admissible_bits,
        "needed": code_length(np.array(alone.logp)),
    }


def _print_text_prompt(prompt: Record) -> None:
    claimed, verified = ("yes" if prompt[key] else "no" for key in ("claimed", "verified"))
    typer.echo(f"prompt of {len(prompt['ids'])} tokens: {one_line(prompt['prompt'], width=1000)!r}")
    typer.echo(f"sent: {one_line(prompt['sent'], width=1000)!r}")
    typer.echo(f"reply: {one_line(prompt['reply'], width=1000)!r}")
    typer.echo(f"reply without the prompt: {one_line(prompt['plain'], width=1000)!r}")
    typer.echo(
        f"loss {prompt['loss']:.3f} nats a token after {prompt['steps']} steps (ended: {prompt['ended']}); "
        f"brings the answer as the search claims: {claimed}; as the reply shows: {verified}"
    )
    if prompt["plain_right"]:
        typer.echo("the model gives the answer without the prompt too, so the prompt did not bring it")
    typer.echo(
        f"carried in, at most: {bits_at_most(prompt['bits'])} (tokens x log2(admissible vocabulary) of the prompt)"
    )
    typer.echo(f"needed: {prompt['needed']:.1f} bits (the answer in the model's own code, without the prompt)")


@command(
    api.evaluate,
    parts={"data": SOURCE, "evals": EVALUATIONS},
    without=("summarize",),
    common="data forget retain evals output_dir role name max_new_tokens seed device json config",
)
def evaluate_command(call: Call, as_json: bool = False) -> None:
    """Evaluate MODEL on the data set. Print estimates by split, with intervals and n.

    Keeps per-item records and the summary. The same command resumes a stopped run.
    """
    results = call.run()
    pairs = list(zip(results.summaries, results.evidence, strict=True))
    if as_json:
        places = {summary.eval: str(folder) for summary, folder in pairs}
        return print_json({"evidence": places, "results": list(results.rows)})
    for summary, folder in pairs:
        print_results(summary)
        for how in sorted({r.estimate.interval for r in summary.results if r.estimate.metric == "leaked_corrected"}):
            typer.echo(f"leaked_corrected: {how} (labelled replies)")
        typer.echo(f"evidence in {folder}")
    _say_next(results, call)


def _say_next(results: "Results", call: Call) -> None:
    """The command that follows from the role of the model. Capitals are for values that only the user knows."""
    from vestige.api.output import say_next

    name, words = call.arguments["model"], call.data_words(call.arguments.get("forget") or "FORGET")
    if results.role == "unlearned":
        models = ("--target", "TARGET", "--unlearned", name, "--retrained", "CONTROL")
        say_next("audit", "--quick", *models, *words, "--output-dir", "RUN")
    elif results.role == "target":
        say_next("unlearn", name, "--method", "npo_gd", *words, "--learning-rate", "RATE", "--output-dir", "UNLEARNED")


PARTS = {
    "adjacent": Part("vestige.probes.questions:AdjacentSettings", "Adjacent questions", "adjacent"),
    "neighbours": Part("vestige.probes.adjacent:NeighbourSettings", "Adjacent questions", "neighbours"),
    "latent": Part("vestige.probes.latent:LatentSettings", "Search", "latent", first=("n_iterations", "n_examples")),
    "policy": Part("vestige.training.policy.settings:PolicySettings", "Policy of the search", "policy"),
    "answers": Part("vestige.probes.answering:AnswerSettings", "Answers", "answers"),
    "filter": Part("vestige.probes.filters:FilterSettings", "Holes", "filter"),
}


@command(
    api.probe,
    positional=("target", "unlearned"),
    parts={**PARTS, "data": SOURCE},
    spelled={"asks": "policy", "placebos": "placebo"},
    repeated=("placebos",),
    without=("asks_dtype", "truth"),
)
def probe_command(call: Call, as_json: bool = False) -> None:
    """Look for knowledge holes: make adjacent questions, search from them, and test both with one judge.

    Each part is kept. The same command resumes a stopped run, and repeats only requests that were under way.
    """
    if not call.arguments["searches"]:
        raise InputError("--searches names none. Give latent, random or none")
    found = call.run()
    if as_json:
        return print_json(found.table)
    from vestige.artifacts.layout import ProbeFolder
    from vestige.probes.holes import server_notes

    folder = ProbeFolder(found.path)
    print_holes(found.table)
    for note in server_notes(folder):
        typer.echo(note)
    typer.echo(f"holes in {folder.holes}")
