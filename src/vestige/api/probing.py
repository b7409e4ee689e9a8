"""`probe`: the search for knowledge holes."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import vestige
from vestige.api.inputs import (
    DataLike,
    HowReadOrAdapted,
    ModelLike,
    PathLikeStr,
    path_of,
    selector,
    source_of,
    verb,
)
from vestige.api.output import refuse_torchrun, say_notes
from vestige.api.results import Holes
from vestige.core.errors import InputError
from vestige.core.progress import progress_bar, say
from vestige.core.text import TextByName, TextTuple, closest, one_line
from vestige.models import Reading

if TYPE_CHECKING:
    from vestige.artifacts.layout import ProbeFolder
    from vestige.core.items import Item
    from vestige.judges.base import Grader
    from vestige.judges.spec import JudgeSpec
    from vestige.probes.adjacent import By
    from vestige.probes.answering import Participants
    from vestige.probes.latent import Iteration, Searching
    from vestige.steps.subjects import Asked


@verb
def probe(
    target: ModelLike,
    unlearned: ModelLike,
    *,
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr = "runs/probe",
    retain: DataLike | None = None,
    searches: Sequence[str] = ("latent",),
    asks: str = "builtin:smollm2",
    asks_dtype: str = "float32",
    by: str | None = None,
    k: int = 4,
    judge: str = "grounded",
    truth: bool = False,
    embedder: str | None = None,
    placebos: Mapping[str, ModelLike] | Sequence[str] | None = None,
    forget_n: int | None = None,
    adjacent: "vestige.Adjacent | None" = None,
    latent: "vestige.Latent | None" = None,
    policy: "vestige.Policy | None" = None,
    answers: "vestige.Answers | None" = None,
    filter: "vestige.Filter | None" = None,
    seed: int = 0,
    **read: Unpack[HowReadOrAdapted],
) -> Holes:
    """Look for knowledge holes: harmless questions that the target answers well and the unlearned model badly.

    Adjacent questions are made, the searches begin from them, and both are tested with fresh answers: everything in one
    folder, with one judge. Each part is kept. The same call resumes a stopped run, and repeats only requests that were
    under way.

    Args:
        target: The target model: a folder, any model, or URL#MODEL.
        unlearned: The unlearned model: a folder, any model, or URL#MODEL.
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: A file of items, or comma-separated selectors: edge:A_B, person:NAME, node:A, component:2,
            type:sales, random:3.
        output_dir: Where the output goes. The same command resumes there.
        retain: Items to keep: a file or selectors, as for forget. By default all other items.
        searches: Ways to search beyond the adjacent questions, comma-separated: latent (RL), random (the
            same policy without learning), or none.
        asks: The model that learns to ask questions. A small one is enough.
        asks_dtype: Number format of its weights.
        by: The writer of adjacent questions: graph (the data's own, of other contracts), templates, local:MODEL, or
            http://host/v1#name. By default the graph if the data has one, otherwise templates.
        k: At most this many questions of each forget item.
        judge: The judge: grounded (the target's own answers; no other model), local:MODEL, http://host/v1#name (key in
            VESTIGE_JUDGE_KEY), or a package's judge. Settings behind a question mark.
        truth: Let the judge know the answers of the data.
        embedder: Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.
        placebos: Models with the target's knowledge, by name: their holes are false.
        forget_n: Sample this many items from a forget set of texts or harmful answers, by the seed. By default all.
        adjacent: How questions are made from texts.
        latent: The search.
        policy: The training of the model that asks.
        answers: How the models answer.
        filter: What counts as a hole.
        seed: Seed of everything random.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        The table by source in `rows`, and the confirmed holes in `holes`.

    Raises:
        InputError: A model, the data or a setting cannot be used.

    Example:
        >>> vestige.probe("runs/target", "runs/npo", data="data.csv", forget="forget.csv", searches=["random"],
        ...               filter=vestige.Filter(unlearned_at_most=2)).to_frame()
    """
    refuse_torchrun("probe")
    from vestige.api import requests
    from vestige.artifacts.layout import ProbeFolder, SubjectFolder
    from vestige.artifacts.records import forgotten_by
    from vestige.data.corpus import probe_sources
    from vestige.judges.spec import judge_spec
    from vestige.models.address import is_address
    from vestige.models.embedder import HUB_ID, load_embedder
    from vestige.models.load import ModelSettings, look_for
    from vestige.probes.adjacent import AdjacentRequest, make_adjacent
    from vestige.probes.answering import Participants
    from vestige.probes.holes import FilterRequest, filter_holes
    from vestige.probes.latent import Searching
    from vestige.probes.questions import AdjacentSettings, AnswerSettings, FilterSettings, LatentSettings
    from vestige.training.policy.settings import PolicySettings

    names = _named_searches(searches)
    if SubjectFolder(Path(output_dir)).spec.exists():
        raise InputError(f"{output_dir} is the folder of a model. Give the probe another folder")
    spec, limits = judge_spec(judge), filter or FilterSettings()
    limits.check()
    how = Reading(**read)
    pair = path_of(target), path_of(unlearned)
    others = _placebos(placebos)
    # Items that either model forgot before are not holes: forgetting them was intended, and both may be bad at them.
    before = tuple(dict.fromkeys(chain.from_iterable(map(forgotten_by, pair))))
    sources = probe_sources(
        source_of(data), selector(forget), retain=selector(retain), n_forget=forget_n, before=before
    )
    say_notes(sources.splits)
    corpus, folder = sources.corpus, ProbeFolder(Path(output_dir))
    nearby = AdjacentRequest(
        sources=sources,
        by=_writer(by, graph=corpus.dataset is not None, folder=folder, device=how.device),
        settings=(adjacent or AdjacentSettings()).over(AdjacentSettings(k=k)),
        seed=seed,
    )
    # Models are checked before any paid request. An address is not contacted.
    for model in (*pair, *others.values()):
        if not is_address(model):
            look_for(requests.model_settings(model, how))

    load = partial(_loaded, how=how)
    truths = (*corpus.items, *corpus.factual) if truth else ()
    models = Participants(
        take_target=partial(load, pair[0]),
        take_unlearned=partial(load, pair[1]),
        take_grader=partial(_grader, spec=spec, folder=folder, device=how.device, truths=truths),
        take_embedder=partial(load_embedder, embedder or HUB_ID, device=how.device),
        answers=answers or AnswerSettings(),
        seed=seed,
    )
    questions = make_adjacent(folder, nearby)
    near = sum(question.of == "forget" for question in questions)
    say(f"{near} questions near the forget set and {len(questions) - near} of the retain set in {folder.adjacent}")
    asking = ModelSettings(model=asks, dtype=asks_dtype, device=how.device)
    plan = Searching(asking, policy or PolicySettings(), latent or LatentSettings())
    for name in names:
        _search(folder, models, name, plan)
    controls = {name: load(model) for name, model in others.items()}
    request = FilterRequest(models, sources.forget, limits, sources.retain, controls, say)
    return Holes(folder.path, filter_holes(folder, request), sources.splits.told)


def _loaded(model: str, how: Reading) -> "Asked":
    from vestige.api import requests
    from vestige.steps.subjects import asked_model

    return asked_model(requests.model_settings(model, how), dtype=how.dtype)


def _grader(
    who: "Participants", spec: "JudgeSpec", folder: "ProbeFolder", device: str, truths: "Sequence[Item]"
) -> "Grader":
    """Return the judge, which also gets the true answers in `truths`, if any."""
    from vestige.probes.answering import told

    graded = who.graded_by(spec, folder.judge, device)
    if truths:
        return told(graded, tuple(truths))
    return graded


def _named_searches(searches: Sequence[str]) -> TextTuple:
    """Return the named searches without repeats. `none` alone means no search."""
    from vestige.probes.latent import SEARCHES

    names = tuple(dict.fromkeys(searches))
    if names == ("none",):
        return ()
    for name in names:
        if name not in SEARCHES:
            raise InputError(f"there is no search {one_line(str(name))!r}. {closest(str(name), [*SEARCHES, 'none'])}")
    return names


def _search(folder: "ProbeFolder", models: "Participants", name: str, plan: "Searching") -> None:
    """Make one search and report its findings."""
    from vestige.metrics.answers import normalised
    from vestige.probes.latent import called_invalid, d_rl, search

    with progress_bar(name) as show:

        def look(iteration: "Iteration") -> None:
            note = iteration.collapsed or f"{iteration.n_latent} with J = 10"
            show(iteration.number / plan.settings.n_iterations, note)

        attempts = search(folder, models, name, plan, on_iteration=look)
    wordings = [normalised(attempt.prompt) for attempt in d_rl(attempts)]
    say(f"{name}: {len(wordings)} of {len(attempts)} prompts got J = 10, {len(set(wordings))} of them different")
    if invalid := called_invalid(attempts):
        say(f"The judge calls all {invalid} badly answered questions invalid and rewards none. Use another judge.")


def _placebos(placebos: Mapping[str, ModelLike] | Sequence[str] | None) -> TextByName:
    """Return the placebos by table name: the last part of the path, or the whole path if the last part is ambiguous."""
    from vestige.probes.holes import OWN_NAMES

    if placebos is None:
        return {}
    if isinstance(placebos, Mapping):
        return {name: path_of(model) for name, model in placebos.items()}
    paths = list(dict.fromkeys(placebos))
    # Model folders often have the same last part, as in a/model and b/model.
    short = [Path(path).name for path in paths]
    named = {}
    for name, path in zip(short, paths, strict=True):
        unique = name and short.count(name) == 1 and name not in OWN_NAMES
        named[name if unique else path] = path
    return named


def _writer(by: str | None, *, graph: bool, folder: "ProbeFolder", device: str) -> "By":
    """Return the maker of adjacent questions: the graph, templates, or a chat model."""
    from vestige.judges.local import grader_of
    from vestige.judges.spec import BY_MODEL, judge_spec

    if by == "graph" or (by is None and graph):
        return "graph"
    if by in (None, "templates"):
        return "offline"
    # Without either sign it is a misspelt word, not an address or local:MODEL.
    if "/" not in by and ":" not in by:
        raise InputError(f"--by {one_line(by)}: {closest(by, ['graph', 'templates'])}. {BY_MODEL}")
    spec = judge_spec(by)
    writer = grader_of(spec, folder.judge, device).writer if spec.by_model else None
    if writer is None:
        raise InputError(f"--by {one_line(by)} cannot write questions. {BY_MODEL}")
    return writer
