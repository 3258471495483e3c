"""cmake/count_arrows.py counts right on a made tree, finds what its table says wrongly, and ARCHITECTURE.md's table is right."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "cmake", "count_arrows.py")
MARKERS = "before\n<!-- written by cmake/count_arrows.py -->\n{}<!-- end of what it writes -->\nafter\n"


class CountArrows(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.page = os.path.join(self.folder.name, "PAGE.md")

    def tearDown(self):
        self.folder.cleanup()

    def make(self, **includes):
        """Files by path, with _ for /, and the files that each includes."""
        for name, included in includes.items():
            path = os.path.join(self.folder.name, *name.replace("__", ".").split("_"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(f'#include "{other}"\n' for other in included) + "#include <vector>\n")

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, "--root", self.folder.name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, check=False)

    def write_page(self, table):
        with open(self.page, "w", encoding="utf-8") as file:
            file.write(MARKERS.format(table))

    def test_counts_units_arrows_and_circles(self):
        self.make(tools_a__h=[], tools_a__cpp=["tools/a.h", "tools/b.h", "base/x.h", "kvant/c.h"], tools_b__h=["tools/inner/d.h"],
                  tools_c__cpp=["kvant/c.h"], tools_inner_d__h=["tools/inner/e.h"], tools_inner_e__h=["tools/b.h"], base_x__h=[])
        run = self.run_script("tools", "tools/inner", "--arrows")
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = run.stdout.splitlines()
        self.assertEqual(rows[2:4], ["| `tools` | 4 | 4 | 4 | 1 |", "| `tools/inner` | 2 | 2 | 1 | 0 |"])
        self.assertEqual(len(rows), 5)  # one arrow of the circle of b and inner/ runs up

    def test_finds_wrong_tables(self):
        self.make(tools_a__h=["tools/b.h"], tools_b__h=["tools/a.h"], tools_c__h=["tools/a.h"])
        for row, faults in (("| `tools` | 3 | 3 | 3 | 1 |\n", 0), ("| `tools` | 7 | 3 | 3 | 1 |\n", 0), ("| `tools` | 8 | 3 | 3 | 1 |\n", 1),
                            ("| `tools` | 3 | 3 | 8 | 1 |\n", 1), ("| `tools` | 3 | 3 | 3 | 0 |\n", 1), ("", 1)):
            self.write_page(row)
            run = self.run_script("--check", self.page)
            self.assertEqual((run.returncode, len(run.stderr.splitlines())), (min(faults, 1), faults), (row, run.stderr))

    def test_writes_between_the_markers(self):
        names = [f"u{i}" for i in range(7)]
        self.make(**{f"tools_{name}__h": [f"tools/{other}.h" for other in names[:i]] for i, name in enumerate(names)})
        self.write_page("stale\n")
        self.assertEqual(self.run_script("--write", self.page).returncode, 0)
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("| `tools` | 7 | 7 | 21 | 0 |\n", text)
        self.assertNotIn("stale", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
        self.assertEqual(self.run_script("--check", self.page).returncode, 0)

    def test_refuses_pages_without_markers(self):
        self.make(tools_a__h=[])
        with open(self.page, "w", encoding="utf-8") as file:
            file.write("no markers\n")
        self.assertEqual(self.run_script("--write", self.page).returncode, 1)

    def test_the_page_is_right(self):
        run = subprocess.run([sys.executable, SCRIPT, "--check", os.path.join(ROOT, "ARCHITECTURE.md")], stderr=subprocess.PIPE, universal_newlines=True,
                             check=False)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
