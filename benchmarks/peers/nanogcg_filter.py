"""nanoGCG's own filter, in its own Python: `benchmarks.retokenise` starts this file and talks JSON with it.

Needs nanogcg 0.3.0 and the transformers that it pins, and nothing of Vestige. Reads {"tokenizer": FILE, "prompts":
[[[id, ...], ...], ...]}, a list of candidates a round, and writes CPU milliseconds of each and what was kept.
"""

import json
import sys
import time


def main() -> None:
    """Filter what is asked for."""
    import torch
    from nanogcg.gcg import filter_ids  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast

    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=asked["tokenizer"])
    found = []
    for prompts in asked["prompts"]:
        ids = torch.tensor(prompts)
        begun = time.process_time()
        kept = filter_ids(ids, tokenizer)
        found.append({"milliseconds": 1000 * (time.process_time() - begun), "kept": kept.tolist()})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
