"""Models, adapters, checkpoints, templates and settings that are damaged: used, or refused in one sentence."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.audited import nano_config
from tests.damaging import SEED, TIMES, outcome, survive
from transformers import AutoTokenizer, LlamaForCausalLM

from vestige.core.items import Item
from vestige.core.settings import to_toml
from vestige.models.load import ModelSettings, load, look_for
from vestige.models.prompts import PLAIN_TEMPLATE, Prompter
from vestige.models.tiny import tiny_tokenizer
from vestige.training.checkpoints import Checkpoints
from vestige.training.settings import TrainingSettings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def nano(whole: Path) -> Path:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(nano_config())
    model.save_pretrained(whole / "model")
    tiny_tokenizer([Item("What is asked?", "It is.")]).save_pretrained(whole / "model")
    return whole / "model"


def asked(folder: Path) -> None:
    """What every command does with a model: it is looked for, loaded, asked and answered."""
    settings = ModelSettings(model=str(folder), device="cpu")
    look_for(settings.model)
    loaded = load(settings)
    encoded = loaded.prompter.encode("What is asked?", "It is.")
    with torch.no_grad():
        logits = loaded.model(torch.tensor([encoded.ids])).logits
    assert logits.shape[:2] == (1, len(encoded.ids))


def test_model_folders(nano, tmp_path):
    survive("model folders", 300, nano, tmp_path, asked)


def test_adapters(nano, whole, tmp_path):
    base = LlamaForCausalLM.from_pretrained(nano)
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(whole / "adapter")
    config = json.loads((whole / "adapter" / "adapter_config.json").read_text())
    (whole / "adapter" / "README.md").unlink(missing_ok=True)
    config["base_model_name_or_path"] = str(nano)
    (whole / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    survive("adapters", 200, whole / "adapter", tmp_path, asked)


def test_checkpoints(nano, whole, tmp_path):
    model = LlamaForCausalLM.from_pretrained(nano)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    Checkpoints(whole / "checkpoints").save(1, model, optimizer, {"x": 1.0})
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    def restored(folder: Path) -> None:
        own = Checkpoints(folder)
        step = own.newest()
        if step is not None:
            optimizer.state.clear()
            model.load_state_dict(weights, strict=False)
            state = own.restore(step, model, optimizer)
            assert float(state["x"]) == state["x"]
            optimizer.step()

    survive("checkpoints", 300, whole / "checkpoints", tmp_path, restored)


TEMPLATES = (
    PLAIN_TEMPLATE,
    "{{ bos_token }}{%- for m in messages -%}\n{% if m['role'] == 'user' %}{{ '<|' + m['role'] + '|>' }}{% endif %}"
    "{{ m.content | trim + eos_token }}\n{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{% macro turn(m) %}{{ m.role | upper }}: {{ m.content }}{% endmacro %}{% set ns = namespace(n=0) %}"
    "{% for m in messages %}{{ turn(m) }}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ raise_exception('x') if "
    "ns.n > 2 }}{{ strftime_now('%Y') }}",
)
WORDS = (
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "for x in range(99999)",
        "endfor",
        "if",
        "m.content",
        "m",
        "messages",
        "| tojson",
        "* 10**9",
    ),
    *(
        "{% include 'x' %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ turn(turn) }}",
        "'a' * 10**10",
    ),
    *("{% for i in range(9999) %}{% for j in range(9999) %}{{ i * j }}{% endfor %}{% endfor %}", "{{ 9**9**9**9 }}"),
    *(
        "{{ raise_exception(m) }}",
        "{{ 1 / 0 }}",
        "\0",
        "\ud800",
        "{{ x.y.z }}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    ),
    *("{{ 'x'.center(10**10) }}", "{{ '%1000000000d' | format(1) }}", "{{ [0] * 10**10 }}", "{{ m.content.join(m) }}"),
)


def test_chat_templates(nano, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(nano)
    found: Counter[str] = Counter()
    bad: dict[str, str] = {}
    for case in range(400 * TIMES):
        rng = random.Random(f"{SEED}/templates/{case}")
        template = rng.choice(TEMPLATES)
        for _ in range(rng.randint(1, 3)):
            a, b = sorted((rng.randrange(len(template) + 1), rng.randrange(len(template) + 1)))
            template = (
                template[:a] + rng.choice((rng.choice(WORDS), "", rng.choice(WORDS))) + template[rng.choice((a, b)) :]
            )
        tokenizer.chat_template = template
        said = outcome(lambda: Prompter(tokenizer, 256).encode("What is asked?", "It is."))
        found[said.partition(":")[0]] += 1
        if ":" in said or said == "slow":
            bad.setdefault(said, f"case {case}: {template!r}: {said}")
    print("chat templates", dict(found))
    assert not bad, "\n".join([f"{len(bad)} kinds", *bad.values()])


def test_settings(whole, tmp_path):
    (whole / "settings").mkdir()
    values = {key: value for key, value in TrainingSettings().identity().items() if value is not None}
    (whole / "settings" / "run.toml").write_text(to_toml(values))
    survive(
        "settings", 200, whole / "settings", tmp_path, lambda folder: TrainingSettings.from_toml(folder / "run.toml")
    )
