"""The names of processors, and the revision that the speed gate compares with on each."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import processors  # noqa: E402


def x86(vendor: str, family: int, model: int, name: str = "A Processor") -> str:
    """The beginning of /proc/cpuinfo."""
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nstepping\t: 1\nflags\t\t: fpu vme\n\nprocessor\t: 1\n"
    )


@pytest.mark.parametrize(
    ("family", "model", "name"),
    [
        (0x17, 0x01, "AMD Zen"),  # EPYC 7001
        (0x17, 0x31, "AMD Zen 2"),  # EPYC 7002
        (0x19, 0x01, "AMD Zen 3"),  # EPYC 7003
        (0x19, 0x50, "AMD Zen 3"),  # Ryzen 5000G
        (0x19, 0x11, "AMD Zen 4"),  # EPYC 9004
        (0x19, 0x61, "AMD Zen 4"),  # Ryzen 7000
        (0x19, 0xA0, "AMD Zen 4"),  # EPYC 97x4
        (0x1A, 0x02, "AMD Zen 5"),  # EPYC 9005
        (0x1A, 0x44, "AMD Zen 5"),  # Ryzen 9000
        (0x1A, 0x50, "AMD EPYC"),  # not in the list
        (0x15, 0x02, "AMD EPYC"),
    ],
)
def test_amd_is_known_by_family_and_model(family: int, model: int, name: str) -> None:
    assert processors.name_of(x86("AuthenticAMD", family, model, "AMD EPYC Processor")) == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (0x55, "Intel Skylake-SP"),
        (0x6A, "Intel Ice Lake-SP"),
        (0x8F, "Intel Sapphire Rapids"),
        (0xCF, "Intel Sapphire Rapids"),  # Emerald Rapids
        (0xAD, "Intel Granite Rapids"),
        (0xB7, "Intel Raptor Lake"),
        (0x2A, "Intel Xeon E3-1220"),
    ],
)
def test_intel_is_known_by_its_model(model: int, name: str) -> None:
    assert processors.name_of(x86("GenuineIntel", 6, model, "Intel(R) Xeon(R) CPU E3-1220 @ 3.10GHz")) == name


def test_arm_is_known_by_its_part() -> None:
    text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {}\n"
    assert processors.name_of(text.format("0xd40"), "aarch64") == "Arm Neoverse V1"
    assert processors.name_of(text.format("0xd03"), "aarch64") == "aarch64"
    assert processors.name_of("") == "unknown"


def test_another_vendor_keeps_its_name() -> None:
    text = x86("HygonGenuine", 0x18, 1, "Hygon C86 7185 32-core Processor")
    assert processors.name_of(text) == "Hygon C86 7185 32-core"
    assert processors.name_of(x86("AuthenticAMD", 1, 1, "AMD Ryzen(TM) 1 8-Core Processor")) == "AMD Ryzen 1"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("AMD Zen 5", "amd-zen-5"),
        ("Intel Xeon E3-1220 v3", "intel-xeon-e3-1220-v3"),
        ("../x y/", "x-y"),
        ("", "unknown"),
    ],
)
def test_a_name_becomes_a_file_name(name: str, file: str) -> None:
    assert processors.file_name(name) == file


def test_the_gate_takes_the_history_of_its_processor(tmp_path: pathlib.Path) -> None:
    (tmp_path / "default").write_text("# why\n\nv1  # the first\n")
    (tmp_path / "bits").write_text("v3\n")

    def revision(purpose: str, name: str) -> str:
        return processors.revision_in(processors.baseline_file(purpose, name, tmp_path))

    assert revision("gate", "AMD Zen 5") == "v1"
    (tmp_path / "amd-zen-5").write_text("v2\n")
    assert [revision("gate", name) for name in ("AMD Zen 5", "AMD Zen 4")] == ["v2", "v1"]
    assert [revision("bits", name) for name in ("AMD Zen 5", "AMD Zen 4")] == ["v3", "v3"]
    (tmp_path / "amd-zen-5").write_text("# nothing\n")
    with pytest.raises(ValueError, match="amd-zen-5: expected one revision, got 0"):
        revision("gate", "AMD Zen 5")


def test_this_commit_is_the_last_that_changed_the_file(tmp_path: pathlib.Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    file = tmp_path / "default"
    file.write_text("this commit\n")
    with pytest.raises(ValueError, match="no commit has this file"):
        processors.revision_in(file)
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    first = git("log", "-1", "--format=%h")
    (tmp_path / "other").write_text("text\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "second")
    assert processors.revision_in(file) == first


def test_the_files_of_this_repository_name_revisions() -> None:
    files = sorted(path.name for path in processors.BASELINES.iterdir())
    assert {"bits", "default"} <= set(files)
    for path in processors.BASELINES.iterdir():
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert len(lines) == 1, path


def test_a_virtual_machine_with_amx_may_report_another_model() -> None:
    of = x86("GenuineIntel", 6, 0xA7, "Intel(R) Xeon(R) Processor")
    assert processors.name_of(of) == "Intel Rocket Lake"
    assert processors.name_of(of.replace("vme", "amx_tile vme")) == "Intel with AMX"
    granite = x86("GenuineIntel", 6, 0xAD, "Intel(R) Xeon(R) Processor")
    assert processors.name_of(granite.replace("vme", "amx_tile")) == "Intel Granite Rapids"
