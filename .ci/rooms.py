"""What depends on what, read from the sources: rooms, the rooms that they include, and the test
suites that look into them. Used by plan.py and by the check that ctest's suites are all known.

A room is a folder: base, quant, formats, cpu, cuda, tools, bench, and each folder of engine/. A file
that stands in engine/ itself and a public header are rooms of their own. A test file belongs to the
room whose path it has under tests/; tests/engine/kv/ledger_test.cpp to engine/kv.
"""
import collections
import os
import re
import subprocess
import sys

SOURCE_ROOMS = ("base", "quant", "formats", "cpu", "cuda", "engine", "tools", "bench", "examples")
CODE = (".h", ".cpp", ".inl", ".cu")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
TEST = re.compile(r"^\s*(TEST|TEST_F|TEST_P)\(\s*(\w+)\s*,", re.M)
INSTANTIATE = re.compile(r"^\s*INSTANTIATE_TEST_SUITE_P\(\s*(\w+)\s*,\s*(\w+)\s*,", re.M)
# A macro of a test header that instantiates a suite: "#define KVANT_FOR_ALL(fixture) \ INSTANTIATE...(Isa, fixture".
MACRO = re.compile(r"#define\s+(\w+)\((\w+)\)((?:.*\\\n)*.*\n)")

# The entries of list_suites.cmake that run tests of several suites once more, on an emulated device:
# OnDevice/NAME. They compute whole texts.
DEVICE_ENTRY = re.compile(r'^\s+"(\w+)=\S+"\)?$', re.M)
DEVICE_ROOMS = ("cuda", "engine/run", "engine/generate")


def room_of(path):
    """The room of a source file or, under tests/, of a test; "" for what is in none."""
    parts = path.split("/")
    if parts[0] == "tests":
        parts = {"capi": ["engine", "capi", ""], "cli": ["tools", ""]}.get(
            parts[1] if len(parts) > 2 else "", parts[1:])
    if len(parts) < 2:
        return ""
    if parts[0] == "include":
        return path
    if parts[0] == "engine":
        return "/".join(parts[:2]) if len(parts) > 2 else "engine/" + parts[1].split(".")[0]
    return parts[0] if parts[0] in SOURCE_ROOMS or parts[0] == "python" else ""


def files_under(root, folder, suffixes):
    for where, folders, names in os.walk(os.path.join(root, folder)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(suffixes):
                yield os.path.relpath(os.path.join(where, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def reachable(graph, room):
    """The room and all that its edges lead to."""
    found, left = set(), [room]
    while left:
        found.add(left[-1])
        left.extend(graph.get(left.pop(), set()) - found)
    return found


class Sources:
    """The sources of a tree, and what each file and room includes."""

    def __init__(self, root):
        self.root = root
        self.text = {}
        for folder in SOURCE_ROOMS + ("include", "tests"):
            for path in files_under(root, folder, CODE):
                self.text[path] = read(root, path)
        self.includes = {path: [self.resolve(name) for name in INCLUDE.findall(text)]
                         for path, text in self.text.items()}
        self.implementing = collections.defaultdict(set)  # public header -> rooms
        self.graph = self.room_graph()
        self.below_of = {}

    def resolve(self, name):
        """The path of an included file."""
        return "include/" + name if name.startswith("kvant/") else name

    def room_graph(self):
        """Room -> rooms that its files include. Who includes kvant/sampler.h depends on the room of
        sampler.cpp as well, unless that room is built on the includer's: engine/kv takes a structure
        from a header whose functions engine/run implements, and calls none of them."""
        plain = collections.defaultdict(set)
        for path in self.text:
            room = room_of(path)
            if path.startswith("tests/"):
                continue
            plain[room].update(room_of(other) for other in self.includes[path])
            name = os.path.basename(path)
            if path.startswith("include/kvant/kvant"):
                self.implementing[path].add("engine/capi")
            elif path.startswith("engine/") and name.endswith(".cpp"):
                self.implementing["include/kvant/%s.h" % name[:-4]].add(room)
        graph = {room: set(rooms) for room, rooms in plain.items()}
        for room in plain:
            if not room.startswith("include/"):
                graph[room].update(other for header in reachable(plain, room)
                                   for other in self.implementing.get(header, ())
                                   if room not in reachable(plain, other))
        graph["python"] = {"engine/capi"}
        return {room: others - {room, ""} for room, others in graph.items()}

    def below(self, room):
        """The room and all that it depends on."""
        if room not in self.below_of:
            self.below_of[room] = reachable(self.graph, room)
        return self.below_of[room]

    def test_headers(self, path):
        """Headers under tests/ that a test includes, through others as well, and the test itself."""
        found, left = set(), [path]
        while left:
            file = left.pop()
            if file in found or file not in self.text:
                continue
            found.add(file)
            left.extend(name for name in self.includes[file] if name.startswith("tests/"))
        return found


def instantiated(text, sources, path):
    """(prefix, suite) of a file, those of the macros of its test headers included."""
    found = INSTANTIATE.findall(text)
    for header in sources.test_headers(path) - {path}:
        for name, parameter, body in MACRO.findall(sources.text[header]):
            for prefix, suite in INSTANTIATE.findall(body.replace("\\\n", "\n")):
                if suite == parameter:
                    uses = re.findall(r"^\s*%s\(\s*(\w+)\s*\)" % name, text, re.M)
                    found += [(prefix, use) for use in uses]
    return found


class Suite:
    """A test suite by ctest's name ("Kinds/RunnerKinds"), and what it depends on."""

    def __init__(self, name):
        self.name = name
        self.files = set()  # tests and test headers
        self.rooms = set()  # of the files themselves: it was written for them
        self.below = set()  # all rooms whose change may change its result


def find_suites(sources):
    """Name -> Suite for every test under tests/."""
    suites = {}
    fixtures = collections.defaultdict(set)  # suite without prefix -> files that define tests of it
    alone = set()  # suites with tests that have no parameter
    prefixes = collections.defaultdict(set)
    for path, text in sources.text.items():
        if not path.startswith("tests/") or not path.endswith("_test.cpp"):
            continue
        for macro, name in TEST.findall(text):
            fixtures[name].add(path)
            if macro != "TEST_P":
                alone.add(name)
        for prefix, name in instantiated(text, sources, path):
            prefixes[name].add((prefix, path))
    for name, files in fixtures.items():
        names = {prefix + "/" + name for prefix, _ in prefixes[name]} | {name} & alone
        everything = set(files) | {path for _, path in prefixes[name]}
        for full in names:
            suite = suites.setdefault(full, Suite(full))
            for path in everything:
                suite.files |= sources.test_headers(path)
                suite.rooms.add(room_of(path))
    for suite in suites.values():
        rooms = set(suite.rooms)
        for path in suite.files:
            rooms.update(room_of(other) for other in sources.includes[path]
                         if not other.startswith("tests/"))
        suite.rooms -= {""}
        for room in rooms - {""}:
            suite.below |= sources.below(room)
            if room.startswith("include/"):
                for header in sources.below(room):
                    suite.below.update(*map(sources.below, sources.implementing.get(header, ())))
    for name in DEVICE_ENTRY.findall(read(sources.root, "tests/list_suites.cmake")):
        suite = suites.setdefault("OnDevice/" + name, Suite("OnDevice/" + name))
        suite.files.add("tests/list_suites.cmake")
        suite.rooms.add("cuda")
        suite.below.update(*map(sources.below, DEVICE_ROOMS))
    return suites


def listed_suites(program):
    """Names of the suites that a test program has."""
    listing = subprocess.run([program, "--gtest_list_tests"], check=True, stdout=subprocess.PIPE,
                             universal_newlines=True).stdout
    return re.findall(r"^(\S+)\.(?: |$)", listing, re.M)


def main():
    """rooms.py PROGRAM: fails where the program has a suite that is not found in the sources."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    known = find_suites(Sources(root))
    listed = listed_suites(sys.argv[1])
    unknown = [name for name in listed if name not in known]
    for name in unknown:
        print("no test file of tests/ defines the suite " + name)
    print("%d suites, %d without a file" % (len(listed), len(unknown)))
    return 1 if unknown or not listed else 0


if __name__ == "__main__":
    sys.exit(main())
