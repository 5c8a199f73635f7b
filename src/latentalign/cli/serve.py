"""`latentalign serve`: the inspector's page and API."""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latentalign.cli.options import DeviceOption
from latentalign.errors import UserError

if TYPE_CHECKING:
    from latentalign.inspector.limits import Limits

MOST_THREADS = 256  # far more crash torch
LAST_PORT = 65535


@dataclass(frozen=True)
class Serve:
    """The inspector: a page to look at alignments, and an HTTP API."""

    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN|ALIGNER...", help="Folders of trained runs and aligners.")
    ]
    host: Annotated[str, typer.Option(help="Address to listen on; only this machine unless given.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.")] = 8000
    features: Annotated[
        Path | None,
        typer.Option(help="VQA: prepared region features; those of the run's recipe unless given."),
    ] = None
    images: Annotated[Path | None, typer.Option(help="VQA: folder of pictures, named by their numbers.")] = (
        None
    )
    max_characters: Annotated[int, typer.Option(help="Longest sentence.")] = 2000
    max_sentences: Annotated[int, typer.Option(help="Most sentences of a request.")] = 64
    max_beam: Annotated[int, typer.Option(help="Widest beam a client may ask for.")] = 20
    max_k: Annotated[int, typer.Option(help="Largest K of kmax a client may ask for.")] = 1000
    time_limit: Annotated[float, typer.Option(help="Seconds a request may take.")] = 30.0
    queue: Annotated[int, typer.Option(help="Sentences that may wait; beyond them clients hear 503.")] = 512
    batch: Annotated[
        int, typer.Option(help="Sentences computed together; 1 computes every request alone.")
    ] = 64
    device: DeviceOption = "auto"
    threads: Annotated[int | None, typer.Option(help="Of torch; its own choice unless given.")] = None
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write what users send into the log.")] = (
        False
    )

    def __call__(self) -> None:
        from latentalign.inspector.app import build_app
        from latentalign.inspector.runs import load_runs
        from latentalign.inspector.server import address_of, host_names, is_loopback, listen, run_server

        limits = self._limits()
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
        self._set_threads()
        if not 0 <= self.port <= LAST_PORT:  # some systems wrap a larger number around
            raise UserError(f"--port {self.port}: expected 0 (any free one) to {LAST_PORT}")
        loaded = load_runs(self.runs, features=self.features, images=self.images, device=self.device)
        app = build_app(loaded, limits=limits, hosts=host_names(self.host), log_texts=self.log_texts)
        listener = listen(self.host, self.port)
        if not is_loopback(self.host):
            print(
                f"latentalign: warning: {self.host} is reachable from other machines: whoever reaches it can use "
                "these runs, without a password and without encryption",
                file=sys.stderr,
            )
        names = ", ".join(f"{one.name} ({one.task})" for one in loaded)
        address = address_of(listener)
        run_server(
            app,
            listener,
            ready=lambda: print(f"{names} at {address} (stop with Ctrl-C)", flush=True),
            time_limit=self.time_limit,
        )

    def _limits(self) -> "Limits":
        from latentalign.inspector.limits import Limits

        return Limits(
            characters=self.max_characters,
            total_characters=max(20_000, self.max_characters),
            sentences=self.max_sentences,
            beam=self.max_beam,
            k=self.max_k,
            seconds=self.time_limit,
            queue=self.queue,
            batch=self.batch,
        )

    def _set_threads(self) -> None:
        import torch

        if self.threads is None:
            return
        if not 1 <= self.threads <= MOST_THREADS:
            raise UserError(
                f"--threads {self.threads}: expected 1 to {MOST_THREADS}; try the number of free cores"
            )
        torch.set_num_threads(self.threads)
