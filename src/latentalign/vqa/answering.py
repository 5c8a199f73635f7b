"""One question about one image: the answers, and the prior and posterior of its regions."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from latentalign.alignment.metrics import exact_posterior
from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.vqa.answers import normalise_answer
from latentalign.vqa.dataset import VqaBatch
from latentalign.vqa.features import ImageRegions, RegionFeatures, read_tsv
from latentalign.vqa.model import VqaModel

if TYPE_CHECKING:
    from latentalign.vqa.task import VqaAssets

_KNOWN = ("question", "answer", "features", "image")


def answer_question(
    model: VqaModel,
    assets: "VqaAssets",
    request: Mapping[str, Any],
    *,
    predictor: Predictor,
    top: int = 5,
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """Answers with probabilities, and every region with its prior and (given an answer) its posterior.

    The posterior is the inference network's where the run has one, else the exact p(z|x,y).
    """
    regions = _regions_of(request, assets)
    given = _number_of(assets, request.get("answer"))
    batch = _single_batch(assets, request["question"], regions, answer=given)
    use_network = given is not None and model.posterior is not None
    problem = model.problem(batch.to(next(model.parameters()).device), with_posterior=use_network)
    log_probs = predictor.log_probs(problem.prior, problem.likelihood, generator=generator)[0, 0]  # [V]
    result: dict[str, Any] = {
        "question": request["question"],
        "image": regions.image_id,
        "size": [regions.width, regions.height],
        "answers": _likeliest(log_probs, assets, top),
    }
    weights = {"prior": problem.prior.alignment_probs()}  # [1,1,S]
    if given is not None:
        network = problem.posterior
        found = exact_posterior(problem.prior, problem.likelihood) if network is None else network
        weights["posterior"] = found.alignment_probs()
        result["given"] = assets.answers.answers[given]
        result["posterior_by"] = "exact" if network is None else "inference network"
    return {
        **result,
        "evidence": _evidence(regions, {name: probs[0, 0].tolist() for name, probs in weights.items()}),
    }


def _regions_of(request: Mapping[str, Any], assets: "VqaAssets") -> ImageRegions:
    """The regions that a request is about, in the size that the run knows."""
    unknown = [name for name in request if name not in _KNOWN]
    if unknown:
        raise UserError(
            f"--{unknown[0]}: means nothing to a VQA run; it takes --features, --image and --answer"
        )
    if "features" not in request:
        raise UserError(
            "--features: missing; a VQA run needs the region features of the image (TSV or prepared folder)"
        )
    regions = find_image(request["features"], request.get("image"))
    if regions.features.shape[1] != assets.feature_dim:
        raise UserError(
            f"{request['features']}: features of size {regions.features.shape[1]}; the run was trained on "
            f"size {assets.feature_dim}"
        )
    return regions


def find_image(source: str | Path, image_id: int | None) -> ImageRegions:
    """The regions of one image from a prepared folder or a TSV file."""
    source = Path(source)
    if source.is_dir():
        features = RegionFeatures(source)
        if image_id is None and len(features) == 1:
            image_id = features.image_ids[0]
        if image_id is None:
            raise UserError(f"{source}: holds {len(features)} images; say which with --image ID")
        return features[image_id]
    fitting = (regions for regions in read_tsv(source) if image_id in (None, regions.image_id))
    found = next(fitting, None)
    if found is None:
        raise UserError(f"{source}: no features of image {image_id}; expected a line with this image_id")
    if image_id is None and next(fitting, None) is not None:
        raise UserError(f"{source}: holds more than one image; say which with --image ID")
    return found


def _likeliest(log_probs: Tensor, assets: "VqaAssets", top: int) -> list[dict[str, Any]]:
    best = log_probs.topk(min(top, len(log_probs)))
    return [
        {"answer": assets.answers.answers[number], "probability": round(probability, 6)}
        for number, probability in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    ]


def _number_of(assets: "VqaAssets", answer: str | None) -> int | None:
    if answer is None:
        return None
    number = assets.answers.number(normalise_answer(answer))
    if number < 0:
        examples = ", ".join(assets.answers.answers[:5])
        raise UserError(
            f"--answer {answer}: not among the {len(assets.answers)} answers of the run ({examples}, …)"
        )
    return number


def _single_batch(
    assets: "VqaAssets", question: str, regions: ImageRegions, *, answer: int | None
) -> VqaBatch:
    words = torch.tensor([assets.words.encode(question, limit=assets.data.max_question_words)])
    features = torch.from_numpy(np.array(regions.features))[None]  # [1,S,D]
    if assets.data.normalise_features:
        features = torch.nn.functional.normalize(features, dim=-1)
    count = features.shape[1]
    return VqaBatch(
        words=words,
        lengths=torch.tensor([words.shape[1]]),
        regions=features,
        region_mask=torch.ones(1, count, dtype=torch.bool),
        targets=torch.tensor([[answer or 0]]),
        answerable=torch.tensor([[answer is not None]]),
        said=torch.full((1, 1), -1),
        gold=torch.zeros(1, count, dtype=torch.bool),
        question_types=("",),
    )


def _evidence(regions: ImageRegions, weights: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    evidence = []
    for number, box in enumerate(regions.boxes.tolist()):
        place = ", ".join(f"{value:.0f}" for value in box)
        entry: dict[str, Any] = {
            "text": f"region {number} ({place})",
            "region": number,
            "box": [round(value, 2) for value in box],
        }
        entry.update({name: round(values[number], 6) for name, values in weights.items()})
        evidence.append(entry)
    return evidence
