"""What .ci/night.py writes into its table and .ci/times.py into its report. Run like test_plan.py."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, ".ci"))
import night  # noqa: E402

GTEST = "[==========] 5 tests from 1 test suite ran.\n[  PASSED  ] %d tests.\n"


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def write(self, path, text):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Night(InFolder):
    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, night.TABLE), encoding="utf-8") as file:
            before, rest = file.read().split(night.BEGIN + "\n", 1)
        self.write(night.TABLE, before + night.BEGIN + "\n| part |\n| --- |\n" + night.END +
                   rest.split(night.END, 1)[1])
        self.write("a.cpp", "int a;\n")
        for command in ("init -q", "add .", "-c user.name=a -c user.email=a@localhost commit -qm a"):
            subprocess.run(["git"] + command.split(), check=True)

    def passed(self, part):
        return subprocess.run([sys.executable, os.path.join(ROOT, ".ci/night.py"), "passed", part],
                              check=False).returncode == 0

    def test_a_row_for_the_last_run_of_each_part(self):
        self.write("lint.log", "")
        self.write("emulated.log", GTEST % 7 + GTEST % 5 + "[  SKIPPED ] 2 tests, listed below:\n")
        night.record("lint", "FAILED", "12", "lint.log")
        night.record("emulated", "passed", "34", "emulated.log")
        night.record("lint", "passed", "56", "lint.log")
        _, rows, _ = night.read_table()
        self.assertEqual(list(rows), ["lint", "emulated"])
        self.assertEqual(rows["lint"][:4], ["lint", "passed", "", "56"])
        self.assertEqual(rows["emulated"][:4], ["emulated", "passed", "12 tests, 2 skipped", "34"])
        self.assertEqual(len({row[5] for row in rows.values()}), 1)

    def test_a_part_has_passed_until_a_source_changes(self):
        self.write("lint.log", "")
        night.record("lint", "passed", "1", "lint.log")
        night.record("debug", "FAILED", "1", "lint.log")
        self.assertTrue(self.passed("lint"))
        self.assertFalse(self.passed("debug"))
        self.assertFalse(self.passed("tsan"))
        self.write("README.md", "words\n")
        subprocess.run(["git", "add", "README.md"], check=True)
        self.assertTrue(self.passed("lint"))
        self.write("a.cpp", "int b;\n")
        self.assertFalse(self.passed("lint"))

    def test_what_ran_is_counted(self):
        self.assertEqual(night.what_ran("dev: fuzz_npy: 120 inputs in 10 s\n"
                                        "dev: fuzz_gguf: 3 inputs in 10 s\n"), "123 inputs")
        self.write("release.log", "100% tests passed, 0 tests failed out of 3\n")
        self.write("build/release/Testing/Temporary/LastTest.log", GTEST % 4 + GTEST % 6)
        for log in ("release.log", "real.log"):
            self.write(log, "100% tests passed, 0 tests failed out of 3\n")
            self.assertEqual(night.what_ran(night.full_log(log)), "10 tests, 3 entries of ctest")


class Times(InFolder):
    def test_parts_and_suites(self):
        self.write("ci/parts", "build\t100\tpassed\ntests\t71\tfailed\n")
        self.write("ci/tests.xml", '<testsuite><testcase name="Npy" time="1.25" status="run"/>'
                   '<testcase name="Kinds/Drafts" time="61.5" status="fail"/></testsuite>')
        text = subprocess.run([sys.executable, os.path.join(ROOT, ".ci/times.py"), "ci"], check=True,
                              stdout=subprocess.PIPE, universal_newlines=True).stdout
        with open("ci/times.json", encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual([part["seconds"] for part in found["parts"]], [100, 71])
        self.assertEqual([(suite["name"], suite["seconds"], suite["result"])
                          for suite in found["suites"]],
                         [("Kinds/Drafts", 61.5, "failed"), ("Npy", 1.25, "passed")])
        self.assertIn("171  together", text)
        self.assertIn("over 60 s, to be cut into parts: Kinds/Drafts", text)


if __name__ == "__main__":
    unittest.main()
