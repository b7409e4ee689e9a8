import json
import lzma

import numpy as np
import pytest
from tests.small import vestige
from tools.controls_bank import packed

from vestige.auditing.logs import read_logs
from vestige.core.errors import InputError
from vestige.logs import READERS, read_log
from vestige.logs import bank as banks
from vestige.logs.bank import Banked, banked, keys
from vestige.logs.log import GivenLog, How, LogReading
from vestige.logs.open_unlearning import PROBABILITY
from vestige.metrics.contrasts import Quantity, Sample, ratio_draws
from vestige.metrics.intervals import PRIOR_GRADED

KEY = "tofu/llama-3.2-3b/forget01"
GROUP = "tofu Llama-3.2-3B-Instruct forget01"


def test_every_control_of_the_bank_is_free_and_pinned():
    assert {one.licence for one in banks.bank()} == {"MIT"}
    assert all(len(one.digest) == 64 and len(one.commit) == 40 for one in banks.bank())
    assert all(one.copyright.startswith("Copyright") for one in banks.bank())
    assert [one.name for one in keys()[KEY]] == ["retain90", "retain95", "retain99"]
    assert [one.name for one in keys("target")[KEY]] == ["full, forget01"]
    assert len(keys()["tofu/llama-3.2-1b/forget10"]) == 2
    assert [one.name for one in keys()["tofu/llama-3.2-3b/forget10"]] == ["retain90"]


@pytest.mark.parametrize(
    ("address", "group", "said"),
    [
        (f"banks:{KEY}", GROUP, "Write bank:"),
        ("bank:tofu/gpt/forget01", GROUP, "no retrained model 'tofu/gpt/forget01'"),
        (f"bank:{KEY}", "tofu Llama-3.2-1B-Instruct forget01", "do not fit"),
        (f"bank:{KEY}", "tofu Llama-3.2-3B-Instruct forget05", "do not fit"),
    ],
)
def test_what_is_no_control_of_the_models_is_refused(address, group, said):
    with pytest.raises(InputError, match=said):
        banked(address, group)


def test_every_model_of_the_bank_has_its_scores_in_the_package_and_no_text():
    for role in ("retrained", "target"):
        for key in keys(role):
            for given in banked(f"bank:{key}", "the forget set", role):
                log = read_log(given.path, How(key=given.key))
                forget = [part for part in log.parts if part.split == "forget"]
                assert {"probability", "truth"} <= {part.name for part in forget}
                assert not any(part.answers or part.replies or any(part.questions) for part in log.parts)
                assert all(len(name) == 16 for part in log.parts for name in part.prompts)


def test_a_packed_log_is_matched_by_digest_with_a_log_that_has_texts_in_another_order(tmp_path, monkeypatch):
    n = 40
    scores = np.linspace(0.0123456789, 0.9, n)
    prompts = [f"[INST] Where is ship {k}? [/INST]" for k in range(n)]

    def log_of(order):
        reading = LogReading(tmp_path / "x", How())
        reading.add("forget", PROBABILITY, scores[order], prompts=[prompts[k] for k in order])
        return reading.log()

    table = tmp_path / "tofu-b.json.xz"
    stored = {"schema": 1, "logs": {"m": packed(log_of(np.arange(n)))}}
    table.write_bytes(lzma.compress(json.dumps(stored).encode()))
    monkeypatch.setattr(banks, "_table", lambda _base: table)
    one = Banked("b", "m", "lab", "o/r", "c" * 40, "MIT", "", "", "p", "d" * 64, ("forget01",))
    monkeypatch.setattr(banks, "bank", lambda: (one,))
    order = np.arange(n)[::-1]
    rows = [{"prompt": prompts[k], "split": "forget", "probability": float(scores[k])} for k in order]
    own = tmp_path / "own.json"
    own.write_text(json.dumps(rows))
    (given,) = banked("bank:tofu/b/forget01", "the forget set")
    together = read_logs([GivenLog("target", "t", own), given], forget="the forget set", stated=None)
    by_model = {
        column.entry.name: dict(zip(column.items, column.part.scores, strict=True)) for column in together.columns
    }
    first, second = by_model["t"], by_model["bank m"]
    assert first.keys() == second.keys()
    assert [first[item] for item in first] == pytest.approx([second[item] for item in first], abs=1e-7)


def test_what_a_laboratory_does_is_in_the_error():
    rng = np.random.default_rng(0)
    rows = rng.normal(0.2, 0.01, (5, 40))
    quantity, ruler = Quantity(rows[0], rows[1:], (-1.0, 1.0)), Quantity(rows[0] + 0.5, rows[1:], (-1.0, 1.0))
    sample = Sample(tuple(map(str, range(40))), None, 0, fixed=True)
    plain, shifted = (
        ratio_draws(quantity, ruler, sample, PRIOR_GRADED._replace(pair=0.5, laboratory=shift), name="x")
        for shift in (0.0, 0.1)
    )
    # In units of the ruler, which is 0.5 long, and in quadrature with the error of trainings.
    arms = [one.ends[1] - one.value for one in (plain, shifted)]
    assert shifted.seed_error**2 - plain.seed_error**2 == pytest.approx(0.2**2, rel=0.01)
    assert arms[1] > arms[0]


def test_bank_and_readers_are_listed_with_sources_and_licence():
    assert all(name in vestige("list", "logs").stdout for name in READERS)
    said = vestige("list", "controls").stdout
    assert KEY in said
    assert "nxZhai/BalDRO@12a0b0c (MIT)" in " ".join(said.split())
