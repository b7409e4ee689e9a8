"""The digest of a model, whatever it lies in, and models that are damaged: used, or refused in one sentence."""

import json
import random
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.audited import nano_config
from tests.damaging import CASES, bytes_changed, survive
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaForCausalLM, Qwen2Config

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models import prompts
from vestige.models.folders import ModelDigest, model_digest
from vestige.models.load import LoadedModel, ModelSettings, load, look_for
from vestige.models.prompts import PLAIN_TEMPLATE, Prompter, use_template
from vestige.models.tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "model"
    torch.manual_seed(0)
    LlamaForCausalLM(nano_config()).save_pretrained(folder)
    tiny_tokenizer([Item("What is asked?", "It is.")]).save_pretrained(folder)
    return folder


def asked(model: Path) -> None:
    """What every command does with a model: it is looked for, loaded, asked and answered."""
    settings = ModelSettings(model=str(model), device="cpu")
    look_for(settings)
    loaded = load(settings)
    encoded = loaded.prompter.encode("What is asked?", "It is.")
    with torch.no_grad():
        logits = loaded.model(torch.tensor([encoded.ids])).logits
    assert logits.shape[:2] == (1, len(encoded.ids))


def test_there_are_seventeen_hundred_cases():
    assert sum(CASES.values()) >= 1700


@pytest.mark.slow
def test_model_folders(nano, tmp_path):
    survive("model folders", [nano], tmp_path, asked)


@pytest.mark.slow
def test_adapters(nano, tmp_path):
    adapter = tmp_path / "adapter"
    base = LlamaForCausalLM.from_pretrained(nano)
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "README.md").unlink(missing_ok=True)
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(nano)}))
    survive("adapters", [adapter], tmp_path, asked)


TEMPLATES = (
    PLAIN_TEMPLATE,
    "{{ bos_token }}{%- for m in messages -%}\n{% if m['role'] == 'user' %}{{ '<|' + m['role'] + '|>' }}{% endif %}"
    "{{ m.content | trim + eos_token }}\n{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{% macro turn(m) %}{{ m.role | upper }}: {{ m.content }}\n{% endmacro %}{% set ns = namespace(n=0) %}"
    "{% for m in messages %}{{ turn(m) }}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ raise_exception('x') if "
    "ns.n > 2 }}{{ strftime_now('%Y') }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content.split('.')[0] ~ 1 ~ [1, (2, 3)] }}{% endif %}{% endfor %}{{ dict(a=1).a }}",
)
HOSTILE = (
    *("{{ messages.append(1) }}", "{{ turn(turn) }}", "{% include 'x' %}", "{{ ''.__class__.__mro__ }}", "{{ 1 / 0 }}"),
    *("{{ raise_exception(m) }}", "{{ 'x'.center(10**10) }}", "{{ '%1000000000d' | format(1) }}", "{{ [0] * 10**10 }}"),
    *("{{ 9**9**9**9 }}", "\0", "\ud800", "{{ x.y.z }}", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "\r\n"),
    *("{{ m.content.join(m) }}", "{% set m = m %}", "{% break %}", "{% extends m %}", "{% import m as n %}", "{#"),
    "{% for i in range(9999) %}{% for j in range(9999) %}{{ i * j }}{% endfor %}{% endfor %}",
    "{% for i in messages recursive %}{{ loop(messages) }}{% endfor %}",
    f"{'{% if 1 %}' * 300}{'{% endif %}' * 300}",
    f"{{{{ {'(' * 500}1{')' * 500} }}}}",
)
VALUES = (
    *("m", "m.content", "messages", "messages[0]", "bos_token", "none", "x", "5", "-1", "1e308", "10**9", "'a{}%d'"),
    *("[]", "{}", "[1, 'a']", "{'a': m}", "range(9)", "namespace()", "turn", "loop", "self", "cycler('a')", "dict"),
    *("joiner", "true", "'\\ud800'", "caller", "varargs", "strftime_now", "raise_exception", "m.content * 9"),
)
FILTERS = (
    *("abs", "attr", "batch", "capitalize", "center", "default", "dictsort", "escape", "filesizeformat", "first"),
    *("float", "forceescape", "format", "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower"),
    *("map", "max", "min", "pprint", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select", "slice"),
    *("selectattr", "sort", "string", "striptags", "sum", "title", "tojson", "trim", "truncate", "unique", "upper"),
    *("urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
)
METHODS = (
    *("format", "format_map", "split", "replace", "items", "pop", "encode", "translate", "zfill", "expandtabs"),
    "get",
)


def expression(rng: random.Random, depth: int = 3) -> str:
    """An expression of a template, without any sense."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(VALUES)
    inner = partial(expression, rng, depth - 1)
    given = ", ".join(inner() for _ in range(rng.randrange(3)))
    return rng.choice(
        (
            f"({inner()} | {rng.choice(FILTERS)}({given}))",
            f"({inner()} {rng.choice(('+', '-', '*', '/', '//', '%', '**', '~', 'in', '==', '<', 'and'))} {inner()})",
            f"({inner()}).{rng.choice(METHODS)}({given})",
            f"({inner()})[{inner()}]",
            f"({inner()})[{inner()}:{inner()}]",
            f"({inner()} is {rng.choice(('defined', 'mapping', 'sameas(1)', 'divisibleby(0)', 'in(5)', 'number'))})",
            f"({inner()} if {inner()} else {inner()})",
            f"({inner()})({given})",
        )
    )


def statement(rng: random.Random) -> str:
    """A statement without any sense."""
    e = expression(rng)
    return rng.choice(
        (
            f"{{{{ {e} }}}}",
            f"{{% set x = {e} %}}",
            f"{{% set m.{rng.choice(METHODS)} = {e} %}}",
            f"{{% for x in {e} %}}{statement(rng) if rng.random() < 0.7 else ''}{{% endfor %}}",
            f"{{% if {e} %}}1{{% endif %}}",
            f"{{% filter {rng.choice(FILTERS)} %}}{{{{ {e} }}}}{{% endfilter %}}",
            f"{{% call {e} %}}1{{% endcall %}}",
            rng.choice(HOSTILE),
        )
    )


def template_changed(rng: random.Random, folder: Path) -> str:
    """A template with statements of no sense before, after or between its own, or cut apart anywhere."""
    path = folder / "chat.jinja"
    text = path.read_text()
    for _ in range(rng.randint(1, 3)):
        ends = [0, *(i + 2 for i in range(len(text)) if text.startswith(("}}", "%}"), i))]
        a = rng.choice(ends) if rng.random() < 0.8 else rng.randrange(len(text) + 1)
        b = a if rng.random() < 0.8 else rng.randrange(a, len(text) + 1)
        text = text[:a] + rng.choice((statement(rng), statement(rng), "", rng.choice(HOSTILE))) + text[b:]
    content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(bytes_changed(rng, content) if rng.random() < 0.1 else content)
    return repr(text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*perhaps you missed a comma:SyntaxWarning")
def test_chat_templates(nano, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(nano)
    whole = [tmp_path / f"template {n}" for n in range(len(TEMPLATES))]
    for folder, template in zip(whole, TEMPLATES, strict=True):
        folder.mkdir()
        (folder / "chat.jinja").write_text(template)

    def put(folder: Path) -> None:
        assert use_template(tokenizer, str(folder / "chat.jinja")) == "file chat.jinja"
        prompter = Prompter(tokenizer, 4096)
        encoded = prompter.encode("What is asked?", "It is.")
        assert encoded.ids[: encoded.start] == prompter.prompt("What is asked?")
        assert prompter.decode(encoded.answer_ids) == "It is."

    survive("chat templates", whole, tmp_path, put, template_changed)


TOKENIZER = tiny_tokenizer([Item("What is asked here?", "This.")])
SHAPES = {
    "gpt2": GPT2Config(vocab_size=2048, n_embd=16, n_layer=2, n_head=2, n_positions=64),
    "qwen2": Qwen2Config(
        **{"vocab_size": 2048, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
    ),
}


def made(shape):
    torch.manual_seed(0)
    return LoadedModel(AutoModelForCausalLM.from_config(SHAPES[shape]).eval(), TOKENIZER, "made here", "")


def saved(subject, folder):
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return load(ModelSettings(model=str(folder), device="cpu"))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_digest_is_the_same_after_every_save_and_in_every_folder(shape, tmp_path):
    first = made(shape)
    digest = first.digest()
    second = saved(first, tmp_path / "a")
    assert first.digest() == digest == second.digest()
    assert saved(second, tmp_path / "b").digest() == digest


def test_bookkeeping_is_no_part_of_the_digest_and_neither_is_what_was_asked_before(tmp_path):
    subject = saved(made("qwen2"), tmp_path / "a")
    digest = subject.digest()
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "transformers_version": "4.0", "_name_or_path": "x", "new_field": None}))
    again = load(ModelSettings(model=str(tmp_path / "a"), device="cpu"))
    again.tokenizer(["one", "two words"], padding=True, truncation=True, max_length=8)
    assert again.digest() == digest


def test_a_difference_is_named_by_its_part():
    digest = ModelDigest("w", "c", "g", "t", "f")
    digest.refuse_other(digest, "the target", "Restore it.")
    digest.refuse_other(digest.id, "the target", "Restore it.")
    other = ModelDigest("w", "c", "g", "u", "h")
    assert other.id != digest.id
    with pytest.raises(InputError, match=r"It differs in the tokeniser, the chat template\. Restore it"):
        other.refuse_other(digest, "the target", "Restore it.")
    with pytest.raises(InputError, match=r"is not the model that it was\. Restore it"):
        other.refuse_other(digest.id, "the target", "Restore it.")


@pytest.mark.parametrize("part", ["weights", "config", "generation", "tokenizer", "template"])
def test_each_part_changes_alone(part):
    subject = made("qwen2")
    before = subject.digest()
    tokenizer = tiny_tokenizer([Item("What is asked here?", "This.")])
    if part == "weights":
        with torch.no_grad():
            subject.model.model.layers[1].mlp.up_proj.weight[3, 5] += 1e-6
    elif part == "config":
        subject.model.config.rms_norm_eps = 1e-3
    elif part == "generation":
        subject.model.generation_config.repetition_penalty = 1.5
    elif part == "tokenizer":
        tokenizer.add_tokens(["newtoken"])
    else:
        tokenizer.chat_template = tokenizer.chat_template + "\n"
    template = prompts.Prompter(tokenizer, 64).template_digest
    after = model_digest(subject.model, tokenizer, template)
    assert [name for name in vars(before) if getattr(before, name) != getattr(after, name)] == [part]
    assert after.id != before.id
