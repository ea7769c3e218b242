"""Metrics of transfer to the target, estimated without target rewards."""

from collections.abc import Mapping

from model import Word
from service.metrics.registered import Registered

TERMS = ("source_regret", "regression_error", "divergence", "predicted_reward")
SIGNS = (
    "raw_domain_accuracy",
    "share_distance",
    "mean_confidence",
    "source_explained",
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

    def set_transfer(self, experiment: str, figures: Mapping[str, float], verdict: str) -> None:
        """The transfer of an encoder was judged; `figures` are its signs and diagnostics by name."""
        self._set(self.domain_accuracy, experiment, figures["domain_accuracy"])
        for term in TERMS:
            self._set(self.terms, experiment, figures[term], term)
        for sign in SIGNS:
            self._set(self.signs, experiment, figures[sign], sign)
        for word in Word:
            self._set(self.verdicts, experiment, word == verdict, word.value)
