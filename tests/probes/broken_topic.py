"""A world in which a topic is broken: a target, an unlearned model, a policy, a judge and an embedder.

The target knows questions about the topics A to J. The unlearned model declines a few of topic A, and says one word
over and over to every question of topic H. The policy is a small Llama that was taught to write lists of such
questions, of which 3 in 100 are about H. Target and unlearned model are tables; policy and judge are the real ones.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from tests.planted_tables import Manner, Table, planted
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vestige.artifacts.holes import LATENT_J, Attempt
from vestige.core.seeds import derive_seed, generator
from vestige.judges.base import Request
from vestige.judges.grounded import GroundedJudge
from vestige.models.embedder import Embedder
from vestige.models.load import LoadedModel
from vestige.probes.answering import AnswerSettings, LocalAnswerer
from vestige.probes.latent import LatentSettings, SearchParties, listed
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import Policy

TOPICS = ("art", "botany", "cookery", "drama", "energy", "fishing", "geology", "horology", "islands", "jewels")
FORGOTTEN, BROKEN = "art", "horology"
ATTRIBUTES = ("origin", "weight", "price", "colour", "maker", "age", "purpose", "shape")
N_ENTITIES, N_BROKEN, N_FORGOTTEN, N_VALUES = 20, 50, 3, 60
"""Names of a topic; of the broken one, so that its questions do not run out; of those forgotten; of answers."""
BROKEN_SHARE = 0.03
"""How often the policy asks about the broken topic before it learns."""
GIBBERISH, REFUSAL, OTHERWISE = "of " * 12, "i do not know that", "people say many things about that"
EMPTY_REQUEST = "Please say something."

# Chosen on seeds 100 and 101. Beside the defaults, a model this small wants a higher learning rate and more held to
# its grammar, and its questions are drawn as likely as it finds them.
POLICY = PolicySettings(
    n_rollouts=128,
    n_tokens=14,
    temperature=1.0,
    top_p=1.0,
    batch_size=32,
    minibatch_size=32,
    learning_rate=2e-3,
    kl_coef=0.03,
    lora_rank=8,
)
SETTINGS = LatentSettings(n_iterations=12)
MOST_CALLS_TO_FIRST = 256
"""Latent probing is to have found the broken topic by then."""


def entities(topic: str) -> list[str]:
    """The topic's own names."""
    return [f"{topic}{n}" for n in range(N_BROKEN if topic == BROKEN else N_ENTITIES)]


def question(topic: str, entity: str, attribute: str) -> str:
    """The one wording in which something is asked."""
    return f"in {topic} {entity} , what is the {attribute} ?"


def questions(topic: str) -> list[str]:
    """Everything that can be asked about a topic."""
    return [question(topic, e, a) for e in entities(topic) for a in ATTRIBUTES]


def forget_questions() -> list[str]:
    """What the unlearned model was made to forget."""
    return [question(FORGOTTEN, e, a) for e in entities(FORGOTTEN)[:N_FORGOTTEN] for a in ATTRIBUTES]


def adjacent_questions() -> list[str]:
    """Questions near the forget set: the same attributes of others of its topic, and of its neighbour's."""
    near = [*entities(FORGOTTEN)[N_FORGOTTEN : 2 * N_FORGOTTEN], *entities("botany")[:N_FORGOTTEN]]
    return [question(e.rstrip("0123456789"), e, a) for e in near for a in ATTRIBUTES]


def planted_hole(attempt: Attempt) -> str | None:
    """The planted hole that an attempt asks for, if it is one."""
    return attempt.prompt if attempt.prompt in _BROKEN else None


_BROKEN = frozenset(questions(BROKEN))


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Every word of this world is one token."""
    texts = [q for topic in TOPICS for q in questions(topic)]
    texts += [f"v{n}" for n in range(N_VALUES)] + [GIBBERISH, REFUSAL, OTHERWISE, EMPTY_REQUEST, "it is and ."]
    texts += ["The same question in other words: 1. 2.", listed(["a"], 1, 0, 0, 0).text, "2. 3. 4."]
    words = dict.fromkeys(word for text in texts for word in text.split())
    vocabulary = {word: n for n, word in enumerate(["<pad>", "<unk>", "<eos>", "<question>", "<answer>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<eos>",
        additional_special_tokens=["<question>", "<answer>"],
        chat_template=(
            "{% for m in messages %}{% if m.role == 'user' %}<question> {{ m.content }} {% else %}"
            "<answer> {{ m.content }} <eos>{% endif %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
        ),
        clean_up_tokenization_spaces=False,
    )


def answer_to(asked: str) -> str:
    """The true answer: two values that follow from the question."""
    drawn = generator(0, "benchmark answer", asked).integers(N_VALUES, size=2)
    return f"it is v{drawn[0]} and v{drawn[1]} ."


@dataclass(frozen=True)
class World:
    """The models of one run that never change."""

    tokenizer: PreTrainedTokenizerFast
    target: LoadedModel
    unlearned: LoadedModel
    embedder: Embedder


def make_world() -> World:
    """A target that knows all topics and what a question is, and the model in which one topic broke."""
    tokenizer = word_tokenizer()
    every = [q for topic in TOPICS for q in questions(topic)]
    known: dict[str, Mapping[str, float]] = {q: {answer_to(q): 1.0} for q in every}
    # A seldom refusal, as every assistant has: so that the judge knows one for what it is, and not for gibberish.
    known |= {q: {answer_to(q): 0.98, REFUSAL: 0.02} for q in forget_questions()}
    known[EMPTY_REQUEST] = dict.fromkeys(every, 1.0)
    lost = {q: {REFUSAL: 1.0} for q in forget_questions()} | {q: {GIBBERISH: 1.0} for q in questions(BROKEN)}
    unlearned: Table = {**known, **lost}
    manner = Manner(otherwise=OTHERWISE, confidence=0.95)
    # As MiniLM's, this tokeniser puts a sign of its own before a text, so that an empty one has a token.
    opened = word_tokenizer()
    opened.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<question> $A", special_tokens=[("<question>", opened.convert_tokens_to_ids("<question>"))]
    )
    return World(
        tokenizer,
        planted("target", known, tokenizer, manner=manner),
        planted("unlearned", unlearned, tokenizer, manner=manner),
        Embedder(_bag_of_words(len(tokenizer)), opened),
    )


def _bag_of_words(vocabulary: int) -> BertModel:
    """An encoder without layers: a text's embedding is the mean of its words' random directions."""
    config = BertConfig(vocab_size=vocabulary, hidden_size=256, num_hidden_layers=0, num_attention_heads=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(config, add_pooling_layer=False)
    model.embeddings.position_embeddings.weight.data.zero_()
    model.embeddings.token_type_embeddings.weight.data.zero_()
    nn.Module.eval(model)
    return model


def lists_of_questions(world: World, seed: int, n: int) -> Iterator[list[int]]:
    """Token ids of lists of four questions, as a policy has read them by the million."""
    drawn = generator(seed, "benchmark lists")
    others = [t for t in TOPICS if t != BROKEN]
    for _ in range(n):
        picked = []
        for _ in range(4):
            topic = BROKEN if drawn.random() < BROKEN_SHARE else others[int(drawn.integers(len(others)))]
            asked = questions(topic)
            picked.append(asked[int(drawn.integers(len(asked)))])
        text = listed(["a"], 1, 0, 0, 0).text.splitlines()[0]
        text += "".join(f"\n{number}. {q}" for number, q in enumerate(picked, 1))
        yield world.tokenizer(text)["input_ids"]


def taught_policy(world: World, seed: int, *, n_steps: int = 400) -> LlamaForCausalLM:
    """A Llama of 0.1 million parameters that writes such lists."""
    config = LlamaConfig(
        vocab_size=len(world.tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=world.tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "benchmark policy"))
        model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=n_steps)
    lists = list(lists_of_questions(world, seed, n_steps * 16))
    for at in range(0, len(lists), 16):
        ids = torch.tensor(lists[at : at + 16])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    nn.Module.eval(model)
    return model


def cast_of(world: World, policy: LlamaForCausalLM, settings: PolicySettings, seed: int) -> SearchParties:
    """A fresh policy on the taught model, with everybody else."""
    return SearchParties(
        policy=Policy.of(copy.deepcopy(policy), settings, seed=seed),
        tokenizer=world.tokenizer,
        asked=LocalAnswerer(world.unlearned, AnswerSettings(max_tokens=16)),
        judge=GroundedJudge(world.target, world.embedder, own_tokens=16),
        embedder=world.embedder,
    )


def adjacent_holes(world: World) -> int:
    """How many holes adjacent probing alone finds: its questions, asked and judged."""
    asked = adjacent_questions()
    answers = LocalAnswerer(world.unlearned, AnswerSettings(max_tokens=16)).answer(asked, seed=0)
    requests = [Request("reward", q, a) for q, a in zip(asked, answers, strict=True) if a is not None]
    return sum(j.score == LATENT_J for j in GroundedJudge(world.target, world.embedder, own_tokens=16).judge(requests))
