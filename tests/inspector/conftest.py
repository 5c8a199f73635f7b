"""Runs that nobody trained, of every task, and a server of them that the tests share."""

import pytest

from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from latentalign.inspector.runs import load_runs
from latentalign.inspector.server import LOOPBACK
from latentalign.wordalign.aligner import Aligner
from tests.cli.command import untrained_run
from tests.inspector.serving import PATIENCE, serving
from tests.inspector.untrained import untrained_memory_run, untrained_vqa_run
from tests.translation.tiny import SENTENCES, TARGETS


@pytest.fixture(scope="package")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return [
        untrained_run(place / "variational"),
        untrained_run(place / "soft", objective="soft"),
        untrained_run(place / "relaxed", alignment="dirichlet"),
    ]


@pytest.fixture(scope="package")
def asked_folders(tmp_path_factory):
    """Runs that answer questions; `scenes` beside them."""
    place = tmp_path_factory.mktemp("asked")
    return [untrained_memory_run(place / "memory"), untrained_vqa_run(place / "vqa", scenes=place / "scenes")]


@pytest.fixture(scope="package")
def aligner_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learnt") / "aligner"
    Aligner.fit(list(zip(SENTENCES, TARGETS, strict=True))).save(folder)
    return folder


@pytest.fixture(scope="package")
def runs(folders, asked_folders, aligner_folder):
    return load_runs([*folders, *asked_folders, aligner_folder])


@pytest.fixture(scope="package")
def site(runs):
    with serving(build_app(runs, limits=Limits(seconds=PATIENCE), hosts=LOOPBACK)) as found:
        yield found


@pytest.fixture
def limited(runs):
    """Start a server with limits of the test's own."""
    running = []

    def start(**limits):
        context = serving(build_app(runs, limits=Limits(**limits)))
        running.append(context)
        return context.__enter__()

    yield start
    for context in running:
        context.__exit__(None, None, None)
