"""The command and its options."""

from pathlib import Path
from typing import Annotated

import typer

from service import DEFAULT_METHOD
from service.cli.options import (
    Categorical,
    Counts,
    Decimal,
    Device,
    Encoding,
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
    cell_options,
    column_types,
    fail,
    image_options,
    json_object,
)


def fit(
    source: Annotated[Path, typer.Option(help="past rounds: CSV, Parquet, JSON lines or .h5ad")],
    target: Annotated[
        Path, typer.Option(help="rows to decide for, with the same columns; or images")
    ],
    arm: Annotated[str, typer.Option(help="the source's column of the arm")],
    reward: Annotated[str, typer.Option(help="the source's column of the reward")],
    id_column: Annotated[
        str | None, typer.Option("--id", help="the target's column that names its rows")
    ] = None,
    out: Annotated[Path, typer.Option(help="CSV file of the arms to write")] = Path("arms.csv"),
    report: Annotated[Path | None, typer.Option(help="HTML report to write")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="policy file to write, for `daband score`")
    ] = None,
    method: str = DEFAULT_METHOD,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    config: Annotated[str, typer.Option(help="changes of the method's values, as JSON")] = "{}",
    time: Time = None,
    propensity: Propensity = None,
    ignore: Ignore = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="a column to use though it differs between the tables; repeatable"),
    ] = None,
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
    data_dir: Annotated[
        Path | None, typer.Option(help="folder to keep, to resume in; default: a temporary one")
    ] = None,
    device: Device = None,
) -> None:
    """Learn from a table of past rounds, and decide for the rows of another table.

    With --image the source's rows name images, and the target is a folder or a zip of images.
    """
    from service.cli.fit.run import Outputs, fitted
    from service.cli.fit.tables import FitError, FitTables
    from service.cli.local import INTERRUPTED, settings_from
    from service.formats.rows.csv_rows import CsvOptions

    wanted = FitTables(
        source=source,
        target=target,
        arm=arm,
        reward=reward,
        id=id_column,
        time=time,
        propensity=propensity,
        ignore=tuple(ignore or ()),
        types=column_types(categorical, numeric, ordinal),
        keep=tuple(keep or ()),
        reward_range=reward_range,
        csv=CsvOptions(separator, decimal, encoding),
        method=method,
        seed=seed,
        config=json_object(config),
        cells=cell_options(genes, counts, orthologs, (source, target)),
        images=image_options(image, images, shape, resize),
    )
    settings = settings_from(data_dir=data_dir, device=device, log_level="error")
    try:
        typer.echo(fitted(wanted, Outputs(out, report, policy), settings, data_dir), nl=False)
    except FitError as error:
        fail(str(error))
    except KeyboardInterrupt:
        is_kept = data_dir is not None
        again = "; the same command continues" if is_kept else "; nothing was kept"
        typer.echo(f"interrupted{again}", err=True)
        raise typer.Exit(INTERRUPTED) from None
