"""A small folder of generated scenes, made once, and a way to run the command line in this process."""

import shutil
import sys

import pytest

from latentalign import cli
from latentalign.vqa.scene_files import ScenesConfig, ensure_scenes

SCENES = ScenesConfig(train_images=30, valid_images=12, questions_per_image=4, seed=5)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory):
    """Read only: 30 training and 12 validation scenes."""
    folder = tmp_path_factory.mktemp("vqa") / "scenes"
    ensure_scenes(folder, SCENES)
    return folder


@pytest.fixture
def own_scenes(scenes, tmp_path):
    """A copy to break."""
    folder = tmp_path / "scenes"
    shutil.copytree(scenes, folder)
    return folder


@pytest.fixture
def run_cli(monkeypatch, capsys):
    """Run a command; gives its exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["latentalign", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
