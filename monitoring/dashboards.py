"""`make dashboards`: the dashboards as the JSON that Grafana is provisioned with."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import StackingConfig, VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

from monitoring.learning import LEARNING
from monitoring.panels import Board, Kind, Panel
from monitoring.service_health import SERVICE_HEALTH
from monitoring.transfer import TRANSFER

BOARDS = (SERVICE_HEALTH, LEARNING, TRANSFER)
FOLDER = Path(__file__).parent / "grafana" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
COLUMNS = 24  # of Grafana's grid
WIDTHS = {Kind.NOW: 6, Kind.LINES: 12, Kind.STACKED: 12}
HEIGHTS = {Kind.NOW: 4, Kind.LINES: 8, Kind.STACKED: 8}

AnyPanel = stat.Panel | timeseries.Panel


def main() -> None:
    """Write every dashboard into its file."""
    for board in BOARDS:
        file_of(board).write_text(as_json(board))


def file_of(board: Board) -> Path:
    """Where Grafana finds a dashboard."""
    return FOLDER / f"{board.uid}.json"


def as_json(board: Board) -> str:
    """The dashboard as Grafana reads it."""
    made = dashboard.Dashboard(board.title).uid(board.uid).tags(["daband"]).readonly()
    made.time("now-1h", "now").refresh("15s").timezone("browser")
    made.tooltip(DashboardCursorSync.CROSSHAIR)
    if board.has_experiments:
        made.with_variable(_experiments())
    for panel, place in zip(board.panels, _places(board.panels), strict=True):
        made.with_panel(_panel(panel).grid_pos(place))
    return str(JSONEncoder(sort_keys=True, indent=1).encode(made.build())) + "\n"


def _places(panels: Iterable[Panel]) -> Iterator[GridPos]:
    """From left to right; a panel that does not fit beside the others begins a row."""
    x = y = height = 0
    for panel in panels:
        width = WIDTHS[panel.kind]
        if x + width > COLUMNS:
            x, y, height = 0, y + height, 0
        yield GridPos(h=HEIGHTS[panel.kind], w=width, x=x, y=y)
        x, height = x + width, max(height, HEIGHTS[panel.kind])


def _experiments() -> dashboard.QueryVariable:
    made = dashboard.QueryVariable("experiment").label("experiment").datasource(SOURCE)
    made.query("label_values(daband_decisions_total, experiment)")
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return made.multi(True).include_all(True).all_value(".*")


def _panel(panel: Panel) -> AnyPanel:
    made: AnyPanel = stat.Panel() if panel.kind is Kind.NOW else _lines(panel)
    made.title(panel.title).unit(panel.unit.value).datasource(SOURCE)
    made.thresholds(_thresholds(panel.limit))
    if panel.note:
        made.description(panel.note)
    for index, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
        made.with_target(target.ref_id(chr(ord("A") + index)))
    return made


def _thresholds(limit: float | None) -> dashboard.ThresholdsConfig:
    """Set in every panel: Grafana's defaults turn red at 80."""
    steps = [Threshold(color="green")]
    if limit is not None:
        steps.append(Threshold(value=limit, color="red"))
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _lines(panel: Panel) -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True)
    made = timeseries.Panel().legend(legend.placement(LegendPlacement.BOTTOM))
    if panel.kind is Kind.STACKED:
        made.stacking(StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    return made


def panels_table() -> str:
    """All panels as a table of the documentation."""
    rows = ["| dashboard | panel | unit | queries |", "|---|---|---|---|"]
    for board in BOARDS:
        for panel in board.panels:
            queries = "<br>".join(f"`{_in_a_cell(each.expr)}`" for each in panel.queries)
            rows.append(f"| {board.title} | {panel.title} | {panel.unit.value} | {queries} |")
    return "\n".join(rows)


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
