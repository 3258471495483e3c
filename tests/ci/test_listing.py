"""What tests/list_suites.cmake makes of a test program's listing. Run like test_plan.py."""
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LISTING = """Npy.
  Reads
Kinds/Runner.
  Forks/f32  # GetParam() = f32
  Forks/f16  # GetParam() = f16
Kinds/Hostile.
  Reads/window_q8  # GetParam() = window_q8
Types/Kv.
  Stores/f16  # GetParam() = f16
Listed/Families.
  Run/llama  # GetParam() = llama
"""


class Listing(unittest.TestCase):
    def entries(self, *arguments, **environment):
        """Name of an entry -> its filter."""
        output = self.listing(*arguments, **environment)
        names = re.findall(r"^  Test +#\d+: (\S+)", output, re.M)
        return dict(zip(names, re.findall(r"--gtest_filter=([^\"]*)", output)))

    def environments(self, *arguments):
        """Name of an entry -> its variables."""
        found, variables = {}, []
        for line in self.listing(*arguments).splitlines():
            if line.startswith("Test command") or re.match(r"\d+: Test command", line):
                variables = []
            elif re.match(r"(\d+: )? +\w+=\S+$", line):
                variables.append(line.split()[-1])
            elif line.startswith("  Test"):
                found[line.split()[-1]] = variables
        return found

    def listing(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\ncat <<'END'\n%sEND\n" % LISTING)
            os.chmod(program, 0o755)
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                file.write('set(program "%s")\ninclude("%s/tests/list_suites.cmake")\n' %
                           (program, ROOT))
            with open(os.path.join(folder, "chosen"), "w", encoding="utf-8") as file:
                file.write("Npy\nOnDevice/Beams\nKinds/Runner\n")
            clean = {name: value for name, value in os.environ.items()
                     if name not in ("KVANT_TEST_SUITES", "KVANT_TEST_KINDS")}
            if "KVANT_TEST_SUITES" in environment:
                environment["KVANT_TEST_SUITES"] = os.path.join(folder, "chosen")
            output = subprocess.run(("ctest", "-N", "-V") + arguments, cwd=folder, check=True,
                                    env=dict(clean, **environment), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, universal_newlines=True).stdout
        self.assertNotIn("CMake", output)
        return output

    def test_every_suite_is_an_entry(self):
        found = self.entries()
        self.assertEqual([name for name in found if not name.startswith("OnDevice/")],
                         ["Npy", "Kinds/Runner", "Kinds/Hostile", "Types/Kv",
                          *("Listed/Families/%d" % part for part in range(1, 6))])
        self.assertEqual(len(found), 16)
        self.assertEqual(found["Kinds/Runner"], "Kinds/Runner.*")

    def test_parts_run_every_test_once(self):
        """Each part has the whole filter and a number of its own; others have none."""
        found = self.environments("-R", "^(Listed/Families|OnDevice/Latents|Npy)")
        for name, parts, further in (("Listed/Families", 5, []), ("OnDevice/Latents", 2, ["KVANT_TEST_OFFLOAD=emulated"])):
            for part in range(parts):
                self.assertEqual(found["%s/%d" % (name, part + 1)],
                                 [*further, "GTEST_TOTAL_SHARDS=%d" % parts, "GTEST_SHARD_INDEX=%d" % part])
        self.assertEqual(found["Npy"], [])

    def test_a_file_chooses_suites(self):
        self.assertEqual(list(self.entries(KVANT_TEST_SUITES="chosen")),
                         ["OnDevice/Beams", "Npy", "Kinds/Runner"])

    def test_few_kinds_are_six_of_the_suites_that_have_them(self):
        found = self.entries(KVANT_TEST_KINDS="few")
        kinds = found["Kinds/Runner"].split(":")
        self.assertEqual(len(kinds), 6)
        self.assertIn("Kinds/Runner.*/f16", kinds)
        for name in ("Kinds/Hostile", "Types/Kv", "Npy"):
            self.assertEqual(found[name], name + ".*")

    def test_the_few_kinds_are_there_and_no_two_agree_in_type_and_window(self):
        with open(os.path.join(ROOT, "tests/list_suites.cmake"), encoding="utf-8") as file:
            few = re.search(r"set\(few_kinds ([^)]*)\)", file.read()).group(1).split()
        names = [os.path.join(where, name) for where, _, files in
                 os.walk(os.path.join(ROOT, "tests/engine")) for name in files
                 if name == "runner_kinds.h"]
        with open(names[0], encoding="utf-8") as file:
            kinds = {name: (element, window, arch) for name, element, window, arch in re.findall(
                r'\{"(\w+)", Kv\w+::(\w+), (\d+)(?:, "(\w+)")?', file.read())}
        self.assertEqual(len(kinds), 22)
        self.assertLessEqual(set(few), set(kinds))
        pairs = [kinds[name] for name in few]
        self.assertEqual(len(set(pairs)), 6)
        self.assertEqual({element for element, _, _ in pairs}, {"kF32", "kF16", "kQ8"})
        self.assertLessEqual({"gemma3", "llama4", "deepseek2", ""}, {arch for _, _, arch in pairs})
        self.assertEqual({element for element, _, arch in pairs if arch in ("gemma3", "llama4")},
                         {"kF32", "kF16", "kQ8"})


if __name__ == "__main__":
    unittest.main()
