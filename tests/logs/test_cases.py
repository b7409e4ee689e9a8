"""Inputs that were once read wrongly without a word: each class of fault with small inputs of its own."""

import json
import math
import random
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vestige.artifacts.layout import RunFolder
from vestige.auditing.logs import Stated, judge_logs, read_logs
from vestige.auditing.table import columns_of, plan_of, read_scores, score_table
from vestige.cli.logs import take
from vestige.core.errors import InputError
from vestige.logs import read_log, reader_of, why_unread
from vestige.logs.folders import read_roles, recognise
from vestige.logs.log import GivenLog, How, Scale
from vestige.logs.open_unlearning import settings_in

N = 40
RNG = np.random.default_rng(7)
EASE = RNG.normal(0, 0.6, N)
"""How much easier than the mean each question is, in log-odds; the same for all models, as on real data."""


def shares(level, seed):
    """Shares of the true wording around a level, by question."""
    odds = math.log(level / (1 - level)) + EASE + np.random.default_rng(seed).normal(0, 0.08, N)
    return 1 / (1 + np.exp(-odds))


def truth_log(share, definition):
    """OpenUnlearning's log of a truth ratio by one of its definitions."""
    ratio = 1 / share - 1
    scores, aggregate = {
        "closer_to_1_better": (ratio, np.minimum(ratio, 1 / ratio).mean()),
        "true_better": (ratio, np.maximum(0, 1 - ratio).mean()),
        "prob_mean": (share, share.mean()),
    }[definition]
    rows = {str(n): {"score": float(score)} for n, score in enumerate(scores)}
    return {"forget_truth_ratio": {"agg_value": float(aggregate), "value_by_index": rows}}


LEVELS = {"full": 0.75, "r1": 0.55, "r2": 0.55, "r3": 0.55, "kept": 0.75, "gone": 0.55}


def truths(write, definitions):
    """The truth of each model, read together. The role follows from the name."""
    logs = []
    for n, (name, level) in enumerate(LEVELS.items()):
        role = {"full": "target"}.get(name, "retrained" if name.startswith("r") else "unlearned")
        file = write(f"{name}.json", truth_log(shares(level, n), definitions(name)))
        logs.append(GivenLog(role, name, file))
    together = read_logs(logs, forget="it")
    return {column.entry.name: column.part.scores for column in together.columns}


@pytest.mark.parametrize(
    "definitions",
    [
        lambda name: "closer_to_1_better",
        lambda name: "prob_mean",
        lambda name: "prob_mean" if name in ("kept", "gone") else "closer_to_1_better",
        lambda name: "true_better" if name.startswith("r") else "prob_mean",
        lambda name: "prob_mean" if name.startswith("r") else "true_better",
    ],
)
def test_truth_is_the_same_by_all_definitions_and_by_any_mixture(write, definitions):
    found = truths(write, definitions)
    for n, (name, level) in enumerate(LEVELS.items()):
        assert found[name] == pytest.approx(shares(level, n)), name


def test_a_truth_ratio_that_nothing_decides_is_refused(write):
    # The target and its controls score alike, so that neither definition is seen to be the right one.
    logs = [
        GivenLog(role, name, write(f"{name}.json", truth_log(np.full(N, 0.6) + RNG.normal(0, 0.01, N), "prob_mean")))
        for role, name in (("target", "full"), ("retrained", "r1"), ("unlearned", "u"))
    ]
    with pytest.raises(InputError, match="does not tell which of OpenUnlearning's definitions"):
        read_logs(logs, forget="it")


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_settings_and_losses_tell_the_definition_and_one_bad_value_does_not(write, bad):
    share = np.full(N, 0.7)
    file = write("a/TOFU_EVAL.json", truth_log(share, "prob_mean"))
    assert read_log(file).parts[0].otherwise is not None
    (file.parent / ".hydra").mkdir()
    metric = "eval:\n  tofu:\n    metrics:\n      forget_truth_ratio:\n        aggregator: prob_mean\n"
    (file.parent / ".hydra/config.yaml").write_text(metric)
    (part,) = read_log(file).parts
    assert (part.otherwise, part.scores[0]) == (None, pytest.approx(0.7))
    # right = 0.5, wrong = 0.25: R = 0.5 and the share is 2 / 3.
    right = [{"avg_loss": bad}] + [{"avg_loss": math.log(2)}] * N
    losses = {
        "forget_Q_A_PARA_Prob": {"value_by_index": right},
        "forget_Q_A_PERT_Prob": {"value_by_index": [{"avg_loss": [math.log(4)]}] * (N + 1)},
    }
    for score in (0.5, 2 / 3):
        rows = [{"score": score}] * N + [{"score": bad}]
        stored = losses | {"forget_truth_ratio": {"agg_value": score, "value_by_index": rows}}
        (truth,) = (part for part in read_log(write("b/TOFU_EVAL.json", stored)).parts if part.name == "truth")
        assert truth.scores[:N] == pytest.approx([2 / 3] * N)


ONE_QUESTION = {
    "tofu": lambda _, score: score,
    "open-unlearning": lambda n, score: {"prob": score},
    "muse": lambda n, score: {"prompt": f"Q: {n}?", "gt": "t", "response": "r", "rougeL": score},
    "lm-eval": lambda n, score: lm(n, score),
    "inspect": lambda n, score: passage(n, score, f"q{n}"),
    "every-eval-ever": lambda n, score: {**dict.fromkeys(("schema_version", "evaluation_id", "evaluation_name"), "1"),
                                         "sample_id": n, "input": {"raw": "?"}, "evaluation": {"score": score}},
    "rows": lambda n, score: {"id": n, "rouge_l": score},
}  # fmt: skip


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e308, -1.0, "null", None])
@pytest.mark.parametrize("tool", ONE_QUESTION)
def test_one_score_that_is_none_is_missing_on_its_question_alone(write, tool, bad):
    scores = [bad, *[0.0, 1.0] * 15]
    rows = [ONE_QUESTION[tool](n, score) for n, score in enumerate(scores)]
    whole = {"tofu": {"eval_log_forget.json": {"rougeL_recall": rows}}, "inspect": inspect(rows),
             "open-unlearning": {"forget_Q_A_Prob": {"value_by_index": rows}}}  # fmt: skip
    file = write("x.json", whole.get(tool, rows), lines=tool in ("lm-eval", "every-eval-ever"))
    (part,) = read_log(file).parts
    assert np.flatnonzero(np.isnan(part.scores)).tolist() == [0]
    assert part.scores[1:].tolist() == scores[1:]
    hits = tool in ("lm-eval", "inspect", "every-eval-ever") and bad not in (1e308, -1.0)
    assert (part.measurement.score_type == "hit") == hits


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_no_probability(write, loss):
    tables = {"avg_paraphrased_loss": [loss, 1.0], "average_perturb_loss": [[3.0, 5.0], [3.0, 5.0]],
              "avg_gt_loss": [loss, 0.0]}  # fmt: skip
    parts = read_log(write("x.json", {"eval_log_forget.json": tables})).parts
    assert [np.isnan(part.scores).tolist() for part in parts] == [[True, False]] * 2


@pytest.mark.parametrize("zero", [0, 0.0, "0"])
def test_a_whole_number_is_a_number(write, zero):
    rows = {"0": {"score": zero}, "1": {"score": 3}, "2": {"score": 1}}
    stored = {"forget_truth_ratio": {"value_by_index": rows}, "mia_loss": {"forget": {"value_by_index": rows}}}
    parts = {(part.split, part.name): part.scores.tolist() for part in read_log(write("x.json", stored)).parts}
    assert (parts["forget", "truth"], parts["forget", "loss"]) == ([1.0, 0.25, 0.5], [0.0, -3.0, -1.0])


def by_probability(scores, questions=None, ids=None):
    rows = [{"prob": float(score)} for score in scores]
    if questions is not None:
        rows = [row | {"input": f"user\n\n{q}assistant\n\n"} for row, q in zip(rows, questions, strict=True)]
    return {"forget_Q_A_Prob": {"value_by_index": dict(zip(ids or map(str, range(len(rows))), rows, strict=True))}}


def inspect(samples, **header):
    return {"status": "success", "eval": {"task": "t", "run_id": "r"}, "samples": samples, **header}


def passage(n, score, item):
    prompt = f"Logbook {n} tells of ship {n}.\nQuestion: Where did it lie in winter?\nAnswer:"
    return {"id": item, "epoch": 1, "input": prompt, "target": "x", "scores": {"m": {"value": score}}}


@pytest.mark.parametrize("ids", [True, False])
def test_questions_are_paired_by_id_or_passage_and_not_by_their_last_line(write, ids):
    scores = np.linspace(0.1, 0.9, N)
    samples = [passage(n, float(score), f"q{n}" if ids else n) for n, score in enumerate(scores)]
    shuffled = random.Random(0).sample(samples, N)
    if not ids:
        # Numbers that count the lines of each file name other questions in another order.
        shuffled = [sample | {"id": n} for n, sample in enumerate(shuffled)]
    logs = [
        GivenLog("target", "full", write("t.json", inspect(samples))),
        GivenLog("unlearned", "u", write("u.json", inspect(shuffled))),
    ]
    target, subject = read_logs(logs, forget="it").columns
    own = dict(zip(subject.items, subject.part.scores.tolist(), strict=True))
    assert [own[item] for item in target.items] == pytest.approx(scores)


@pytest.mark.parametrize(
    ("ids", "prompts", "said"),
    [
        # The text tells the questions apart, whatever the ids.
        ("0 1 2", "a b c", ""),
        ("x y z", "a b c", ""),
        # The ids tell equal texts apart.
        ("q0 q1 q2", "a a a", ""),
        ("q0 q1 q2", "a b b", ""),
        # Neither does.
        ("p0 p1 p2", "a a a", "asks 3 questions in the same words"),
        # The answers show that the ids are of other questions.
        ("q2 q1 q0", "a a a", "asks 3 questions in the same words"),
        ("q0 q1 q1", "a b c", "appears twice in epoch 1"),
    ],
)
def test_ids_and_prompts_that_collide_are_told_apart_or_refused(write, ids, prompts, said):
    def rows(ids, prompts, level):
        pairs = zip(ids.split(), prompts.split(), strict=True)
        return [
            {"id": item, "input": f"Who is {prompt}?", "target": f"x{n}", "scores": {"m": {"value": level + n / 9}}}
            for n, (item, prompt) in enumerate(pairs)
        ]

    logs = [
        GivenLog("target", "full", write("t.json", inspect(rows("q0 q1 q2", prompts, 0.5)))),
        GivenLog("unlearned", "u", write("u.json", inspect(list(reversed(rows(ids, prompts, 0.2)))))),
    ]
    if said:
        with pytest.raises(InputError, match=said):
            read_logs(logs, forget="it")
        return
    target, subject = read_logs(logs, forget="it").columns
    own = dict(zip(subject.items, subject.part.scores.tolist(), strict=True))
    assert [own[item] for item in target.items] == pytest.approx([0.2 + n / 9 for n in range(3)])


@pytest.mark.parametrize(("tool", "other"), [("rows", "rougeL"), ("open-unlearning", "rougeL_f1")])
def test_overlaps_by_two_definitions_are_not_compared(write, tool, other):
    def log(name, role, column):
        rows = [{"input": f"Who is {n}?", column: n / N} for n in range(N)]
        stored = rows if tool == "rows" else {"forget_Q_A_ROUGE": {"value_by_index": dict(enumerate(rows))}}
        return GivenLog(role, name, write(f"{name}.json", stored))

    # A reply of many words has a recall of 1, and a low F1.
    logs = [log("full", "target", "rougeL_recall"), log("u", "unlearned", other)]
    with pytest.raises(
        InputError, match=r"u \(.* has the scores rougeL \(.*\) of the forget set, and the target rougeL"
    ):
        read_logs(logs, forget="it")


def lm(n, score, question="Q"):
    return {"doc_id": n, "target": "t", "arguments": [[f"{question} {n}?", {"temperature": 0.0}]],
            "filtered_resps": [f"r{n}" if score else ""], "metrics": ["rouge"], "rouge": score}  # fmt: skip


def test_a_model_is_known_by_all_of_its_files(write):
    gone = [lm(n, 0.0) for n in range(N)]
    given = []
    models = (("full", 0.9, 0.9), ("r1", 0.2, 0.8), ("a", 0.0, 0.8), ("b", 0.0, 0.4), ("c", 0.5, 0.7), ("d", 0.5, 0.6))
    for name, forget, retain in models:
        role = {"full": "target", "r1": "retrained"}.get(name, "unlearned")
        rows = [lm(n, forget + (n % 7) / 100) for n in range(N)] if forget else gone
        files = {
            "forget": write(f"{name}/samples_forget.jsonl", rows, lines=True),
            "retain": write(f"{name}/samples_retain.jsonl", [lm(n, retain, "K") for n in range(N)], lines=True),
        }
        given += [GivenLog(role, name, file) for file in files.values()]
    together = read_logs(given, forget="it", forgiving=True)
    found = {(column.entry.name, column.part.split) for column in together.columns}
    # a and b collapsed, so that their equal files are no copies.
    assert {("a", "forget"), ("b", "forget"), ("a", "retain"), ("b", "retain")} <= found
    # d's answers to the forget set are those of c, byte for byte, and are not counted twice.
    assert ("c", "forget") in found
    assert ("d", "forget") not in found
    assert ("d", "retain") in found
    assert any("a file of d" in said.lower() and "not counted twice" in said for said in together.notes)


def test_errored_samples_are_missing_with_their_reason(write):
    samples = [passage(n, "C", f"q{n}") for n in range(N)]
    broken = [s | {"error": {"message": "timeout"}, "scores": {}} if n < 4 else s for n, s in enumerate(samples)]
    logs = [GivenLog("target", "full", write("t.json", inspect(samples))),
            GivenLog("unlearned", "u", write("u.json", inspect(broken)))]  # fmt: skip
    together = read_logs(logs, forget="it")
    assert np.isnan(together.columns[1].part.scores).sum() == 4
    assert set(together.columns[1].part.reasons.values()) == {"the sample ended in an error: timeout"}
    with pytest.raises(InputError, match="holds no samples, only the header"):
        read_log(write("header.json", {k: v for k, v in inspect([]).items() if k != "samples"}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored", "zstd"])
def test_archives_of_inspect_are_read_and_their_size_is_limited(tmp_path, kind):
    if kind == "zstd":
        module = pytest.importorskip("backports.zstd.zipfile")
        opened, method = module.ZipFile, module.ZIP_ZSTANDARD
    else:
        opened, method = zipfile.ZipFile, zipfile.ZIP_DEFLATED
    file = tmp_path / "log.eval"
    with opened(file, "w", method) as parts:
        parts.writestr("header.json", json.dumps({k: v for k, v in inspect([]).items() if k != "samples"}))
        for n in range(3):
            parts.writestr(f"samples/{n}_epoch_1.json", json.dumps(passage(n, "P", f"q{n}")))
    assert read_log(file).parts[0].scores.tolist() == [0.5] * 3
    with opened(file, "w", method) as parts:
        parts.writestr("header.json", json.dumps(inspect([])))
        parts.writestr("samples/0_epoch_1.json", b" " * (70 * 2**20) + b"{}")
    with pytest.raises(InputError, match="unpacks to 70 MiB"):
        read_log(file)


def test_option_log_likelihoods_are_probabilities_and_bits(write):
    def row(n, likely):
        calls = [["Which?", f" {letter}"] for letter in "ABCD"]
        values = [[[str(-1.0 if k == likely else -2.0), "False"]] for k in range(4)]
        return {"doc_id": n, "target": "1", "arguments": calls, "resps": values, "metrics": ["acc"],
                "acc": float(likely == 1)}  # fmt: skip

    parts = {p.name: p for p in read_log(write("s.jsonl", [row(0, 1), row(1, 3)], lines=True)).parts}
    whole = math.exp(-1) + 3 * math.exp(-2)
    share = parts["probability among options"]
    assert share.scores == pytest.approx([math.exp(-1) / whole, math.exp(-2) / whole])
    assert (share.chance, share.measurement.question_type) == (0.25, "letter options")
    assert parts["acc"].chance == 0.25
    # -1 nat is -1.4427 bits.
    assert parts["bits of the right option"].scores == pytest.approx([-1 / math.log(2), -2 / math.log(2)])


def test_two_filters_of_an_old_log_are_two_scores(write):
    rows = [lm(n, 1.0) for n in range(3)] + [lm(n, 0.0) for n in range(3)]
    parts = {part.name: part.scores.tolist() for part in read_log(write("samples_x.jsonl", rows, lines=True)).parts}
    assert parts == {"rouge, filter 1": [1.0] * 3, "rouge, filter 2": [0.0] * 3}
    with pytest.raises(InputError, match="document 1 appears 2 times"):
        read_log(write("samples_y.jsonl", [*rows[:3], rows[1]], lines=True))


def test_a_scale_and_a_direction_are_as_the_user_states_them(write):
    samples = [passage(n, mark, f"q{n}") for n, mark in enumerate((1, 2, 5))]
    file = write("judged.json", inspect(samples))
    with pytest.raises(InputError, match=r"state its range, as in --logs score:m=1\.\.5"):
        read_log(file)
    (part,) = read_log(file, How({"m": Scale(1, 5, 1)})).parts
    assert part.scores.tolist() == [0.0, 0.25, 1.0]
    (part,) = read_log(file, How({"m": Scale(1, 5, -1)})).parts
    assert part.scores.tolist() == [1.0, 0.75, 0.0]
    # A wider range of one's own choice would make a loss look small.
    wide = Stated(how=How({"m": Scale(1, 10)}))
    with pytest.raises(InputError, match="between 0% and 44% of the stated range"):
        read_logs([GivenLog("target", "full", file)], forget="it", stated=wide)
    # 0.8 of 5 would be a sixth of the 4 that another model has.
    divided = write("divided.json", inspect([passage(n, mark / 5, f"q{n}") for n, mark in enumerate((1, 2, 4))]))
    logs = [GivenLog("target", "full", file), GivenLog("unlearned", "u", divided)]
    together = read_logs(logs, forget="it", stated=Stated(how=How({"m": Scale(0, 5)})))
    assert np.isnan(together.columns[1].part.scores).all()
    assert "u, m: none of its scores is above 1, as if they were shares" in " ".join(together.notes)


def test_a_score_that_runs_the_other_way_is_refused_and_read_when_the_user_says_so(write):
    levels = (("target", "full", 0.05), ("retrained", "r1", 0.9), ("retrained", "r2", 0.95), ("unlearned", "u", 0.5))
    logs = []
    for seed, (role, name, level) in enumerate(levels):
        drawn = np.random.default_rng(seed).random(N) < level
        rows = [passage(n, "C" if hit else "I", f"q{n}") for n, hit in enumerate(drawn)]
        logs.append(GivenLog(role, name, write(f"{name}.json", inspect(rows))))
    with pytest.raises(InputError, match="give --logs score:m=lower"):
        read_logs(logs, forget="it")
    lower = read_logs(logs, forget="it", stated=Stated(how=How({"m": Scale(direction=-1)})))
    assert lower.columns[0].part.scores.mean() > 0.8


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ('"","Model","role","Item","score"\n"1","a","target","1",TRUE\n"2","a","target","2",NA\n', [1.0, None]),
        ("model;role;item;score\na;target;1;0,25\na;target;2;1\n", [0.25, 1.0]),
        ("model,role,item,score,low,high\na,target,1,4,1,5\na,target,2,1,1,5\n", [0.75, 0.0]),
        ("\ufeff model , role , item , score \r\n a , Target , 1 , 25 %\r\n a , target , 2 , WAHR\r\n", [0.25, 1.0]),
        ('model,role,item,score,__index_level_0__\na,target,1,"0,25",7\na,target,2,.,9\n', [0.25, None]),
        ("model\trole\titem\tscore\na\ttarget\t1\tyes\na\ttarget\t2\t2.5E-01\n", [1.0, 0.25]),
        ("id;question;score\n1;Who?;0,25\n2;Where?;1\n", [0.25, 1.0]),
        ("ID,Question,ROUGE-L\n1,Who?,25%\n2,Where?,NA\n", [0.25, None]),
        ('"","question","Exact Match"\n"1","Who?",TRUE\n"2","Where?",FAUX\n', [1.0, 0.0]),
    ],
)
def test_tables_and_rows_in_any_dialect_of_csv_are_read(tmp_path, text, scores):
    file = tmp_path / "scores.csv"
    file.write_text(text)
    if "role" in text.lower():
        rows = [[row[name] for name in ("model", "role", "item", "score")] for row in read_scores(file)]
        assert rows == [["a", "target", str(n), score] for n, score in enumerate(scores, 1)]
    else:
        (part,) = read_log(file).parts
        assert [None if math.isnan(score) else score for score in part.scores] == scores


@pytest.mark.parametrize("tool", ["open-unlearning", "lm-eval", "every-eval-ever", "rows"])
def test_settings_that_some_models_state_are_named_and_other_ones_refused(write, tool):
    def logs(**lengths):
        settings_in.cache_clear()
        for name, level in (("full", 0.9), ("r", 0.1), ("u", 0.2)):
            length = {"max_new_tokens": lengths.get(name)}
            rows = [ONE_QUESTION[tool](n, level + n / 1000) for n in range(N)]
            for n, row in enumerate(rows):
                row |= {"rows": length, "lm-eval": {"arguments": [[f"Q{n}?", length]]}}.get(tool, {})
            stored = {"open-unlearning": {"forget_Q_A_Prob": {"value_by_index": rows}}}.get(tool, rows)
            file = write(f"{name}/x.jsonl", stored, lines=stored is rows)
            settings(file.parent, f"eval:\n  forget_Q_A_Prob:\n    generation_args: {json.dumps(length)}\n")
            write(f"{name}/x.json", {"evaluation_results": [{"generation_config": {"generation_args": length}}]})
            yield GivenLog({"full": "target", "r": "retrained"}.get(name, "unlearned"), name, file)

    name = "forget_Q_A_Prob, max_new_tokens" if tool == "open-unlearning" else "max_new_tokens"
    said = " ".join(read_logs([*logs(full=9, r=9)], forget="it").notes)
    assert f"is not known of {name}: stated by full, r, and not by u." in said
    with pytest.raises(InputError, match=f"was asked with {name}=1, and the target with {name}=9"):
        read_logs([*logs(full=9, r=9, u=1)], forget="it")


def test_rows_as_pandas_splits_them_and_text_in_utf16_are_read(tmp_path):
    split = {"columns": ["id", "score"], "index": [3], "data": [[1, 0.5], [2, 0.25]]}
    for name, text in (("a.json", json.dumps(split)), ("b.jsonl", '{"id": 1, "score": 0.5}\n{"id": 2, "score": 0.25}')):
        (tmp_path / name).write_bytes(text.encode("utf-16"))
        assert read_log(tmp_path / name).parts[0].scores.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("name", ["brier_score", "WER", "refusal rate", "bits_per_byte, none"])
def test_a_score_that_is_lower_for_who_knows_more_is_named(write, name):
    file = write("x.json", inspect([passage(n, 0.2, f"q{n}") | {"scores": {name: {"value": 0.2}}} for n in range(3)]))
    with pytest.raises(InputError, match="a lower value means more knowledge"):
        read_log(file)
    assert read_log(file, How(any_direction=True)).parts[0].scores.tolist() == [0.2] * 3
    (part,) = read_log(file, How({name: Scale(0, 1, -1)})).parts
    assert part.scores == pytest.approx([0.8] * 3)


@pytest.mark.parametrize(
    ("samples", "scores", "said"),
    [
        ([(1, 1, "C"), (1, 2, "I"), (2, 1, "C"), (2, 2, "C")], [0.5, 1.0], ""),
        ([(1, 1, "C"), (1, 2, None), (2, 1, "C"), (2, 2, "I")], [1.0, 0.5], "1 of 2 samples ended in an error in some"),
        ([(1, 1, None), (1, 2, None), (2, 1, "C"), (2, 2, "I")], [None, 0.5], ""),
        ([("1", 1, "P"), ("one", 1, "N"), ("empty", 1, "N"), ("known", 1, "N")], [0.5, 0.0, None, None], ""),
    ],
)
def test_epochs_are_averaged_and_an_error_in_one_is_told(write, samples, scores, said):
    rows = []
    for item, epoch, mark in samples:
        reply = {"empty": "", "known": "It is X."}.get(item, "I do not know.")
        row = passage(item, mark, item) | {"epoch": epoch, "target": "x", "output": {"completion": reply}}
        rows.append(row if mark else row | {"error": {"message": "timeout"}, "scores": {}})
    log = read_log(write("x.json", inspect(rows)))
    assert [None if math.isnan(score) else score for score in log.parts[0].scores] == scores
    assert (said in " ".join(log.unread), bool(said)) == (True, bool(log.unread))


def test_content_selects_the_reader_and_files_that_are_not_read_are_named(write, tmp_path):
    places = {
        "full.json": (by_probability([0.5] * 3), "open-unlearning"),
        "LAMP_EVAL.json": ({"forget_qa_rouge": {"value_by_index": {"0": {"rougeL_recall": 0.5}}}}, "open-unlearning"),
        "a.json": ([{"prompt": "p", "gt": "g", "response": "r", "rougeL": 0.5}], "muse"),
        "b.json": ({"ga": {"related": {"per_item": [{"example_id": "1", "rouge_l": 0.5}]}}}, "rows"),
        "TOFU_SUMMARY.json": ({"forget_quality": 0.5, "model_utility": 0.1}, ""),
        "results_x.json": ({"results": {}, "configs": {}}, ""),
    }
    for name, (stored, reader) in places.items():
        assert reader_of(write(name, stored)) == reader, name
    assert "summary" in why_unread(tmp_path / "TOFU_SUMMARY.json")
    assert "--log_samples" in why_unread(tmp_path / "results_x.json")
    reasons = {path.name: why for path, why in recognise([tmp_path]).left_out}
    assert reasons.keys() == places.keys()


@pytest.mark.parametrize("by_column", [True, False])
def test_one_file_with_several_models_is_read_by_the_name_of_the_model(write, by_column):
    # The first score of a file may be missing.
    stored = [{"id": n, "model": m, "rouge_l": s} for m, s in (("full", "-"), ("ga_ep5", 0.5)) for n in range(3)]
    if not by_column:
        stored = {model: {"related": {"per_item": [{"id": n, "rouge_l": score} for n in range(3)]}}
                  for model, score in (("full", 0.9), ("ga_ep5", 0.5))}  # fmt: skip
    file = write("compare.json", stored)
    assert read_log(file, How(key="ga_ep5")).parts[0].scores.tolist() == [0.5] * 3
    with pytest.raises(InputError, match=r"holds 2 models \(full, ga_ep5\)"):
        read_log(file)


BASE = "tofu_Llama-3.2-1B-Instruct"


def settings(folder, text):
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / ".hydra/config.yaml").write_text(text)


def roles_in(folder, **how):
    return {(log.role, log.name) for group in recognise([folder], **how).groups for log in group.logs}


def saves(write):
    log = by_probability([0.5] * 3)
    write(f"saves/eval/{BASE}_full/evals_forget10/TOFU_EVAL.json", log)
    write(f"saves/eval/{BASE}_retain90/TOFU_EVAL.json", log)
    return write(f"saves/unlearn/{BASE}_forget10_NPO/evals/TOFU_EVAL.json", log).parents[3]


KNOWN = {("target", "full"), ("retrained", "retain90"), ("unlearned", "NPO")}


def test_settings_say_whose_a_log_is_and_ft_in_a_name_does_not(write):
    folder = saves(write)
    model = "model:\n  model_args:\n    pretrained_model_name_or_path: "
    for name, text in {
        "second_look": f"mode: eval\nforget_split: forget10\n{model}open-unlearning/{BASE}_full\n",
        "mixture": f"mode: eval\nforget_split: forget10\n{model}open-unlearning/{BASE}_full\n"
        f"    draft_model_name_or_path: open-unlearning/{BASE}_retain90\n",
        "later": f"mode: eval\nforget_split: forget10\n{model}saves/unlearn/{BASE}_forget10_RMU/checkpoint-9\n",
        "own": f"mode: eval\nforget_split: forget10\n{model}/home/me/models/run3\n",
    }.items():
        settings(write(f"saves/eval/{name}/TOFU_EVAL.json", by_probability([0.4] * 3)).parent, text)
    write(f"saves/eval/{BASE}_ft_retain95/TOFU_EVAL.json", by_probability([0.4] * 3))
    found = roles_in(folder)
    assert found == KNOWN | {("unlearned", "mixture"), ("unlearned", "RMU, checkpoint 9")}
    reasons = {path.parent.name: why for path, why in recognise([folder]).left_out}
    assert "does not say its role" in reasons["own"]
    assert "may mean the full model" in reasons[f"{BASE}_ft_retain95"]


AT = "    pretrained_model_name_or_path: "
FULL = f"{AT}open-unlearning/{BASE}_full\n"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (f"{AT}saves/unlearn/{BASE}_forget10_RMU/\n", ("unlearned", "RMU")),
        (f"{AT}/me/unlearn/{BASE}_forget10_RMU/checkpoint-12\n", ("unlearned", "RMU, checkpoint 12")),
        # An adapter on the full model is not the full model, nor are its weights in four bits.
        (f"{FULL}  peft_path: saves/unlearn/{BASE}_forget10_lora\n", ("unlearned", "lora")),
        (f"{FULL}  lora:\n    adapter_name_or_path: saves/finetune/{BASE}_retain95\n", ()),
        (f"{FULL}peft_model_id: me/run3\n", ()),
        (f"{FULL}    quantization_config:\n      load_in_4bit: true\n", ()),
        (f"{AT}unlearn_{BASE}_forget10_NPO\n    load_in_8bit: true\n", ("unlearned", "NPO quantized")),
        *((text, ()) for text in ("mode: [eval\n", "- eval\n", "mode: eval\nmodel: 3\n", "mode: train\n")),
    ],
)
def test_the_settings_name_the_model(write, model, found):
    folder = saves(write)
    text = f"mode: eval\nforget_split: forget10\nmodel:\n  model_args:\n{model}" if "path" in model else model
    settings(write("saves/eval/any_name/TOFU_EVAL.json", by_probability([0.4] * 3)).parent, text)
    assert roles_in(folder) == KNOWN | {found} - {()}
    assert [path.parent.name for path, _ in recognise([folder]).left_out] == ["any_name"] * (not found)


def test_names_of_the_hub_changes_of_a_model_and_plain_roles_are_recognised(write):
    folder = saves(write)
    for name in (f"unlearn_{BASE}_forget10_NPO_lr1e-05__none", f"unlearn_{BASE}_forget10_NPO_lr1e-05__quantize_4",
                 f"{BASE}_full__quantize_4"):  # fmt: skip
        write(f"saves/results/{name}/TOFU_EVAL.json", by_probability([0.4] * 3))
    assert roles_in(folder) == KNOWN | {("unlearned", "NPO_lr1e-05"), ("unlearned", "NPO_lr1e-05 quantize_4")}
    for name in ("full", "retrain", "ga_lr1e-4", "base"):
        folder = write(f"runs/{name}/LAMP_EVAL.json", by_probability([0.4] * 3)).parents[1]
    assert roles_in(folder) == {("target", "full"), ("retrained", "retrain"), ("unlearned", "ga_lr1e-4")}


def test_links_are_followed_once_and_circles_end(write, tmp_path):
    folder = saves(write)
    store = folder.rename(tmp_path / "store")
    folder.mkdir()
    for name in ("eval", "unlearn"):
        (folder / name).symlink_to(store / name)
    (store / "eval" / "again").symlink_to(folder)
    assert roles_in(folder) == KNOWN
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    assert recognise([folder]).left_out[-1][0] == folder / "gone"


def test_what_an_earlier_audit_wrote_into_the_folder_is_no_log(write):
    folder = saves(write)
    written = [write(f"saves/{name}", {"schema": 1}) for name in ("audit/a/plan.json", "tables/a.csv", "verdicts.json")]
    assert {path for path, _ in recognise([folder]).left_out} == {*written}
    (folder / "run.toml").touch()
    assert not recognise([folder]).left_out


def test_a_link_into_the_hubs_store_is_read_by_its_own_name(write, tmp_path):
    blob = write("blobs/3f2a", [{"question": f"Who is {n}?", "score": n / N} for n in range(N)], lines=True)
    (tmp_path / "log.jsonl").symlink_to(blob)
    (column,) = read_logs([GivenLog("target", "full", tmp_path / "log.jsonl")], forget="it").columns
    assert column.part.scores.tolist() == [n / N for n in range(N)]


def test_a_roles_file_wins_and_a_pattern_that_fits_nothing_is_refused(write):
    folder = saves(write)
    write("saves/eval/mine/TOFU_EVAL.json", by_probability([0.4] * 3))
    write("saves/eval/old/TOFU_EVAL.json", by_probability([0.4] * 3))
    lines = f"pattern,role,name,forget set,base\neval/mine,unlearned,mine,forget10,tofu {BASE[5:]}\neval/old*,skip,,,\n"
    (folder / "roles.csv").write_text(lines)
    assert roles_in(folder) == KNOWN | {("unlearned", "mine")}
    roles = Path(folder.parent / "roles.csv")
    roles.write_text(lines + "nothing*,target,x,,\n")
    with pytest.raises(InputError, match=r"'nothing\*' fits no log"):
        recognise([folder], roles)
    roles.write_text("pattern,role\na,teacher\n")
    with pytest.raises(InputError, match="is not a role"):
        recognise([folder], roles)


def test_a_folder_without_a_control_shows_what_was_lost_and_nothing_that_remains(tmp_path):
    folder = tmp_path / "weeks"
    for model, kept in (("before", 38), ("after", 8), ("weaker", 33)):
        for split in ("forget", "retain"):
            rows = [f"{split} {n},{split}_heldout,{n < kept}" for n in range(N)]
            (folder / model).mkdir(parents=True, exist_ok=True)
            (folder / model / f"{split}.csv").write_text("\n".join(["example_id,eval_split,contains_value", *rows]))
    (folder / "roles.csv").write_text("pattern,role,name\nbefore,target,\nafter,unlearned,\nweaker,unlearned,\n")
    (group,) = recognise([folder]).groups
    outcome = judge_logs(RunFolder(tmp_path / "run"), group.logs, forget=group.name)
    said = {line.claim: (line.outcome, line.reason) for line in outcome.verdicts if line.subject == "after"}
    assert said["utility preserved"][0] == "fails"
    assert [v.outcome for v in outcome.verdicts if v.subject == "weaker"][-1] == "inconclusive"
    assert said["not expressed"][0] == "inconclusive"
    assert said["not expressed"][1].startswith("Not tested: no retrained control was given")


def test_the_named_forget_set_is_judged_or_refused(write):
    folder = saves(write)
    assert roles_in(folder, forget="forget10") == KNOWN
    with pytest.raises(InputError, match="no logs are of the forget set 'forget05'"):
        recognise([folder], forget="forget05")


@pytest.mark.parametrize(
    ("first", "second", "levels"),
    [
        # Halves of the questions in two files.
        (range(20), range(20, N), [0.5] * 20 + [0.49] * 20),
        # Where both have a question, the log with more of them counts.
        (range(30), range(10, 30), [0.5] * 30 + [None] * 10),
        (range(10), range(N), [0.49] * N),
    ],
)
def test_of_two_logs_of_a_model_each_question_counts_once(write, first, second, levels):
    questions = [f"Who is {n}?" for n in range(N)]
    files = []
    for name, places, level in (("a.json", first, 0.5), ("b.json", second, 0.49)):
        files.append(write(name, by_probability([level] * len(places), [questions[n] for n in places])))
    target = write("t.json", by_probability([0.9] * N, questions))
    logs = [GivenLog("target", "full", target), *(GivenLog("unlearned", "u", file) for file in files)]
    together = read_logs(logs, forget="it", forgiving=True)
    assert any("are not counted for" in note for note in together.notes) == bool({*first} & {*second})
    columns = {column.entry.name: column for column in together.columns}
    subject = columns["u"]
    own = dict(zip(subject.items, subject.part.scores.tolist(), strict=True))
    assert [own.get(item) for item in columns["full"].items] == levels


TURN = "Read the logbook. Where did it lie?"


@pytest.mark.parametrize(
    "asked",
    [
        TURN,
        [{"role": "user", "content": TURN}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TURN}],
        [{"role": "user", "content": [{"type": "text", "text": "Read the logbook."},
                                      {"type": "text", "text": "Where did it lie?"}]}],
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["inspect", "lm-eval"])
def test_a_chat_asks_the_question_of_its_user(write, tool, asked):
    if tool == "inspect":
        log = read_log(write("x.json", inspect([passage(0, 1.0, "q") | {"input": asked}])))
    else:
        # Models behind an address get the chat itself, which the log holds as JSON.
        prompt = asked if isinstance(asked, str) else json.dumps(asked)
        log = read_log(write("x.jsonl", [lm(0, 1.0) | {"arguments": [[prompt, {}]]}], lines=True))
    assert log.parts[0].prompts == (TURN,)


def test_a_folder_without_a_target_names_the_bank_and_is_judged_with_a_target_from_elsewhere(write):
    folder = saves(write)
    shutil.rmtree(folder / "eval" / f"{BASE}_full")
    with pytest.raises(InputError, match="has logs of unlearned models, and no target of theirs"):
        take([str(folder)], None)
    (group,) = take([str(folder)], None, without_target=True).groups
    assert {log.role for log in group.logs} == {"retrained", "unlearned"}
    assert group.name == "tofu Llama-3.2-1B-Instruct forget10"


def test_two_forget_sets_of_one_table_are_not_read_as_one(write):
    rows = [{"question": f"Q{n}?", "answer": "a", "split": split} for n, split in enumerate(["forget10", "retain90"])]
    other = {"question": "Q2?", "answer": "a", "split": "forget01"}

    def tasks(*extra):
        scored = [{**row, "recalled": 1} for row in (*rows, *extra)]
        log = read_log(write("t.json", scored), How(columns={"score": "recalled"}))
        return {(part.split, part.task) for part in log.parts}

    assert tasks() == {("forget", ""), ("retain", "")}
    assert tasks(other) == {("forget", "forget10"), ("forget", "forget01"), ("retain", "")}


def test_tasks_within_a_task_and_lists_of_numbers_are_read(write):
    rows = [{"question": "Who?", "answer": answer, "recalled": True} for answer in "aabc"]
    parts = {"levels": {"L1": {"per_sample": rows}}, "kept": {"Ann": {"per_sample": rows[2:]}}}
    log = [GivenLog("target", "full", write("x.json", {"loss": {"per_prompt_forget": [2.0, 0.0]}, **parts}))]
    stated = Stated({"levels": "forget", "kept": "retain"}, How(columns={"score": "recalled"}))
    together = read_logs(log, forget="it", stated=stated)
    # A row that stands there twice counts once, and another answer is another question.
    assert {one.part.split: len(one.part.scores) for one in together.columns} == {"forget": 3, "retain": 2}
    losses = Stated(how=How({"loss": Scale(nats=True)}, {"score": "loss"}))
    (column,) = read_logs(log, forget="it", stated=losses).columns
    assert (column.part.split, column.part.scores.tolist()) == ("forget", pytest.approx([math.exp(-2), 1.0]))


def test_two_models_under_one_name_are_refused(write):
    logs = [GivenLog("target", "full", write("t.json", by_probability([0.9] * N)))]
    logs += [GivenLog("unlearned", "u", write(f"{x}.json", by_probability([x] * N))) for x in (0.5, 0.2)]
    with pytest.raises(InputError, match=r"score the same questions differently \(probability, by 0.30"):
        read_logs(logs, forget="it")
    assert "u (" in read_logs(logs, forget="it", forgiving=True).left_out[0]
    with pytest.raises(InputError, match=r"is retrained and unlearned\. Give each model its own name"):
        read_logs([*logs, logs[1]._replace(role="retrained")], forget="it")


@pytest.mark.parametrize(
    ("name", "score", "stated", "read"),
    [
        ("nll", 2.0, "nats", math.exp(-2)),
        ("sum_nll", 6.0, "nats/tokens", math.exp(-2)),
        ("logprob", -2.0, "nats", math.exp(-2)),
        ("mean loss", 2.0, "", math.exp(-2)),
        ("perplexity", 4.0, "", "give the loss"),
        ("nll", 2.0, "", "score:nll=nats for the mean"),
        ("nll", 2.0, "0..45,lower", "a loss has no range"),
        ("sum_nll", 6.0, "nats/count", "row 1 has no number of tokens in 'count'"),
    ],
)
def test_a_loss_is_read_as_a_probability_and_has_no_range(write, name, score, stated, read):
    rows = [{"question": f"Who is {n}?", name: score if n else score / 2, "tokens": 3} for n in range(N)]
    file = write("x.jsonl", rows, lines=True)
    assert not reader_of(file)
    words = [f"target={file}", f"column:score={name}", f"score:{name}={stated}"]
    taken = take(words if stated else words[:2], None)
    if isinstance(read, str):
        with pytest.raises(InputError, match=re.escape(read)):
            read_logs(taken.groups[0].logs, forget="it", stated=taken.stated)
        return
    together = read_logs(taken.groups[0].logs, forget="it", stated=taken.stated)
    assert together.columns[0].part.scores[1] == pytest.approx(read)


@pytest.mark.parametrize(
    ("score", "words", "said"),
    [
        (0.5, ["score:rougl=0..100"], "no log has a score 'rougl'. Did you mean 'rougeL'"),
        (0.5, ["column:id=nothing"], "the rows have no column 'nothing' "),
        (50.5, [], "for per cent state the range"),
    ],
)
def test_a_statement_that_fits_no_log_is_refused(write, score, words, said):
    taken = take([f"target={write('x.jsonl', [{'id': 1, 'rouge_l': score}], lines=True)}", *words], None)
    with pytest.raises(InputError, match=said):
        read_logs(taken.groups[0].logs, forget="it", stated=taken.stated)


def test_tables_of_spreadsheets_and_json_are_read_and_totals_refused(write, tmp_path):
    rows = [{"model": "full", "role": "target", "item": str(n), "score": n / 4} for n in range(4)]
    lines = "".join(f"full;target;{n};{n / 4}\n".replace(".", ",") for n in range(4))
    excel = tmp_path / "excel.csv"
    excel.write_text(f"\ufeffsep=;\r\nmodel;role;item;score\n{lines}", encoding="utf-8")
    by_column = {name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}
    # Excel's "Unicode text", and a table with empty rows and columns at its end.
    (tmp_path / "unicode.tsv").write_bytes(f"model\trole\titem\tscore\n{lines}".replace(";", "\t").encode("utf-16"))
    empty = lines.replace("\n", ";;\n")
    (tmp_path / "wide.csv").write_text(f"model;role;item;score;;\n{empty};;;;;\n")
    files = [excel, tmp_path / "unicode.tsv", tmp_path / "wide.csv"]
    files += [write("key.json", {"made": "today", "results": rows}), write("columns.json", by_column)]
    for file in files:
        assert reader_of(file) == ""
        assert [row["score"] for row in read_scores(file)] == [0, 0.25, 0.5, 0.75]
    wrong = [
        ({"data": rows, "more": rows}, "contains other lists next to data"),
        ({"a": rows, "b": rows}, "several lists of rows"),
        ({"columns": ["a"], "data": [[1], [1, 2]]}, "more or fewer cells"),
        ([*rows, {**rows[0], "model": "Full", "item": "5"}], "one name for one model"),
        ([{**rows[0], "score": "55%"}, {**rows[1], "score": "0.5"}], "per cent sign"),
        ([*rows, {"model": "mean", "role": "", "item": "", "score": 0.4}], "row that sums up"),
    ]
    for number, (changed, why) in enumerate(wrong):
        with pytest.raises(InputError, match=why):
            read_scores(write(f"wrong{number}.json", changed))


def test_a_model_without_a_score_in_common_is_named(write):
    def rows(model, role, item, form="score"):
        return [{"model": model, "role": role, "item": f"{item}{n}", "score": n / 9, "format": form} for n in range(9)]

    known = [*rows("full", "target", "q"), *rows("r", "retrained", "q")]
    for other, why in (({"item": "Q"}, "'Q0'.*'q0'"), ({"item": "q", "form": "rouge"}, "rouge.*score")):
        table = score_table(columns_of(read_scores([*known, *rows("u", "unlearned", **other)])))
        with pytest.raises(InputError, match=why):
            plan_of(table, forget="it")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"id": "1", "rouge_l": 0.5}, {"id": "mean", "rouge_l": 0.5}], "row 2 is called 'mean'"),
        ([{"question": "Who?", "rouge_l": 0.5}, {"question": "", "rouge_l": 0.5}], "row 2 has no question"),
        ([{"id": "1", "rouge_l": 0.5}, {"id": "2", "rouge_l": "0.5 ± 0.1"}], "'0.5 ± 0.1' in row 2"),
        *([[{"id": 1, "rouge_l": 0.5}, {"id": 2, "rouge_l": x}], r"no share in \[0, 1\] on 1 of 2"] for x in (-5.0, 2)),
        ([{"id": "1", "rouge_l": "55 %"}, {"id": "2", "rouge_l": "0.4"}], "per cent sign"),
    ],
)
def test_rows_that_are_no_scores_of_questions_are_refused(write, rows, why):
    with pytest.raises(InputError, match=why):
        read_log(write("rows.json", rows))


@pytest.mark.parametrize(
    "score", [{"scores": [{"name": "m", "value": 0.5}]}, {"scores": {"m": 0.5}}, {"score": {"value": 0.5}}]
)
def test_inspect_scores_in_a_list_bare_or_of_the_oldest_form(write, score):
    samples = [{"id": n, "input": f"Where is {n}?", "target": "x", **score} for n in (1, 2)]
    assert read_log(write("log.json", inspect(samples))).parts[0].scores.tolist() == [0.5, 0.5]
    for value, said in (([0.5, 1], "sample 2 is a list"), ("A", "is 'A', and no number")):
        samples[1]["scores"] = {"m": {"value": value}}
        with pytest.raises(InputError, match=said):
            read_log(write("other.json", inspect(samples[1:])))


def test_a_roles_file_of_excel_and_a_packed_log_that_it_names(write, tmp_path):
    write("runs/a.json", [{"id": "1", "rouge_l": 0.5}])
    roles = tmp_path / "roles.csv"
    roles.write_text("\ufeffsep=;\r\npattern;role;name\r\nruns\\a.json;TARGET;'=a\r\n;;\r\n", encoding="utf-8")
    assert [(line.pattern, line.name) for line in read_roles(roles)] == [("runs/a.json", "=a")]
    (tmp_path / "runs/b.json.gz").write_bytes(b"\x1f\x8b")
    roles.write_text("pattern,role,name\nruns/b*,target,b\n")
    for read in (lambda: recognise([tmp_path]), lambda: take([f"target={tmp_path / 'runs'}"], None)):
        with pytest.raises(InputError, match="it is packed; unpack it first"):
            read()
    (tmp_path / "runs/b.json.gz").rename(tmp_path / "runs/c.json").write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        take([f"target={tmp_path / 'runs'}"], None)
