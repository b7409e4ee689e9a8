"""`vestige experiment`: the experiments of the papers, from one command to their tables."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from vestige.api.output import refuse_torchrun
from vestige.core.errors import InputError
from vestige.core.progress import progress_bar, say


def experiment_command(
    name: Annotated[str, typer.Argument(help="The experiment; without one, all are listed.")] = "",
    cpu: Annotated[bool, typer.Option("--cpu", help="The size for builtin:tiny and two cores.")] = False,
    models: Annotated[str, typer.Option(help="Models in place of the paper's, separated by commas.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds of the trainings, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Methods in place of all, separated by commas.")] = "",
    rates: Annotated[str, typer.Option(help="Learning rates in place of the experiment's, by commas.")] = "",
    goal: Annotated[
        str, typer.Option(help="Find each learning rate for a goal, on a target of another seed: 'retain>=0.9'.")
    ] = "",
    data: Annotated[str, typer.Option(help="Data in place of the experiment's, with --forget (holes).")] = "",
    forget: Annotated[str, typer.Option(help="The forget set of --data.")] = "",
    benchmark: Annotated[
        list[str] | None,
        typer.Option("--benchmark", metavar="NAME=DATA", help="Multiple-choice questions to ask each model (holes)."),
    ] = None,
    searches: Annotated[str, typer.Option(help="Searches of probes by commas, or none (holes).")] = "latent",
    probing: Annotated[
        list[str] | None,
        typer.Option("--probe", metavar="KEY=VALUE", help="Settings of probes: judge, by, k, asks (holes)."),
    ] = None,
    controls: Annotated[int, typer.Option(min=0, help="Retrained models for each forget set of the first seed.")] = 0,
    most_items: Annotated[int | None, typer.Option(min=1, help="The most retained questions to ask.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Steps at once; by default one per GPU or core.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the cost and stop. Works without the hub.")] = False,
    executor: Annotated[str, typer.Option(help="Where steps run: local, ray or slurm.")] = "local",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="KEY=VALUE", help="For the executor: num_gpus=1, or finetune.num_gpus=1 for one type."
        ),
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="The folder of the steps; experiments may share it.")] = Path(
        "runs/experiments"
    ),
) -> None:
    """Run an experiment of a paper and print its tables, with the paper's numbers beside ours.

    The same command continues after an interruption. It ends with 5 if a step failed.
    """
    refuse_torchrun("experiment")
    from vestige.experiments import EXPERIMENTS, find_experiment

    if not name:
        for known, (_, about) in EXPERIMENTS.items():
            typer.echo(f"{known:18} {about}")
        return
    if cpu and models:
        raise InputError("The CPU size is that of builtin:tiny. Give --models or --cpu.")
    from vestige.experiments.lab import Lab, bits
    from vestige.experiments.tables import as_markdown, tables, write
    from vestige.steps.runner import Executor, run_tasks, workers_for

    where = Executor(executor, _options(option or []))
    lab = Lab(
        folder=output_dir.resolve(),
        models=_names(models),
        seeds=[int(_number(text, int)) for text in _names(seeds)],
        methods=_names(methods),
        rates=[_number(text, float) for text in _names(rates)],
        cpu=cpu,
        controls=controls,
        goal=goal,
        most_items=most_items,
        data_file=data,
        forget=forget,
        benchmarks={key: str(value) for key, value in _options(benchmark or []).items()},
        searches=[name for name in _names(searches) if name != "none"],
        probing=_options(probing or []),
    )
    report = find_experiment(name)(lab)
    if plan:
        from vestige.experiments.cost import costs

        typer.echo(as_markdown(costs(lab)))
        typer.echo(
            "\nUpper estimates from published sizes. A pass is one token through one model. Memory and disk are in GB. "
            "Nothing was run."
        )
        return
    say(f"{name}: {len(lab.steps)} steps in {output_dir}")
    workers = workers_for("cpu" if cpu else "auto", jobs, on_cpu=2)
    with progress_bar(name) as show:
        lab.run(run_tasks, workers=workers, executor=where, show=show)
    found = tables(lab.scores(), report)
    if report.holes:
        from vestige.experiments.holes import probe_table

        found["Holes"] = probe_table(lab)
    if report.bits:
        found["Bits that attacks carry and answers need"] = bits(lab)
    write(found, output_dir / "tables" / name)
    for title, table in found.items():
        typer.echo(f"\n{title}\n\n{as_markdown(table)}")
    typer.echo(f"\ntables: {output_dir / 'tables' / name}")


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _options(pairs: list[str]) -> dict[str, str | float]:
    """The executor's options: numbers as numbers, since Ray and submitit read no text for them."""
    options: dict[str, str | float] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--option {pair!r} has no value. Write --option KEY=VALUE.")
        options[key] = value
        with contextlib.suppress(ValueError):
            options[key] = float(value)
            options[key] = int(value)
    return options


def _number(text: str, kind: type) -> float:
    try:
        value: float = kind(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no number. Give numbers separated by commas.") from error
    return value
