"""`make test` installs chromium where it may, says why where it may not, and fails nowhere."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "browser"
TOOLS = ("grep", "mktemp", "rm", "tail", "timeout")


@pytest.fixture
def run(tmp_path: Path):  # type: ignore[no-untyped-def]
    """The script on a machine with these commands besides the usual tools."""

    def start(*, debian: bool = True, **commands: str) -> tuple[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for tool in TOOLS:
            (folder / tool).symlink_to(
                f"/usr/bin/{tool}" if Path(f"/usr/bin/{tool}").exists() else f"/bin/{tool}"
            )
        for name, text in commands.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        release = tmp_path / "os-release"
        release.write_text("ID=debian\n" if debian else "ID=other\n")
        log = tmp_path / "log"
        environment = {**os.environ, "PATH": str(folder), "OS_RELEASE": str(release), "LOG": str(log)}
        done = subprocess.run(
            ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return done.stderr, log.read_text() if log.exists() else ""

    return start


def test_a_browser_that_is_there_is_left_alone(run) -> None:  # type: ignore[no-untyped-def]
    assert run(chromium="exit 0", id="echo 0", apt_get="echo $@ >> $LOG") == ("", "")


def test_root_on_debian_gets_one(run) -> None:  # type: ignore[no-untyped-def]
    said, done = run(id="echo 0", apt_get='echo "$@" >> $LOG')
    assert "installing" in said
    assert "update" in done
    assert "install -y -qq --no-install-recommends chromium" in done


def test_others_hear_why_not(run) -> None:  # type: ignore[no-untyped-def]
    said, done = run(id="echo 1000", apt_get="echo $@ >> $LOG")
    assert "will be skipped: no chromium here, and only root may install it" in said
    assert done == ""


def test_another_system_hears_why_not(run) -> None:  # type: ignore[no-untyped-def]
    said, done = run(debian=False, id="echo 0", apt_get="echo $@ >> $LOG")
    assert "this is not Debian" in said
    assert done == ""


def test_without_a_network_it_says_so(run) -> None:  # type: ignore[no-untyped-def]
    said, _ = run(id="echo 0", apt_get='echo "E: Could not resolve the host"; exit 100')
    assert "apt-get could not install it: E: Could not resolve the host" in said
