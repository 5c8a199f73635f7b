"""The whole benchmark, tiny: every section that needs no other system writes its figures and the page."""

import json
from pathlib import Path

import pytest
from benchmarks.translation.__main__ import SECTIONS, main

TINY = (
    "embedding_size", "memory_size", "decoder_size", "hidden_size", "attention_size", "inference_network.memory_size",
)  # fmt: skip


def arguments(tmp_path: Path, *sections: str) -> list[str]:
    sizes = [f"--set=model.{name}=8" for name in TINY]
    counts = {
        "data": tmp_path / "nothing",
        "epochs": 1,
        "sharpen": 3,
        "pairs": 60,
        "batches": 2,
        "rounds": 2,
        "turn-seconds": 0.1,
        "sentences": 4,
        "few-sentences": 2,
        "growth-tokens": 20,
        "growth-size": 8,
        "threads": 1,
        "work": tmp_path / "work",
        "out": tmp_path / "out",
    }
    options = [f"--{name}={value}" for name, value in counts.items()]
    return [
        *sections,
        *options,
        "--quick",
        *sizes,
        "--set=data.tokenizer.size=150",
        "--set=data.batch_size=8",
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_section_but_the_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = [section for section in SECTIONS if section != "peer"]
    main(arguments(tmp_path, *sections))
    results = json.loads((tmp_path / "out" / "performance.json").read_text(encoding="utf-8"))
    assert set(sections) <= set(results)
    assert results["measured"]["training"]["data"].startswith("generated text")
    soft = results["training"]["objectives"]["soft"]
    assert soft["ratio"] == 1.0
    assert soft["peak_mib"] > soft["extra_mib"] >= 0
    errors = [row["relative_error"] for row in results["training"]["gradients"]["marginal"]]
    assert errors[-1] <= errors[0] < 1.0  # the less is pruned, the smaller the error
    printed = capsys.readouterr().out
    assert "variational, 1 sample: tokens/s over soft's" in printed
    assert "reached" in printed
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for title in ("Goals", "Training steps", "Decoding", "The machine", "Profile of a step", "Growth"):
        assert f"## {title}" in page
    assert (tmp_path / "out" / "growth.png").is_file()
    # one section again: the others stay
    main(arguments(tmp_path, "machine"))
    again = json.loads((tmp_path / "out" / "performance.json").read_text(encoding="utf-8"))
    assert again["training"] == results["training"]
    assert again["machine"] != results["machine"]


def test_the_peer_is_skipped_with_a_reason_where_it_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.translation import peer
    from benchmarks.translation.__main__ import parse
    from benchmarks.translation.setting import Setting

    monkeypatch.setattr(peer.sys, "executable", "/bin/false")
    options = parse([*arguments(tmp_path, "peer"), f"--peer-env={tmp_path / 'nowhere'}"])
    assert peer.run(Setting(options))["skipped"].startswith("JoeyNMT cannot be installed: ")
