"""Two runs nobody trained, and a server of them that the tests share."""

import pytest

from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from latentalign.inspector.served import load_runs
from tests.cli.command import untrained_run
from tests.inspector.serving import serving


@pytest.fixture(scope="package")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return [
        untrained_run(place / "variational"),
        untrained_run(place / "soft", objective="soft"),
        untrained_run(place / "relaxed", alignment="dirichlet"),
    ]


@pytest.fixture(scope="package")
def runs(folders):
    return load_runs(folders)


@pytest.fixture(scope="package")
def site(runs):
    with serving(build_app(runs, hosts=("127.0.0.1", "localhost", "::1"))) as found:
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
