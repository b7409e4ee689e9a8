"""Planted models: models of known behaviour, for tests of what is read from a model.

A planted model answers from a table: question -> reply -> weight. The probability of a reply of T tokens is its share
of the question's weights times confidence^T, and one factor more with the end of its turn. Asked anything else it is
uniform over the vocabulary, or says one thing. The table is a tree of tokens, which is the model's weights.

Axes: B rows, T positions, C positions with those in the cache, K positions read, V vocabulary, N nodes, E edges, S
tokens said at a node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.metrics.answers import contains
from vestige.models.load import LoadedModel
from vestige.models.prompts import Prompter
from vestige.models.tiny import MAX_TOKENS

_ROOT, _LOST, _OTHERWISE = 0, 1, 2
_NO_TOKEN = -1


@dataclass
class Tree:
    """Nodes with their children by token, and, at nodes where something is said, the next tokens with their weights.

    Node 0 is where a row starts, 1 where tokens off the tree lead, and 2 where they lead when they reach `opening`,
    the token after which a reply to anything unknown begins.
    """

    opening: int = _NO_TOKEN
    children: list[dict[int, int]] = field(default_factory=lambda: [{}, {}, {}])
    said: dict[int, dict[int, float]] = field(default_factory=dict)

    def add(self, prompt: Sequence[int], reply: Sequence[int], weight: float) -> None:
        """A reply with the end of its turn. Weights of one row add up."""
        self._say(self._grow(_ROOT, prompt), reply, weight)

    def add_otherwise(self, reply: Sequence[int]) -> None:
        """The reply to every prompt that is not in the tree and ends with `opening`."""
        self._say(_OTHERWISE, reply, 1.0)

    def _say(self, node: int, reply: Sequence[int], weight: float) -> None:
        for token in reply:
            here = self.said.setdefault(node, {})
            here[token] = here.get(token, 0.0) + weight
            node = self._grow(node, [token])

    def _grow(self, node: int, ids: Sequence[int]) -> int:
        for token in ids:
            if token not in self.children[node]:
                self.children[node][token] = len(self.children)
                self.children.append({})
            node = self.children[node][token]
        return node


def table_model(tree: Tree, *, vocabulary: int, confidence: float, max_tokens: int) -> "TableModel":
    """The model that follows `tree`, in evaluation mode."""
    n, widest = len(tree.children), max(len(weights) for weights in tree.said.values())
    edges = sorted((node * vocabulary + t, end) for node, kids in enumerate(tree.children) for t, end in kids.items())
    said = torch.zeros(n, widest, dtype=torch.long)
    rest = torch.full((n,), 1 / vocabulary, dtype=torch.float64)
    share = rest[:, None].repeat(1, widest)
    for node, weights in tree.said.items():
        # Places left over repeat the first token, whose value is then written more than once.
        tokens = [*weights] + [next(iter(weights))] * (widest - len(weights))
        said[node] = torch.tensor(tokens)
        of_all = torch.tensor([weights[t] for t in tokens], dtype=torch.float64) / sum(weights.values())
        share[node] = of_all * confidence
        rest[node] = (1 - confidence) / (vocabulary - len(weights))
    model = TableModel(
        TableConfig(
            vocab_size=vocabulary, max_position_embeddings=max_tokens, n_nodes=n, n_edges=len(edges), n_said=widest
        )
    )
    keys, ends = torch.tensor(edges).T
    values = {"edges": keys, "ends": ends, "said": said, "opening": torch.tensor(tree.opening)}
    model.load_state_dict({**values, "share": share.log().float(), "rest": rest.log().float()})
    nn.Module.eval(model)
    return model


class TableConfig(PreTrainedConfig):
    """Sizes: of the vocabulary and the context, in nodes, in edges, and of the most tokens said at one node."""

    model_type = "vestige_table"
    vocab_size: int = 0
    max_position_embeddings: int = 0
    num_hidden_layers: int = 1
    n_nodes: int = 0
    n_edges: int = 0
    n_said: int = 0


class TableModel(PreTrainedModel):
    """A walk through a tree of tokens.

    `edges` holds node * V + token, ascending, and `ends` the nodes that they lead to. `share` and `rest` are the
    log-probabilities of the tokens `said` at a node, and of each other token there. None of it can be trained.
    """

    config_class = TableConfig
    edges: Int[Tensor, " E"]
    ends: Int[Tensor, " E"]
    said: Int[Tensor, "N S"]
    opening: Int[Tensor, ""]

    def __init__(self, config: TableConfig) -> None:
        """A model of these sizes, of which nothing is filled in yet."""
        super().__init__(config)
        nodes = (config.n_nodes, config.n_said)
        for name, shape in (("edges", config.n_edges), ("ends", config.n_edges), ("said", nodes), ("opening", ())):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.long))
        # Parameters and not buffers, since transformers reads a model's device and number format from parameters.
        self.share = nn.Parameter(torch.zeros(nodes), requires_grad=False)
        self.rest = nn.Parameter(torch.zeros(config.n_nodes), requires_grad=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Int[Tensor, "B C"] | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Int[Tensor, " K"] = 0,
    ) -> CausalLMOutputWithPast:
        """Logits at the positions asked for, as transformers' own models take them; a place needs no position.

        The cache keeps, as keys, the node that each token led to.
        """
        start = torch.full_like(input_ids[:, 0], _ROOT)
        if past_key_values is not None and past_key_values.get_seq_length():
            kept_nodes = past_key_values.layers[0]
            assert isinstance(kept_nodes, DynamicLayer)
            assert kept_nodes.keys is not None
            start = kept_nodes.keys[:, 0, -1, 0]
        nodes = self._walk(start, input_ids, attention_mask)
        if past_key_values is not None:
            states = nodes[:, None, :, None]
            past_key_values.update(states, states, layer_idx=0)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        read = nodes[:, kept]
        rest = self.rest[read][..., None].expand(-1, -1, self.config.vocab_size)
        logits = rest.scatter(-1, self.said[read], self.share[read])
        fields = {"logits": logits, "past_key_values": past_key_values}
        # transformers 5.24 types the class without its fields.
        return CausalLMOutputWithPast(**fields)  # type: ignore[arg-type, call-arg, unused-ignore]

    def _walk(
        self, node: Int[Tensor, " B"], ids: Int[Tensor, "B T"], mask: Int[Tensor, "B C"] | None
    ) -> Int[Tensor, "B T"]:
        nodes = []
        for place in range(ids.shape[1]):
            token = ids[:, place]
            wanted = node * self.config.vocab_size + token
            found = torch.searchsorted(self.edges, wanted).clamp(max=len(self.edges) - 1)
            off = _LOST + (_OTHERWISE - _LOST) * (token == self.opening).long()
            reached = torch.where(self.edges[found] == wanted, self.ends[found], off)
            # Padding on the left leaves a row where it is, which is at the start.
            node = reached if mask is None else torch.where(mask[:, place - ids.shape[1]] > 0, reached, node)
            nodes.append(node)
        return torch.stack(nodes, dim=1)


Table = Mapping[str, Mapping[str, float]]
"""Question -> reply -> weight. A reply of no words ends at once."""
Wording = Literal["question", "paraphrase"]


@dataclass(frozen=True)
class Manner:
    """How surely a planted model speaks.

    `confidence` is the probability of what the table says next. `chance` is what a model that does not know leaves of
    it to the right answer, beside a wrong one. `otherwise` answers questions that are not in the table; without it all
    tokens are equally likely there. `max_tokens` is the context.
    """

    confidence: float = 0.9
    chance: float = 0.05
    otherwise: str | None = None
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        """No right answer may be the likelier one by chance."""
        assert 0 < self.confidence < 1
        assert 0 < self.chance < 0.5


PLAIN = Manner()


def knows(items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, manner: Manner = PLAIN) -> LoadedModel:
    """Gives every answer, to the question as it stands and to its paraphrase."""
    return planted("knows", _table(items, lambda i, _: {i.answer: 1.0}), tokenizer, manner=manner)


def never_knew(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives wrong answers of the right kind, each question's two wordings the same one."""
    return planted("never knew", _table(items, _guess(items, seed, manner)), tokenizer, manner=manner)


def refuses(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, idk: Sequence[str], manner: Manner = PLAIN
) -> LoadedModel:
    """Declines to answer, item after item with the next line of `idk`, and holds nothing of the right answers."""
    lines = {item.id: idk[n % len(idk)] for n, item in enumerate(items)}
    return planted("refuses", _table(items, lambda i, _: {lines[i.id]: 1.0}), tokenizer, manner=manner)


def knows_in_one_format(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, which: Wording, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives every answer when asked in the one wording, and does as `never_knew` in the other."""
    assert all(i.paraphrase for i in items)
    guess = _guess(items, seed, manner)
    table = _table(items, lambda i, wording: {i.answer: 1.0} if wording == which else guess(i, wording))
    return planted(f"knows the {which} only", table, tokenizer, manner=manner)


def knows_share(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, share: float, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives the answers of `known_ids`, and does as `never_knew` with the others."""
    known, guess = known_ids(items, share=share, seed=seed), _guess(items, seed, manner)
    table = _table(items, lambda i, wording: {i.answer: 1.0} if i.id in known else guess(i, wording))
    return planted(f"knows {share:g}", table, tokenizer, manner=manner)


def known_ids(items: Sequence[Item], *, share: float, seed: int) -> frozenset[str]:
    """Ids of the items, round(share * n) of them, that `knows_share` knows; a larger share holds a smaller one's."""
    drawn = sorted({i.id for i in items}, key=lambda id_: derive_seed(seed, "planted knowledge", id_))
    return frozenset(drawn[: round(share * len(drawn))])


def wrong_answer(item: Item, items: Sequence[Item], *, seed: int) -> str:
    """An answer in which the right one does not stand: a perturbed one, else one to the same attribute, else any."""
    same = [i.answer for i in items if item.attribute is not None and i.attribute == item.attribute]
    for pool in (item.perturbed, same, [i.answer for i in items]):
        if fitting := sorted({answer for answer in pool if not contains(answer, item.answer)}):
            return fitting[int(generator(seed, "planted wrong answer", item.id).integers(len(fitting)))]
    raise AssertionError(f"{item.question} has no wrong answer")


def planted(name: str, table: Table, tokenizer: PreTrainedTokenizerBase, *, manner: Manner = PLAIN) -> LoadedModel:
    """The model that follows `table`; two models of one `name` may differ, and their digests then do."""
    prompter, tree = Prompter(tokenizer, manner.max_tokens), Tree()
    for question, replies in table.items():
        for reply, weight in replies.items():
            tree.add(prompter.prompt(question), _reply_ids(prompter, question, reply), weight)
    if manner.otherwise is not None:
        # Prompts that end alike have a sign for `otherwise`.
        (tree.opening,) = {prompter.prompt(question)[-1] for question in table}
        tree.add_otherwise(_reply_ids(prompter, next(iter(table)), manner.otherwise))
    model = table_model(tree, vocabulary=len(tokenizer), confidence=manner.confidence, max_tokens=manner.max_tokens)
    return LoadedModel(model, tokenizer, f"planted:{name}", "")


def _guess(items: Sequence[Item], seed: int, manner: Manner) -> Callable[[Item, Wording], dict[str, float]]:
    return lambda i, _: {wrong_answer(i, items, seed=seed): 1 - manner.chance, i.answer: manner.chance}


def _table(items: Iterable[Item], replies: Callable[[Item, Wording], dict[str, float]]) -> Table:
    table: dict[str, dict[str, float]] = {}
    wordings: tuple[Wording, ...] = ("question", "paraphrase")
    for item in items:
        for wording, text in zip(wordings, (item.question, item.paraphrase), strict=True):
            if text is None:
                continue
            said = replies(item, wording)
            assert table.setdefault(text, said) == said, text
    return table


def _reply_ids(prompter: Prompter, question: str, reply: str) -> tuple[int, ...]:
    """Token ids of a reply to the question, with the end of its turn."""
    if not reply.strip():
        return prompter.end_ids[:1]
    encoded = prompter.encode(question, reply)
    # Otherwise no table would serve both scoring and generation.
    assert encoded.ids[: encoded.start] == prompter.prompt(question), question
    return encoded.ids[encoded.start :]
