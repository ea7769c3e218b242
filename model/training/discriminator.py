"""The discriminator g: classifies the domain of a latent (source = 0, target = 1)."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from model.encoders.ensemble import MemberLinear, aligned_count, by_member
from model.encoders.size import DISCRIMINATOR_SIZE


class Discriminator(nn.Module):
    """Two hidden layers for each aligned member of an ensemble; a logit is positive for target."""

    def __init__(
        self, latent_size: int, hidden_size: int = DISCRIMINATOR_SIZE, members: int = 1
    ) -> None:
        super().__init__()
        self.members, self.aligned = members, aligned_count(members)
        sizes = (latent_size // members, hidden_size, hidden_size)
        self.hidden = nn.ModuleList(MemberLinear(self.aligned, a, b) for a, b in pairwise(sizes))
        self.last = MemberLinear(self.aligned, hidden_size, 1)

    def logits(self, latents: Tensor) -> Tensor:
        """Logits from each aligned member's part of the latents (n, d), (n, aligned)."""
        hidden = by_member(latents, self.members)[:, -self.aligned :]
        for layer in self.hidden:
            hidden = functional.relu(layer(hidden))
        scores: Tensor = self.last(hidden)
        return scores[:, :, 0]

    def forward(self, latents: Tensor) -> Tensor:
        """The mean logit, (n,)."""
        return self.logits(latents).mean(dim=1)
