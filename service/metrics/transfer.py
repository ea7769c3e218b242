"""Metrics of transfer to the target, estimated without target rewards."""

from dataclasses import asdict

from model import Judgement, Word
from service.metrics.registered import Registered

TERMS = ("source_regret", "regression_error", "divergence", "predicted_reward")
SIGNS = (
    "far_share",
    "share_distance",
    "source_skill",
    "independent_members",
    "unpaid_arms",
    "proxy_a_distance",
    "target_entropy",
    "target_density",
    "source_rank",
    "target_rank",
)


class TransferMetrics(Registered):
    """Metrics of how well the source transfers, for the newest judged encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = self._gauge(
            "daband_expected_target_reward",
            "Expected mean reward of the policy on the target in [0, 1], and its lower bound",
            *("livemostrecent", "experiment", "figure"),
        )
        self.domain_accuracy = self._gauge(
            "daband_domain_accuracy",
            "Held-out accuracy of a fresh discriminator on latents; 0.5: the domains look alike",
            *("livemostrecent", "experiment"),
        )
        self.terms = self._gauge(
            "daband_diagnostic_term",
            "Diagnostic terms of the regret of a round; they do not add up to a bound",
            *("livemostrecent", "experiment", "term"),
        )
        self.signs = self._gauge(
            "daband_transfer_sign",
            "Label-free signs of transfer, as `GET /experiments/{name}/transfer` names them",
            *("livemostrecent", "experiment", "sign"),
        )
        self.verdicts = self._gauge(
            "daband_transfer_verdict",
            "1 for the present verdict on transfer, 0 for the others",
            *("livemostrecent", "experiment", "verdict"),
        )

    def set_transfer(self, experiment: str, found: Judgement) -> None:
        """The transfer of an encoder was judged."""
        figures = asdict(found.report) | asdict(found.signs)
        for figure, value in found.expected.items():
            self._set(self.expected, experiment, value, figure)
        self._set(self.domain_accuracy, experiment, figures["domain_accuracy"])
        for term in TERMS:
            self._set(self.terms, experiment, figures[term], term)
        for sign in SIGNS:
            self._set(self.signs, experiment, figures[sign], sign)
        for word in Word:
            self._set(self.verdicts, experiment, word == found.verdict.word, word.value)
