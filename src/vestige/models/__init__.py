"""Models: loading, chat templates and answer spans, scoring, generation, the built-in and the planted ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """How the weights of a model are read. With `dtype` None, they keep their format."""

    device: str = "auto"
    dtype: str | None = None
    trust_remote_code: bool = False
    chat_template: str = ""
    tokenizer: str = ""
    base: str = ""
