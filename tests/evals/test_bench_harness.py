"""lm-evaluation-harness on a model in memory: the harness's own tasks on rows from files, against our own scorer."""

import copy
import csv
import json
from importlib.util import find_spec

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.bench_rows import LocalData
from vestige.data.mcq import Choice
from vestige.evals import choices, harness
from vestige.evals.choices import ChoicesSettings
from vestige.evals.harness import Catalogue, HarnessSettings, harness_version, run_task
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.tiny import tiny_model, tiny_tokenizer

PLACES = ["Rome", "New York State", "the small town of Ulm", "Berlin", "Lagos in the south"]
ASKED = tuple(
    Choice(f"i{n}", f"Where {'exactly ' * (n % 3)}does contract {n} hold?", tuple(PLACES[n % 2 :][:4]), 3 * n // 2 % 4)
    for n in range(10)
)
PLAIN = {"rendering": "plain", "place": "given", "too_few": "leave_out", "replies": False}
needs_lm_eval = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed")


def test_without_the_harness_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(harness, "PACKAGE", "no such package")
    with pytest.raises(InputError, match=r"not installed; install it with `pip install \"vestige\[lmeval\]\"`"):
        harness_version()
    with pytest.raises(InputError, match="not installed"):
        Catalogue().asked("mmlu")


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue()


@pytest.fixture(scope="module")
def subject():
    header = "The following are multiple choice questions (with answers) about anatomy."
    texts = [Item(f"{c.question} {header}", " A B C D Answer: Question: ".join(c.options)) for c in ASKED]
    return LoadedModel(tiny_model(3).eval(), tiny_tokenizer(texts), "builtin:tiny", "")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same questions as MMLU's CSV, three of them as examples, and as ARC's rows."""
    folder = tmp_path_factory.mktemp("rows")
    for split, asked in (("test", ASKED), ("dev", ASKED[:3])):
        path = folder / f"mmlu/{split}/anatomy_{split}.csv"
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", *(f"choice{n}" for n in range(4)), "answer"])
            writer.writerows([c.question, *c.options, c.answer] for c in asked)
    rows = [
        {
            "question": c.question,
            "choices": {"text": list(c.options), "label": list("ABCD")},
            "answerKey": "ABCD"[c.answer],
        }
        for c in ASKED
    ]
    (folder / "arc_easy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LocalData((folder,))


def ours(subject, **more):
    settings = ChoicesSettings.build({**PLAIN, **more})
    records = choices.collect(subject, ASKED, settings)
    return records, [choices.score(record) for record in records]


@needs_lm_eval
@pytest.mark.slow
def test_mmlu_from_files_has_the_numbers_of_our_own_scorer(catalogue, subject, local):
    asked = catalogue.asked("mmlu")
    assert (len(asked.parts), asked.pooled) == (57, True)
    run = run_task(
        subject, "mmlu_anatomy", catalogue.task("mmlu_anatomy", local.rows("mmlu_anatomy")), HarnessSettings()
    )
    records, scores = ours(subject, texts=False, letters=True, topic="anatomy")
    theirs = [[logp for logp, _ in item.said["none"]] for item in run.items]
    for own, record in zip(theirs, records, strict=True):
        assert own == pytest.approx(record["letters"][0]["logp"], abs=1e-4)
    assert [item.values["acc"] for item in run.items] == [s["choose/accuracy"] for s in scores]
    assert 0 < sum(item.values["acc"] for item in run.items) < len(ASKED)
    assert (run.version, run.shots, run.units, run.bounds) == ("1.0", 0, {"acc": "share"}, {"acc": (0, 1)})


@needs_lm_eval
@pytest.mark.slow
def test_arc_from_files_has_the_numbers_of_our_own_scorer_and_examples_are_shown(catalogue, subject, local):
    assert catalogue.asked("ai2_arc").parts == ("arc_challenge", "arc_easy")
    assert not catalogue.asked("ai2_arc").pooled
    run = run_task(subject, "arc_easy", catalogue.task("arc_easy", local.rows("arc_easy")), HarnessSettings(limit=6))
    _, scores = ours(subject, texts=True, letters=False)
    assert [item.values["acc"] for item in run.items] == [s["option_text_sum/accuracy"] for s in scores][:6]
    assert set(run.units) == {"acc", "acc_norm"}
    rows = local.rows("mmlu_anatomy")
    shown = run_task(subject, "mmlu_anatomy", catalogue.task("mmlu_anatomy", rows), HarnessSettings(shots=2))
    plain = run_task(subject, "mmlu_anatomy", catalogue.task("mmlu_anatomy", rows), HarnessSettings())
    assert shown.shots == 2
    assert shown.items[5].said != plain.items[5].said
    with pytest.raises(InputError, match="has fewer than 4 examples to show"):
        run_task(subject, "mmlu_anatomy", catalogue.task("mmlu_anatomy", rows), HarnessSettings(shots=4))
    assert (plain.cut, shown.cut) == (0, 0)


@needs_lm_eval
@pytest.mark.slow
def test_a_template_that_prints_the_date_gets_the_pinned_one_of_the_harness_too(subject):
    dated = copy.deepcopy(subject.tokenizer)
    dated.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}{{ date_string }} "
        "{{ strftime_now('%Y-%m-%d') }} {% for m in messages %}{{ m.content }}|{% endfor %}"
    )
    found = harness.backend(LoadedModel(subject.model, dated, "dated", ""), HarnessSettings(chat=True), bars=False)
    asked = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Who?"}]
    assert found.apply_chat_template(asked) == "01 Jan 2026 2026-01-01 Who?|"
    begun = [*asked, {"role": "assistant", "content": "It is "}]
    assert found.apply_chat_template(begun, add_generation_prompt=False) == "01 Jan 2026 2026-01-01 Who?|It is"


def test_a_prompt_that_the_harness_cuts_is_counted(subject):
    most = context_tokens(subject.model)
    fits, cut = "Where " * (most // 8), "Where " * (2 * most)
    assert not harness._is_cut(subject, {"arguments": [(fits, " A"), (fits, " B")]})
    assert harness._is_cut(subject, {"arguments": [(fits, " A"), (cut, " B")]})
    assert not harness._is_cut(subject, {"arguments": [(fits, {"max_gen_toks": 8})]})
    assert harness._is_cut(subject, {"arguments": [(fits, {"max_gen_toks": most})]})


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_asked_is_refused_in_a_sentence(catalogue):
    with pytest.raises(InputError, match="no task 'arc_esy' in lm-evaluation-harness; did you mean 'arc_easy'"):
        catalogue.asked("arc_esy")
    with pytest.raises(InputError, match=r"cannot be had from the hub \(.*; give files with --task-data"):
        catalogue.task("arc_easy", None)
    with pytest.raises(InputError, match="rows given for the task arc_easy are not in its form"):
        catalogue.task("arc_easy", {"": [{"q": 1}]})
    with pytest.raises(InputError, match="the files hold dev, and what is asked is its split test"):
        catalogue.task("mmlu_anatomy", {"dev": [{"question": "q", "choices": ["a"] * 4, "answer": 0}]})
