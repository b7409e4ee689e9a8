"""`vestige probe prevent` as a person runs it: arms of one size, apart from what is evaluated; restarts; refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.audited import nano_config
from tests.probed import make_embedder
from typer.testing import CliRunner

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.core.store import read_rows
from vestige.models import tiny
from vestige.models.embedder import load_embedder
from vestige.models.load import ModelSettings
from vestige.probes.prevent import PreventSettings
from vestige.probes.prevention_table import HarmRow, PreventionFolder, RiskRow, read_table
from vestige.probes.risk import risk_scores
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import read_done
from vestige.steps.unlearn import UnlearnRequest
from vestige.training.settings import TrainingSettings, UnlearningSettings

ITEMS = tuple(Item(f"What is number {n}?", f"It is {n * n}.", edge=f"e{n % 6}") for n in range(36))
WHOLE = ("--arms", "random,predicted,oracle")
SETTINGS = ("learning_rate=5e-3", "epochs=1", "prevent.max_new_tokens=4")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Data in six edges, a nano model that was taught it for an epoch, and an embedder of letters."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("prevent")
    rows = [{"question": i.question, "answer": i.answer, "edge": i.edge} for i in ITEMS]
    (folder / "qa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    make_embedder(folder / "embedder")
    model = ModelSettings(model="builtin:tiny", device="cpu")
    config = nano_config()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiny, "tiny_config", lambda: config)
        training = TrainingSettings(epochs=3, lora_rank=0, learning_rate=1e-2)
        finetune(SubjectFolder(folder / "target"), FinetuneRequest(model, ITEMS, ITEMS, training, seed=0))
    return folder


def prevent(taught: Path, out: Path, *words: str, method: str = "gd", seeds: int = 3, add: int = 4):
    shared = ["--data", taught / "qa.jsonl", "--edge-key", "edge", "--forget", "edge:e0", "--method", method]
    place = ["--output-dir", out, "--device", "cpu", "--embedder", taught / "embedder"]
    sizes = ["--seeds", seeds, "--add", add, *(w for s in SETTINGS for w in ("--set", s))]
    typed = map(str, ["probe", "prevent", taught / "target", *shared, *place, *sizes, *words])
    return CliRunner().invoke(app, list(typed))


@pytest.mark.slow
def test_arms_add_alike_from_the_pool_and_what_is_evaluated_is_never_added(taught, tmp_path, monkeypatch):
    some = prevent(taught, tmp_path / "out", "--arms", "random", "--json")
    assert some.exit_code == 0, some.output
    folder = PreventionFolder(tmp_path / "out")
    made = {p: p.stat().st_mtime_ns for p in folder.path.glob("arms/*/done.json")}
    assert len(made) == 6
    # The same folder with more arms makes the others alone.
    whole = prevent(taught, tmp_path / "out", "--json", *WHOLE)
    assert whole.exit_code == 0, whole.output
    assert made.items() <= {p: p.stat().st_mtime_ns for p in folder.path.glob("arms/*/done.json")}.items()
    table, risks = read_table(folder), list(read_rows(folder.risk, RiskRow))
    assert json.loads(whole.stdout)["n_at_risk"] == table.n_at_risk
    # 30 benign items, of which round(7.5) = 8 are kept; half of the other 22 are evaluated.
    assert (table.n_retain, table.n_pool, table.n_evaluated, table.n_added) == (8, 11, 11, 4)
    pool = [row for row in risks if row.part == "pool"]
    added = {
        (arm, seed): [line["item"] for line in read_jsonl(folder.added(arm, seed))]
        for arm in table.steps
        for seed in table.seeds
    }
    assert {len(ids) for (arm, _), ids in added.items() if arm != "none"} == {4}
    assert not any(added["none", seed] for seed in table.seeds)
    assert {i for ids in added.values() for i in ids} <= {row.item for row in pool}
    riskiest = sorted(pool, key=lambda row: (-row.scores["combined"], row.item))[:4]
    assert set(added["predicted", 1]) == {row.item for row in riskiest}
    assert added["random", 0] != added["random", 1]
    # The oracle has seen the other seeds, and not its own.
    lost = {(h.seed, h.item): h.harm["logp"] for h in read_rows(folder.harms, HarmRow) if h.arm == "none"}
    worst = sorted(pool, key=lambda row: (-np.mean([lost[s, row.item] for s in (0, 2)]), row.item))[:4]
    assert set(added["oracle", 1]) == {row.item for row in worst}
    # All arms are the same training but for what is retained.
    specs = [read_spec(folder.arm(arm, 1).spec) for arm in table.steps]
    assert len({(s.settings_id, s.seed, s.parent) for s in specs}) == 1
    assert len({s.data for s in specs}) == len(specs)
    kept = folder.table.read_bytes()
    monkeypatch.setattr("vestige.probes.prevent.unlearn", None)
    assert prevent(taught, tmp_path / "out", *WHOLE).exit_code == 0
    assert folder.table.read_bytes() == kept


@pytest.mark.parametrize(
    ("words", "changes", "said"),
    [
        ((), {"method": "ga"}, "method 'ga' reads no retain set"),
        ((), {"add": 12}, "of 22 benign items .* half may be added, so --add 12 is too many; ask for 11 or fewer"),
        ((), {"seeds": 2}, "seeds = 2: must be at least 3"),
        (("--arms", "random,best"), {}, "no arm 'best'"),
        (("--stop-when", "retain<0.5"), {}, "must be about forget or forget_nll, not retain"),
        (("--set", "prevent.risk_by=graph"), {}, "needs data with a graph"),
        (("--stop-when", "forget<=retrained"), {}, "--retrained"),
        (("--set", "prevent.retain_share=0.9"), {}, "3 benign items .* a trial needs 16"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_sentence_and_leaves_nothing(taught, tmp_path, words, changes, said):
    refused = prevent(taught, tmp_path / "out", *words, **changes)
    assert isinstance(refused.exception, InputError)
    with pytest.raises(InputError, match=said):
        raise refused.exception
    assert not (tmp_path / "out").exists()


def test_a_dry_run_counts_and_loads_nothing(taught, tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.models.embedder.load_embedder", None)
    counted = prevent(taught, tmp_path / "out", "--dry-run", "--json", "--arms", "oracle")
    assert counted.exit_code == 0, counted.output
    # 6 forget items in batches of 4 for one epoch: 2 steps. The target and 3 models without protection are asked about
    # 22 benign items, the 3 of the oracle about 11.
    found = json.loads(counted.stdout)
    assert (found["gradient passes"], found["models trained"], found["steps of each"]) == (28, 6, 2)
    assert found["questions asked after training"] == 22 + 3 * 22 + 3 * 11 + 7 * 6
    assert not (tmp_path / "out").exists()


def test_a_bound_in_words_has_one_form():
    assert PreventSettings(stop_when="forget <= 0.50*target", every="2").identity()["stop_when"] == "forget<=0.5*target"


def test_risk_is_over_the_parameters_that_the_method_trains(taught):
    asked = UnlearnRequest(
        target=ModelSettings(model=str(taught / "target"), device="cpu"),
        target_digest=read_done(SubjectFolder(taught / "target")).digest.id,
        start="builtin:tiny",
        method="gd",
        method_settings={},
        forget="edge:e0",
        forget_items=ITEMS[:6],
        retain_items=ITEMS[6:12],
        idk=(),
        training=UnlearningSettings(lora_rank=0),
        seed=0,
    )
    embedder = load_embedder(str(taught / "embedder"), device="cpu")
    whole = risk_scores(asked, ITEMS[12:20], embedder, None, ())
    adapted = {
        seed: risk_scores(
            replace(asked, seed=seed, training=UnlearningSettings(lora_rank=2, lora_targets=("q_proj",))),
            ITEMS[12:20],
            embedder,
            None,
            (),
        )
        for seed in (0, 1)
    }
    assert set(whole) == {"gradient_cosine", "first_order", "first_order_adam", "embedding", "combined"}
    # Of all parameters one projection is a small part; which one depends on the adapter's first weights.
    assert (np.abs(adapted[0]["first_order"]) < np.abs(whole["first_order"])).all()
    assert (adapted[0]["first_order"] != adapted[1]["first_order"]).all()
    assert (adapted[0]["embedding"] == whole["embedding"]).all()
