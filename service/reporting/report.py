"""The transfer report: one self-contained HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.axes import Axes

from model import Domain, Doubles, Learner, latent_map
from service.experiment_spec import ExperimentSpec
from service.reporting import plots

MEANINGS = {
    "aligned": "The target's contexts look like the source's, and the policy is confident about most of "
    "them. There is no evidence against using it, but unlabeled data cannot prove it right.",
    "weak": "Use it as a hint. Abstain if the confidence is low, and try it on few cases first.",
    "do not trust": "Do not decide by it. The domains do not overlap, or the source is not learned.",
    "not judged": "There are too few target contexts or source rewards for a judgement.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2228; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.verdict { border-left: .5rem solid; padding: .5rem 1rem; background: #f5f6f7 }
.aligned { border-color: #2a9d4e } .weak { border-color: #d69a00 }
.do-not-trust { border-color: #c8372d } .not-judged { border-color: #8a8f98 }
.verdict strong { font-size: 1.3rem }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem }
figure { margin: 0 } figure svg { width: 100%; height: auto } figcaption { font-size: .85rem; color: #4c5560 }
table { border-collapse: collapse; font-size: .9rem } td, th { padding: .15rem .8rem .15rem 0; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LAST_GATES = 30
LIMITS = (
    "<h2>Limits</h2><p>All figures are estimated without target rewards. They cannot detect a target "
    "whose contexts look like the source's but whose arms have other rewards. The transfer confidence is "
    "calibrated on held-out source rounds; under shift it ranks decisions and is not a probability.</p>"
)


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The inputs of a report: the declaration, the answer of `/transfer`, the state."""

    spec: ExperimentSpec
    transfer: Mapping[str, Any]
    state: Mapping[str, Any]


def render(facts: ReportFacts, learner: Learner) -> str:
    """The page."""
    name = escape(facts.spec.name)
    parts = (
        f"<h1>Transfer report: {name}</h1>",
        _lead(facts),
        _verdict(facts.transfer),
        "<h2>Plots</h2>",
        f'<div class="plots">{"".join(_figures(facts, learner))}</div>',
        f"<h2>Data</h2>{_table(facts.state['counts'])}",
        _gates(facts.transfer["gate"]),
        LIMITS,
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>Transfer report: {name}</title><style>{STYLE}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _lead(facts: ReportFacts) -> str:
    state = facts.state
    text = (
        f"Method {escape(facts.spec.method)}, phase {state['phase']}, policy version "
        f"{state['policy_version']}, encoder version {state['encoder_version']}, log up to offset "
        f"{state['folded_offset']}."
    )
    if (unit := facts.spec.reward_range) is not None:
        text += f" Plots show rewards in the unit of the history: 0 is {unit.low:g}, 1 is {unit.high:g}."
    return f"<p>{text}</p>"


def _verdict(transfer: Mapping[str, Any]) -> str:
    verdict = transfer["verdict"] or {"word": "not judged", "reasons": []}
    word = str(verdict["word"])
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict["reasons"])
    figures = ""
    if transfer["versions"]:
        last = transfer["versions"][-1]
        rows = {**last["signs"], **{f"bound: {k}": v for k, v in last["bound"].items()}}
        figures = f"<h2>Figures behind the verdict</h2>{_table(rows)}"
        figures += f"<p>Judged for encoder version {last['encoder_version']}, without any target reward.</p>"
    return (
        f'<section class="verdict {word.replace(" ", "-")}"><strong>{word}</strong>'
        f"<p>{MEANINGS[word]}</p><ul>{reasons}</ul></section>{figures}"
    )


def _figures(facts: ReportFacts, learner: Learner) -> list[str]:
    versions, gate = facts.transfer["versions"], facts.transfer["gate"]
    curve = facts.transfer["target_regret"]["curve"]
    trained = [
        each for each in gate if "episode" in each["details"] and "verdict" in each["details"]
    ]
    rewards, unit = _rewards(learner), facts.spec.reward_range or plots.UNIT
    wanted = [
        _figure(
            "learning",
            "Learning curve: mean reward over the remembered rounds, in blocks",
            any(map(len, rewards.values())) and plots.learning_curve(rewards, unit),
        ),
        _figure(
            "bound",
            "Terms of the bound on the target regret, by encoder version",
            versions and plots.by_version(versions, "bound", plots.TERMS),
        ),
        _figure(
            "signs",
            "Label-free signs, by encoder version; an accuracy of 0.5 means that the domains look alike",
            versions and plots.by_version(versions, "signs", plots.SIGNS),
        ),
        *_maps(facts.spec, learner),
        _figure(
            "gate",
            "The gate: held-out source reward of every trained encoder",
            trained and plots.gate_history(trained, unit),
        ),
    ]
    if curve:
        wanted.append(_figure("regret", "Cumulative target regret", plots.regret_curve(curve)))
    return wanted


def _maps(spec: ExperimentSpec, learner: Learner) -> list[str]:
    found = latent_map(learner)
    has_points = len(found.points) >= 3
    caption = f"Latents in two directions ({found.explained:.0%} of their variance)"
    wanted = [_figure("domains", f"{caption}, by domain", has_points and plots.domain_map(found))]
    if spec.is_per_arm:
        return wanted  # in a joint model a single context has no best arm
    priors = {domain: found.arm_prior(domain, len(spec.arms)) for domain in Domain}
    return [
        *wanted,
        _figure(
            "arms",
            f"{caption}, by best-rated arm; crosses are the target's",
            has_points and plots.arm_map(found, spec.arms),
        ),
        _figure(
            "shares",
            "Fraction of contexts for which each arm is best-rated, by domain",
            has_points and plots.arm_priors(priors, spec.arms),
        ),
    ]


def _rewards(learner: Learner) -> dict[Domain, Doubles]:
    rounds = learner.window.batch()
    return {
        domain: rounds.rewards[rounds.is_target == (domain is Domain.TARGET)] for domain in Domain
    }


def _figure(name: str, caption: str, draw: Any) -> str:
    """A plot, or a sentence if there is nothing to draw."""
    drawer: Callable[[Axes], None] | None = draw or None
    content = "<p>Nothing to show yet.</p>" if drawer is None else plots.drawn(name, drawer)
    return f'<figure id="plot-{name}">{content}<figcaption>{escape(caption)}</figcaption></figure>'


def _gates(entries: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in entries[-LAST_GATES:]:
        details = each["details"]
        reasons = details.get("verdict", {}).get("reasons") or [details.get("reason") or ""]
        author = f" by {details['by']}" if details.get("by") else ""
        cells = (
            str(each["offset"]),
            f"{each['at']:%Y-%m-%d %H:%M:%S} UTC",
            str(each["what"]).replace("_", " ") + author,
            str(details.get("episode", details.get("version", ""))),
            "; ".join(reasons),
        )
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    head = "<th>offset</th><th>when</th><th>what</th><th>episode or version</th><th>why</th>"
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>Gate history (newest {LAST_GATES})</h2><table><tr>{head}</tr>{body}</table>"


def _table(rows: Mapping[str, Any]) -> str:
    body = "".join(
        f'<tr><td>{escape(name.replace("_", " "))}</td><td class="number">{_number(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{body}</table>"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
