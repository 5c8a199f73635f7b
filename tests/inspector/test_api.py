"""The API gives what the command line gives, to the last digit."""

import json
import threading

import httpx
import pytest

from latentalign.inspector import translation_results
from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from latentalign.inspector.runs import load_runs
from latentalign.inspector.server import LOOPBACK
from latentalign.training.trained_run import load
from tests.cli.command import latentalign, untrained_run
from tests.inspector.serving import PATIENCE, Blocked, assert_refused, serving
from tests.translation.tiny import NETWORKS, SENTENCES, TARGETS

QUICK = {"beam": 3, "max_length_factor": 0.5}
PAIRS = [{"source": left, "target": right} for left, right in zip(SENTENCES, TARGETS, strict=True)]


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "text.de", tmp_path / "text.en"
    source.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    target.write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    return source, target


@pytest.mark.parametrize("inference", [None, "kmax:2", "sample:3", "soft"])
def test_translations_are_those_of_the_command_line(site, folders, files, tmp_path, inference):
    options = [] if inference is None else ["--inference", inference]
    links = tmp_path / "links"
    told = latentalign(
        "translate", folders[0], "--input", files[0], "--beam", 3, "--n-best", 2, "--max-length-factor", 0.5,
        "--scores", "--alignments", links, *options,
    )  # fmt: skip
    assert told.code == 0, told.stderr
    found = site.asked(
        "api/translate", run="variational", sentences=SENTENCES, n_best=2, inference=inference, **QUICK
    )
    assert found["inference"] == (inference or "exact")
    rows, pharaoh = [], []
    for number, result in enumerate(found["results"], start=1):
        for rank, one in enumerate(result["translations"], start=1):
            rows.append(f"{number}\t{rank}\t{one['score']:.4f}\t{one['text']}")
            pharaoh.append(one["pharaoh"])
    assert rows == told.stdout.splitlines()
    assert pharaoh == links.read_text(encoding="utf-8").splitlines()


def test_numbers_are_the_library_s_own_floats(site, folders):
    run = load(folders[0])
    expected = run.translator(beam=3, max_length_factor=0.5).translate(SENTENCES, alignments=True)
    found = site.asked("api/translate", sentences=SENTENCES, **QUICK)["results"]
    for (best,), result in zip(expected, found, strict=True):
        (one,) = result["translations"]
        assert (one["text"], one["score"], one["log_prob"]) == (best.text, best.score, best.log_prob)
        links = {(link["source"], link["target"]): link["probability"] for link in one["links"]}
        assert links == best.links("exact")


@pytest.mark.parametrize(
    ("run", "by", "threshold"), [(0, None, None), (0, "exact", 0.2), (1, None, None), (2, "prior", None)]
)
def test_links_and_scores_are_those_of_the_command_line(site, folders, files, run, by, threshold):
    options = [*(["--by", by] if by else []), *(["--threshold", threshold] if threshold else [])]
    told = latentalign(
        "align", folders[run], "--source", files[0], "--target", files[1], "--scores", *options
    )
    assert told.code == 0, told.stderr
    found = site.asked(
        "api/align", run=folders[run].name, pairs=PAIRS, by=by, threshold=threshold, scores=True
    )
    rows = [f"{one['pharaoh']}\t{one['score']:.4f}" for one in found["results"]]
    assert rows == told.stdout.splitlines()
    assert found["by"] == (by or "exact")


def test_scores_alone_are_those_of_align(site, folders):
    aligner = load(folders[0]).aligner()
    pairs = list(zip(SENTENCES, TARGETS, strict=True))
    expected = [one.score for one in aligner.align(pairs, score=True)]
    found = site.asked("api/score", run="variational", pairs=PAIRS)["results"]
    assert [one["score"] for one in found] == expected
    assert found[3]["log_prob"] == pytest.approx(found[3]["score"] * found[3]["pieces"])


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "soft"])
def test_scores_by_inference_are_those_of_evaluate(site, folders, files, inference):
    told = latentalign(
        "evaluate", folders[0], "--source", files[0], "--target", files[1], "--inference", inference, "--json"
    )
    assert told.code == 0, told.stderr
    expected = json.loads(told.stdout)
    found = site.asked("api/score", run="variational", pairs=PAIRS, inference=inference)["results"]
    pieces = sum(one["pieces"] for one in found)
    assert pieces == expected["tokens"]
    assert -sum(one["log_prob"] for one in found) / pieces == pytest.approx(expected["nll"], rel=1e-9)


def all_at_once(site, texts, **options):
    """Answers to a request for every text, all of which wait until the model is free."""
    answers: list[dict | None] = [None] * len(texts)
    blocked = Blocked(site.service)

    def client(place: int) -> None:
        answer = httpx.post(
            f"{site.address}api/translate", json={"sentences": [texts[place]], **options}, timeout=PATIENCE
        )
        answers[place] = answer.json()["results"][0]["translations"][0]

    threads = [threading.Thread(target=client, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    blocked.wait_for(len(texts))
    blocked.free.set()
    for thread in threads:
        thread.join(PATIENCE)
    return answers


def test_together_or_alone_the_answers_agree(site, monkeypatch):
    sizes = []
    compute = translation_results.translate
    monkeypatch.setattr(
        translation_results,
        "translate",
        lambda *given, **named: sizes.append(len(given[1])) or compute(*given, **named),
    )
    alone = [site.asked("api/translate", sentences=[text], **QUICK)["results"][0] for text in SENTENCES]
    together = all_at_once(site, SENTENCES * 2, **QUICK)
    assert sizes == [1] * 5 + [10]  # one batch
    for before, now in zip([one["translations"][0] for one in alone] * 2, together, strict=True):
        assert (now["text"], now["pharaoh"]) == (before["text"], before["pharaoh"])
        assert now["score"] == pytest.approx(before["score"], abs=1e-5)


def test_company_does_not_change_what_is_sampled(site):
    options = {"inference": "sample:2", "seed": 3, **QUICK}
    alone = [site.asked("api/translate", sentences=[text], **options)["results"][0] for text in SENTENCES[:3]]
    assert all_at_once(site, SENTENCES[:3], **options) == [one["translations"][0] for one in alone]


def test_a_seed_repeats_what_is_sampled(site):
    asked = {"sentences": SENTENCES[:2], "inference": "sample:2", **QUICK}
    first, again, other = (site.asked("api/translate", seed=seed, **asked)["results"] for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_matrices_are_distributions_with_their_entropy(site):
    found = site.asked("api/align", run="variational", pairs=PAIRS[:1], matrices=True)["results"][0]
    tables = found["matrices"]
    for name in ("prior", "posterior", "exact"):
        assert len(tables[name]) == len(found["target_words"]) == len(tables["entropy"][name])
        assert all(len(row) == len(found["source_words"]) for row in tables[name])
        assert all(0 < sum(row) <= 1 + 1e-6 for row in tables[name])
    assert tables["disagreement"]["between"] == ["prior", "posterior"]
    assert all(0 < value <= 1 for value in tables["disagreement"]["distance"])


def test_a_run_without_a_posterior_is_compared_with_the_exact_one(site):
    found = site.asked("api/align", run="soft", pairs=PAIRS[:1], matrices=True)["results"][0]["matrices"]
    assert found["posterior"] is None
    assert found["disagreement"]["between"] == ["prior", "exact"]
    relaxed = site.asked("api/align", run="relaxed", pairs=PAIRS[:1], matrices=True)["results"][0]["matrices"]
    assert relaxed["exact"] is None
    assert relaxed["disagreement"]["between"] == ["prior", "posterior"]


def test_empty_sentences_have_empty_answers(site):
    found = site.asked("api/translate", sentences=["", " \t "], **QUICK)["results"]
    assert [one["translations"][0]["text"] for one in found] == ["", ""]
    aligned = site.asked("api/align", pairs=[{"source": "", "target": "yes"}], scores=True, matrices=True)
    assert aligned["results"][0]["links"] == []
    assert aligned["results"][0]["score"] is None
    assert site.asked("api/score", pairs=[{"source": "ja", "target": ""}])["results"][0]["score"] is None


def test_what_is_served(site):
    found = site.client.get("api/runs").json()
    assert [run["name"] for run in found["runs"]] == [
        "variational",
        "soft",
        "relaxed",
        "memory",
        "vqa",
        "aligner",
    ]
    assert [run["by"] for run in found["runs"][:3]] == [
        ["posterior", "prior", "exact"], ["prior", "exact"], ["posterior", "prior"]
    ]  # fmt: skip
    assert [run["inference"] for run in found["runs"][:3]] == ["exact", "soft", "sample:20"]
    assert found["limits"]["sentences"] == 64
    assert site.client.get("healthz").json() == {"status": "ok", "computing": 0, "waiting": 0}


@pytest.mark.parametrize(
    ("path", "body", "parts"),
    [
        ("translate", {"sentences": ["ja"], "run": "../variational"}, ["run", "variational", "/api/runs"]),
        (
            "translate",
            {"sentences": ["ja"], "run": "relaxed", "inference": "exact"},
            ["discrete", "sample"],
        ),
        ("translate", {"sentences": ["ja"], "beam": 2, "n_best": 3}, ["n-best", "beam size 2"]),
        ("translate", {"sentences": "ja"}, ["sentences", "list"]),
        ("translate", {"sentences": ["ja"], "bean": 4}, ["bean"]),
        ("translate", {"sentences": []}, ["sentences", "at least 1"]),
        ("align", {"pairs": PAIRS, "run": "soft", "by": "posterior"}, ["by", "no posterior", "prior"]),
        ("align", {"pairs": PAIRS, "run": "relaxed", "by": "exact"}, ["by", "relaxed"]),
        ("score", {"pairs": PAIRS, "run": "relaxed", "inference": "kmax:3"}, ["relaxed", "sample:20"]),
        ("score", {"pairs": PAIRS, "inference": "kmacks:3"}, ["inference"]),
        ("next", {"source": "  "}, ["source", "at least one word"]),
    ],
)
def test_mistakes_are_told(site, folders, path, body, parts):
    error = assert_refused(site.post(f"api/{path}", **body), 422, *parts)
    assert str(folders[0].parent) not in error["message"]


def test_a_transformer_is_served_as_any_other_run(tmp_path):
    """Cached keys and values behind the page: translations and links to the last digit of the library's."""
    folder = untrained_run(tmp_path / "transformer", **NETWORKS["transformer"])
    run = load(folder)
    expected = run.translator(beam=3, max_length_factor=0.5).translate(SENTENCES[:2])
    links = run.aligner().align(list(zip(SENTENCES, TARGETS, strict=True))[:2], exact=True, score=True)
    with serving(build_app(load_runs([folder]), limits=Limits(seconds=PATIENCE), hosts=LOOPBACK)) as site:
        found = site.asked("api/translate", sentences=SENTENCES[:2], **QUICK)["results"]
        aligned = site.asked("api/align", pairs=PAIRS[:2], scores=True)["results"]
    for (best,), result in zip(expected, found, strict=True):
        (one,) = result["translations"]
        assert (one["text"], one["log_prob"]) == (best.text, best.log_prob)
    assert [one["score"] for one in aligned] == [one.score for one in links]
