"""Downloads, against a server on this machine."""

import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from latentalign import download
from latentalign.download import DATASETS, DataSet, RemoteFile, fetch
from latentalign.errors import UserError
from tests.cli.command import latentalign


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Site:
    """A folder that is served over HTTP."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    def put(self, name: str, contents: bytes) -> str:
        """Put a file on the site; its SHA-256 comes back."""
        (self.folder / name).write_bytes(contents)
        return hashlib.sha256(contents).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    handler = partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def register(monkeypatch: pytest.MonkeyPatch, *files: RemoteFile, **settings: object) -> None:
    monkeypatch.setitem(DATASETS, "toy", DataSet("A toy", files, **settings))  # type: ignore[arg-type]


def test_files_arrive_checked_and_are_not_fetched_twice(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = site.put("a.txt", b"good")
    register(monkeypatch, RemoteFile(f"{site.address}/a.txt", total))
    fetched = fetch("toy", tmp_path / "to")
    assert fetched.paths == [tmp_path / "to" / "a.txt"]
    assert fetched.paths[0].read_bytes() == b"good"
    assert fetched.unverified == []
    (site.folder / "a.txt").unlink()
    assert fetch("toy", tmp_path / "to").paths == fetched.paths
    # a damaged copy is noticed, and the server asked again
    fetched.paths[0].write_bytes(b"bad")
    with pytest.raises(UserError, match="the server answered 404"):
        fetch("toy", tmp_path / "to")


def test_a_wrong_checksum_keeps_nothing(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = site.put("a.txt", b"changed")
    register(monkeypatch, RemoteFile(f"{site.address}/a.txt", "0" * 64))
    with pytest.raises(
        UserError, match=rf"expected contents with SHA-256 0{{64}}, received {seen}; nothing was kept"
    ):
        fetch("toy", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_a_missing_file_and_a_missing_server_are_told_apart(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, RemoteFile(f"{site.address}/nowhere.txt"))
    with pytest.raises(
        UserError,
        match=r"nowhere.txt: the server answered 404 Client Error: File not found; fetch nowhere.txt",
    ):
        fetch("toy", tmp_path / "to")
    register(monkeypatch, RemoteFile("http://127.0.0.1:9/a.txt"))
    with pytest.raises(UserError, match=r"not reached \(ConnectionError\); check the network"):
        fetch("toy", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_an_unknown_sum_is_told_recorded_and_then_expected(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = site.put("a.txt", b"first")
    register(monkeypatch, RemoteFile(f"{site.address}/a.txt"))
    assert fetch("toy", tmp_path / "to").unverified == ["a.txt"]
    assert (tmp_path / "to" / "SHA256SUMS").read_text() == f"{total}  a.txt\n"
    assert fetch("toy", tmp_path / "to").unverified == []
    site.put("a.txt", b"second")
    (tmp_path / "to" / "a.txt").unlink()
    with pytest.raises(UserError, match=f"expected contents with SHA-256 {total}"):
        fetch("toy", tmp_path / "to")


def test_a_mirror_serves_the_same_names(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = site.put("a.txt", b"good")
    register(monkeypatch, RemoteFile("http://127.0.0.1:9/far/away/a.txt", total))
    assert fetch("toy", tmp_path / "to", mirror=site.address + "/").paths[0].read_bytes() == b"good"


def test_a_damaged_archive_is_named(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put("a.tgz", b"no archive at all")
    register(monkeypatch, RemoteFile(f"{site.address}/a.tgz"), unpack=download._unpack_babi)
    with pytest.raises(UserError, match=r"a.tgz: damaged archive"):
        fetch("toy", tmp_path / "to")


def tar_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def zip_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def unpacked(tmp_path: Path, archive: bytes, name: str) -> dict[str, str]:
    path = tmp_path / "archive"
    path.write_bytes(archive)
    unpack = DATASETS[name].unpack
    assert unpack is not None
    return {found.name: found.read_text(encoding="utf-8") for found in unpack(path, tmp_path / "to")}


def test_babi_gives_the_english_tasks(tmp_path: Path) -> None:
    files = {
        "tasks/en/qa1_x_train.txt": "1 A.\n",
        "tasks/en-10k/qa1_x_train.txt": "no",
        "../en/evil.txt": "kept inside",
    }
    assert unpacked(tmp_path, tar_of(files), "babi") == {
        "qa1_x_train.txt": "1 A.\n",
        "evil.txt": "kept inside",
    }
    assert not (tmp_path / "en").exists()


def test_vqa_gives_its_json(tmp_path: Path) -> None:
    assert unpacked(tmp_path, zip_of({"v2_OpenEnded.json": "{}", "readme": ""}), "vqa2") == {
        "v2_OpenEnded.json": "{}"
    }


def test_wmt_gives_lines(tmp_path: Path) -> None:
    markup = (
        '<refset><doc>\n<seg id="1">Tom &amp; Anna\n laugh .</seg>\n<seg id="2">Yes .</seg></doc></refset>'
    )
    files = {
        "training/europarl-v7.de-en.de": "Ja .\n",
        "training/europarl-v7.fr-en.en": "no\n",
        "dev/newstest2016-ende-src.en.sgm": markup,
        "dev/newstest2016-deen-src.de.sgm": markup,
    }
    expected = {"europarl-v7.de-en.de": "Ja .\n", "newstest2016.en": "Tom & Anna laugh .\nYes .\n"}
    assert unpacked(tmp_path, zip_of(files), "wmt17") == expected


def test_iwslt_is_split_as_is_customary(tmp_path: Path) -> None:
    body = "".join(f"{number} Satz\n" for number in range(2, 48))
    train = f"<url>http://x</url>\n<keywords>a</keywords>\n<title>1 Titel</title>\n{body}"
    test = {
        f"de-en/IWSLT14.{name}.de-en.{side}.xml": f"<doc><seg id='1'> {name} </seg></doc>"
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
        for side in ("de", "en")
    }
    sides = {f"de-en/train.tags.de-en.{side}": train for side in ("de", "en")}
    found = unpacked(tmp_path, tar_of({**sides, **test}), "iwslt14")
    assert found["valid.de"] == found["valid.en"] == "23 Satz\n46 Satz\n"
    assert found["train.en"].splitlines()[0] == "1 Titel"
    assert len(found["train.en"].splitlines()) == 45
    assert found["test.de"] == "TED.dev2010\nTEDX.dev2012\nTED.tst2010\nTED.tst2011\nTED.tst2012\n"


def test_iwslt_without_its_files_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("de-en.tgz", tar_of({"other": "text"}))
    with pytest.raises(UserError, match=r"no file 'train.tags.de-en.de' inside"):
        fetch("iwslt14", tmp_path / "to", mirror=site.address)


def test_the_command_prints_files_and_says_what_was_not_verified(site: Site, tmp_path: Path) -> None:
    for what in ("Questions", "Annotations"):
        for split in ("Train", "Val"):
            site.put(f"v2_{what}_{split}_mscoco.zip", zip_of({f"{what}_{split}.json": "{}"}))
    arguments = ["download", "vqa2", "--to", str(tmp_path / "to"), "--mirror", site.address]
    result = latentalign(*arguments, "--json")
    assert result.code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert [Path(path).name for path in printed["files"]] == [
        "Questions_Train.json",
        "Questions_Val.json",
        "Annotations_Train.json",
        "Annotations_Val.json",
    ]
    assert len(printed["unverified"]) == 4
    assert "was not verified" in result.stderr
    assert "features have to be fetched by hand" in result.stderr
    again = latentalign(*arguments)
    assert again.stdout.splitlines() == printed["files"]
    assert "was not verified" not in again.stderr


def test_unknown_sets_are_answered_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="received 'multi30'; did you mean 'multi30k'"):
        fetch("multi30", Path("unused"))
    with pytest.raises(UserError, match="choose one of multi30k, iwslt14, wmt17, babi, g2p, vqa2"):
        fetch("zzz", Path("unused"))


def test_sums_of_the_sets_are_sums() -> None:
    for dataset in DATASETS.values():
        names = [remote.name for remote in dataset.files]
        assert len(set(names)) == len(names)
        for remote in dataset.files:
            assert remote.sha256 is None or (len(remote.sha256) == 64 and int(remote.sha256, 16) > 0)


def packed(contents: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("inside/a.json", contents)
    return buffer.getvalue()


def test_unpacking_spares_files_of_the_same_name_that_are_not_of_the_set(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("set.zip", packed(b"theirs"))
    register(monkeypatch, RemoteFile(f"{site.address}/set.zip"), unpack=download._unpack_vqa)
    mine = tmp_path / "to" / "a.json"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"a\.json: a file of that name is there already, and is not of this"):
        fetch("toy", mine.parent)
    assert mine.read_bytes() == b"mine"
    mine.unlink()
    assert fetch("toy", mine.parent).paths == [mine]
    assert fetch("toy", mine.parent).paths == [mine]  # its own file may be written again
    assert mine.read_bytes() == b"theirs"
    assert sorted(path.name for path in mine.parent.iterdir()) == ["SHA256SUMS", "a.json", "set.zip"]


def test_a_file_of_the_same_name_with_other_contents_is_not_replaced(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = site.put("a.txt", b"theirs")
    register(monkeypatch, RemoteFile(f"{site.address}/a.txt", total))
    mine = tmp_path / "a.txt"
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match="not of this set; move it away, or choose another folder with --to"):
        fetch("toy", tmp_path)
    assert mine.read_bytes() == b"mine"
