"""A causal language model that is a table: from the tokens so far to the next one's probabilities.

Rows of tokens, each a prompt with a reply and its end, are merged into a tree. The place in it that the tokens so far
lead to decides what comes next:

- where replies go on, their next tokens share `confidence`, in proportion to the weights of the replies that go that
  way, and all other tokens share the rest evenly;
- everywhere else (inside a prompt, and once the tokens have left the tree) all tokens are equally likely.

The tree is the model's weights: models with different tables have different digests. Logits are log-probabilities
(nats).

Axes: B rows, T positions, C positions with those in the cache, K positions read, V vocabulary, N nodes, E edges, S
tokens said at a node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

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
            vocab_size=vocabulary,
            max_position_embeddings=max_tokens,
            n_nodes=n,
            n_edges=len(edges),
            n_said=widest,
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
        return CausalLMOutputWithPast(logits=self._logits(nodes[:, kept]), past_key_values=past_key_values)

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

    def _logits(self, nodes: Int[Tensor, "B K"]) -> Float[Tensor, "B K V"]:
        rest = self.rest[nodes][..., None].expand(-1, -1, self.config.vocab_size)
        return rest.scatter(-1, self.said[nodes], self.share[nodes])
