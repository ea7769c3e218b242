"""The commands of logs: evaluate, export, import and archive them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from service import DEFAULT_METHOD
from service.cli.options import (
    UNITS,
    Address,
    Categorical,
    Counts,
    DataDir,
    Decimal,
    Duration,
    Encoding,
    EngineName,
    Ignore,
    ImageColumn,
    Images,
    ImageShape,
    MostGenes,
    Numeric,
    Ordinal,
    Orthologs,
    Propensity,
    Resize,
    RewardRange,
    Separator,
    Time,
    Workers,
    cell_options,
    column_types,
    commands,
    duration,
    fail,
    image_options,
    json_object,
)

log_app = commands("Logs of experiments as files.")

Format = Annotated[
    str | None, typer.Option("--format", help="jsonl, parquet, dsjson or csv; default: by name")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="count and skip bad lines")]


def evaluate(
    experiment: Annotated[str | None, typer.Argument(help="the experiment of the log")] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="uniform, arm:low, version:12, system:nlinucb,alpha=0.2 or file:policy.json;"
            " may be repeated"
        ),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="a log file instead of an experiment")] = None,
    log_format: Format = None,
    skip_bad: SkipBad = False,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999)] = 0.95,
    min_propensity: Annotated[
        float | None, typer.Option(help="smallest possible propensity of a file's logging policy")
    ] = None,
    domain: Annotated[
        Literal["source", "target"], typer.Option(help="whose rounds count")
    ] = "source",
    target: Annotated[bool, typer.Option("--target", help="also value in the target")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="JSON file to write")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="HTML file to write")] = None,
    engine: EngineName = "process",
    workers: Workers = None,
    address: Address = None,
    data_dir: DataDir = None,
) -> None:
    """Estimate what other policies would have earned, from a log alone."""
    from model.ope import EvaluationOptions
    from service.cli import log_evaluation as work
    from service.cli.local import settings_from
    from service.evaluating.request import EvaluationRequest
    from service.parallel.opening import EngineOptions
    from service.records import Domain

    where = EngineOptions(engine, workers, address)
    wanted = work.candidates(candidate or ["uniform"])
    if (experiment is None) == (log is None):
        fail("give either an experiment or a --log file")
    if log is not None:
        bound = None if min_propensity is None else 1.0 / min_propensity
        options = EvaluationOptions(confidence, bound, seed)
        how = work.file_options(log_format, skip_bad, domain)
        result = work.evaluated_file(log, wanted, options, how, where)
    else:
        request = EvaluationRequest(
            experiment=experiment or "",
            candidates=tuple(wanted),
            confidence=confidence,
            domain=Domain(domain),
            target=target,
            seed=seed,
        )
        result = work.evaluated(settings_from(data_dir=data_dir), request, where)
    work.show(result, json_file, html_file)


def sweep(
    experiment: str,
    with_: Annotated[
        list[str],
        typer.Option("--with", help="a variant, such as method=nlinucb,alpha=0.2; repeatable"),
    ],
    correction: Annotated[
        Literal["rejection", "weighting"], typer.Option(help="how the log is corrected")
    ] = "rejection",
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="of all intervals together")
    ] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    engine: EngineName = "process",
    workers: Workers = None,
    address: Address = None,
    data_dir: DataDir = None,
) -> None:
    """Estimate which method would have earned most on its own choices, from a log alone."""
    from service.cli import log_evaluation as work
    from service.cli.local import settings_from
    from service.parallel.opening import EngineOptions

    wanted = work.sweep_of(with_, correction, confidence)
    where = EngineOptions(engine, workers, address)
    work.print_sweep(
        work.swept_log(settings_from(data_dir=data_dir), experiment, wanted, where), as_json
    )


@log_app.command("export")
def export_log(
    experiment: str,
    file: Annotated[Path, typer.Argument(help="…jsonl, …parquet, …dsjson or …csv, also .gz")],
    log_format: Format = None,
    rewarded: Annotated[
        bool, typer.Option("--rewarded", help="only decisions with a reward")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Write an experiment's log to a file."""
    from service.cli import log_evaluation as work
    from service.cli.local import settings_from

    settings = settings_from(data_dir=data_dir)
    count = work.exported(settings, experiment, file, log_format, rewarded)
    typer.echo(f"{count} decisions written to {file}")


@log_app.command("archive")
def archive_log(
    experiment: Annotated[str | None, typer.Argument(help="default: every experiment")] = None,
    older_than: Duration = "30d",
    keep: Annotated[int, typer.Option(min=0, help="newest events that stay")] = 0,
    policy: Annotated[
        Path | None, typer.Option(help="a TOML file with these values by experiment, instead")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Move old decisions and rewards from the database into files, while the service runs."""
    from service.cli.database import archived
    from service.cli.local import settings_from
    from service.storage.archive.files import ArchivingError
    from service.storage.archive.policy import NEVER, Policy, Rule, read_policy

    try:
        rules = read_policy(policy) if policy else Policy(Rule(older_than, keep))
    except ArchivingError as error:
        fail(str(error))
    for rule in (rules.default, *rules.experiments.values()):
        if rule.older_than != NEVER and duration(rule.older_than).total_seconds() < UNITS["h"]:
            fail("rounds must be at least 1h old: younger ones are still asked for again")
    if wrong := archived(settings_from(data_dir=data_dir), experiment, rules):
        fail("\n".join(wrong))


@log_app.command("check")
def check_log(
    experiment: Annotated[str | None, typer.Argument(help="default: every experiment")] = None,
    data_dir: DataDir = None,
) -> None:
    """Read every archived file; exit code 2, with their names, if any is missing or has changed."""
    from service.cli.database import checked_archive
    from service.cli.local import settings_from

    found, wrong = checked_archive(settings_from(data_dir=data_dir), experiment)
    if wrong:
        fail("\n".join((*wrong, f"{len(wrong)} of {found.files} files are damaged")))
    typer.echo(f"{found.files} files with {found.events} events are whole")


@log_app.command("unarchive")
def unarchive_log(experiment: str, data_dir: DataDir = None) -> None:
    """Move all archived rounds of an experiment back into the database, while the service runs."""
    from service.cli.database import returned
    from service.cli.local import settings_from

    typer.echo(returned(settings_from(data_dir=data_dir), experiment))


@log_app.command("import")
def import_log(
    experiment: str,
    file: Annotated[Path, typer.Argument(help="…jsonl, …parquet, …dsjson or …csv, also .gz")],
    method: str = DEFAULT_METHOD,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    config: Annotated[str, typer.Option(help="changes of the method's values, as JSON")] = "{}",
    log_format: Format = None,
    skip_bad: SkipBad = False,
    arm: Annotated[str | None, typer.Option(help="a table: the column of the arm")] = None,
    reward: Annotated[str | None, typer.Option(help="a table: the column of the reward")] = None,
    time: Time = None,
    propensity: Propensity = None,
    id_column: Annotated[str | None, typer.Option("--id", help="the column of the id")] = None,
    ignore: Ignore = None,
    categorical: Categorical = None,
    numeric: Numeric = None,
    ordinal: Ordinal = None,
    reward_range: RewardRange = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = "utf-8",
    genes: MostGenes = None,
    counts: Counts = False,
    orthologs: Orthologs = None,
    image: ImageColumn = None,
    images: Images = None,
    shape: ImageShape = None,
    resize: Resize = False,
    data_dir: DataDir = None,
) -> None:
    """Import a foreign log as a new experiment, or a table of past rounds into any experiment.

    A table is CSV, Parquet or JSON lines, and needs --arm and --reward. Its other columns are context.
    Of an .h5ad file the genes are. With --image the context is the image that a row names.
    """
    from service.cli import log_evaluation as work
    from service.cli.local import settings_from

    settings = settings_from(data_dir=data_dir)
    changes = json_object(config)
    if (arm is None) != (reward is None):
        fail("a table of past rounds needs both --arm and --reward")
    if arm is not None and reward is not None:
        from service.cli.history import TableImport, import_table
        from service.formats.history import HistoryColumns
        from service.formats.rows.csv_rows import CsvOptions
        from service.records import RewardRange as Range

        ignored = tuple(ignore or ())
        columns = HistoryColumns(arm, reward, time, propensity, id_column, ignored, image)
        unit = None if reward_range is None else Range(*reward_range)
        csv = CsvOptions(separator, decimal, encoding)
        types = column_types(categorical, numeric, ordinal)
        cells = cell_options(genes, counts, orthologs, [file])
        of_images = image_options(image, images, shape, resize)
        wanted = TableImport(
            file, columns, csv, unit, types, method, seed, changes, cells, of_images
        )
        import_table(settings, experiment, wanted)
        return
    how = work.file_options(log_format, skip_bad)
    work.import_file(settings, file, how, experiment, method, seed, changes)
