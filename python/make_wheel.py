#!/usr/bin/env python3
"""Makes a wheel of the Python package, with the C library, the program `kvant`, its manual and the models that come along.

    make_wheel.py PREFIX FOLDER      PREFIX: build/release/dist/prefix, which `./dev wheel` makes; prints the path of the wheel

Only the standard library is used. The program is a script of the wheel, so that pip puts it beside `python`; the models are data of the
wheel, which pip puts where the program looks for them. The tag names the oldest glibc that has every symbol the two binaries ask for.
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
SYSTEM = re.compile(r"(lib(c|m|gcc_s)\.so\.[16]|ld-linux-[\w-]+\.so\.[12])$")  # part of every system that the tag names
OLDEST_GLIBC = 17  # the first that has a tag by its number
README = ("kvant runs GGUF language models on CPUs: pip install the wheel, then `kvant run shakespeare -p ROMEO:` in a terminal, or\n"
          "import kvant, kvant.generate(kvant.Model(path), text).\n")


def dynamic_section(binary):
    return subprocess.run(["readelf", "--dynamic", "--wide", binary], check=True, capture_output=True, text=True).stdout


def name_of(library):
    """The name by which programs ask for a library."""
    return re.search(r"\(SONAME\).*\[(.*)\]", dynamic_section(library))[1]


def check_needed(binary):
    """Ends the program if a binary needs more than the system's libraries."""
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(binary)):
        if not SYSTEM.match(name):
            raise SystemExit(f"make_wheel: {binary} needs {name}; expected a build of the target kvant_dist")


def glibc_for(binaries):
    """The N of the oldest glibc 2.N on which all binaries load."""
    newest = OLDEST_GLIBC
    for binary in binaries:
        text = subprocess.run(["readelf", "--version-info", "--wide", binary], check=True, capture_output=True, text=True).stdout
        needed = text.partition("Version needs section")[2]
        newest = max([newest, *(int(number) for number in re.findall(r"Name: GLIBC_2\.(\d+)", needed))])
    return newest


def version_of_project():
    return re.search(r"project\(\s*kvant\s+VERSION\s+([\d.]+)", (FOLDER.parent / "CMakeLists.txt").read_text())[1]


def files_of(prefix, version):
    """The content of the wheel, {name in the wheel: bytes}, but for RECORD and WHEEL."""
    info, data = f"kvant-{version}.dist-info", f"kvant-{version}.data"
    library = prefix / "lib" / "libkvant.so"
    files = {f"kvant/{path.name}": path.read_bytes() for path in sorted((FOLDER / "kvant").iterdir()) if path.suffix in (".py", ".typed")}
    files["kvant/py.typed"] = b""
    files[f"kvant/lib/{name_of(library)}"] = library.read_bytes()
    files[f"{data}/scripts/kvant"] = (prefix / "bin" / "kvant").read_bytes()
    doc = prefix / "share" / "doc" / "kvant"
    for path in sorted(prefix.glob("share/**/*")):
        if path.is_file() and doc not in path.parents:
            files[f"{data}/data/{path.relative_to(prefix)}"] = path.read_bytes()
    files[f"{info}/licenses/LICENSE"] = (FOLDER.parent / "LICENSE").read_bytes()
    for path in sorted((doc / "licenses").iterdir()):
        files[f"{info}/licenses/{path.name}"] = path.read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: kvant\nVersion: {version}\nSummary: A CPU-first inference engine for GGUF models\n"
        f"License-File: LICENSE\nRequires-Python: >=3.8\nRequires-Dist: numpy\nDescription-Content-Type: text/plain\n\n{README}").encode()
    return files


def write_wheel(wheel, files):
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes for the same files
            entry.compress_type = zipfile.ZIP_DEFLATED
            # pip makes executable what is a regular file and executable here.
            entry.external_attr = (0o100755 if "/lib/" in name or "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, data)
    part.rename(wheel)


def make_wheel(prefix, out):
    if not (prefix / "bin" / "kvant").exists():
        raise SystemExit(f"make_wheel: {prefix}/bin/kvant: no such file; build the target kvant_dist first")
    libc, _ = platform.libc_ver()
    if libc != "glibc":
        raise SystemExit(f"make_wheel: expected a system of glibc, found {libc or 'another'}")
    version = version_of_project()
    binaries = [prefix / "bin" / "kvant", prefix / "lib" / "libkvant.so"]
    for binary in binaries:
        check_needed(binary)
    tag = f"py3-none-manylinux_2_{glibc_for(binaries)}_{platform.machine()}"

    files = files_of(prefix, version)
    info = f"kvant-{version}.dist-info"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: kvant\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record.encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"kvant-{version}-{tag}.whl"
    write_wheel(wheel, files)
    return wheel


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.split("\n\n")[1])
    print(make_wheel(Path(sys.argv[1]), Path(sys.argv[2])))


if __name__ == "__main__":
    main()
