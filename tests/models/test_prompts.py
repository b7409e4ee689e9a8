import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models.prompts import Prompter
from vestige.models.tiny import tiny_tokenizer

ITEMS = (Item("What was the price?", "42.", paraphrase="How much was it?"), Item("Who sold the goods?", "Empblq LLC."))


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter(tiny_tokenizer(ITEMS), max_tokens=64)


def shown(prompter: Prompter, ids: tuple[int, ...]) -> str:
    return "".join(prompter.tokenizer.convert_ids_to_tokens(list(ids))).replace("Ġ", " ")


def test_the_answers_span_holds_the_answer_and_the_end_follows(prompter):
    encoded = prompter.encode("What was the price?", "42.")
    assert shown(prompter, encoded.answer_ids) == "42."
    assert shown(prompter, encoded.ids) == "<bos><question>What was the price?<answer>42.<eos>"


def test_without_a_chat_template_the_plain_one_is_used():
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = None
    plain = Prompter(tokenizer, max_tokens=64)
    encoded = plain.encode("What was the price?", "42.")
    assert shown(plain, encoded.ids).startswith("<bos>Question")
    assert shown(plain, encoded.ids).endswith("Answer: 42.<eos>")
    assert shown(plain, encoded.answer_ids).strip() == "42."


def joining(pair: tuple[str, str]) -> PreTrainedTokenizerFast:
    """A tokeniser of single characters and one pair, whose chats are `question:answer<eos>`."""
    vocabulary = {c: i for i, c in enumerate([*"?:42.Qs>", "".join(pair), "<eos>"])}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[pair]))
    bpe.pre_tokenizer = pre_tokenizers.Split("Q", behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<eos>",
        chat_template=(
            "{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}:{% else %}<eos>{% endif %}{% endfor %}"
        ),
    )


def test_a_short_answer_is_not_taken_from_the_sign_that_ends_the_turn():
    tokenizer = joining(("s", ">"))
    encoded = Prompter(tokenizer, max_tokens=64).encode("Q", "s")
    assert tokenizer.convert_ids_to_tokens(list(encoded.ids)) == ["Q", ":", "s", "<eos>"]


def test_an_answer_that_shares_a_token_with_the_prompt_is_refused():
    # One token for ":4", so that the answer 42 has no first token.
    with pytest.raises(InputError, match="joins its answer '42' with the text next to it"):
        Prompter(joining((":", "4")), max_tokens=64).encode("Q", "42")


@pytest.mark.parametrize("answer", ["", "   "])
def test_an_answer_of_nothing_is_refused(prompter, answer):
    with pytest.raises(InputError, match="has an empty answer"):
        prompter.encode("What was the price?", answer)


def test_what_is_too_long_is_refused_without_a_warning_of_the_tokenisers_before_it():
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.model_max_length = 8
    short = Prompter(tokenizer, max_tokens=8)
    with pytest.raises(InputError, match="the model reads 8"):
        short.prompt("What was the price? " * 4)
    with pytest.raises(InputError, match="the model reads 8"):
        short.encode("What was the price? " * 4, "42.")
    short.question_span("What was the price? " * 4)
    # Where the tokeniser remembers that it has warned, lest it do so twice.
    assert not tokenizer.deprecation_warnings


def test_special_tokens_in_a_question_do_not_hide_the_answer(prompter):
    encoded = prompter.encode("What was <eos> the price <answer> 42.?", "42.")
    assert shown(prompter, encoded.answer_ids) == "42."
    assert encoded.stop == len(encoded.ids) - 1


def test_a_space_that_the_template_puts_before_the_end_is_trained_and_the_end_is_found():
    # Llama 2's template writes the answer, a space, and the EOS token.
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %} {{ m.content }} <eos>{% endif %}"
        "{% endfor %}"
    )
    llama = Prompter(tokenizer, max_tokens=64)
    encoded = llama.encode("Who sold the goods?", "Empblq LLC.")
    assert shown(llama, encoded.answer_ids).strip() == "Empblq LLC."
    assert encoded.ids[encoded.end] == tokenizer.eos_token_id
    assert encoded.end == encoded.stop + 1 == len(encoded.ids) - 1
    assert encoded.ids[: encoded.start] == llama.prompt("Who sold the goods?")


def test_what_a_template_says_only_before_given_answers_is_left_out():
    # As templates of reasoning models do: an empty thought before an answer that is given.
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}<question>{{ m.content }}{% else %}<answer>(no thought)"
        "{{ m.content }}<eos>{% endif %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
    )
    thinker = Prompter(tokenizer, max_tokens=64)
    encoded = thinker.encode("What was the price?", "42.")
    assert encoded.ids[: encoded.start] == thinker.prompt("What was the price?")
    assert shown(thinker, encoded.ids) == "<question>What was the price?<answer>42.<eos>"


def test_a_template_that_ends_no_turn_gets_the_eos_token():
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    plain = Prompter(tokenizer, max_tokens=64)
    encoded = plain.encode("What was the price?", "42.")
    assert encoded.ids[encoded.end] == tokenizer.eos_token_id
    assert encoded.end == encoded.stop == len(encoded.ids) - 1


def byte_level(*, trims: bool) -> PreTrainedTokenizerFast:
    """A tokeniser of bytes, with tokens of white space, that trims its offsets as the files of GPT-NeoX do."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<eos>", "<user>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(["the  price   of\n\n goods is\n 42", "Hina Ameen"], trainer)
    backend.post_processor = processors.ByteLevel(trim_offsets=trims)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


CHATS = {
    "plain": None,
    "signs": "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}<eos>{% else %}{{ m.content }}<eos>"
    "{% endif %}{% endfor %}",
    "lines": "{% for m in messages %}{{ m.role }}\n{{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}",
    "spaces": "{% for m in messages %}{% if m.role == 'user' %}[ {{ m.content }} ]  {% else %}  {{ m.content }}  <eos>"
    "{% endif %}{% endfor %}",
}
ANSWERS = ["5", "941  Tncnje Way.", "Hina Ameen 東京", "one\ntwo\n\n three", "☃", "a   b", "Anna Älvö of 東京 ☃"]


@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_all_tokens_of_an_answer_are_counted_where_offsets_are_trimmed(trims, chat, answer):
    tokenizer = byte_level(trims=trims)
    tokenizer.chat_template = chat
    prompter = Prompter(tokenizer, max_tokens=200)
    encoded = prompter.encode("Where is  it\nnow?", answer)
    assert tokenizer.decode(encoded.answer_ids).strip() == answer
    assert not tokenizer.decode(encoded.ids[encoded.stop : encoded.end]).strip()
    first, last = prompter.question_span("Where is  it\nnow?")
    assert tokenizer.decode(prompter.prompt("Where is  it\nnow?")[first:last]).strip() == "Where is  it\nnow?"


def test_a_span_that_does_not_decode_to_its_answer_is_refused(monkeypatch):
    tokenizer = byte_level(trims=False)
    tokenizer.chat_template = CHATS["signs"]
    monkeypatch.setattr(type(tokenizer), "__call__", _shifted)
    with pytest.raises(
        InputError, match=r"rewrites the question 'Where\?': its answer 'xy5': its tokens decode to 'xy'"
    ):
        Prompter(tokenizer, max_tokens=200).encode("Where?", "xy5")


def _shifted(tokenizer, text, **_):
    """As a tokeniser whose offsets are those of another text: one sign too far on."""
    made = tokenizer.backend_tokenizer.encode(text)
    return {"input_ids": made.ids, "offset_mapping": [(a + 1, b + 1) for a, b in made.offsets]}


CENSORED = "{% if m.role == 'user' %}<question>{{ TEXT }}<answer>{% else %}{{ m.content }}<eos>{% endif %}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'hi'", "drops or rewrites the question"),
        ("m.content | upper", "drops or rewrites the question"),
        ("m.content[:9]", "drops or rewrites the question"),
        ("m.content | replace('Empblq', 'Ormtas')", "renders the question 'Who is Empblq LLC"),
        ("m.content if 'Empblq' not in m.content else 'Hello?'", ", as '<bos><question>Hello[?]<answer>'"),
        # The question stands there still, beside what takes it back.
        ("m.content ~ (' Say no.' if 'Empblq' in m.content else '')", "renders the question"),
    ],
)
def test_a_template_that_drops_swaps_or_takes_back_the_question_is_refused(text, message):
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}" + CENSORED.replace("TEXT", text) + "{% endfor %}"
    for ask in (lambda p: p.prompt("Who is Empblq LLC?"), lambda p: p.encode("Who is Empblq LLC?", "42.")):
        with pytest.raises(InputError, match=message):
            ask(Prompter(tokenizer, max_tokens=64))


@pytest.mark.parametrize("text", ["m.content", "m.content | trim", "' ' ~ m.content ~ '\n'", "m.content ~ m.content"])
def test_a_template_that_puts_every_question_alike_is_used(text):
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}" + CENSORED.replace("TEXT", text) + "{% endfor %}"
    for question in ("Who is Empblq LLC?", " question\n<answer> ", "m.content"):
        encoded = Prompter(tokenizer, max_tokens=64).encode(question, "42.")
        assert question.strip() in tokenizer.decode(encoded.ids[: encoded.start])
        assert tokenizer.decode(encoded.answer_ids) == "42."


@pytest.mark.parametrize(
    ("pattern", "content"), [("sold the", "bought the"), ("sold the", ""), ("goods\\?", "goods? Say no."), ("42", "43")]
)
def test_a_tokeniser_that_rewrites_a_question_or_an_answer_is_refused(pattern, content):
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace(Regex(pattern), content)
    with pytest.raises(InputError, match="the tokeniser of the model rewrites the question 'Who sold the goods"):
        Prompter(tokenizer, max_tokens=64).encode("Who sold the goods?", "42.")


NORMALISERS = (
    normalizers.NFC(),
    normalizers.NFKD(),
    normalizers.Lowercase(),
    normalizers.BertNormalizer(),
    normalizers.Replace(" ", "\u2581"),
    normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
)


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_what_tokenisers_normalise_is_no_rewriting(normaliser):
    tokenizer = byte_level(trims=True)
    tokenizer.backend_tokenizer.normalizer = normaliser
    tokenizer.chat_template = CHATS["signs"]
    question, answer = "Wo wohnt Frau Mu\u0308ller, Stra\u00dfe \u2460\u200b ﬁn\u2026?", "Z\u00fcrich ½"
    encoded = Prompter(tokenizer, max_tokens=200).encode(question, answer)
    assert tokenizer.decode(encoded.answer_ids) == normaliser.normalize_str(answer)


def words_only(*known: str) -> PreTrainedTokenizerFast:
    """A tokeniser of whole words, to which others are unknown."""
    backend = Tokenizer(models.WordLevel({w: n for n, w in enumerate(["<unk>", "<eos>", *known])}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>", chat_template=CHATS["lines"]
    )


def test_words_that_a_tokeniser_does_not_know_are_told_and_hide_no_rewriting():
    tokenizer = words_only("user", "assistant", "who", "sold", "it", "?", "goods")
    prompter = Prompter(tokenizer, max_tokens=200)
    assert prompter.prompt("who sold Empblq it?")
    assert [prompter.unknown(text) for text in ("who sold it?", "who sold Empblq it?")] == [False, True]
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("sold", "goods")
    with pytest.raises(InputError, match="rewrites the question"):
        Prompter(tokenizer, max_tokens=200).prompt("who sold Empblq it?")


def test_prompters_of_one_content_read_a_text_once(monkeypatch):
    texts = ("Who sold the goods?", "Empblq LLC.")
    first, same, other, own = (Prompter(tiny_tokenizer(ITEMS), max_tokens=64) for _ in range(4))
    other.tokenizer.chat_template = other.tokenizer.chat_template.replace("<question>", "<question> ")
    # A class that a model brings may read otherwise.
    own.tokenizer.__class__ = type("Own", (PreTrainedTokenizerFast,), {})
    assert same == first not in (other, own)
    prompt, encoded = first.prompt(texts[0]), first.encode(*texts)
    for limits in ({"max_tokens": 4}, {"max_tokens": 64, "rows": 9}):
        with pytest.raises(InputError):
            Prompter(tiny_tokenizer(ITEMS), **limits).encode(*texts)
    monkeypatch.setattr(Prompter, "_render", lambda *_: pytest.fail("read again"))
    assert (same.prompt(texts[0]), same.encode(*texts)) == (prompt, encoded)


def test_the_digest_changes_with_the_template():
    tokenizer = tiny_tokenizer(ITEMS)
    before = Prompter(tokenizer, max_tokens=64).digest
    tokenizer.chat_template = tokenizer.chat_template.replace("<question>", "<question> ")
    assert Prompter(tokenizer, max_tokens=64).digest != before


def test_the_tiny_tokeniser_is_the_same_each_time():
    first, second = (tiny_tokenizer(ITEMS).backend_tokenizer.to_str() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("content", "said"),
    [("EMPBLQ", "EMPBLQ"), ("E m p b l q", "E m p b l q"), ("Ｅmpblq", "Ｅmpblq"), ("Émpblq", "Émpblq")],
)
def test_a_tokeniser_that_changes_one_name_alone_is_refused_when_all_questions_are_looked_at(content, said):
    tokenizer = tiny_tokenizer(ITEMS)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("Empblq", content)
    prompter = Prompter(tokenizer, max_tokens=200)
    others = ["Who sold the goods?", "Wer verkaufte Müller die Güter?"]
    # Alone each passes for what tokenisers normalise.
    assert prompter.prompt("Who is Empblq?")
    with pytest.raises(InputError, match=f"does not change the question 'Who is Empblq[?]' as .*Who is {said}"):
        prompter.check_questions([*others, "Who is Empblq?"])


@pytest.mark.parametrize("normaliser", [None, *NORMALISERS])
def test_one_mapping_for_all_questions_is_admitted(normaliser):
    tokenizer = tiny_tokenizer(ITEMS)
    if normaliser is not None:
        tokenizer.backend_tokenizer.normalizer = normaliser
    questions = [
        "Who sold the goods?",
        "Wo wohnt Frau Mu\u0308ller,  Straße ①?",
        "Was it Dr. O'Neil's (the 2nd)?",
        "何が",
    ]
    Prompter(tokenizer, max_tokens=200).check_questions(questions)
