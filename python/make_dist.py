#!/usr/bin/env python3
"""Makes what is given away: a tar archive, a Debian package and a wheel, with their checksums.

    make_dist.py PREFIX FOLDER       PREFIX: build/release/dist/prefix, which `./dev dist` makes; prints the paths of the files

All three have the program, the C library with its header, the manual, the completions, the models that come along and the licenses of what
is linked into the binaries; the wheel has the Python package in place of header and completions. Equal files in PREFIX give equal bytes:
the times are those of $SOURCE_DATE_EPOCH, or of the commit that is checked out. The Debian package needs dpkg-deb.
"""
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import make_wheel

GLIBC_MAX = 34  # the archives promise to run with glibc 2.34
DESCRIPTION = """CPU-first inference engine for GGUF language models
 Runs, quantizes and measures language models in GGUF files, without a GPU: the
 program kvant, its library for C, and small models to try. This package
 needs glibc 2.34 or later and nothing else."""


def time_of_files():
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    done = subprocess.run(["git", "-C", str(make_wheel.FOLDER), "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 315532800  # 1980


def check_binaries(prefix):
    binaries = [prefix / "bin" / "kvant", prefix / "lib" / "libkvant.so"]
    for binary in binaries:
        make_wheel.check_needed(binary)
    newest = make_wheel.glibc_for(binaries)
    if newest > GLIBC_MAX:
        raise SystemExit(f"make_dist: expected no need of more than glibc 2.{GLIBC_MAX}, found 2.{newest} in {prefix}")


def make_tar(prefix, out, version, time):
    """kvant-VERSION-linux-MACHINE.tar.gz: one folder of that name, as PREFIX is."""
    name = f"kvant-{version}-linux-{platform.machine()}"
    path = out / f"{name}.tar.gz"

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = time
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive:
            archive.add(prefix, name, recursive=False, filter=plain)
            for member in sorted(prefix.rglob("*")):
                archive.add(member, f"{name}/{member.relative_to(prefix)}", recursive=False, filter=plain)
    return path


def make_deb(prefix, out, version, time):
    """kvant_VERSION_ARCHITECTURE.deb: PREFIX as /usr. Compressed by gzip, since models hardly become smaller by xz, which takes 10 times as long."""
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    path = out / f"kvant_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(dir=out) as folder:
        root = Path(folder) / "root"
        shutil.copytree(prefix, root / "usr", symlinks=True)
        files = sorted(file for file in root.rglob("*") if file.is_file() and not file.is_symlink())
        sums = "".join(f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n" for file in files)
        kibibytes = sum(-(-file.stat().st_size // 1024) for file in files)
        control = root / "DEBIAN"
        control.mkdir()
        (control / "control").write_text(
            f"Package: kvant\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The kvant developers <kvant@localhost>\n"
            f"Installed-Size: {kibibytes}\nDepends: libc6 (>= 2.{GLIBC_MAX})\nSection: science\nPriority: optional\n"
            f"Description: {DESCRIPTION}\n")
        (control / "md5sums").write_text(sums)
        (control / "shlibs").write_text(f"libkvant 1 kvant (>= {version})\n")
        (control / "triggers").write_text("activate-noawait ldconfig\n")
        for file in [root, *root.rglob("*")]:
            if not file.is_symlink():
                file.chmod(0o755 if file.is_dir() or file.stat().st_mode & 0o100 else 0o644)
            os.utime(file, (time, time), follow_symlinks=False)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z6", "--build", str(root), str(path)], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SOURCE_DATE_EPOCH": str(time)})
    return path


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.split("\n\n")[1])
    prefix, out = Path(sys.argv[1]), Path(sys.argv[2])
    check_binaries(prefix)
    version, time = make_wheel.version_of_project(), time_of_files()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("kvant[-_]*"):
        old.unlink()
    made = [make_wheel.make_wheel(prefix, out), make_tar(prefix, out, version, time), make_deb(prefix, out, version, time)]
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (out / "SHA256SUMS").write_text(sums)
    for path in [*made, out / "SHA256SUMS"]:
        print(path)


if __name__ == "__main__":
    main()
