"""A writer that is a local chat model: greedy replies, computed in batches, no network, and the judge of any spec."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.core.text import TextTuple, open_thought
from vestige.judges import find_judge
from vestige.judges.base import Failure, Grader, Writer, WriterPrompt, Written
from vestige.judges.server import ServerWriter
from vestige.judges.spec import JudgeSpec, LocalSettings, ServerSettings
from vestige.judges.tasks import PromptedJudge
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, ModelSettings, context_tokens, finite_logits, load


@dataclass(frozen=True)
class LocalWriter:
    """The model as a writer. Replies are greedy, so repeating would change nothing: each prompt is sent once.

    The system message precedes the user's in one turn, since many chat templates have no system role. A prompt that the
    model's context does not hold, with room for the reply, is "too long".
    """

    loaded: LoadedModel
    reply_tokens: int = 2048
    """Longest reply, whatever the task allows."""

    @property
    def name(self) -> str:
        """Return the model's configured name."""
        return self.loaded.name

    @property
    def reserved(self) -> TextTuple:
        """Return the tokeniser's special tokens, as text, and further configured marks."""
        tokenizer = self.loaded.tokenizer
        tokens = tokenizer.added_tokens_decoder.values()
        # Some tokenisers treat marks such as <think> and <tool_call> as special, but they are marks in all.
        added = {token.content for token in tokens if token.special or not token.content[:1].isalnum()}
        return tuple(sorted(added | set(tokenizer.all_special_tokens)))

    def write(self, prompts: Sequence[WriterPrompt]) -> list[Written]:
        """Return one reply each, in order."""
        context = context_tokens(self.loaded.model)
        # If the template opens the block of thought, a reply that is cut off within it has no mark of it.
        begun = open_thought(self.loaded.prompter.rendered("What is asked?"))
        ids = [self._ids(prompt, context) for prompt in prompts]
        written = [Written("", "too long")] * len(prompts)
        # Prompts with the same limit go together.
        for most in sorted({self._most(p) for p in prompts}):
            rows = [i for i, p in enumerate(prompts) if self._most(p) == most and ids[i]]
            with finite_logits(self.loaded):
                replies = generate(
                    self.loaded.model,
                    [ids[i] for i in rows],
                    end_ids=self.loaded.prompter.end_ids,
                    max_new_tokens=most,
                    context=context,
                )
            for i, reply in zip(rows, replies, strict=True):
                text = begun + self.loaded.prompter.decode(reply.ids)
                failure: Failure = "cut short" if reply.finish == "length" else ""
                written[i] = Written(text, failure)
        return written

    def _ids(self, prompt: WriterPrompt, context: int) -> tuple[int, ...]:
        """Return the prompt's tokens. None if they do not fit."""
        try:
            ids = self.loaded.prompter.prompt(f"{prompt.system}\n\n{prompt.user}")
        except InputError:
            return ()
        # A reply cut off by the context would look like a judge without a verdict.
        if len(ids) + self._most(prompt) <= context:
            return ids
        return ()

    def _most(self, prompt: WriterPrompt) -> int:
        """Longest reply to this prompt, in tokens."""
        return min(prompt.max_tokens, self.reply_tokens)


def grader_of(spec: JudgeSpec, replies: Path, device: str = "auto") -> Grader:
    """The judge, except for a grounded one, which takes a target. A server's replies are in the folder `replies`."""
    writer: Writer
    if isinstance(spec.settings, ServerSettings):
        writer = ServerWriter(spec.settings, replies)
        return Grader(PromptedJudge(writer), spec.settings.judge_identity(), writer)
    if isinstance(spec.settings, LocalSettings):
        read = spec.settings.model_dump(exclude={"reply_tokens"})
        loaded = load(ModelSettings(model=spec.model, device=device, **read))
        writer = LocalWriter(loaded, spec.settings.reply_tokens)
        identity = {"judge": "local", "model": loaded.digest().id, "reply_tokens": writer.reply_tokens}
        return Grader(PromptedJudge(writer), identity, writer)
    values = {} if isinstance(spec.settings, Settings) else spec.settings
    judge = find_judge(spec.kind).build(values, where=f"judge {spec.kind}")
    return Grader(judge, {"judge": spec.kind, "version": judge.version, "settings": judge.identity()})
