"""Probing Knowledge Holes in Unlearned LLMs (2511.00030): harmful answers are forgotten. What harmless knowledge goes?

holes: LLMU, GA + KL and NPO-GD (Tables 1 to 10); holes-rmu: RMU on texts (Tables 1, 2, 14 and 20). On a CPU a contract
is forgotten, and the judge knows the answers: it finds wrong answers, and the paper's judge gibberish.

What differs from the paper: prompts in our words; harm is looked at every 50 steps on 25 of the 50 samples; LLMU's cap
of 100 is left out, on which its code never acts; coefficients of the search (its Table 5) and the rate of mitigation
are ours; KL is over answers alone and to the target; Table 7's checkpoints are trainings that end there; Table 6 grades
the adjacent questions; MT-Bench is graded as `mt_bench` says.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core.errors import NothingToTeach
from vestige.core.files import write_jsonl
from vestige.core.seeds import generator
from vestige.data.corpus import SourceSettings
from vestige.experiments.lab import Arguments, Lab, Question, Step, Values, call
from vestige.experiments.mt_bench import HUB, mt_bench
from vestige.experiments.tables import Report

if TYPE_CHECKING:
    from pandas import DataFrame

SERVER = "https://api.openai.com/v1?most_requests=20000"
"""The limit is for one folder. Raise it by `--probe judge=...`, after `--plan`."""
JUDGE = f"{SERVER}#gpt-4o-mini"
"""Appendix A: GPT-4o mini judges, filters and names groups. Section 3.1 does not say who writes questions."""
JUDGES = (JUDGE, f"{SERVER}#gpt-4.1-mini", f"{SERVER}#o3-mini")
"""Table 6."""
BENCHMARKS: dict[str, Arguments] = {
    "MMLU": {"data": "cais/mmlu", "config": "all", "split": "test"},
    "ARC-easy": {"data": "allenai/ai2_arc", "config": "ARC-Easy", "split": "test"},
    "TruthfulQA": {"data": "truthfulqa/truthful_qa", "config": "multiple_choice", "split": "validation"},
}
"""The right half of Table 1, with MT-Bench."""
CONVERSATIONS = "MT-Bench"
"""The benchmark that a judge grades."""
LORA = {
    "batch_size": 2,
    "epochs": 40,
    "max_steps": 1000,
    "lora_rank": 32,
    "lora_alpha": 16,
    "lora_dropout": 0.0,
    "lora_targets": ["q_proj", "v_proj"],
    "schedule": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.01,
}
"""Appendix A: rank 32, alpha 16, batches of 2. The rest is LLMU's code (2310.10683). 1,000 steps of 2 of 50 samples."""
METHODS: Mapping[str, Values] = {
    "llmu": {"learning_rate": 5e-5},
    # Table 6: all parameters, at a rate of 1e-6 (appendix C.1).
    "llmu-full": {"learning_rate": 1e-6, "lora_rank": 0},
    "gakl": {"learning_rate": 5e-5},
    # 10 epochs at 1e-6; the warm-up is ours.
    "npo_gd": {"learning_rate": 1e-6, "epochs": 10, "max_steps": 250, "warmup_steps": 25},
}
TINY: Mapping[str, Values] = {
    "llmu": {"learning_rate": 9.69e-5},
    "gakl": {"learning_rate": 4.54e-5},
    "npo_gd": {"learning_rate": 4.54e-5},
    "rmu": {"learning_rate": 2e-3, "method_settings": {"alpha": 0.1}},
}
HARM = {"every": "50 steps", "stop_when": ["harm<=0"], "harm_judge": f"{SERVER}#gpt-4o", "items": 50}
"""Section 4.1: every model is trained until its harmscore is 0, by GPT-4o."""
PROBE: Arguments = {
    "judge": JUDGE,
    "by": JUDGE,
    "asks": "meta-llama/Llama-2-7b-hf",
    "asks_dtype": "bfloat16",
    # 50 epochs of 128 episodes. Clip and examples are Curiosity's (2402.19464); weights are ours.
    "latent": {"n_iterations": 50, "n_examples": 3, "ngram_coef": 1.0, "semantic_coef": 1.0, "clip": 10.0},
    "policy": {
        "n_rollouts": 128,
        "n_tokens": 20,
        "temperature": 0.7,
        "top_p": 0.92,
        "epochs": 4,
        "learning_rate": 3e-5,
        "kl_coef": 0.001,
        "entropy_coef": 0.01,
        "lora_rank": 32,
        "lora_alpha": 16,
    },
    # The thresholds of a hole are ours: the paper has means.
    "filter": {"nearest_texts": 0, "subject_share": 0.0, "target_first": False, "paper_order": True},
}
TINY_PROBE: Arguments = {
    "by": "graph",
    "truth": True,
    "answers": {"max_tokens": 16},
    "latent": {"n_iterations": 6, "n_examples": 2, "ngram_coef": 3.0, "semantic_coef": 3.0},
    "policy": {
        "n_rollouts": 64,
        "n_tokens": 32,
        "epochs": 2,
        "batch_size": 32,
        "minibatch_size": 32,
        "learning_rate": 1e-3,
        "kl_coef": 0.03,
        "lora_rank": 8,
    },
    # Questions about two contracts differ only in names.
    "filter": {"alike": 0.95},
}
MITIGATION = {**LORA, "learning_rate": 5e-5, "max_steps": 800}
"""Section 4.3: 800 steps. The rate is LLMU's."""
ABLATION = {
    "policy.entropy_coef": (0.001, 0.1),
    "policy.temperature": (0.5, 1.0),
    "policy.kl_coef": (1e-4, 1e-2),
    "policy.learning_rate": (1e-5, 1e-4),
    "latent.ngram_coef": (0.1, 10.0),
    "latent.semantic_coef": (0.1, 10.0),
}
"""Table 10. Values are ours."""


def holes(lab: Lab) -> Report:
    """Every method at every seed. Probes, mitigation and the rest around the models of the first seed."""
    # 50 samples of PKU-SafeRLHF with an unsafe response on the paper's topics, in a file of the user's choice; all 817
    # questions of TruthfulQA are kept.
    data, forget = lab.found_data(SourceSettings(**BENCHMARKS["TruthfulQA"]), "pku-saferlhf-50.jsonl")
    methods, probing, models = METHODS, {**PROBE, "k": 4}, {"Mistral-7B": "mistralai/Mistral-7B-Instruct-v0.1"}
    if lab.cpu:
        data, forget, methods, probing = lab.data("sample1", factual="builtin"), "edge:A_B", TINY, TINY_PROBE
    _run(lab, lab.named(models), data, forget, methods, probing)
    return REPORT


def holes_rmu(lab: Lab) -> Report:
    """RMU forgets 200 texts of the WMDP bio corpus and keeps 400 paragraphs of Wikitext-2, by its authors' recipe."""
    data, forget = lab.found_data(SourceSettings(data="wikitext-400.jsonl"), "wmdp-bio-200.jsonl")
    own = {"epochs": 3, "batch_size": 4, "max_steps": 150, "schedule": "constant", "warmup_steps": 0, "lora_rank": 0}
    settings = {"steering": 6.5, "alpha": 1200.0, "layer": 7, "update_layers": [5, 6, 7]}
    methods = {"rmu": {**own, "learning_rate": 5e-5, "method_settings": settings}}
    probing, models = {**PROBE, "k": 5}, {"Zephyr-7B": "HuggingFaceH4/zephyr-7b-beta"}
    if lab.cpu:
        data, forget, probing = lab.data("sample1", factual="builtin"), "edge:A_B", TINY_PROBE
        methods = {"rmu": dict(TINY["rmu"])}
    lab.seeds = lab.seeds or (0,)
    named = lab.named(models)
    _run(lab, named, data, forget, methods, probing, as_questions=lab.cpu)
    return REPORT


def _run(
    lab: Lab,
    models: Mapping[str, str],
    data: SourceSettings,
    forget: str,
    methods: Mapping[str, Values],
    probing: Values,
    *,
    as_questions: bool = True,
) -> None:
    seeds = lab.seeds or (0, 1, 2)
    for label, model in models.items():
        target: Any = model
        # Table 6 compares trainings of one target.
        if lab.tiny(model):
            target = lab.target(model=model, data=data, train_factual=True, **lab.reading)
            # The policy learns lists of questions, without answers.
            lists = lab.step(f"{__name__}:question_lists", name="lists", data=data, forget=forget)
            policy = lab.step(
                "finetune",
                name="policy",
                model=model,
                data=lists.file("lists.jsonl"),
                epochs=10,
                stop_when_exact=False,
                **lab.reading,
            )
            probing = {**probing, "asks": policy.file("model")}
        asked = {"data": data, "forget": forget, "splits": ["retain", "factual"], "most_items": lab.most_items}
        asked["evals"] = {"qa": {"max_new_tokens": 16 if lab.cpu else 64}}
        columns = {"model": label, "set": "forgotten", "rate": ""}
        if as_questions:
            lab.ask(target, {**columns, "seed": seeds[0], "method": "target"}, **asked, **lab.device)
        _benchmarks(lab, target, {**columns, "seed": seeds[0], "method": "target"})
        for name in lab.chosen(list(methods)):
            own = {"method": name.removesuffix("-full"), **(lab.reading if lab.cpu else LORA), **methods[name]}
            if not lab.cpu and own.get("lora_rank") == 0:
                own |= lab.full
            elif not lab.cpu:
                own |= lab.reading
            if forget.startswith("pku"):
                own["trajectory"] = HARM
            for seed in seeds:
                how = {"target": target, "data": data, "forget": forget, "seed": seed}
                unlearned = lab.step("unlearn", name=name, **how, **own)
                named = {**columns, "seed": seed, "method": name, "rate": f"{own['learning_rate']:g}"}
                if as_questions:
                    lab.ask(unlearned, named, **asked, **lab.device)
                _benchmarks(lab, unlearned, named)
                if seed == seeds[0]:
                    probe = _probe(lab, target, unlearned, data, forget, probing, {"method": name, "arm": "unlearned"})
                    if name == "llmu":
                        _around(lab, target, unlearned, probe, data, forget, own, probing, seed)


def _benchmarks(lab: Lab, model: Any, columns: Values) -> None:
    """The static benchmarks before and after: in letters, and MT-Bench graded (the right half of Table 1)."""
    sources: Arguments = {name: SourceSettings(data=path) for name, path in lab.benchmarks.items()}
    if not lab.cpu and not lab.benchmarks and not lab.models:
        sources = {name: SourceSettings(**source) for name, source in BENCHMARKS.items()}
        sources[CONVERSATIONS] = SourceSettings(data=HUB)
    for name, source in sources.items():
        if name == CONVERSATIONS:
            asked = {"questions": source.data, "judge": lab.probing.get("judge", JUDGE), **lab.device}
            step = lab.step(f"{mt_bench.__module__}:mt_bench", name="mt-bench", model=model, **asked)
            lab.conversations.append(Question(step, columns))
            continue
        lab.ask(model, {**columns, "set": name}, data=source, evals={"choices": {}}, **lab.device)


def _probe(
    lab: Lab,
    target: Any,
    unlearned: Step,
    data: SourceSettings,
    forget: str,
    probing: Values,
    columns: Values,
    **more: Any,
) -> Step:
    step = lab.step(
        "probe",
        name="probe",
        target=target,
        unlearned=unlearned,
        data=data,
        forget=forget,
        **{"searches": list(lab.searches), **probing, **lab.probing, **lab.device, **more},
    )
    lab.probes.append(Question(step, columns))
    return step


def _around(
    lab: Lab,
    target: Any,
    unlearned: Step,
    probe: Step,
    data: SourceSettings,
    forget: str,
    own: Values,
    probing: Values,
    seed: int,
) -> None:
    """Mitigation (Tables 3, 4, 8, 9), checkpoints (7), ablations (5, 10) and repeats (6) of one model."""
    common = (data, forget, probing)
    training = {**MITIGATION, **lab.reading}
    if lab.cpu:
        training = {"max_steps": 100, "epochs": 20, "learning_rate": 1e-4, "lora_rank": 0, **lab.reading}
    # One-shot: "only on the already identified test cases", all of D_AP and of the used D_LP, past the filters.
    shots = lab.step(f"{__name__}:taught", name="prompts", probe=probe, target=target)
    for way, imitate in (("gd", {}), ("kl", {"imitate": target})):
        mended = lab.step(
            "finetune",
            name=f"mended-{way}",
            model=unlearned,
            data=shots.file("prompts.jsonl"),
            seed=seed,
            **training,
            **imitate,
        )
        _probe(lab, target, mended, *common, {"method": "llmu", "arm": f"one-shot {way}"})
    # Iterative: the target is unlearned again, and keeps 600 prompts of D_RL, 100 of D_AP and 117 retained ones.
    before, found = probe, shots
    for number in range(1, (1 if lab.cpu else 3) + 1):
        found = lab.step(
            f"{__name__}:taught",
            name="prompts",
            probe=before,
            target=target,
            adjacent=probe,
            most=[40, 40] if lab.cpu else [600, 100],
            data=data,
            forget=forget,
            n_retain=40 if lab.cpu else 117,
        )
        again = lab.step(
            "unlearn",
            name=f"round-{number}",
            target=target,
            data=data,
            forget=forget,
            retain=found.file("prompts.jsonl"),
            seed=seed,
            **own,
        )
        before = _probe(lab, target, again, *common, {"method": "llmu", "arm": f"round {number}"})
    if lab.cpu:
        return
    for steps in (200, 400, 600, 800):
        earlier = {**own, "max_steps": steps, "trajectory": None}
        stopped = lab.step("unlearn", name="llmu", target=target, data=data, forget=forget, seed=seed, **earlier)
        for run in range(3):
            _probe(lab, target, stopped, *common, {"method": "llmu", "arm": f"step {steps}"}, seed=run)
    for key, values in ABLATION.items():
        part, _, setting = key.partition(".")
        for value in values:
            changed: Arguments = {part: {**probing[part], setting: value}}
            _probe(lab, target, unlearned, *common, {"method": "llmu", "arm": f"{key}={value:g}"}, **changed)
    for judge in JUDGES:
        for generation in range(3):
            columns = {"method": "llmu", "arm": f"judge {judge.partition('#')[2]}"}
            _probe(lab, target, unlearned, *common, columns, judge=judge, seed=generation, searches=[])


def taught(
    probe: str,
    target: str,
    output_dir: Path,
    adjacent: str = "",
    most: Sequence[int] = (),
    data: SourceSettings | None = None,
    forget: str = "",
    n_retain: int = 0,
    answer_tokens: int = 128,
) -> None:
    """Write the prompts that a mitigation teaches, with the target's own greedy answers, to prompts.jsonl.

    Args:
        probe: The folder of the probe whose prompts are taught.
        target: The model that answers.
        output_dir: The folder that is written.
        adjacent: The folder of the probe whose adjacent prompts are taught. The same by default.
        most: How many prompts of D_RL (all that a search found with J = 10, which no filter has taken any of) and of
            D_AP to draw. Empty for the one-shot way: all of D_AP and D_LP that passed the filters.
        data: The data set of the retained items that are added.
        forget: The forget set.
        n_retain: How many retained items to add.
        answer_tokens: Longest answer, in tokens.

    Raises:
        NothingToTeach: No prompt is left, or the target answers none.
    """
    from vestige.api import requests, selection
    from vestige.api.inputs import corpus_of
    from vestige.artifacts.holes import read_tested
    from vestige.artifacts.layout import ProbeFolder
    from vestige.models import Reading
    from vestige.probes.answering import LocalAnswerer
    from vestige.probes.questions import AnswerSettings
    from vestige.steps.subjects import asked_model

    tested = read_tested(ProbeFolder(Path(probe)))
    near = [t for t in read_tested(ProbeFolder(Path(adjacent or probe))) if t.source == "adjacent" and not t.dropped]
    latent = [t for t in tested if t.source != "adjacent"]
    if most:
        near = _drawn(near, most[1])
        latent = _drawn(latent, most[0])
    else:
        latent = [t for t in latent if not t.dropped]
    prompts = list(dict.fromkeys(t.prompt for t in (*near, *latent)))
    model = asked_model(requests.model_settings(target, Reading("auto", None, False, "")))
    settings = AnswerSettings(temperature=0.0, max_tokens=answer_tokens)
    answers = LocalAnswerer(model.loaded, settings).answer(prompts, seed=0)
    rows = []
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer and answer.strip():
            rows.append({"question": prompt, "answer": answer})
    if not rows:
        raise NothingToTeach(f"The target answers none of {len(prompts)} prompts of {probe}, and none can be taught.")
    if data is not None:
        corpus = corpus_of(data)
        kept = selection.questions(corpus, forget).splits.get("retain", ())
        known = {row["question"] for row in rows}
        for item in _drawn([item for item in kept if item.question not in known], n_retain):
            rows.append({"question": item.question, "answer": item.answer})
    output_dir.mkdir(parents=True, exist_ok=True)
    write_jsonl(output_dir / "prompts.jsonl", rows)


def question_lists(data: SourceSettings, forget: str, output_dir: Path, n_lists: int = 400, n: int = 5) -> None:
    """Write lists of retained and factual questions, as a search begins them, to lists.jsonl."""
    from vestige.api import selection
    from vestige.api.inputs import corpus_of
    from vestige.probes.latent import listed_questions

    splits = selection.questions(corpus_of(data), forget).splits
    questions = [item.question for name in ("retain", "factual") for item in splits.get(name, ())]
    draw = generator(0, "policy lists")
    rows = []
    for _ in range(n_lists):
        chosen = [questions[place] for place in draw.permutation(len(questions))[:n].tolist()]
        # A chat needs an answer, but this one is not used.
        rows.append({"question": listed_questions(chosen), "answer": "Done."})
    output_dir.mkdir(parents=True, exist_ok=True)
    write_jsonl(output_dir / "lists.jsonl", rows)


def _drawn(things: Sequence[Any], most: int) -> list[Any]:
    order = generator(0, "mitigation").permutation(len(things))
    return [things[place] for place in order[:most].tolist()]


def probe_table(lab: Lab) -> "DataFrame":
    """Every number of every probe, next to the paper's of Table 1. An arm without prompts to teach says so."""
    import pandas

    frames = []
    for probe in lab.probes:
        if lab.left_out(probe.step):
            frames.append(pandas.DataFrame([{"metric": "nothing to teach", **probe.columns}]))
            continue
        frames.append(pandas.DataFrame(call(probe.step).rows).assign(**probe.columns))
    table = pandas.concat(frames, ignore_index=True)
    # A probe without any tested prompt has no rows.
    return table.reindex(columns=["method", "arm", "source", "metric", "value", "low", "high", "n"])


def conversation_table(lab: Lab) -> "DataFrame":
    """The mean grade of each model at each turn of MT-Bench."""
    import pandas

    frames = []
    for asked in lab.conversations:
        frames.append(pandas.DataFrame(call(asked.step)).assign(**asked.columns))
    table = pandas.concat(frames, ignore_index=True)
    return table[["model", "method", "seed", "turn", "grade", "graded", "not graded"]]


REPORT = Report(
    "",
    ("qa.rouge1_recall", "choices.choose/accuracy", "choices.option_text_mean/accuracy"),
    ("forget", "retain", "factual", "all"),
    holes=True,
)
