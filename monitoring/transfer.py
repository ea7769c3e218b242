"""The dashboard of transfer: what speaks for and against the target policy, without target rewards."""

from monitoring.learning import CHOSEN, WINDOW
from monitoring.panels import Board, Kind, Panel, Query, Unit


def _signs(title: str, note: str, *signs: str) -> Panel:
    chosen = f'{{experiment=~"$experiment", sign=~"{"|".join(signs)}"}}'
    query = Query(
        f"max by (experiment, sign) (daband_transfer_sign{chosen})", "{{experiment}} {{sign}}"
    )
    return Panel(title, Unit.NUMBER, (query,), note)


TRANSFER = Board(
    "daband-transfer",
    "daband: transfer",
    (
        Panel(
            "Verdict",
            Unit.NUMBER,
            (
                Query(
                    f"max by (experiment, verdict) (daband_transfer_verdict{CHOSEN})",
                    "{{experiment}}: {{verdict}}",
                ),
            ),
            "1 for the one that holds. It never says that the target policy is right.",
            Kind.NOW,
        ),
        Panel(
            "Domains told apart",
            Unit.SHARE,
            (
                Query(
                    f"max by (experiment) (daband_domain_accuracy{CHOSEN})",
                    "{{experiment}} latents",
                ),
                Query(
                    "max by (experiment) (daband_transfer_sign"
                    '{experiment=~"$experiment", sign="far_share"})',
                    "{{experiment}} contexts far from the source",
                ),
            ),
            "Accuracy of a fresh discriminator: 50 % cannot tell them apart.",
        ),
        Panel(
            "Diagnostic terms",
            Unit.NUMBER,
            (
                Query(
                    f"max by (experiment, term) (daband_diagnostic_term{CHOSEN})",
                    "{{experiment}} {{term}}",
                ),
            ),
            "Per round, to compare encoders. They do not add up to a bound on the target regret.",
        ),
        Panel(
            "Expected reward in the target",
            Unit.NUMBER,
            (
                Query(
                    f"max by (experiment, figure) (daband_expected_target_reward{CHOSEN})",
                    "{{experiment}} {{figure}}",
                ),
            ),
            "Estimated without target rewards, from 0 to 1, and its lower bound.",
        ),
        _signs(
            "Explained and shifted",
            "Share of source variance explained; distance of the arms' shares.",
            *("source_skill", "share_distance"),
        ),
        _signs("Rank of the latents", "1: collapsed.", "source_rank", "target_rank"),
        _signs(
            "Label-free validators",
            "Entropy low and density high: the target is clustered.",
            *("target_entropy", "target_density", "proxy_a_distance"),
        ),
        Panel(
            "Target policy asked",
            Unit.PER_SECOND,
            (
                Query(
                    f"sum by (experiment, outcome) (rate(daband_target_selections_total{WINDOW}))",
                    "{{experiment}} {{outcome}}",
                ),
            ),
            kind=Kind.STACKED,
        ),
        Panel(
            "Share of abstentions",
            Unit.SHARE,
            (Query(f"experiment:daband_target_abstentions:ratio30m{CHOSEN}", "{{experiment}}"),),
            "Of the contexts that came with a confidence floor, and of the others.",
        ),
        Panel(
            "Target contexts stored",
            Unit.PER_SECOND,
            (
                Query(
                    f"sum by (experiment) (rate(daband_target_contexts_total{WINDOW}))",
                    "{{experiment}}",
                ),
            ),
            "Unlabeled ones, uploaded beside decisions.",
        ),
        Panel(
            "Target rewards refused",
            Unit.COUNT,
            (
                Query(
                    "sum by (experiment) "
                    f"(increase(daband_target_rewards_refused_total{CHOSEN}[1h]))",
                    "{{experiment}}",
                ),
            ),
            "Sent in the zero-shot phase, over an hour.",
        ),
    ),
    has_experiments=True,
)
