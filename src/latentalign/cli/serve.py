"""`latentalign serve`: the inspector's page and API."""

import logging
import sys
from pathlib import Path

import typer

from latentalign.cli.options import DeviceOption
from latentalign.errors import UserError

MOST_THREADS = 256  # far more crash torch
LAST_PORT = 65535


def serve(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN|ALIGNER...", help="Folders of trained runs and aligners."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; only this machine unless given."),
    port: int = typer.Option(8000, help="Port to listen on; 0 takes any free one."),
    features: Path | None = typer.Option(
        None, help="VQA: prepared region features; those of the run's recipe unless given."
    ),
    images: Path | None = typer.Option(None, help="VQA: folder of pictures, named by their numbers."),
    max_characters: int = typer.Option(2000, help="Longest sentence."),
    max_sentences: int = typer.Option(64, help="Most sentences of a request."),
    max_beam: int = typer.Option(20, help="Widest beam a client may ask for."),
    max_k: int = typer.Option(1000, help="Largest K of kmax a client may ask for."),
    time_limit: float = typer.Option(30.0, help="Seconds a request may take."),
    queue: int = typer.Option(512, help="Sentences that may wait; beyond them clients hear 503."),
    batch: int = typer.Option(64, help="Sentences computed together; 1 computes every request alone."),
    device: DeviceOption = "auto",
    threads: int | None = typer.Option(None, help="Of torch; its own choice unless given."),
    log_texts: bool = typer.Option(False, "--log-texts", help="Write what users send into the log."),
) -> None:
    """The inspector: a page to look at alignments, and an HTTP API."""
    import torch

    from latentalign.inspector.app import build_app
    from latentalign.inspector.limits import Limits
    from latentalign.inspector.runs import load_runs
    from latentalign.inspector.server import address_of, host_names, is_loopback, listen, run_server

    limits = Limits(
        characters=max_characters,
        total_characters=max(20_000, max_characters),
        sentences=max_sentences,
        beam=max_beam,
        k=max_k,
        seconds=time_limit,
        queue=queue,
        batch=batch,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise UserError(
                f"--threads {threads}: expected 1 to {MOST_THREADS}; try the number of free cores"
            )
        torch.set_num_threads(threads)
    if not 0 <= port <= LAST_PORT:  # some systems take the rest of a division
        raise UserError(f"--port {port}: expected 0 (any free one) to {LAST_PORT}")
    loaded = load_runs(runs, features=features, images=images, device=device)
    app = build_app(loaded, limits=limits, hosts=host_names(host), log_texts=log_texts)
    listener = listen(host, port)
    if not is_loopback(host):
        print(
            f"latentalign: warning: {host} is reachable from other machines: whoever reaches it can use these "
            "runs, without a password and without encryption",
            file=sys.stderr,
        )
    names = ", ".join(f"{one.name} ({one.task})" for one in loaded)
    address = address_of(listener)
    run_server(
        app,
        listener,
        ready=lambda: print(f"{names} at {address} (stop with Ctrl-C)", flush=True),
        time_limit=time_limit,
    )
