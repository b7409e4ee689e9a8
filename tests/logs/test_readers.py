"""Each reader against a log in its form whose every number is known; damaged ones end in a sentence."""

import json
import math
import zipfile

import pytest

from vestige.core.errors import InputError
from vestige.logs import log_files, read_log, reader_of
from vestige.logs.log import read_prompt


def parts_of(log):
    return {(part.split, part.name): part for part in log.parts}


def scores(part):
    return tuple(part.scores.tolist())


def by_index(rows):
    return {"agg_value": 0.5, "value_by_index": {str(n): row for n, row in enumerate(rows)}}


def rouge(score, question, reply="r"):
    text = f"system\n\nToday Date: 1{len(question) % 9} Apr 2025\n\nuser\n\n{question}assistant\n\n"
    return {"rougeL_recall": score, "rougeL_f1": score / 2, "input": text, "ground_truth": "t", "generation": reply}


TOFU_EVAL = {
    "forget_Q_A_Prob": by_index([{"prob": 0.9, "avg_loss": 0.1}, {"prob": 0.2, "avg_loss": 1.6}]),
    "forget_Q_A_ROUGE": by_index([rouge(1.0, "Who?"), rouge(0.5, "What is it?")]),
    "forget_Q_A_PERT_Prob": by_index([{"prob": [0.1]}, {"prob": [0.1]}]),
    "forget_truth_ratio": by_index([{"score": 1.0}, {"score": 3.0}]),
    "forget_mcqa_prob": by_index([{"prob": [0.1, 0.9], "label": " B"}, {"prob": [0.3, 0.7], "label": " A"}]),
    "extraction_strength": by_index([{"score": 0.25}, {"score": 0.5}]),
    "mia_min_k": {"forget": by_index([{"score": 2.0}]), "holdout": by_index([{"score": 6.0}]), "auc": 1.0},
    "retain_Truth_Ratio": by_index([{"score": 0.25}]),
    "forget_something_new": by_index([{"score": 0.1}]),
    "forget_quality": {"agg_value": None},
}


def test_tofu_eval(write):
    file = write("evals/TOFU_EVAL.json", TOFU_EVAL)
    assert reader_of(file) == "open-unlearning"
    log = read_log(file)
    parts = parts_of(log)
    assert (scores(parts["forget", "probability"]), scores(parts["forget", "rougeL"])) == ((0.9, 0.2), (1.0, 0.5))
    assert parts["forget", "rougeL"].questions == ("Who?", "What is it?")
    assert (parts["forget", "rougeL"].answers[0], parts["forget", "rougeL"].replies[0]) == ("t", "r")
    # Shares of the true wording: 1 / (1 + 1) and 1 / (1 + 3).
    assert (scores(parts["forget", "truth"]), scores(parts["retain", "truth"])) == ((0.5, 0.25), (0.8,))
    assert (scores(parts["forget", "choice"]), parts["forget", "choice"].chance) == ((0.9, 0.3), 0.5)
    assert scores(parts["forget", "extraction strength"]) == (0.25, 0.5)
    # What a model was taught scores lower there, and higher here.
    assert (scores(parts["forget", "min_k"]), scores(parts["holdout", "min_k"])) == ((-2.0,), (-6.0,))
    assert parts["holdout", "min_k"].measurement.score_type == "order"
    # Dates change by the day and are no other prompt.
    assert log.prompt == "system Today Date: DATE user QUESTION assistant"
    assert log.unread == ("forget_something_new: a metric that is not known",)
    # Another log's text is the same object, so that a hundred logs hold each question once.
    again = parts_of(read_log(write("other/TOFU_EVAL.json", TOFU_EVAL)))
    assert again["forget", "rougeL"].questions[1] is parts["forget", "rougeL"].questions[1]


def test_values_are_in_the_order_of_their_numbers(write):
    values = {str(n): {"prob": n / 100} for n in (10, 9, 2, 1, 0, 8, 3, 4, 5, 6, 7)}
    file = write("TOFU_EVAL.json", {"forget_Q_A_Prob": {"value_by_index": values}})
    assert scores(read_log(file).parts[0]) == tuple(n / 100 for n in range(11))


def test_muse_eval(write):
    stored = {name: by_index([rouge(0.8, "When?")]) for name in ("forget_knowmem_ROUGE", "forget_verbmem_ROUGE")}
    parts = parts_of(
        read_log(write("MUSE_EVAL.json", stored | {"retain_knowmem_ROUGE": by_index([rouge(0.6, "Why?")])}))
    )
    assert {place: scores(part) for place, part in parts.items()} == {
        ("forget", "knowledge, rougeL"): (0.4,),
        ("forget", "verbatim, rougeL"): (0.4,),
        ("retain", "knowledge, rougeL"): (0.3,),
    }


@pytest.mark.parametrize("listed", [False, True])
def test_eval_log_aggregated(write, listed):
    # exp(-0.5) for the answer; exp(1 - (3 + 5) / 2) = exp(-3) for the truth ratio, so the share is 1 / (1 + exp(-3)).
    tables = {
        "avg_gt_loss": {"0": 0.5},
        "rougeL_recall": {"0": 0.75},
        "avg_paraphrased_loss": {"0": 1.0},
        "average_perturb_loss": {"0": [3.0, 5.0]},
        "generated_text": {"0": ["[INST] Who is she? [/INST]", "the reply", "the answer"]},
    }
    tables = {name: list(table.values()) for name, table in tables.items()} if listed else tables
    file = write("eval_log_aggregated.json", {"eval_log_forget.json": tables, "eval_log.json": tables})
    parts = parts_of(read_log(file))
    assert scores(parts["forget", "probability"]) == (pytest.approx(math.exp(-0.5)),)
    assert scores(parts["retain", "truth"]) == (pytest.approx(1 / (1 + math.exp(-3))),)
    overlap = parts["forget", "rougeL"]
    assert (*overlap.questions, *overlap.replies, *overlap.answers) == ("Who is she?", "the reply", "the answer")


def test_muse_history_and_privleak(write):
    row = {"prompt": "Question: A?\nAnswer: b\n\nQuestion: C?\nAnswer: ", "gt": "d", "response": "e", "rougeL": 0.5}
    file = write("knowmem/out/bbc/ga/step=102/forget/history.json", [row])
    (part,) = read_log(file).parts
    assert (part.split, part.name, scores(part), part.questions) == ("forget", "knowledge, rougeL", (0.5,), ("C?",))
    texts = {"forget": [3.0, 4.0], "holdout": [7.0], "retain2": [5.0]}
    for split, surprises in texts.items():
        write(
            f"privleak/out/bbc/ga/{split}.json",
            [{"text": str(s), "ppl": {"Min-40%": s, "PPL": 1.0}} for s in surprises],
        )
    parts = parts_of(read_log(file.parents[6] / "privleak/out/bbc/ga/forget.json"))
    assert {place: scores(part) for place, part in parts.items()} == {
        ("forget", "min_k"): (-3.0, -4.0),
        ("holdout", "min_k"): (-7.0,),
    }
    # The texts of the retain set beside them are no second log of the forget set.
    read = [path.name for path in log_files(file.parents[6] / "privleak") if reader_of(path)]
    assert read == ["forget.json"]
    (part,) = read_log(write("elsewhere/any.json", [row])).parts
    assert (part.split, part.name) == ("forget", "rougeL")


def test_lm_eval_samples(write):
    def sample(n, score, kind):
        arguments = {
            "gen_args_0": {"arg_0": f"Question: Q{n}?\nAnswer:", "arg_1": {"temperature": 0.0, "until": ["."]}}
        }
        return {"doc_id": n, "doc": {}, "target": f"t{n}", "arguments": arguments, "resps": [["r"]], "filter": kind,
                "filtered_resps": [f"r{n}"], "metrics": ["exact_match"], "exact_match": score}  # fmt: skip

    rows = [sample(1, 0.0, "none"), sample(0, 1.0, "none")]
    log = read_log(write("samples_tofu_2026.jsonl", rows, lines=True))
    (part,) = log.parts
    assert (part.name, scores(part), part.questions, part.replies) == (
        "exact_match", (1.0, 0.0), ("Q0?", "Q1?"), ("r0", "r1"))  # fmt: skip
    assert (log.settings["temperature"], log.settings["until"], part.task) == ("0.0", "['.']", "tofu_2026")
    with pytest.raises(InputError, match=r"document 1 appears 2 times \(filter none\)"):
        read_log(write("samples_twice.jsonl", [*rows, rows[0]], lines=True))
    rows += [sample(0, 1.0, "strict"), sample(1, 1.0, "strict")]
    assert [part.name for part in read_log(write("samples_b.jsonl", rows, lines=True)).parts] == [
        "exact_match", "exact_match, strict"]  # fmt: skip


def inspect_log():
    def sample(n, epoch, mark):
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is {n}?"}]
        return {"id": n, "epoch": epoch, "input": turns, "target": "four", "output": {"completion": f"reply {n}"},
                "scores": {"match": {"value": mark}, "judge": {"value": {"fit": 0.5}}}}  # fmt: skip

    config = {"task": "t", "run_id": "r", "model_generate_config": {"temperature": 0.7}}
    # A sample that ended in an error has no scores.
    failed = {"id": 3, "epoch": 1, "input": "What is 3?", "target": "four", "error": {"message": "out of time"}}
    samples = [sample(1, 1, "C"), sample(1, 2, "I"), sample(2, 1, "P"), failed]
    plan = {"steps": [{"solver": "prompt_template", "params": {"template": "Q: {prompt}"}}, {"solver": "generate"}]}
    return {"status": "success", "eval": config, "plan": plan}, samples


@pytest.mark.parametrize("packed", [False, True])
def test_inspect_logs(write, tmp_path, packed):
    header, samples = inspect_log()
    if packed:
        file = tmp_path / "run.eval"
        with zipfile.ZipFile(file, "w") as parts:
            parts.writestr("header.json", json.dumps(header))
            for n, sample in enumerate(samples):
                parts.writestr(f"samples/{sample['id']}_epoch_{n}.json", json.dumps(sample))
    else:
        file = write("run.json", header | {"samples": samples})
    assert reader_of(file) == "inspect"
    log = read_log(file)
    parts = parts_of(log)
    # Two epochs of the first, one right and one wrong.
    assert scores(parts["forget", "match"])[:2] == scores(parts["forget", "judge, fit"])[:2] == (0.5, 0.5)
    assert math.isnan(parts["forget", "match"].scores[2])
    assert parts["forget", "match"].reasons == {2: "the sample ended in an error: out of time"}
    assert parts["forget", "match"].questions == ("What is 1?", "What is 2?", "What is 3?")
    assert (parts["forget", "match"].ids, parts["forget", "match"].task, log.unread) == (("1", "2", "3"), "t", ())
    asked = {"system message": "Be brief.", "template": "['Q: {prompt}', None]"}
    assert log.settings == {"temperature": "0.7", "words around the question": "QUESTION", **asked}


def test_every_eval_ever(write):
    def sample(n, score, **more):
        return {"schema_version": "0.2.1", "evaluation_id": "e", "model_id": "m", "evaluation_name": "narrativeqa",
                "sample_id": str(n), "interaction_type": "single_turn", "evaluation": {"score": score},
                "input": {"raw": f"Question: Q{n}?\nAnswer:", "reference": ["a", "b"]},
                "output": {"raw": ["r"]}, **more}  # fmt: skip

    rows = [sample(1, 1.0), sample(2, 0.0), sample(3, 0.0, error="timeout")]
    log = read_log(write("anything.jsonl", rows, lines=True))
    (part,) = log.parts
    assert (part.name, part.task, scores(part)[:2], part.questions, part.answers[0]) == (
        "narrativeqa", "narrativeqa", (1.0, 0.0), ("Q1?", "Q2?", "Q3?"), "a, b")  # fmt: skip
    assert math.isnan(part.scores[2])
    assert part.reasons == {2: "the sample ended in an error: timeout"}
    with pytest.raises(InputError, match=r"document 2 appears 2 times \(narrativeqa\)"):
        read_log(write("twice.jsonl", [*rows, rows[1]], lines=True))


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        ("<s>[INST] Who? [/INST]", "Who?"),
        ("<|im_start|>system\nx<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n", "Who?"),
        ("<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|><|start_header_id|>assistant", "Who?"),
        ("You are a helpful assistant.user\n\nWho?assistant\n\n", "Who?"),
        ("Question: A?\nAnswer: b\n\nQuestion: Who?\nAnswer:", "Who?"),
        ("A text that is no question.", "A text that is no question."),
        ("Question: Ou\u0300?\nAnswer:", "O\u00f9?"),
    ],
)
def test_the_question_of_a_prompt_and_what_stands_around_it(prompt, question):
    assert read_prompt(prompt).question == question
    other = read_prompt(prompt.replace("Who", "When"))
    assert other.question == question.replace("Who", "When")
    assert read_prompt(prompt).frame == other.frame or "Who" not in prompt


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TOFU_EVAL.json", "[]"),
        ("TOFU_EVAL.json", '{"forget_Q_A_Prob": {"value_by_index": {"0": 7}}}'),
        ("TOFU_EVAL.json", '{"forget_Q_A_Prob": '),
        ("eval_log_aggregated.json", "{}"),
        ("eval_log_aggregated.json", '{"eval_log_forget.json": {"avg_gt_loss": 7, "generated_text": [[]]}}'),
        ("knowmem/forget/history.json", "7"),
        ("samples_x.jsonl", '{"doc_id": 0, "arguments": []}\n7\n'),
        ("samples_deep.jsonl", "[" * 100_000 + "\n"),
        ("a.jsonl", '{"schema_version": 1, "evaluation_id": 1, "sample_id": 1, "evaluation": 1}\n'),
        ("a.json", '{"version": 2, "status": "error", "eval": 7, "samples": 7}'),
        ("notes.txt", "text"),
        ("a.eval", "no archive"),
        ("header.csv", "score\ra,question\n1,b\n"),
    ],
)
def test_a_damaged_log_ends_in_a_sentence(tmp_path, name, text):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    with pytest.raises(InputError, match=file.name):
        read_log(file)


def test_a_prompt_longer_than_the_limit_of_csv_is_read(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("score,question\n1," + "a" * 200_000 + "\n")
    assert scores(read_log(file).parts[0]) == (1.0,)


def test_a_question_with_two_scores_is_refused_and_a_repeated_row_is_read_once(write):
    rows = [{"question": "Who?", "answer": a, "score": s} for a, s in (("Ann", 0.1), ("Ben", 0.2), ("Ann", 0.1))]
    log = read_log(write("rows.json", rows))
    assert [scores(part) for part in log.parts] == [(0.1, 0.2)]
    # The first score would hide the leak that the second shows.
    rows[2]["score"] = 0.9
    with pytest.raises(InputError, match="'Who\\?' has two rows with different scores"):
        read_log(write("other.json", rows))
