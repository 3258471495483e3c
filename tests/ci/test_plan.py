"""What .ci/plan.py makes of changes, held to the sources of this tree. Run by ctest and by
`./dev lint --shape`: python3 -m unittest discover -s tests/ci
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, ".ci"))
import plan as planner  # noqa: E402
import rooms  # noqa: E402

SOURCES = rooms.Sources(ROOT)
SUITES = rooms.find_suites(SOURCES)


def plan(*changed, unknown=""):
    return planner.make_plan(SOURCES, SUITES, list(changed), unknown)


def a_file(folder, suffix=".cpp"):
    return next(path for path in sorted(SOURCES.text)
                if path.startswith(folder) and path.endswith(suffix))


class Rooms(unittest.TestCase):
    def test_rooms_are_folders(self):
        for path, room in {"base/result.cpp": "base", "cpu/avx2/matmul.cpp": "cpu",
                           "quant/search/grid_fit.cpp": "quant",
                           "engine/kv/stores/full.h": "engine/kv", "engine/limits.h": "engine/limits",
                           "include/kvant/runner.h": "include/kvant/runner.h",
                           "tests/engine/kv/ledger_test.cpp": "engine/kv",
                           "tests/capi/capi_test.c": "engine/capi", "tests/tools/chat_test.cpp": "tools",
                           "tests/tidy_test.cpp": "", "README.md": "", "dev": ""}.items():
            self.assertEqual(rooms.room_of(path), room, path)

    def test_who_depends_on_whom_is_what_includes_say(self):
        self.assertEqual(SOURCES.below("quant") & {"formats", "cpu", "engine/kv", "tools"}, set())
        self.assertLessEqual({"base", "quant"}, SOURCES.below("formats"))
        self.assertLessEqual({"base", "cpu", "engine/kv", "engine/graph", "engine/jinja", "formats"},
                             SOURCES.below("tools"))
        self.assertNotIn("tools", SOURCES.below("engine/generate"))

    def test_a_public_header_leads_to_its_implementation(self):
        self.assertEqual(SOURCES.implementing["include/kvant/sampler.h"], {"engine/generate"})
        self.assertEqual(SOURCES.implementing["include/kvant/kvant.h"], {"engine/capi"})
        for suite in SUITES.values():
            if any("include/kvant/sampler.h" in SOURCES.includes[path] for path in suite.files
                   if path.endswith("_test.cpp")):
                self.assertIn("engine/generate", suite.below, suite.name)
        # Who is built on by the implementing room does not depend on it.
        self.assertIn("include/kvant/session_options.h", SOURCES.below("engine/graph"))
        self.assertNotIn("engine/generate", SOURCES.below("engine/graph"))

    def test_every_suite_has_files_and_a_room_below_it(self):
        self.assertGreater(len(SUITES), 250)
        for suite in SUITES.values():
            self.assertTrue(suite.files, suite.name)
            if not suite.name.startswith(("Tidy", "SharedData")):
                self.assertTrue(suite.below, suite.name)

    def test_entries_on_a_device_depend_on_what_computes(self):
        found = [suite for name, suite in SUITES.items() if name.startswith("OnDevice/")]
        self.assertEqual(len(found), 5)
        for suite in found:
            self.assertLessEqual({"cuda", "cpu", "engine/kv", "engine/graph"}, suite.below)


class Plans(unittest.TestCase):
    def test_a_kernel_touches_all_that_computes(self):
        made = plan(a_file("cpu/generic/", ".inl"))
        self.assertEqual(set(made.rooms), {"cpu"})
        self.assertEqual(made.everything, "")
        for name, suite in SUITES.items():
            self.assertEqual(name in made.suites,
                             "cpu" in suite.below or name in planner.SMOKE.values() or
                             name.startswith("Tidy"), name)
        self.assertEqual(made.sanitized_folders(), ["cpu"])
        self.assertEqual((made.fuzz, made.programs), ({}, ""))

    def test_a_reader_of_files_does_not_touch_kernels(self):
        made = plan("formats/npy.cpp")
        self.assertIn("Npy", {name[:3] for name in made.suites})
        kernels = {name for name, suite in SUITES.items() if suite.rooms == {"cpu"}}
        self.assertLessEqual(kernels & set(made.suites), set(planner.SMOKE.values()))
        self.assertEqual(set(made.fuzz), {"npy"})
        self.assertEqual(made.sanitized_folders(), ["formats"])
        self.assertEqual(made.programs, "")

    def test_templates_are_below_programs_and_not_below_the_cache(self):
        made = plan(a_file("engine/jinja/"))
        cache = {name for name, suite in SUITES.items() if suite.rooms == {"engine/kv"}}
        self.assertGreater(len(cache - set(made.suites)), len(cache) / 2)
        self.assertTrue({name for name in made.suites if SUITES[name].rooms == {"tools"}})
        self.assertEqual(set(made.fuzz), {"jinja"})

    def test_the_floor_is_everything(self):
        for path in ("base/result.cpp", "CMakeLists.txt", "cmake/unity.cmake", "tests/CMakeLists.txt"):
            made = plan(path)
            self.assertEqual(made.everything, path)
            self.assertEqual(set(made.suites), set(SUITES))

    def test_what_is_not_known_is_everything(self):
        made = plan(unknown="no base")
        self.assertEqual(set(made.suites), set(SUITES))
        self.assertEqual(set(made.fuzz), set(planner.FUZZ))
        self.assertEqual((made.everything, made.programs), ("no base", "no base"))
        self.assertLessEqual(set(planner.SMOKE.values()), made.own)

    def test_documents_touch_the_tests_that_name_them(self):
        made = plan("README.md", "docs/quickstart.md")
        self.assertEqual((made.rooms, made.everything, made.fuzz, made.programs), ({}, "", {}, ""))
        self.assertLess(len(made.suites), 60)
        self.assertIn("Tidy", made.suites)
        self.assertEqual(made.lint, [])

    def test_data_of_tests_touches_the_tests_that_name_it(self):
        made = plan("tests/quant/decode_blocks.json")
        self.assertEqual((made.rooms, made.everything), ({}, ""))
        self.assertTrue(any(SUITES[name].rooms == {"quant"} for name in made.suites))
        self.assertNotIn("quant", made.rooms)

    def test_data_that_nobody_names_is_everything(self):
        self.assertEqual(plan("tests/reference/nobody_knows.bin").everything,
                         "tests/reference/nobody_knows.bin")

    def test_a_test_touches_itself_and_its_room_is_instrumented(self):
        made = plan("tests/formats/npy_test.cpp")
        self.assertEqual(made.rooms, {})
        self.assertTrue(made.own)
        self.assertLessEqual(made.own, set(made.suites))
        self.assertEqual(made.sanitized_folders(), ["formats"])
        self.assertLess(len(made.suites), 60)

    def test_programs_are_made_where_their_files_change(self):
        for path in ("python/kvant/model.py", "tests/cli/manners.sh", "dev", a_file("tools/"),
                     "include/kvant/runner.h", a_file("engine/capi/"), "cmake/install.cmake"):
            self.assertEqual(plan(path).programs, path)
        self.assertEqual(plan(a_file("engine/kv/")).programs, "")

    def test_a_public_header_instruments_what_implements_it(self):
        cpp = next(path for path in SOURCES.text if path.endswith("/sampler.cpp"))
        self.assertIn(rooms.room_of(cpp), plan("include/kvant/sampler.h").sanitized_folders())

    def test_lint_sees_changed_files_and_who_includes_a_header_alone(self):
        header = next(path for path in sorted(SOURCES.text)
                      if path.startswith("engine/") and path.endswith(".h") and
                      path[:-2] + ".cpp" not in SOURCES.text)
        files = plan(header, "formats/npy.cpp", "README.md", "formats/gone.cpp").lint
        self.assertLessEqual({header, "formats/npy.cpp"}, set(files))
        self.assertTrue([path for path in files if path.endswith(".cpp") and path != "formats/npy.cpp"])
        self.assertNotIn("formats/gone.cpp", files)

    def test_benchmarks_and_examples_are_nobodys_floor(self):
        made = plan(a_file("bench/"))
        self.assertEqual((made.sanitized_folders(), made.own), ([], set()))
        self.assertLess(len(made.suites), 60)

    def test_smoke_suites_are_there_and_run_with_every_change(self):
        with_suites = {room for suite in SUITES.values() for room in suite.rooms
                       if room.count("/") == 0 or os.path.isdir(os.path.join(ROOT, room))}
        self.assertEqual(with_suites - {"bench", "examples"}, set(planner.SMOKE))
        for room, name in planner.SMOKE.items():
            self.assertIn(name, SUITES)
            self.assertIn(room, SUITES[name].rooms)
        self.assertLessEqual(set(planner.SMOKE.values()), set(plan("LICENSE").suites))


class Fuzz(unittest.TestCase):
    def test_every_target_has_readers_and_seeds(self):
        targets = {name[5:-4] for name in os.listdir(os.path.join(ROOT, "tests/fuzz"))
                   if name.startswith("fuzz_")}
        self.assertEqual(targets, set(planner.FUZZ))
        for target, patterns in planner.FUZZ.items():
            for pattern in patterns:
                self.assertTrue([path for path in SOURCES.text if planner.matches(path, (pattern,))],
                                "%s: no file %s" % (target, pattern))
            self.assertEqual(set(plan("tests/fuzz/fuzz_%s.cpp" % target).fuzz), {target})
            self.assertEqual(set(plan("tests/fuzz/seeds/%s/a" % target).fuzz), {target})


class Base(unittest.TestCase):
    """The commit that changes are counted from, in repositories that the test makes."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        for name in ("KVANT_CI_BASE", "XDG_CACHE_HOME"):
            before = os.environ.pop(name, None)
            self.addCleanup(self.restore, name, before)
        os.environ["XDG_CACHE_HOME"] = self.root + "/cache"
        self.git("init", "-q", "-b", "main")

    def restore(self, name, value):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value

    def git(self, *arguments, **variables):
        environment = dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@localhost",
                           GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@localhost", **variables)
        return subprocess.run(("git", "-C", self.root) + arguments, env=environment, check=True,
                              stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()

    def commit(self, name, hour):
        date = "2026-11-%02dT%02d:00:00+00:00" % (1 + hour // 24, hour % 24)
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(name)
        self.git("add", name)
        self.git("commit", "-q", "-m", name, GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)
        return self.git("rev-parse", "HEAD")

    def test_by_the_hours_between_commits(self):
        self.assertEqual(planner.find_base(self.root, None)[0], None)
        first = self.commit("first", 0)
        self.assertEqual(planner.find_base(self.root, None)[0], None)
        self.commit("second", 6)
        self.assertEqual(planner.find_base(self.root, None)[0], None)
        self.commit("third", 9)
        self.assertEqual(planner.find_base(self.root, None)[0], first)
        self.assertEqual(planner.changed_files(self.root, first), ["second", "third"])

    def test_by_what_passed_here_and_by_name(self):
        self.commit("first", 0)
        second = self.commit("second", 20)
        os.makedirs(os.path.dirname(planner.passed_file()))
        with open(planner.passed_file(), "w", encoding="ascii") as file:
            file.write(second + "\n")
        third = self.commit("third", 21)
        self.assertEqual(planner.find_base(self.root, None)[0], second)
        self.assertEqual(planner.find_base(self.root, "HEAD~2")[0], self.git("rev-parse", "HEAD~2"))
        self.assertEqual(planner.find_base(self.root, "nothing")[0], None)
        self.git("update-ref", "refs/remotes/origin/main", third)  # a clone of what is tested
        self.assertEqual(planner.find_base(self.root, None)[0], second)

    def test_by_the_branch_of_origin(self):
        first = self.commit("first", 0)
        self.git("update-ref", "refs/remotes/origin/main", first)
        self.commit("second", 1)
        self.assertEqual(planner.find_base(self.root, None)[0], first)

    def test_moved_files_count_at_both_places(self):
        first = self.commit("first", 0)
        self.git("mv", "first", "moved")
        self.git("commit", "-q", "-m", "move")
        self.assertEqual(planner.changed_files(self.root, first), ["first", "moved"])

    def test_only_a_clean_tree_is_noted_as_passed(self):
        head = self.commit("first", 0)
        plan_folder = os.path.join(self.root, "build")
        os.makedirs(plan_folder)
        with open(os.path.join(plan_folder, "plan.json"), "w", encoding="utf-8") as file:
            file.write('{"commit": "%s"}' % head)
        planner.note_passed(self.root, plan_folder)  # the folders are not tracked
        self.assertEqual(planner.passed_commits(), set())
        with open(os.path.join(self.root, ".git/info/exclude"), "w", encoding="utf-8") as file:
            file.write("build\ncache\n")
        planner.note_passed(self.root, plan_folder)
        self.assertEqual(planner.passed_commits(), {head})


class Findings(unittest.TestCase):
    def test_every_script_has_a_line(self):
        with open(os.path.join(ROOT, "findings/README.md"), encoding="utf-8") as file:
            listed = re.findall(r"^- \[?`([\w.-]+)\.sh`", file.read(), re.M)
        scripts = [name[:-3] for name in sorted(os.listdir(os.path.join(ROOT, "findings")))
                   if name.endswith(".sh")]
        self.assertEqual(sorted(listed), scripts)


if __name__ == "__main__":
    unittest.main()
