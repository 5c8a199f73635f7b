"""Pictures of a study: learning curves, samples, the latent plane."""

from pathlib import Path
from typing import Any

import matplotlib
import torch
from torch import Tensor

from latentalign.gaussian.digits import SIDE, Digits
from latentalign.gaussian.model import DigitModel
from latentalign.gaussian.study import METHODS, Curve

COLOURS = {"auto-encoding": "#1b6ca8", "wake-sleep": "#c8553d"}


def _pyplot() -> Any:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_curves(curves: list[Curve], path: Path) -> None:
    """The bound by samples seen, one panel a latent size, on held-out and on training pictures."""
    pyplot = _pyplot()
    sizes = sorted({curve.latent for curve in curves})
    figure, panels = pyplot.subplots(1, len(sizes), figsize=(4 * len(sizes), 3.6), sharey=True, squeeze=False)
    for panel, latent in zip(panels[0], sizes, strict=True):
        for curve in curves:
            if curve.latent != latent:
                continue
            first = curve.seed == min(other.seed for other in curves)
            colour = COLOURS[curve.method]
            for values, style, part in (
                (curve.held_out_bound, "-", "held out"),
                (curve.train_bound, ":", "training"),
            ):
                label = f"{curve.method}, {part}" if first else None
                panel.plot(curve.samples_seen, values, style, color=colour, linewidth=1.3, label=label)
        panel.set_xscale("log")
        panel.set_title(f"{latent} latent numbers")
        panel.set_xlabel("pictures seen")
        panel.grid(alpha=0.3)
    floor = min(curve.held_out_bound[len(curve.held_out_bound) // 20] for curve in curves)
    top = max(max(curve.train_bound) for curve in curves)
    panels[0][0].set_ylim(floor - 1, top + 1)
    panels[0][0].set_ylabel("bound, nats a picture")
    panels[0][-1].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    _save(figure, path)


def _tiles(pictures: Tensor, columns: int) -> Tensor:
    """Pictures [N,PIXELS] as one large picture with thin white lines between them."""
    padded = torch.nn.functional.pad(pictures.view(-1, SIDE, SIDE), (1, 1, 1, 1), value=0.0)
    rows = len(padded) // columns
    grid = padded[: rows * columns].view(rows, columns, SIDE + 2, SIDE + 2)
    return grid.permute(0, 2, 1, 3).reshape(rows * (SIDE + 2), columns * (SIDE + 2))


@torch.no_grad()
def draw_samples(models: dict[tuple[str, int], DigitModel], held_out: Digits, path: Path) -> None:
    """Pictures drawn from each model (pixel probabilities), beside held-out ones."""
    pyplot = _pyplot()
    sizes = sorted({latent for _, latent in models})
    figure, panels = pyplot.subplots(
        len(METHODS), len(sizes) + 1, figsize=(2.6 * (len(sizes) + 1), 5.6), squeeze=False
    )
    for row, method in enumerate(METHODS):
        for column, latent in enumerate(sizes):
            noise = torch.randn(64, 1, latent, generator=torch.Generator().manual_seed(0))
            drawn = models[method, latent].decoder(noise)[:, 0].sigmoid()
            _show(panels[row][column], _tiles(drawn, 8), f"{method}, {latent}")
        _show(panels[row][-1], _tiles(held_out.pixels[64 * row : 64 * (row + 1)], 8), "held-out pictures")
    figure.tight_layout()
    _save(figure, path)


@torch.no_grad()
def draw_plane(model: DigitModel, held_out: Digits, path: Path, *, steps: int = 20) -> None:
    """What the decoder draws across a plane of latents, and where the encoder puts held-out pictures."""
    assert model.latent == 2
    assert model.encoder is not None
    pyplot = _pyplot()
    # equal steps of probability: the plane is covered as densely as the prior covers it
    ticks = torch.special.ndtri(torch.linspace(0.02, 0.98, steps))
    z = torch.stack(torch.meshgrid(ticks, ticks.flip(0), indexing="xy"), dim=-1).view(-1, 1, 2)
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 5.2))
    _show(panels[0], _tiles(model.decoder(z)[:, 0].sigmoid(), steps), "decoder, by quantiles of the prior")
    places = model.encoder(held_out.pixels).loc[:, 0]
    points = panels[1].scatter(
        places[:, 0].tolist(), places[:, 1].tolist(), c=held_out.labels.tolist(), cmap="tab10", s=14
    )
    panels[1].set_title("encoder's mean for held-out pictures")
    panels[1].grid(alpha=0.3)
    figure.colorbar(points, ax=panels[1], label="digit", ticks=range(10))
    figure.tight_layout()
    _save(figure, path)


def _show(panel: Any, picture: Tensor, title: str) -> None:
    panel.imshow(picture.tolist(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    panel.set_title(title, fontsize=10)
    panel.axis("off")


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    _pyplot().close(figure)
