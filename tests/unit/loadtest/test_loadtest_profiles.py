"""The profiles against a simulated service: one processor, its requests in line."""

import math

from loadtest.knee import Promise
from loadtest.profiles import Plan, overload, select
from loadtest.validity import Bounds, faults
from service.http.concurrency_limit import LoadLimits
from tests.support.loadtest import Costs, simulated_bench

PLAN = Plan(seconds=10, step_seconds=3)
SHIPPED = LoadLimits(max_in_flight=512, target_seconds=0.1)
UNLIMITED = LoadLimits(max_in_flight=1_000_000, target_seconds=math.inf)


def missed(limits: LoadLimits, costs: Costs | None = None) -> set[str]:
    bench = simulated_bench(limits, costs)
    checks = overload(bench, PLAN)
    assert faults(bench.runs, Bounds()) == []
    return {check.name for check in checks if not check.is_met}


def test_a_service_that_sheds_early_passes_the_overload():
    assert missed(SHIPPED) == set()


def test_a_starved_service_answers_what_it_can_before_its_callers_give_up():
    bench = simulated_bench(SHIPPED, Costs(answer=0.02, refusal=0.001, patience=0.8))
    stage = bench.play("twice what it can", 100, 20).after(5)
    assert stage.goodput > 0.85 * 50


def test_a_service_that_lets_everyone_in_does_not():
    assert missed(UNLIMITED, Costs(patience=1.0)) >= {
        "goodput at twice the knee ÷ at the knee",
        "errors at twice the knee beside refusals",
        "seconds until p99 is back",
    }


def test_a_service_whose_refusals_cost_as_much_as_answers_does_not():
    costs = Costs(answer=0.002, refusal=0.001)
    assert "goodput at twice the knee ÷ at the knee" in missed(SHIPPED, costs)


def test_select_shows_three_shares_of_the_knee():
    bench = simulated_bench(SHIPPED)
    (errors,) = select(bench, Plan(seconds=3, step_seconds=3, promise=Promise(p99_seconds=0.05)))
    assert errors.is_met
    assert [stage.name for stage in bench.stages[-3:]] == [
        f"{share} % of the knee" for share in (50, 80, 95)
    ]
    knee = bench.stages[-3].rate / 0.5
    assert 300 < knee < 505, "a request takes 2 ms of the processor"


def test_a_given_rate_is_played_as_it_is():
    bench = simulated_bench(SHIPPED)
    select(bench, Plan(rate=40, seconds=5))
    assert [(stage.name, stage.rate, stage.seconds) for stage in bench.stages] == [
        ("select", 40, 5)
    ]
