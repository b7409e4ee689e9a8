"""Whether a search that learns finds more than asking what is there already, on models that were really unlearned.

    python -m benchmarks.searches TARGET UNLEARNED --policy POLICY --data DATA --forget edge:A_B [--seeds 10] --json

Models, data and settings are those of `vestige study preset holes --cpu`, whose folder has them all: a tiny model that
knows sample dataset 1, the same after LLMU, and a policy that was taught to write lists of retained questions. With
`--plain` the judge is told no true answers, so that any valid question may be a hole, and the policy is not taught: for
another model than the tiny one.

Each search makes the same number of calls at each seed: latent (PPO), random and paraphrase begin from the adjacent and
retained questions; enumeration asks the retained ones themselves, in an order drawn by the seed. What counts is how
many different questions got J = 10. The last line has, of each search, the median over seeds with the least and the
greatest, and of latent less each other the mean with its 95 % interval (t, over seeds) and how often it is above 0.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from vestige.artifacts.layout import ProbeFolder
from vestige.core.seeds import generator, shuffled
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.judges.base import Judge
from vestige.judges.grounded import GroundedJudge
from vestige.models.embedder import HUB_ID, load_embedder
from vestige.models.load import ModelSettings
from vestige.models.products import on_threads
from vestige.probes.adjacent import AdjacentRequest, By, NeighbourSettings, beginnings_in, make_adjacent
from vestige.probes.answering import AnswerSettings, KnownAnswersJudge, LocalAnswerer
from vestige.probes.latent import ENUMERATION, LATENT, SEARCHES, LatentSettings, SearchParties, Yield, probe, yield_of
from vestige.probes.questions import AdjacentSettings
from vestige.steps.subjects import asked_model
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import Policy

POLICY = PolicySettings(
    n_rollouts=64,
    n_tokens=32,
    epochs=2,
    batch_size=32,
    minibatch_size=32,
    learning_rate=1e-3,
    kl_coef=0.03,
    lora_rank=8,
)
SETTINGS = LatentSettings(n_iterations=6, n_examples=2, ngram_coef=3.0, semantic_coef=3.0)
ANSWERS = AnswerSettings(max_tokens=16)
"""Those of the preset."""


def searched(asked: argparse.Namespace, folder: Path, seed: int) -> dict[str, Yield]:
    """The yields of the four searches with one seed."""
    own = (ModelSettings(model=name, device="cpu") for name in (asked.target, asked.unlearned, asked.policy))
    target, unlearned, policy = own
    corpus = open_corpus(SourceSettings(data=asked.data, edge_key=asked.edge_key))
    splits = named_splits(corpus, asked.forget)
    embedder = load_embedder(HUB_ID, device="cpu")
    judge: Judge = GroundedJudge(asked_model(target).loaded, embedder, own_tokens=ANSWERS.max_tokens)
    if not asked.plain:
        judge = KnownAnswersJudge(judge, (*corpus.items, *corpus.factual))
    near = ProbeFolder(folder / f"near-{seed}")
    by: By = "offline" if corpus.dataset is None else "graph"
    k = 4
    make_adjacent(
        near, AdjacentRequest(splits, corpus.dataset, by, AdjacentSettings(k=k), NeighbourSettings(k=k), seed)
    )
    kept = [item.question for item in splits.splits["retain"]]
    order = shuffled(generator(seed, "enumeration"), len(kept)).tolist()
    loaded, found = asked_model(unlearned).loaded, {}
    settings = SETTINGS.model_copy(update={"n_iterations": asked.iterations})
    rollouts = POLICY.model_copy(update={"n_rollouts": asked.rollouts})
    for name in SEARCHES:
        begins = [kept[i] for i in order] if name == ENUMERATION else beginnings_in(near)
        writer = asked_model(policy).loaded
        cast = SearchParties(
            Policy.of(writer.model, rollouts, seed=seed),
            writer.tokenizer,
            LocalAnswerer(loaded, ANSWERS),
            judge,
            embedder,
        )
        place = ProbeFolder(folder / f"{name}-{seed}")
        found[name] = yield_of(probe(cast, begins, settings, seed=seed, folder=place, source=name))
    return found


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all seeds come to."""
    found: dict[str, Any] = {"bench": "searches", "seeds": len(lines)}
    for name in SEARCHES:
        values = [line[name]["distinct"] for line in lines]
        found[name] = {"median": statistics.median(values), "least": min(values), "greatest": max(values)}
        if name != LATENT:
            less = np.array([line[LATENT]["distinct"] - line[name]["distinct"] for line in lines], dtype=float)
            found[name]["latent_less_it"] = less.mean()
            if len(less) > 1:
                half = stats.t.ppf(0.975, len(less) - 1) * less.std(ddof=1) / len(less) ** 0.5
                found[name] |= {"low": less.mean() - half, "high": less.mean() + half}
            found[name]["latent_ahead"] = int((less > 0).sum())
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each seed, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("unlearned")
    for name in ("--policy", "--data", "--forget"):
        parser.add_argument(name, required=True)
    parser.add_argument("--edge-key")
    parser.add_argument("--plain", action="store_true", help="tell the judge no true answers")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=SETTINGS.n_iterations)
    parser.add_argument("--rollouts", type=int, default=POLICY.n_rollouts)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    asked = parser.parse_args(arguments)
    lines = []
    with tempfile.TemporaryDirectory() as folder, on_threads(1):
        for seed in range(asked.first, asked.first + asked.seeds):
            start = time.process_time()
            found = searched(asked, Path(folder), seed)
            own = {
                n: {"distinct": y.n_distinct, "hits": y.n_latent, "first_call": y.first_call} for n, y in found.items()
            }
            calls = {"bench": "searches", "seed": seed, "calls": found[LATENT].n_calls}
            lines.append({**calls, **own, "cpu_seconds": round(time.process_time() - start, 1)})
            print(json.dumps(lines[-1]) if asked.json else lines[-1], flush=True)
    print(json.dumps(summary(lines)) if asked.json else summary(lines), flush=True)


if __name__ == "__main__":
    main()
