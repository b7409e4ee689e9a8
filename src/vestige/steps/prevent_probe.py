"""Fresh probes of protected models: questions near the forget set that no data asks, and which of them are holes.

They are made from templates, also where the data has a graph, whose own questions an arm may have been given to keep.
The judge is the one that is grounded in the target.
"""

from vestige.artifacts.holes import HoleTable
from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.prevention import ArmRow, PreventionFolder
from vestige.data.corpus import NamedSplits
from vestige.judges.grounded import GroundedJudge
from vestige.models.embedder import Embedder
from vestige.models.load import ModelSettings
from vestige.probes.answering import AnswerSettings
from vestige.probes.filters import FilterSettings
from vestige.probes.neighbours import NeighbourSettings
from vestige.probes.questions import AdjacentSettings
from vestige.steps.prevent_request import PreventRequest
from vestige.steps.probe import Asked, FilterRequest, Grader, asked_model, filter_holes
from vestige.steps.probe_adjacent import AdjacentRequest, make_adjacent

HOLES, CHANGE = "holes", "probes"
QUALITY = "quality"


def probed_arms(
    folder: PreventionFolder, request: PreventRequest, embedder: Embedder, embedder_digest: str
) -> tuple[ArmRow, ...]:
    """The share of holes among the fresh probes of each arm's first model, and by how much answers became worse.

    Quality goes from 1 to 10. Intervals are over the probes; one seed shows nothing of seeds, and it says so.
    """
    settings, asked, seed = request.settings, request.unlearning, request.seeds[0]
    if not settings.probe_k:
        return ()
    splits = NamedSplits(asked.forget, {"forget": asked.forget_items, "retain": asked.retain_items}, {})
    near = AdjacentSettings(k=settings.probe_k)
    questions = AdjacentRequest(splits, None, "offline", near, NeighbourSettings(), asked.seed)
    target = asked_model(asked.target)
    judge = GroundedJudge(target.loaded, embedder)
    identity = {"judge": "grounded", "target": target.id, "embedder": embedder_digest}
    grader = Grader(judge, identity | judge.identity())

    found: list[ArmRow] = []
    for arm in request.arms:
        request.on_stage(1.0, f"fresh probes of {arm}")
        place = folder.probe(arm, seed)
        make_adjacent(place, questions)
        found += _rows(arm, filter_holes(place, _filtering(folder.arm(arm, seed), request, target, grader, embedder)))
    return tuple(found)


def _filtering(
    made: SubjectFolder, request: PreventRequest, target: Asked, grader: Grader, embedder: Embedder
) -> FilterRequest:
    asked = request.unlearning
    model = ModelSettings(
        model=str(made.path), device=asked.target.device, trust_remote_code=asked.target.trust_remote_code
    )
    return FilterRequest(
        forget=asked.forget_items,
        retain=asked.retain_items,
        target=target,
        unlearned=asked_model(model),
        placebos={},
        answers=AnswerSettings(max_tokens=request.settings.max_new_tokens),
        grader=grader,
        embedder=embedder,
        embedder_digest=str(grader.identity["embedder"]),
        settings=FilterSettings(),
        seed=asked.seed,
    )


def _rows(arm: str, table: HoleTable) -> list[ArmRow]:
    return [
        one
        for row in table.rows
        for one in (ArmRow(arm, HOLES, QUALITY, "", row.holes), ArmRow(arm, CHANGE, QUALITY, "", row.change))
    ]
