"""The inspector under load: many clients at once, with micro-batches and one request at a time.

    python -m benchmarks.server [RUN] [--clients 64] [--seconds 60] [--json FILE]

Starts `latentalign serve` in a process of its own and sends sentences from this one, each client the next as soon as
it has an answer. Without a run, a model of the size of the Multi30k recipes is made up on the spot: what it says is
nonsense, what it costs is not.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.measure import report

WORDS = re.findall(
    r"\w+",
    "ein eine der die das Hund Mann Frau Kind Haus Park läuft sieht spielt rot groß klein und mit auf in",
)
BEAM = 5


def made_up_run(folder: Path) -> Path:
    """A run folder with random weights and a vocabulary of the usual size."""
    import torch

    from latentalign.training.recipe.recipes import build_recipe
    from latentalign.training.run.config_file import save_config
    from latentalign.training.run.weights import save_model
    from latentalign.translation.data.assets import TranslationAssets
    from latentalign.translation.data.tokenizer import WhitespaceTokenizer

    files = {"source": "train.de", "target": "train.en"}
    values = {
        "task": "translation",
        "data": {"train": files, "valid": files, "tokenizer": {"kind": "whitespace"}},
        "model": {"embedding_size": 256, "memory_size": 512, "decoder_size": 512, "attention_size": 256},
        "objective": "marginal",
    }
    recipe = build_recipe(values)
    vocabulary = [*WORDS, *(f"word{number}" for number in range(3500))]
    assets = TranslationAssets(WhitespaceTokenizer(vocabulary), WhitespaceTokenizer(vocabulary))
    torch.manual_seed(1)
    model = recipe.task.build_model(recipe.model, assets, needs_posterior=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("output", "score")):
                parameter.mul_(8.0)  # as decided as a trained model
        model.output.bias[3] += 3.0  # and about as long-winded: the end of a sentence comes after some words
    folder.mkdir(parents=True)
    save_config(recipe, folder)
    assets.save(folder)
    save_model(model, folder)
    return folder


class Server:
    """`latentalign serve` as a process."""

    def __init__(self, runs: list[Path], *, batch: int, threads: int, time_limit: float = 30.0) -> None:
        command = [sys.executable, "-m", "latentalign", "serve", *map(str, runs), "--port", "0"]
        command += ["--batch", str(batch), "--threads", str(threads), "--time-limit", str(time_limit)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError("the server did not start")
        self.address = found[0]

    def cpu_seconds(self) -> float:
        """What it has used so far: tells the cost of a sentence also on a machine that others use."""
        used = psutil.Process(self.process.pid).cpu_times()
        return used.user + used.system

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def sentences(count: int = 500) -> list[str]:
    """Sentences of five to fifteen words, the same every time."""
    rng = random.Random(7)
    return [" ".join(rng.choices(WORDS, k=rng.randint(5, 15))) + " ." for _ in range(count)]


async def _client(
    number: int,
    texts: list[str],
    http: httpx.AsyncClient,
    until: float,
    latencies: list[float],
    counts: dict[str, int],
) -> None:
    place = number * 17
    while time.perf_counter() < until:
        body = {"sentences": [texts[place % len(texts)]], "beam": BEAM, "alignments": False}
        place += 1
        started = time.perf_counter()
        try:
            answer = await http.post("api/translate", json=body)
        except httpx.TransportError as error:  # no answer at all; counted, and a failure at the end
            name = type(error).__name__
            counts[name] = counts.get(name, 0) + 1
            continue
        counts[str(answer.status_code)] = counts.get(str(answer.status_code), 0) + 1
        if answer.status_code == 200:
            latencies.append(time.perf_counter() - started)
        elif answer.status_code == 503:
            await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))


async def _load(address: str, clients: int, seconds: float, patience: float) -> dict[str, Any]:
    texts = sentences()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    latencies: list[float] = []
    counts: dict[str, int] = {}
    async with httpx.AsyncClient(base_url=address, timeout=patience, limits=limits) as http:
        await http.post("api/translate", json={"sentences": texts[:4], "beam": BEAM})  # warm
        started = time.perf_counter()
        until = started + seconds
        await asyncio.gather(
            *(_client(number, texts, http, until, latencies, counts) for number in range(clients))
        )
        spent = time.perf_counter() - started
    latencies.sort()
    at = lambda share: latencies[min(len(latencies) - 1, int(share * len(latencies)))] if latencies else None  # noqa: E731
    return {
        "sentences_per_second": len(latencies) / spent,
        "p50_seconds": at(0.5),
        "p95_seconds": at(0.95),
        "answers": dict(sorted(counts.items())),
    }


def measure(
    run: Path, *, batch: int, clients: int, seconds: float, threads: int, time_limit: float
) -> dict[str, Any]:
    """Load one server; errors other than 503 are a failure of the benchmark."""
    server = Server([run], batch=batch, threads=threads, time_limit=time_limit)
    try:
        before = server.cpu_seconds()
        found = asyncio.run(_load(server.address, clients, seconds, time_limit + 90))
        done = found["answers"].get("200", 0)
        found["sentences_per_cpu_second"] = done / (server.cpu_seconds() - before)
    finally:
        code = server.stop()
    if code != 0 or set(found["answers"]) - {"200", "503"} or not found["answers"].get("200"):
        raise SystemExit(
            f"server: exit code {code}, answers {found['answers']}; expected 0, some 200, and else only 503"
        )
    return found


def main() -> None:
    """Measure both ways and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="a translation run; made up unless given")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=2, help="of torch in the server")
    parser.add_argument("--time-limit", type=float, default=30.0, help="of the server, for a request")
    parser.add_argument("--json", type=Path, help="also write the results there")
    options = parser.parse_args()
    asked = {"clients": options.clients, "seconds": options.seconds, "threads": options.threads}
    asked["time_limit"] = options.time_limit
    with tempfile.TemporaryDirectory() as place:
        run = options.run or made_up_run(Path(place) / "run")
        together = measure(run, batch=64, **asked)
        alone = measure(run, batch=1, **asked)
    ratio = together["sentences_per_second"] / alone["sentences_per_second"]
    print(f"{options.clients} clients for {options.seconds:g} s, beam {BEAM}, {options.threads} threads")
    print(f"{'':22}{'sentences/s':>12}{'of CPU':>9}{'p50':>9}{'p95':>9}   answers")
    for name, found in (("micro-batches", together), ("one at a time", alone)):
        print(
            f"{name:22}{found['sentences_per_second']:12.1f}{found['sentences_per_cpu_second']:9.1f}{found['p50_seconds']:8.2f}s{found['p95_seconds']:8.2f}s"
            f"   {found['answers']}"
        )
    cheaper = together["sentences_per_cpu_second"] / alone["sentences_per_cpu_second"]
    print(f"throughput: {ratio:.1f} times that of one request at a time (at least 2 is asked for)")
    print(f"a second of processor time does {cheaper:.1f} times as much, whatever else the machine does")
    results = {"together": together, "alone": alone, "ratio": ratio, "ratio_by_processor_time": cheaper}
    report("server", {**asked, **results}, options.json)


if __name__ == "__main__":
    main()
