"""The dashboard of learning: what is decided and earned, and whether the trainer keeps up."""

from monitoring.panels import Board, Kind, Panel, Query, Unit

CHOSEN = '{experiment=~"$experiment"}'
BY_DOMAIN = "{{experiment}} {{domain}}"
WINDOW = f"{CHOSEN}[$__rate_interval]"


def _newest(metric: str, unit: Unit, title: str, note: str = "") -> Panel:
    query = Query(f"max by (experiment) ({metric}{CHOSEN})", "{{experiment}}")
    return Panel(title, unit, (query,), note)


def _rate_by_domain(title: str, metric: str) -> Panel:
    query = Query(f"sum by (experiment, domain) (rate({metric}{WINDOW}))", BY_DOMAIN)
    return Panel(title, Unit.PER_SECOND, (query,))


EPISODES = f"sum by (experiment, le) (increase(daband_episode_seconds_bucket{CHOSEN}[1h]))"

LEARNING = Board(
    "daband-learning",
    "daband: learning",
    (
        _rate_by_domain("Decisions", "daband_decisions_total"),
        _rate_by_domain("Rewards", "daband_rewards_total"),
        Panel(
            "Decisions lost",
            Unit.COUNT,
            (
                Query(
                    f"sum by (experiment) (increase(daband_decisions_lost_total{CHOSEN}[1h]))",
                    "{{experiment}}",
                ),
            ),
            "Of experiments with relaxed durability: answered, then not written. Over an hour.",
        ),
        Panel(
            "Mean reward",
            Unit.NUMBER,
            (Query(f"experiment_domain:daband_reward:mean30m{CHOSEN}", BY_DOMAIN),),
            "Of those that came within 30 minutes.",
        ),
        Panel(
            "Entropy of the served probabilities",
            Unit.NUMBER,
            (Query(f"experiment_domain:daband_selection_entropy_nats:mean30m{CHOSEN}", BY_DOMAIN),),
            "Mean in nats: the exploration that is left; 0 would be none.",
        ),
        Panel(
            "Age of the policy that serves",
            Unit.SECONDS,
            (Query(f"experiment:daband_policy_age_seconds:max{CHOSEN}", "{{experiment}}"),),
            "Grows in an experiment where nothing happens.",
        ),
        Panel(
            "Events behind",
            Unit.COUNT,
            (
                Query(
                    f"max by (experiment) (daband_policy_lag_events{CHOSEN})",
                    "served {{experiment}}",
                ),
                Query(
                    f"max by (experiment) (daband_trainer_lag_events{CHOSEN})",
                    "folded {{experiment}}",
                ),
            ),
            "Not yet in what serves, and not yet folded.",
        ),
        _newest("daband_policy_version", Unit.NUMBER, "Version that serves"),
        _newest(
            "daband_trainer_blocked", Unit.NUMBER, "Blocked by damaged bytes", "1: learning waits."
        ),
        _newest("daband_learning_failing", Unit.NUMBER, "Learning fails", "1: see its state."),
        _newest(
            "daband_due_updates", Unit.COUNT, "Encoder updates due", "Behind the one under way."
        ),
        Panel(
            "Experiments in the trainers",
            Unit.COUNT,
            (
                Query("sum(daband_led_experiments)", "learners in memory"),
                Query("sum(daband_waiting_experiments)", "waiting for memory"),
                Query("sum(daband_waiting_trainings)", "trainings waiting for a process"),
            ),
            "Idle experiments are none of these.",
        ),
        Panel(
            "Time to train an encoder",
            Unit.SECONDS,
            tuple(
                Query(f"histogram_quantile({level}, {EPISODES})", f"{{{{experiment}}}} p{name}")
                for level, name in ((0.5, "50"), (0.99, "99"))
            ),
            "Over an hour.",
        ),
        Panel(
            "Loss terms of the last training",
            Unit.NUMBER,
            (Query(f"max by (experiment, term) (daband_loss{CHOSEN})", "{{experiment}} {{term}}"),),
            "Weighted, as they are added up.",
        ),
        Panel(
            "Verdicts of the gate",
            Unit.COUNT,
            (
                Query(
                    f"sum by (experiment, verdict) (increase(daband_gate_verdicts_total{CHOSEN}[1h]))",
                    "{{experiment}} {{verdict}}",
                ),
            ),
            "Encoders over an hour.",
            Kind.STACKED,
        ),
        Panel(
            "Share of encoders refused",
            Unit.SHARE,
            (Query(f"experiment:daband_gate_refusals:ratio6h{CHOSEN}", "{{experiment}}"),),
            "Over six hours.",
        ),
        _newest("daband_condition_number", Unit.NUMBER, "Condition number of A", "The largest."),
        _newest("daband_snapshot_bytes", Unit.BYTES, "Size of a snapshot"),
    ),
    has_experiments=True,
)
