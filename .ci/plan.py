"""What .ci/run has to do for the commits that it sees: which suites, sanitizers, fuzz targets and
checks, and why. `plan.py [--base REV] [--into FOLDER]` prints the plan; --into writes it, too.

docs/testing.md says how the base is found and what counts as touched.
"""
import argparse
import fnmatch
import json
import os
import subprocess
import sys

import rooms

# Patterns of paths; * stands for any characters, also for slashes.
# Files whose change may change any result: everything counts as touched.
EVERYTHING = ("CMakeLists.txt", "CMakePresets.json", "cmake/*", "base/*", "tests/CMakeLists.txt",
              "tests/list_suites.cmake", "tests/test_main.cpp")
# Files whose change may break what is installed, packaged, or called from C, Python or a shell.
PROGRAMS = ("tools/*", "include/*", "engine/capi/*", "python/*", "cmake/*", "CMakeLists.txt",
            "examples/*", "tests/capi/*", "tests/cli/*", "tests/install/*", "tests/models/*",
            "tests/python/*", "dev", "models/*.gguf", "models/fetch.py", "models/real.json")
# The readers that each fuzz target feeds.
FUZZ = {
    "ctranslate2": ("formats/ctranslate2.*", "formats/byte_cursor.h"),
    "front_matter": ("engine/convert/front_matter.*", "engine/tokenizer/unicode.*"),
    "grammar": ("engine/grammar/*",),
    "gguf": ("formats/gguf*", "formats/unpack_interleaved.*"),
    "http_head": ("tools/serve/http/http_head.*", "tools/serve/http/chunked_body.*"),
    "imatrix": ("formats/imatrix.*",),
    "jinja": ("engine/jinja/*",),
    "json_schema": ("engine/grammar/*",),
    "npy": ("formats/npy.*",),
    "request": ("tools/serve/request/*", "tools/options/json.*", "formats/json.*"),
    "safetensors": ("formats/safetensors.*", "formats/json.*"),
    "session": ("engine/kv/session_*",),
    "spec": ("engine/arch/*",),
    "tokenizer": ("engine/tokenizer/*",),
    "tool_answer": ("engine/text/calls/*", "engine/text/reasoning_text.cpp"),
    "tokenizer_json": ("engine/convert/vocabulary*", "formats/sentencepiece.*", "formats/json.*"),
}
# One quick suite of each room that runs whatever was changed.
SMOKE = {
    "base": "OutputFile", "quant": "Decode", "formats": "GgufReader", "cpu": "Isa/KvStore",
    "cuda": "CudaDevice", "tools": "RunProgram",
    "engine/arch": "Gguf/RandomLlamas", "engine/capi": "CApiBorder",
    "engine/convert": "ConvertFolder", "engine/embed": "TextTokens", "engine/evaluate": "Perplexity",
    "engine/generate": "Generator", "engine/grammar": "Grammar", "engine/graph": "PlanOfAModel", "engine/kv": "KvCache",
    "engine/quantize": "Recipe", "engine/run": "Session", "engine/speech": "SpeechRules", "engine/text": "ChatTemplate",
    "engine/tokenizer": "Bpe",
}
# Hours before the newest commit; an older commit counts as landed where nothing else is known.
PUSH_HOURS = 8


def git(root, *arguments):
    result = subprocess.run(("git", "-C", root) + arguments, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, universal_newlines=True)
    return result.stdout.strip() if result.returncode == 0 else None


def passed_file():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "kvant", "ci", "passed")


def passed_commits():
    """Commits that .ci/run has passed on this machine."""
    try:
        with open(passed_file(), encoding="ascii") as file:
            return set(file.read().split())
    except OSError:
        return set()


def find_base(root, asked):
    """(commit or None, how it was found)."""
    if asked:
        commit = git(root, "rev-parse", "--verify", "--quiet", asked + "^{commit}")
        return commit, ("KVANT_CI_BASE" if commit else "KVANT_CI_BASE is no commit: " + asked)
    ancestors = [line.split() for line in
                 (git(root, "log", "--format=%H %ct", "HEAD") or "").splitlines()]
    if not ancestors:
        return None, "no commits"
    passed = passed_commits()
    for commit, _ in ancestors:
        if commit in passed:
            return commit, "the newest commit that passed on this machine"
    head = ancestors[0][0]
    remote = git(root, "rev-parse", "--verify", "--quiet", "origin/HEAD^{commit}") or git(
        root, "rev-parse", "--verify", "--quiet", "origin/main^{commit}")
    if remote and remote != head:
        base = git(root, "merge-base", "HEAD", remote)
        if base and base != head:
            return base, "where the branch left origin"
    newest = int(ancestors[0][1])
    for commit, seconds in ancestors:
        if newest - int(seconds) > PUSH_HOURS * 3600:
            return commit, "the newest commit that is over %d hours older" % PUSH_HOURS
    return None, "no commit that has surely landed"


def changed_files(root, base):
    """Paths that differ between the base and the work tree; old and new ones of what was moved."""
    lines = (git(root, "diff", "--name-status", "-M", base) or "").splitlines()
    return sorted({path for line in lines for path in line.split("\t")[1:]})


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def mentions(sources, suite, path):
    """Whether a test's text names a file, or a folder of two and more parts that holds it."""
    parts = path.split("/")
    begin = 1 if parts[0] == "tests" else 0
    names = [parts[-1]] + ["/".join(parts[begin:end]) for end in range(begin + 2, len(parts))]
    return any('"' + name in text or name + '"' in text or "/" + name in text
               for text in (sources.text.get(file, "") for file in suite.files) for name in names)


class Plan:
    def __init__(self, sources, suites, fuzz_targets):
        self.sources = sources
        self.known = suites
        self.fuzz_targets = fuzz_targets
        self.everything = ""  # why everything counts as touched
        self.rooms = {}       # touched room -> a changed file of it
        self.suites = {}      # name -> why
        self.own = set()      # suites of touched rooms: with sanitizers
        self.tested = set()   # rooms of changed tests
        self.lint = []
        self.fuzz = {}        # target -> why
        self.programs = ""

    def take(self, name, why):
        self.suites.setdefault(name, why)

    def touch(self, path):
        if matches(path, EVERYTHING):
            self.everything = self.everything or path
        if matches(path, PROGRAMS):
            self.programs = self.programs or path
        for target in self.fuzz_targets:
            if matches(path, FUZZ[target]) or path.startswith(
                    ("tests/fuzz/fuzz_%s.cpp" % target, "tests/fuzz/seeds/%s/" % target)):
                self.fuzz.setdefault(target, path)
        if path.startswith("tests/"):
            self.touch_test(path)
            return
        room = rooms.room_of(path)
        if room and not path.endswith(".md"):
            self.rooms.setdefault(room, path)
        self.touch_mentioned(path)

    def touch_test(self, path):
        if path.endswith(rooms.CODE):
            for name, suite in self.known.items():
                if path in suite.files:
                    self.take(name, path)
                    if path.endswith("_test.cpp"):
                        self.own.add(name)
                        self.tested.add(rooms.room_of(path))
        elif not path.startswith("tests/fuzz/") and not path.endswith((".md", ".py")):
            if not self.touch_mentioned(path) and not matches(path, PROGRAMS):
                self.everything = self.everything or path

    def touch_mentioned(self, path):
        if path.endswith(rooms.CODE):
            return False
        found = [name for name, suite in self.known.items() if mentions(self.sources, suite, path)]
        for name in found:
            self.take(name, path)
        return bool(found)

    def looks_into(self, suite, found):
        """Whether a test includes a header of the rooms itself."""
        return any(rooms.room_of(other) in found for path in suite.files
                   if path.endswith("_test.cpp") for other in self.sources.includes[path])

    def finish(self, changed):
        without_suites = set(self.rooms) - {room for suite in self.known.values()
                                            for room in suite.rooms}
        for name, suite in self.known.items():
            touched = sorted(suite.below & set(self.rooms))
            if self.everything:
                self.take(name, self.everything)
            elif touched:
                self.take(name, self.rooms[touched[0]])
            if suite.rooms & set(self.rooms) or self.looks_into(suite, without_suites):
                self.own.add(name)
            if name.split("/")[-1].startswith("Tidy"):
                self.take(name, "every change")
        for name in SMOKE.values():
            if name in self.known:
                self.take(name, "smoke")
        if self.everything:  # the least of all rooms; all of it at night
            self.own.update(SMOKE.values())
        if not self.sanitized_folders():
            self.own.clear()
        self.lint = self.files_to_lint(changed)

    def files_to_lint(self, changed):
        """The changed files, and for a header or fragment without a .cpp of its own one that includes
        it, because clang-tidy reads it there."""
        includers = {}
        for path in sorted(self.sources.text):
            if not path.startswith("tests/"):
                for other in self.sources.includes[path]:
                    includers.setdefault(other, []).append(path)
        files = set()
        for path in changed:
            if not path.endswith((".h", ".cpp", ".inl")) or path not in self.sources.text:
                continue
            files.add(path)
            own = path.rsplit(".", 1)[0] + ".cpp"
            seen, left = set(), [] if own in self.sources.text else [path]
            while left:  # breadth first, so that the includer is near
                file = left.pop(0)
                if file.endswith(".cpp"):
                    files.add(file)
                    break
                if file not in seen:
                    seen.add(file)
                    left += includers.get(file, ())
        return sorted(files)

    def sanitized_folders(self):
        """Folders to instrument: of touched rooms, and of the rooms of changed tests."""
        folders = {"base"} if self.everything else set()
        for room in set(self.rooms) | self.tested:
            if room.startswith("include/"):
                folders.update(self.sources.implementing.get(room, ()))
            elif room.split("/")[0] in ("base", "quant", "formats", "cpu", "cuda", "engine", "tools"):
                folders.add(room)
        return sorted({"engine" if folder.startswith("engine/") and not os.path.isdir(
            os.path.join(self.sources.root, folder)) else folder
                       for folder in folders if not folder.startswith("include/")})

    def text(self, base, how, changed):
        lines = ["base: %s (%s)" % (base[:12] if base else "none", how),
                 "changed: %d files" % len(changed)]
        if self.everything:
            lines.append("everything counts as touched: " + self.everything)
        lines += ["touched: %s (%s)" % item for item in sorted(self.rooms.items())]
        lines.append("suites: %d of %d" % (len(self.suites), len(self.known)))
        lines.append("lint: %d files" % len(self.lint))
        lines.append("sanitizers: %s; %d suites" % (
            " ".join(self.sanitized_folders()) or "nothing", len(self.own)))
        lines += ["fuzz: %s (%s)" % item for item in sorted(self.fuzz.items())] or ["fuzz: nothing"]
        lines.append("programs: " + (self.programs or "no"))
        return "\n".join(lines) + "\n"


def make_plan(sources, suites, changed, unknown=""):
    """The plan for these changed files; with `unknown`, for a tree of which nothing is known."""
    names = sorted(os.listdir(os.path.join(sources.root, "tests/fuzz")))
    targets = [name[5:-4] for name in names if name.startswith("fuzz_") and name.endswith(".cpp")]
    plan = Plan(sources, suites, targets)
    for path in changed:
        plan.touch(path)
    if unknown:
        plan.everything = plan.programs = unknown
        plan.fuzz = {target: unknown for target in targets}
    plan.finish(changed)
    return plan


def all_files(root):
    return sorted((git(root, "ls-files") or "").splitlines())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default=os.environ.get("KVANT_CI_BASE"))
    parser.add_argument("--into", metavar="FOLDER", help="write the plan there")
    parser.add_argument("--passed", metavar="FOLDER", help="note that the plan there has passed")
    options = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if options.passed:
        note_passed(root, options.passed)
        return
    base, how = find_base(root, options.base)
    changed = changed_files(root, base) if base else all_files(root)
    sources = rooms.Sources(root)
    plan = make_plan(sources, rooms.find_suites(sources), changed, "" if base else how)
    text = plan.text(base, how, changed)
    print(text, end="")
    if options.into:
        write(plan, options.into, base, text)


def note_passed(root, folder):
    """Adds the commit to those that passed here, unless somebody named another base, or the work tree
    differs from the commit."""
    head = git(root, "rev-parse", "HEAD")
    if not head or git(root, "status", "--porcelain") or os.environ.get("KVANT_CI_BASE"):
        return
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        if json.load(file)["commit"] != head:
            return
    os.makedirs(os.path.dirname(passed_file()), exist_ok=True)
    with open(passed_file(), "a", encoding="ascii") as file:
        file.write(head + "\n")


def write(plan, folder, base, text):
    os.makedirs(folder, exist_ok=True)

    def lines(name, values):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("".join(value + "\n" for value in values))

    lines("plan.txt", text.splitlines())
    lines("base", [base or ""])
    lines("suites", sorted(plan.suites))
    lines("lint", plan.lint)
    lines("sanitize", plan.sanitized_folders())
    lines("sanitize_suites", sorted(plan.own))
    lines("fuzz", sorted(plan.fuzz))
    lines("fuzz_folders", sorted({rooms.room_of(path) for target in plan.fuzz
                                  for path in FUZZ[target]}))
    lines("programs", [plan.programs] if plan.programs else [])
    with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8") as file:
        json.dump({"commit": git(plan.sources.root, "rev-parse", "HEAD"), "base": base,
                   "suites": plan.suites, "rooms": plan.rooms}, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
