"""A task where the alignment is a true choice: latent attention has to beat soft attention on it."""

import pytest
import torch
from torch import Tensor, nn

from latentalign import LatentAttention
from latentalign.alignment import parse_inference

SYMBOLS, ITEMS, KEY = 8, 6, 6


def batch(seed: int, size: int = 64, steps: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each output copies the symbol of one item; the query is that item's key, blurred."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(size, ITEMS, KEY, generator=generator)
    symbols = torch.randint(SYMBOLS, (size, ITEMS), generator=generator)
    memory = torch.cat([keys, nn.functional.one_hot(symbols, SYMBOLS).float()], dim=-1)
    chosen = torch.randint(ITEMS, (size, steps), generator=generator)
    picked = keys.gather(1, chosen[..., None].expand(size, steps, KEY))
    queries = picked + 1.2 * torch.randn(size, steps, KEY, generator=generator)
    return queries, memory, symbols.gather(1, chosen), chosen


def train(objective: str, **options: nn.Module) -> dict[str, float]:
    """NLL on new data by exact and by soft inference, and how often attention finds the item."""
    torch.manual_seed(0)
    attend = LatentAttention(KEY, KEY + SYMBOLS, objective=objective, score="general", **options)
    copy = nn.Linear(KEY + SYMBOLS, SYMBOLS)

    def head(context: Tensor, query: Tensor) -> Tensor:
        return copy(context)

    optimizer = torch.optim.Adam([*attend.parameters(), *copy.parameters()], lr=0.03)
    for step in range(200):
        queries, memory, targets, _ = batch(step)
        optimizer.zero_grad()
        attend(queries, memory, head, targets=targets).loss.backward()
        optimizer.step()
    queries, memory, targets, chosen = batch(-1, size=500)
    result = {}
    for inference in ("soft", "exact"):
        attend.predictor = parse_inference(inference)
        with torch.no_grad():
            output = attend.eval()(queries, memory, head, targets=targets)
        result[inference] = output.loss.item()
    return result | {"found": (output.attention.argmax(dim=-1) == chosen).float().mean().item()}


@pytest.fixture(scope="module")
def soft() -> dict[str, float]:
    return train("soft")


class Posterior(nn.Module):
    """Reads the observed symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, KEY + SYMBOLS)
        self.key = nn.Linear(KEY, KEY + SYMBOLS)

    def forward(self, queries: Tensor, memory: Tensor, targets: Tensor) -> Tensor:
        return (self.key(queries) + self.symbol(targets)) @ memory.transpose(1, 2)


@pytest.mark.parametrize("objective", ["marginal", "variational"])
def test_latent_attention_beats_soft_attention(objective: str, soft: dict[str, float]) -> None:
    network = {"inference_network": Posterior()} if objective == "variational" else {}
    latent = train(objective, **network)
    assert latent["exact"] < soft["soft"] - 0.1
    assert latent["exact"] < soft["exact"] - 0.01  # what training adds to exact inference alone
    assert latent["found"] > 0.5  # chance: 1 in 6
    assert soft["soft"] < 1.5  # soft attention has learnt something too; chance: log 8 = 2.08
