"""What a pretrained model's blocks hold of facts that nobody taught it here, read by `evals.inside`.

`python -m benchmarks.inside builtin:smollm2` reads the built-in factual questions, 25 of them as if they were forgotten
and the rest as what was kept, and prints the shares of wrong answers that the true one beats, block by block, and the
processor seconds.
"""

import sys
import time

import numpy as np

from vestige.core.seeds import generator
from vestige.data.corpus import factual_items
from vestige.evals import inside
from vestige.evals.base import View
from vestige.models.load import ModelSettings, load

HELD_OUT = 25


def main() -> None:
    """Read one model and print what its blocks tell."""
    items = factual_items()
    order = generator(0, "inside").permutation(len(items)).tolist()
    forget, retain = ([items[n].id for n in part] for part in (order[:HELD_OUT], order[HELD_OUT:]))
    settings = inside.InsideSettings(options=4, fit_items=len(retain))
    questions = list(
        inside.asked(items, [View("held out", {"forget": forget, "retain": retain}, {})], settings).values()
    )
    loaded = load(ModelSettings(model=sys.argv[1]))
    begun = time.process_time()
    records = [r for r in inside.collect(loaded, questions, settings) if "unasked" not in r]
    print(f"{len(records)} questions, {time.process_time() - begun:.0f} CPU-s")
    for name in ("lens", "probe", "shuffled"):
        by_fit = {fit: [inside.score(r)[f"{name}/beaten"] for r in records if r["fit"] == fit] for fit in (False, True)}
        print(f"{name}: {np.mean(by_fit[False]):.3f} of {HELD_OUT} held out, {np.mean(by_fit[True]):.3f} of the others")
    for name in ("lens", "probe"):
        blocks = range(len(records[0][name]))
        shares = [np.mean([inside.beaten(r[name][block], r["answer"]) for r in records]) for block in blocks]
        print(f"{name} by block: {' '.join(f'{share:.2f}' for share in shares)}")


if __name__ == "__main__":
    main()
