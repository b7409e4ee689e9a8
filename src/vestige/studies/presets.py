"""Settings that were found for the built-in tiny model, with where they come from."""

import json
import re
from collections.abc import Sequence
from importlib import resources
from itertools import combinations

from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.text import closest

DEMO_RATES = {"ga": 5e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 2e-4}
"""Those of the demo's three contracts and 6 epochs; `python -m benchmarks.rates` measures the grid they come from."""

PISTOL_METHODS = ("ga", "gd", "kl", "dpo")
"""The four methods that PISTOL compares (2406.16810, section 5.3)."""

PAPER_RATES = {
    **{("sample1", "llama-2", method): 2e-5 for method in ("ga", "gd", "kl")},
    **{("sample1", "llama-2", method): 1.5e-5 for method in ("dpo", "idk_gd")},
    **{("sample1", "mistral", method): 1e-5 for method in ("ga", "gd", "dpo", "idk_gd")},
    ("sample1", "mistral", "kl"): 2e-5,
    **{("sample2", model, m): 1e-5 for model in ("llama-2", "mistral") for m in ("ga", "gd", "dpo", "idk_gd")},
    **{("sample2", model, "kl"): 2e-5 for model in ("llama-2", "mistral")},
}
"""PISTOL's learning rates by data set, family of models and method (2406.16810, Appendix B)."""

TINY_AUDIT = AuditSettings(
    evals=("qa", "choices", "freeform", "memory", "inside"),
    # Prefilled answers bring the positive control 7 % of what was taught and the retrained models up to 25 % by luck:
    # five controls cannot bound that, so the form would only leave "not recoverable" open.
    forms=("plain", "sampled"),
    relearn=("retain", "forget_part"),
    relearn_items=(30,),
    relearn_epochs=1,
    relearn_rate=2e-4,
    relearn_rank=0,
    relearn_rates=(),
    quantize=(4,),
    ablate=(),
    in_context=(),
    options=6,
    membership=("loss", "min_k", "zlib"),
    max_new_tokens=32,
)
"""How the demo audits the tiny model: all weights are tuned again, once through the items.

At this rate the target keeps what it knows, so that what relearning brings back is not lost by relearning itself: of
what the positive control holds back, 30 items of the forget set bring back 0.70 [0.52, 0.93] in bits (at 5e-4 and 6
epochs 0.42, and at most 0.55 by retained items).

Left out for time: relearning on related and unrelated items and on the forget set itself, facts before the question,
rounding to 8 bits, which changes nothing, and the reversed question. Of no use here: other wordings, examples before
the question and statements with a gap, which it was never taught to read; and the membership scores min_k_plus and
reference, which five controls tell apart so badly that no model could be shown to be like them.
"""


STUDIES = {
    "pistol-q1": "PISTOL, question 1: connectivity (Tables 1 and 2, Figures 5 a, b and 6)",
    "pistol-q2": "PISTOL, question 2: the size of the forget set (Table 3, Figures 5 c, d), and in turn",
    "pistol-q3": "PISTOL, question 3: the type of data (Table 4, Figures 5 e, f)",
    "pistol-q4": "PISTOL, question 4: any two models side by side",
    "pistol-entity": "every contract of one entity",
    "holes": "2511.00030: knowledge holes after LLMU, GAKL and NPO-GD (Tables 1 to 20), for a CPU with RMU",
    "holes-rmu": "2511.00030: knowledge holes after RMU on texts (Tables 1, 2, 14 and 20)",
    "inconclusive": "2506.00688: formats x methods, relearning, a searched prefix, bits carried and needed, on TOFU",
    "inconclusive-wmdp": "2506.00688 on WMDP-Bio, which models know already; no CPU size",
    "tofu": "TOFU: forget01, 05 and 10 as OpenUnlearning reports them (docs/repro.md)",
    "muse": "MUSE: texts repeated and known, larger requests, and one after another",
    "retain-only": "2506.00688, section 4.1: what retained data alone teach of the rest, over random splits",
    "rtt": "2410.08827: some of the forgotten facts are shown, and others are asked",
}
"""The studies that come with Vestige, by what they ask."""


def study_preset(name: str, *, models: Sequence[str] = (), cpu: bool = False) -> str:
    """A study as a TOML file: of the paper's size and models, with `models` in their place, or for a CPU."""
    if name not in STUDIES:
        raise InputError(f"no study {name!r}; {closest(name, list(STUDIES))}")
    if cpu and models:
        raise InputError("the CPU size is that of builtin:tiny; give --model or --cpu")
    if cpu and name == "inconclusive-wmdp":
        raise InputError("inconclusive-wmdp has no CPU size, since the tiny model knows nothing from pretraining")
    size = "cpu" if cpu else "any" if models else "paper"
    text = _resource(name)
    for part in ("axes", "models", "sample1", "training", "tiny", "rates", "asked", "search"):
        text = text.replace(f"@{part.upper()}@", _resource(part).strip())
    names = models or (("tiny", "deep") if cpu else ("Llama2-7B", "Mistral-7B"))
    pairs = ", ".join(json.dumps(pair, ensure_ascii=False) for pair in combinations(names, 2))
    second = _SECOND_TINY if "@MODELPAIR@" in text else ""
    quoted = [json.dumps(model, ensure_ascii=False) for model in models]
    # The holes paper and WMDP unlearn what a released model knows.
    known_model = "\nteach = false" if name.startswith(("holes", "inconclusive-wmdp")) else ""
    tables = [f"[[models]]\nmodel = {model}{known_model}" for model in quoted]
    if name == "retain-only":
        tables += [f'[[models]]\nname = {m[:-1]}, untaught"\nmodel = {m}\nteach = false' for m in quoted]
    # Section 4.1, appendix B.1.
    near = {
        "holes": 'k = 4                      # questions of each sample\nharm = "https://api.openai.com/v1#gpt-4o"',
        "holes-rmu": "k = 5                      # questions of each paper, and 2 of each paragraph of Wikitext",
    }
    filled = {
        "@MODEL@": "\n\n".join(tables),
        "@NAME@": f"{name}-cpu" if cpu else name,
        "@MODELPAIR@": pairs,
        "@SECOND@": second,
        "@ADJACENT@": near.get(name, ""),
    }
    # In one pass, so that a model whose name looks like a mark keeps its name.
    text = re.sub("|".join(filled), lambda match: filled[match[0]], text)
    lines, sizes = [], ["paper", "any", "cpu"]
    for line in text.splitlines():
        if line.startswith("#: "):
            sizes = ["paper", "any", "cpu"] if line == "#: end" else line.removeprefix("#: ").split()
        elif size in sizes:
            lines.append(line)
    return "\n".join(lines) + "\n"


_SECOND_TINY = """
[[models]]
name = "deep"
model = "builtin:tiny-deep"
"""


def _resource(name: str) -> str:
    path = resources.files("vestige.studies") / "resources" / "presets" / f"{name}.toml"
    return path.read_text(encoding="utf-8")
