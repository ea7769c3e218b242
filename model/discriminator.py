"""The discriminator g: guesses the domain of a latent (source = 0, target = 1)."""

from torch import Tensor, nn


class Discriminator(nn.Module):
    """Two hidden layers; the output is a logit (n,), positive for target."""

    def __init__(self, latent_size: int, hidden_size: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, 1),
        )

    def forward(self, latents: Tensor) -> Tensor:
        logits: Tensor = self.layers(latents)
        return logits[:, 0]
