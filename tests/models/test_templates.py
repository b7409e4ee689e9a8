import time

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import with_system
from vestige.models.prompts import PLAIN_TEMPLATE, Prompter, rendered, use_template
from vestige.models.tiny import tiny_tokenizer

MESSAGES = [{"role": "user", "content": " What's 'it'? "}, {"role": "assistant", "content": "It \n<b>."}]
CHAT = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


@pytest.fixture
def tokenizer():
    return tiny_tokenizer((Item("What was the price?", "42."),))


@pytest.mark.parametrize(
    "template",
    [
        PLAIN_TEMPLATE,
        "{{ bos_token }}{%- for m in messages -%}\n  {{ '<|' + m['role'] + '|>' }}\n{{ m.content | trim + eos_token }}"
        "\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}"
        "{{ messages[1:] | map(attribute='content') | join('|') }}",
        "{% macro turn(m) %}{{ m.role | upper }}: {{ m | tojson }}{% endmacro %}{% for m in messages %}{{ turn(m) }}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ tools is none }}{{ date_string }}",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        '{% else %}{{ m.content.split("\'")[0] ~ 1 ~ [1, (2, 3)] }}{% endif %}{% endfor %}{{ dict(a=1).a }}',
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_a_template_gives_the_text_that_transformers_gives(tokenizer, template, answered):
    expected = tokenizer.apply_chat_template(
        MESSAGES, chat_template=template, tokenize=False, add_generation_prompt=not answered, date_string="01 Jan 2026"
    )
    assert rendered(tokenizer, template, MESSAGES, answered=answered) == expected


def test_of_named_templates_the_default_is_used_as_transformers_does(tokenizer):
    tokenizer.chat_template = {"default": CHAT, "tool_use": "tools"}
    assert Prompter(tokenizer, 64).rendered("Q") == "[Q]"
    assert use_template(tokenizer, "") == "own: default"
    assert tokenizer.chat_template == CHAT


def test_a_template_is_chosen_by_name_or_file(tokenizer, tmp_path):
    own = {"default": CHAT, "rag": "{{ messages[0].content }}!"}
    tokenizer.chat_template = own
    assert use_template(tokenizer, "rag") == "own: rag"
    assert Prompter(tokenizer, 64).rendered("Q") == "Q!"
    tokenizer.chat_template = own
    assert use_template(tokenizer, "plain") == "plain"
    assert tokenizer.chat_template == PLAIN_TEMPLATE
    (tmp_path / "mine.jinja").write_text("<{{ messages[0].content }}>")
    assert use_template(tokenizer, str(tmp_path / "mine.jinja")) == "file mine.jinja"
    assert Prompter(tokenizer, 64).rendered("Q") == "<Q>"
    tokenizer.chat_template = own
    with pytest.raises(InputError, match=r"no chat template 'rog'.*Did you mean 'rag'"):
        use_template(tokenizer, "rog")
    tokenizer.chat_template = {"rag": CHAT, "tool_use": CHAT}
    with pytest.raises(InputError, match=r"rag, tool_use and no default\. Name one with --chat-template"):
        use_template(tokenizer, "")
    tokenizer.chat_template = None
    assert use_template(tokenizer, "") == "plain"


def test_a_template_that_asks_for_the_date_gets_the_pinned_one(tokenizer):
    text = rendered(tokenizer, "{{ strftime_now('%d %b %Y') }} {{ date_string }}", MESSAGES, answered=True)
    assert text == "01 Jan 2026 01 Jan 2026"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}", r"cannot be rendered in line 1"),
        ("{{ messages[0].content.__class__.__mro__ }}", r"is refused by the sandbox .*__class__"),
        ("{{ nothing.there }}", r"cannot be rendered .*'nothing' is undefined"),
        ("{{ raise_exception('no system turn') }}", r"cannot be rendered .*no system turn"),
        ("{{ 1 / 0 }}", r"cannot be rendered .*division by zero"),
        ("{{ [1, 2] | random }}", r"No filter named 'random'"),
    ],
)
def test_a_template_that_fails_is_one_sentence(tokenizer, template, message):
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=message) as told:
        Prompter(tokenizer, 64).prompt("Q")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
        "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set y %}{{ n.x }}{{ n.x }}{% endset %}"
        "{% set n.x = y %}{% endfor %}",
        "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{{ range(99999) | unique | list | length }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 10 ** (10 ** 8) }}",
        "{{ 'x'.ljust(10 ** 9) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ ('x' * 9999) | replace('x', 'y' * 9999) }}",
        "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{% if x[1:] == 'b' or 'ab' in x %}"
        "{% endif %}{% endfor %}",
    ],
)
def test_a_template_without_end_is_refused_within_seconds(tokenizer, template):
    started = time.process_time()
    with pytest.raises(InputError, match=r"more work than a template needs|recursion"):
        rendered(tokenizer, template, MESSAGES, answered=True)
    assert time.process_time() - started < 5


def test_long_texts_are_within_the_bound(tokenizer):
    # JSON with large numbers in it is no width of a format.
    content = '{"price": 12345678, "share": "5%"} ' * 2000
    text = rendered(tokenizer, CHAT.replace("m.content", "m.content | trim"), [{"content": content}], answered=True)
    assert text == f"[{content.strip()}]"


CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
REFUSING = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
DROPPING = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
OTHERS_ANSWER = "{% for m in messages %}{% if m.role == 'user' %}Q:{% else %}A:{% endif %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, "<|system|>Be brief.\n<|user|>Where?\n<|assistant|>"),
        (REFUSING, "<|user|>Be brief.\n\nWhere?\n<|assistant|>"),
        (DROPPING, "[Be brief.\n\nWhere?]"),
        (OTHERS_ANSWER, "Q:Be brief.\n\nWhere?"),
        (PLAIN_TEMPLATE, "<s>Question: Be brief.\n\nWhere?\nAnswer:"),
    ],
)
def test_a_system_turn_takes_the_templates_role_or_stands_before_the_question(tokenizer, template, expected):
    tokenizer.chat_template = template
    prompter = Prompter(tokenizer, 256)
    question = with_system("Be brief.", "Where?")
    assert prompter.rendered(question).replace(str(tokenizer.bos_token), "<s>") == expected
    ids = prompter.prompt(question)
    first, last = prompter.question_span(question)
    assert "Where?" in prompter.decode(ids[first:last])
