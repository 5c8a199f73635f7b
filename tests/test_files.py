"""Reading what users give, whatever kind of file it is, and writing without losing anything."""

import errno
import gzip
import os
import socket
import stat
import threading

import pytest

from latentalign.errors import UserError, explain_os_error, one_line
from latentalign.files import (
    open_atomic,
    read_arriving,
    read_json,
    read_lines,
    require_distinct,
    require_file,
    require_folder,
    write_atomic,
)


@pytest.fixture
def kinds(tmp_path):
    """Every kind of thing that a name can stand for."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(tmp_path)  # the address of a socket has room for 100 letters only
        listener.bind("socket")
        os.chdir(before)
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("folder", "is a folder"),
        ("pipe", "is a pipe"),
        ("socket", "is a socket"),
        ("dangling", "which does not exist"),
        ("nothing", "no such file"),
        ("file/inside", "no such file"),
        ("/dev/null", "is a device"),
    ],
)
def test_what_is_no_file_is_called_what_it_is(kinds, name, told):
    with pytest.raises(UserError, match=told):
        require_file(kinds / name)
    with pytest.raises(UserError, match=told):
        list(read_lines(kinds / name))


def test_what_is_no_folder_is_called_what_it_is(kinds):
    assert require_folder(kinds / "folder") == kinds / "folder"
    for name, told in {
        "file": "is a file",
        "nothing": "no such folder",
        "dangling": "does not exist",
    }.items():
        with pytest.raises(UserError, match=told):
            require_folder(kinds / name)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, pack):
    path = tmp_path / "text"
    path.write_bytes(pack(b"\xef\xbb\xbfEin Hund\n\xef\xbb\xbfb\n"))
    assert list(read_lines(path)) == ["Ein Hund", "\ufeffb"]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:12] + b"\xff" * 9 + b[21:], lambda b: b[:5]]
)
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(50).hex().encode() * 3)))
    with pytest.raises(UserError, match="damaged gzip file"):
        list(read_lines(path))


# --- lines as they arrive ------------------------------------------------------------------


def test_arriving_lines_are_handed_out_at_once():
    read, write = os.pipe()
    groups = read_arriving(read, 100)
    os.write(write, b"\xef\xbb\xbffirst\nsec")
    assert next(groups) == ["first"]
    os.write(write, b"ond\r\nthird")
    assert next(groups) == ["second"]
    os.close(write)
    assert list(groups) == [["third"]]
    os.close(read)


def test_arriving_lines_come_in_groups_and_none_is_lost():
    read, write = os.pipe()
    lines = [f"line {number} " + "x" * (number % 977) for number in range(3000)]

    def speak():
        with os.fdopen(write, "wb") as stream:
            stream.write("".join(f"{line}\n" for line in lines).encode())

    threading.Thread(target=speak).start()
    groups = list(read_arriving(read, 64))
    os.close(read)
    assert [line for group in groups for line in group] == lines
    assert max(map(len, groups)) == 64


def test_an_empty_arrival_has_no_lines_and_empty_lines_count():
    for content, expected in {b"": [], b"\n": [""], b"\n\na": ["", "", "a"]}.items():
        read, write = os.pipe()
        os.write(write, content)
        os.close(write)
        assert [line for group in read_arriving(read, 9) for line in group] == expected
        os.close(read)


# --- writing -------------------------------------------------------------------------------


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    node = tmp_path / "null"
    node.symlink_to("/dev/null")
    write_atomic(node, "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert node.is_symlink()


def test_a_full_device_is_named():
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic("/dev/full", "x" * 100_000)
    assert explain_os_error(caught.value) == "/dev/full: cannot be written: no space left on the disk"


def test_a_pipe_that_nobody_reads_is_refused_at_once(kinds):
    with pytest.raises(UserError, match="nobody reads"):
        write_atomic(kinds / "pipe", "text")


def test_a_pipe_with_a_reader_is_written(kinds):
    reader = os.open(kinds / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(kinds / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_a_link_is_followed_and_stays(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    for text in ("first", "second"):  # dangling, then not
        write_atomic(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_the_mode_of_a_file_is_kept(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("before")
    secret.chmod(0o600)
    write_atomic(secret, "after")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("letters", [250, 300])
def test_long_names(tmp_path, letters):
    path = tmp_path / ("n" * letters)
    if letters < 256:
        write_atomic(path, "text")
        assert path.read_text() == "text"
    else:
        with pytest.raises(OSError, match="too long") as caught:
            write_atomic(path, "text")
        assert "nnn: the name is too long" in explain_os_error(caught.value)
        assert list(tmp_path.iterdir()) == []


def test_writing_where_it_cannot_be_leaves_nothing(kinds):
    before = sorted(kinds.iterdir())
    for name in ("folder", "file/inside", "circle"):
        with pytest.raises(OSError, match=r".") as caught, open_atomic(kinds / name) as stream:
            stream.write("text")
        assert str(kinds) in explain_os_error(caught.value)
    assert sorted(kinds.iterdir()) == before
    assert (kinds / "file").read_text() == "text\n"


def test_results_do_not_share_a_file(tmp_path):
    first, link = tmp_path / "first", tmp_path / "link"
    first.write_text("text")
    link.symlink_to(first)
    hard = tmp_path / "hard"
    os.link(first, hard)
    require_distinct(
        {"--output": first, "--alignments": tmp_path / "other", "--save": None}, {"--input": None}
    )
    require_distinct({"--output": "/dev/null", "--alignments": "/dev/null"}, {})
    for second in (first, link, hard, tmp_path / "." / "first"):
        with pytest.raises(UserError, match="the same file"):
            require_distinct({"--output": first, "--alignments": second}, {})
        with pytest.raises(UserError, match=r"--output .* and --input .*: the same file"):
            require_distinct({"--output": first}, {"--input": second})


# --- one line ------------------------------------------------------------------------------


def test_whatever_is_told_is_one_printable_line():
    assert one_line("a\nb\t\x1b[31mc\u2028d") == "a b \\x1b[31mc d"
    assert len(one_line("x" * 10_000)) == 600


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_error_of_the_system_has_words(number):
    told = explain_os_error(OSError(number, os.strerror(number), "here"))
    assert told.startswith("here: ")
    assert len(told) > 10


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_other_encodings_are_named_by_their_mark(tmp_path, encoding):
    path = tmp_path / "text"
    path.write_bytes(("\ufeff" * encoding.endswith("-be") + "Mädchen\n").encode(encoding))
    with pytest.raises(UserError, match=f"found {encoding.upper()[:6]} .*iconv"):
        list(read_lines(path))


@pytest.mark.parametrize("content", ["[" * 100_000, "9" * 6000, "{", "\udcff", ""])
def test_what_is_no_json_is_named(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match="damaged; expected a list"):
        read_json(path, "a list")


def test_json_is_read_from_files_only(kinds):
    for name in ("folder", "pipe"):
        with pytest.raises(UserError, match=f"is a {name}"):
            read_json(kinds / name)
