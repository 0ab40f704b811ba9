"""What save() does to files when writing fails, and to links, permissions and devices."""

import errno
import os
import sys

import numpy as np
import pytest
import saccade

WEIGHTS = np.full((2, 3, 3), 1 / 3, np.float32)
SAVED = {
    "picture.svg": saccade.heatmap(WEIGHTS, list("abc")),
    "picture.png": saccade.heatmap(WEIGHTS, list("abc")),
    "page.html": saccade.page(WEIGHTS[None], list("abc")),
}
on_unix = pytest.mark.skipif(sys.platform == "win32", reason="uses what Unix has")


@pytest.fixture(params=SAVED)
def path(request, tmp_path):
    path = tmp_path / request.param
    path.write_bytes(b"old")
    return path


def save(path):
    SAVED[path.name].save(path)


def expect_refusal(path, number):
    with pytest.raises(OSError) as refusal:
        save(path)
    assert refusal.value.errno == number and refusal.value.filename == str(path)
    assert path.read_bytes() == b"old" and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_an_old_file_stays_when_a_call_fails(path, call, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    expect_refusal(path, errno.ENOSPC)
    monkeypatch.undo()
    save(path)
    assert len(path.read_bytes()) > 100 and os.listdir(path.parent) == [path.name]


@on_unix
def test_an_old_file_stays_when_there_is_no_room(path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        expect_refusal(path, errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_old_file_stays_when_the_program_is_interrupted(path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path)
    assert path.read_bytes() == b"old" and os.listdir(path.parent) == [path.name]


@on_unix
def test_links_and_permissions_stay(path):
    path.chmod(0o640)
    link = path.with_name("link" + path.suffix)
    link.symlink_to(path.name)
    SAVED[path.name].save(link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert len(path.read_bytes()) > 100


@on_unix
def test_a_file_that_is_protected_stays(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for any user but root
    expect_refusal(path, errno.EACCES)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_devices_are_written_directly():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        SAVED["page.html"].save("/dev/full")


@pytest.mark.parametrize("name", ["a\0b.html", "\ud800.html", 7])
def test_names_that_no_file_has(name):
    with pytest.raises(ValueError, match="path: expected a file name, got "):
        SAVED["page.html"].save(name)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        SAVED["page.html"].save(tmp_path / "nowhere" / "page.html")
    assert refusal.value.filename == str(tmp_path / "nowhere" / "page.html")
