#!/usr/bin/env python3
"""Makes a wheel of the Python package, with the shared library in it and what that needs beside libc and libstdc++.

    make_wheel.py LIBRARY FOLDER     LIBRARY: build/release/libkvant.so; prints the path of the wheel

Only the standard library is used. The tag names the oldest glibc that has every symbol the libraries ask for, and whose manylinux tag
allows a libstdc++ (PEP 600) that has theirs.
"""
import base64
import hashlib
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SYSTEM = re.compile(r"lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so|ld-linux")  # part of every system that the tag names
# The first glibc whose manylinux tag allows a libstdc++ with these symbols, GLIBCXX_3.4.N (auditwheel's policies).
GLIBC_OF_GLIBCXX = {24: 27, 25: 28, 26: 31, 28: 32, 29: 34, 30: 35, 31: 38, 32: 39, 33: 40}
OLDEST_GLIBC = 17  # the first that has a tag by its number
README = "kvant runs GGUF language models on CPUs: pip install the wheel, import kvant, kvant.generate(kvant.Model(path), text).\n"


def name_of(library):
    """The name by which programs ask for a library."""
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"\(SONAME\).*\[(.*)\]", text)[1]


def needed_by(library):
    """Libraries beside the system's, by name, with their paths."""
    text = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", text, re.M))
    return {name: Path(path) for name, path in sorted(found.items()) if not SYSTEM.match(name)}


def glibc_for(libraries):
    """The N of the oldest glibc 2.N on which all libraries load."""
    newest = OLDEST_GLIBC
    for library in libraries:
        text = subprocess.run(["readelf", "--version-info", "--wide", library], check=True, capture_output=True, text=True).stdout
        needed = text.partition("Version needs section")[2]
        newest = max([newest, *(int(number) for number in re.findall(r"Name: GLIBC_2\.(\d+)", needed))])
        for number in map(int, re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", needed)):
            allowed = [glibc for symbols, glibc in GLIBC_OF_GLIBCXX.items() if symbols >= number]
            if not allowed:
                raise SystemExit(f"make_wheel: {library} needs GLIBCXX_3.4.{number}, for which no tag is known")
            newest = max(newest, min(allowed))
    return newest


def license_of(path):
    """The copyright file of the Debian package that a library is from; None on other systems."""
    for candidate in (path, path.resolve(), Path(str(path).removeprefix("/usr")), Path("/usr" + str(path))):
        done = subprocess.run(["dpkg", "-S", str(candidate)], capture_output=True, text=True) if Path("/usr/bin/dpkg").exists() else None
        if done and done.returncode == 0:
            package = done.stdout.split(":")[0]
            file = Path("/usr/share/doc") / package / "copyright"
            return (package, file.read_bytes()) if file.exists() else None
    return None


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.split("\n\n")[1])
    library, out = Path(sys.argv[1]), Path(sys.argv[2])
    if not library.exists():
        raise SystemExit(f"make_wheel: {library}: no such file; build first")
    version = re.search(r"project\(\s*kvant\s+VERSION\s+([\d.]+)", (FOLDER.parent / "CMakeLists.txt").read_text())[1]
    libc, _ = platform.libc_ver()
    if libc != "glibc":
        raise SystemExit(f"make_wheel: expected a system of glibc, found {libc or 'another'}")
    bundled = needed_by(library)
    tag = f"py3-none-manylinux_2_{glibc_for([library, *bundled.values()])}_{platform.machine()}"

    files = {f"kvant/{path.name}": path.read_bytes() for path in sorted((FOLDER / "kvant").iterdir()) if path.suffix in (".py", ".typed")}
    files["kvant/py.typed"] = b""
    files[f"kvant/lib/{name_of(library)}"] = library.read_bytes()
    info = f"kvant-{version}.dist-info"
    files[f"{info}/licenses/LICENSE"] = (FOLDER.parent / "LICENSE").read_bytes()
    for name, path in bundled.items():
        files[f"kvant/lib/{name}"] = path.read_bytes()
        if text := license_of(path):
            files[f"{info}/licenses/{text[0]}"] = text[1]
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: kvant\nVersion: {version}\nSummary: A CPU-first inference engine for GGUF models\n"
        f"License-File: LICENSE\nRequires-Python: >=3.8\nRequires-Dist: numpy\nDescription-Content-Type: text/plain\n\n{README}").encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: kvant\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()

    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record.encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"kvant-{version}-{tag}.whl"
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes for the same files
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if "/lib/" in name else 0o644) << 16
            archive.writestr(entry, data)
    part.rename(wheel)
    print(wheel)


if __name__ == "__main__":
    main()
