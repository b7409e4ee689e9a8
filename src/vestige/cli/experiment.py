"""`vestige experiment`: the experiments of the papers, from one command to their tables."""

from collections.abc import Sequence
from pathlib import Path

import typer

from vestige.api.output import refuse_torchrun
from vestige.cli.command import assigned, itself, numbers
from vestige.core import progress
from vestige.core.errors import InputError
from vestige.core.progress import progress_bar, say
from vestige.core.text import Fields, value_in


@itself(positional=("name",), repeated=("benchmark", "probing", "training", "option"), spelled={"probing": "probe"})
def experiment_command(
    name: str = "",
    cpu: bool = False,
    models: Sequence[str] = (),
    seeds: Sequence[str] = (),
    methods: Sequence[str] = (),
    rates: Sequence[str] = (),
    goal: str = "",
    data: str = "",
    forget: str = "",
    benchmark: Sequence[str] = (),
    searches: Sequence[str] = ("latent",),
    probing: Sequence[str] = (),
    training: Sequence[str] = (),
    sets: Sequence[str] = (),
    controls: int = 0,
    most_items: int | None = None,
    jobs: int | None = None,
    plan: bool = False,
    executor: str = "local",
    option: Sequence[str] = (),
    output_dir: str = "runs/experiments",
) -> None:
    """Run an experiment of a paper and print its tables, with the paper's numbers next to ours.

    The same command continues after an interruption. It ends with 5 if a step failed.

    Args:
        name: The experiment. Without one, all are listed.
        cpu: The size for builtin:tiny and two cores.
        models: Models in place of the paper's, separated by commas.
        seeds: Seeds of the trainings, separated by commas.
        methods: Methods in place of all, separated by commas.
        rates: Learning rates in place of the experiment's, separated by commas.
        goal: Find each learning rate for a goal, on a target of another seed: 'retain>=0.9'.
        data: Data in place of the experiment's, with --forget (holes).
        forget: The forget set of --data.
        benchmark: NAME=DATA: multiple-choice questions to ask each model; MT-Bench=FILE is graded (holes).
        searches: Searches of probes, separated by commas, or none (holes).
        probing: KEY=VALUE: settings of probes: judge, by, k, asks (holes).
        training: KEY=VALUE: settings of trainings: precision=bfloat16, or finetune.epochs=12 for one type.
        sets: Forget sets in place of all, separated by commas (pistol).
        controls: Retrained models for each forget set of the first seed.
        most_items: The most retained questions to ask.
        jobs: Steps at once. By default one per GPU or core.
        plan: Print the cost and stop. Works without the hub.
        executor: The executor of the steps: local, ray or slurm.
        option: KEY=VALUE for the executor: num_gpus=1, or finetune.num_gpus=1 for one type.
        output_dir: The folder of the steps. Experiments may share it.
    """
    refuse_torchrun("experiment")
    from vestige.experiments import EXPERIMENTS, find_experiment

    if not name:
        for experiment, (_, about) in EXPERIMENTS.items():
            typer.echo(f"{experiment:18} {about}")
        return
    for text, number, least in (("controls", controls, 0), ("most-items", most_items, 1), ("jobs", jobs, 1)):
        if number is not None and number < least:
            raise InputError(f"--{text} {number} is too small. Give at least {least}.")
    if cpu and models:
        raise InputError("The CPU size is for builtin:tiny. Give --models or --cpu.")
    from vestige.experiments.cost import costs, operations
    from vestige.experiments.lab import Lab, bits
    from vestige.experiments.tables import as_markdown, tables, write
    from vestige.steps.runner import Executor, run_tasks, workers_for

    folder = Path(output_dir)
    where = Executor(executor, _values(option, "--option"))
    lab = Lab(
        folder=folder.resolve(),
        models=models,
        seeds=numbers(seeds, "--seeds", int),
        methods=methods,
        rates=numbers(rates, "--rates"),
        cpu=cpu,
        controls=controls,
        goal=goal,
        most_items=most_items,
        data_file=data,
        forget=forget,
        benchmarks=assigned(benchmark, "--benchmark"),
        searches=[name for name in searches if name != "none"],
        probing=_values(probing, "--probe"),
        training=_values(training, "--training"),
        sets=sets,
        weight=operations,
    )
    report = find_experiment(name)(lab)
    if sets and not lab.steps:
        raise InputError(f"{name} has no forget set named {', '.join(sets)}. Give names as its tables show them.")
    if plan:
        table = costs(lab)
        # A column of zeros is a cost that this experiment does not have, such as a judge.
        typer.echo(as_markdown(table.loc[:, (table.round(3) != 0).any()]))
        typer.echo(
            "\nUpper estimates from published sizes. A pass is one token through one model. Memory and disk are in GB. "
            "Nothing was run."
        )
        return
    say(f"{name}: {len(lab.steps)} steps in {folder}")
    workers = workers_for("cpu" if cpu else "auto", jobs)
    with progress_bar(name) as show:
        lab.run(run_tasks, workers=workers, executor=where, show=show)
    # The tables call the steps again, which would repeat their notes on the data.
    progress.SPEAKING = False
    scores = lab.scores()
    by_title = tables(scores, report)
    if report.holes:
        from vestige.experiments.holes import conversation_table, probe_table

        by_title["Holes"] = probe_table(lab)
        if lab.conversations:
            by_title["MT-Bench"] = conversation_table(lab)
    if report.bits:
        by_title["Bits that attacks carry and answers need"] = bits(lab)
    write(by_title, folder / "tables" / name)
    # The file has no timestamp, so equal scores give equal bytes.
    scores.to_csv(folder / "tables" / name / "items.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    for title, table in by_title.items():
        typer.echo(f"\n{title}\n\n{as_markdown(table)}")
    typer.echo(f"\ntables: {folder / 'tables' / name}")


def _values(words: Sequence[str], option: str) -> Fields:
    """The values of KEY=VALUE words. Numbers are numbers, since Ray and submitit read no text for them."""
    return {key: value_in(text) for key, text in assigned(words, option).items()}
