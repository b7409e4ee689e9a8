"""Mendings and repeated measurements of a study of holes, in the folders of its finished probes: Tables 3, 4 and 6."""

from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.hole_study import HoleStudyFolder
from vestige.artifacts.holes import Way, read_mitigation
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.text import one_line
from vestige.data.factual import idk_answers
from vestige.study.hole_study_cast import Cast, model_of
from vestige.study.hole_study_models import unlearn_request
from vestige.study.hole_study_request import POLICY, TARGET, HoleStudySettings
from vestige.study.runner import Report
from vestige.training.loop import Progress

if TYPE_CHECKING:
    from vestige.probes.mitigation import Again, MitigationRequest


def mend_task(place: str, settings: HoleStudySettings, way: Way, report: Report) -> None:
    """Mend one unlearned model in one way, and put down where the table lies."""
    from vestige.probes.mitigate import mitigate
    from vestige.probes.mitigation import mitigation_folder

    folder, asked = HoleStudyFolder(Path(place)), settings.mitigation
    assert asked is not None, "planned where a mending is asked for"
    if folder.mended(way).exists():
        return
    probe = folder.probe(asked.of)
    cast = Cast(folder, probe, settings, asked.of, settings.seed)
    request = _request(cast, way, report)
    mitigate(probe, request)
    table = mitigation_folder(probe, request).table
    read_mitigation(mitigation_folder(probe, request))
    write_json(folder.mended(way), {"table": str(table.relative_to(folder.path))})


def _request(cast: Cast, way: Way, report: Report) -> "MitigationRequest":
    from vestige.probes.latent import LATENT
    from vestige.probes.mitigation import MitigationRequest, Searching, TakingPart

    settings, asked = cast.settings, cast.settings.mitigation
    assert asked is not None, "planned where a mending is asked for"

    def taking_part(name: str) -> TakingPart:
        return TakingPart(cast.target if name == TARGET else cast.unlearned, model_of(cast.place, settings, name))

    def on_step(progress: Progress) -> None:
        report(0.5 * progress.step / progress.n_steps)

    iterative = way == "iterative"
    return MitigationRequest(
        way=way,
        splits=cast.splits,
        target=taking_part(TARGET),
        unlearned=taking_part(asked.of),
        answers=settings.answers,
        grader=cast.grader,
        embedder=cast.embedder,
        embedder_digest=cast.embedder_digest,
        settings=asked.settings,
        seed=settings.seed,
        training=asked.training,
        searching=Searching(
            (LATENT,),
            model_of(cast.place, settings, POLICY),
            settings.policy,
            settings.latent,
            settings.filter,
        ),
        again=_again(cast) if iterative else None,
        on_step=on_step,
    )


def _again(cast: Cast) -> "Again":
    """How each round unlearns: as the model to mend was made."""
    from vestige.artifacts.layout import own_folder
    from vestige.artifacts.records import read_spec
    from vestige.probes.mitigation import Again
    from vestige.training.settings import UnlearningSettings

    settings, name = cast.settings, cast.unlearned_name
    if settings.making:
        made = unlearn_request(cast.place, settings, name)
        return Again(made.method, made.method_settings, made.training, made.idk)
    folder = own_folder(model_of(cast.place, settings, name).model)
    spec = None if folder is None else read_spec(folder.spec)
    if spec is None or not spec.method:
        raise InputError(
            f"nothing says how {one_line(name)} was unlearned, so that no round can do it again; leave out table 4, or "
            "name a folder of `vestige unlearn`"
        )
    prefix = f"{spec.method}."
    own = {k.removeprefix(prefix): v for k, v in spec.settings.items() if k.startswith(prefix)}
    training = {k: v for k, v in spec.settings.items() if k in UnlearningSettings.model_fields}
    return Again(spec.method, own, UnlearningSettings.build(training, where=str(folder)), idk_answers())


def variance_task(place: str, settings: HoleStudySettings, report: Report) -> None:
    """Have the target and several unlearned models answer several times, judged with the data's answers and without."""
    from vestige.probes.variance import VarianceRequest, variance

    folder, asked = HoleStudyFolder(Path(place)), settings.variance
    assert asked is not None, "planned where a measurement is asked for"
    cast = Cast(folder, folder.probe(asked.of), settings, asked.of, settings.seed)
    judges = {cast.grader.judge.name: lambda: cast.grader}
    if settings.judge.truth:
        judges[cast.plain_grader.judge.name] = lambda: cast.plain_grader
    names = (asked.of, *settings.repeats())
    request = VarianceRequest(
        target=cast.target,
        unlearned={name: lambda name=name: cast.asked(name) for name in names},  # type: ignore[misc]
        judges=judges,
        answers=settings.answers,
        generations=asked.generations,
        criteria=False,
        seed=settings.seed,
    )
    variance(folder.probe(asked.of), request)
