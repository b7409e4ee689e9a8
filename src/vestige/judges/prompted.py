"""A judge that is a language model: prompts from the tasks, verdicts from what it writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige.judges.base import Judgement, Prompt, Request, Writer, Written
from vestige.judges.tasks import LONGEST_TEXT, Task, find_task
from vestige.judges.verdicts import Verdict


@dataclass(frozen=True)
class PromptedJudge:
    """Asks `writer` about each request, every one by itself, so that no judgement depends on its neighbours."""

    writer: Writer

    @property
    def name(self) -> str:
        """The writer's."""
        return self.writer.name

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order. A text beyond `tasks.LONGEST_TEXT` characters is "too long"."""
        found: dict[int, Judgement] = {}
        asked: dict[int, tuple[Task, Prompt]] = {}
        for i, request in enumerate(requests):
            task = find_task(request.task)
            texts = (request.question, request.answer, request.reference, request.sample)
            if max(map(len, texts)) > LONGEST_TEXT:
                found[i] = Judgement(None, failure="too long")
            else:
                asked[i] = task, task.prompt(request, self.writer.reserved)
        written = self.writer.write([prompt for _, prompt in asked.values()])
        for (i, (task, _)), text in zip(asked.items(), written, strict=True):
            found[i] = judged(task.read, text)
        return [found[i] for i in range(len(requests))]


def prompts_of(requests: Sequence[Request], reserved: tuple[str, ...] = ()) -> list[Prompt]:
    """The prompts alone, for an estimate of what they cost."""
    return [find_task(request.task).prompt(request, reserved) for request in requests]


def judged(read: Callable[[str], Verdict], written: Written) -> Judgement:
    """What was written, read as a verdict; a failure of either is named."""
    verdict = read(written.text)
    # A whole verdict counts although the reply ended at its limit of tokens. Where both failed, the reading says more
    # of a reply that came, and the writer more of one that did not.
    if written.failure not in {"", "cut short"}:
        return Judgement(None, failure=written.failure, text=written.text, spend=written.spend)
    failure = written.failure if verdict.failure and written.failure else verdict.failure
    return Judgement(
        None if failure else verdict.score, verdict.values, failure, text=written.text, spend=written.spend
    )
