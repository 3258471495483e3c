#!/usr/bin/env python3
"""Counts how the files of each folder hang together, as a Markdown table; ARCHITECTURE.md holds the table.

    cmake/count_arrows.py [FOLDER...] [--arrows] [--root CHECKOUT] [--check PAGE | --write PAGE]

A unit of a folder is one of its subfolders, or the files of one stem, such as plan.h and plan.cpp. An arrow leads from a unit to another one
of its folder where a file of the first includes a file of the second, however often. A public header, kvant/NAME.h, belongs to the unit of
NAME.cpp, where there is one such file. An arrow runs up where units include each other in a circle and it points against the order of units
in which the fewest arrows do, as far as a search finds that order.

Without FOLDER the table has all folders of the sources with at least ARROWS_MIN arrows. --arrows lists the arrows that run up as well.
--write puts the table into PAGE, between its two markers. --check fails where a folder of PAGE's table has more arrows that run up than
PAGE says, or where its number of files or arrows is off by more than a fifth, and by more than four.
"""
import argparse
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TREES = ["base", "quant", "formats", "cpu", "cuda", "engine", "tools"]
SUFFIXES = (".h", ".cpp", ".inl", ".cu")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ARROWS_MIN = 15
SLACK_PART, SLACK_MIN = 5, 4
BEGIN, END = "<!-- written by cmake/count_arrows.py -->", "<!-- end of what it writes -->"
HEAD = ["| Folder | Files | Units | Arrows | run up |", "| --- | ---: | ---: | ---: | ---: |"]
ROW = re.compile(r"\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|")


def read_includes(root):
    """{path of a file: paths of the files that it includes}, of all source files below the trees."""
    texts = {}
    for tree in TREES:
        for folder, _, names in os.walk(os.path.join(root, tree)):
            for name in names:
                if name.endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        texts[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
    sources = {}  # {stem: its .cpp files}
    for path in texts:
        if path.endswith(".cpp"):
            sources.setdefault(os.path.basename(path)[:-4], []).append(path)

    def place_of(name):
        found = sources.get(name[len("kvant/"):-2], []) if name.startswith("kvant/") else []
        return found[0] if len(found) == 1 else name

    return {path: {place_of(name) for name in INCLUDE.findall(texts[path])} & set(texts) - {path} for path in sorted(texts)}


def unit_of(path, folder):
    """The unit of `folder` that a file below it belongs to."""
    rest = path[len(folder) + 1:].split("/")
    return rest[0] + "/" if len(rest) > 1 else rest[0].split(".")[0]


def arrows_of(folder, includes):
    """Units of a folder, and its arrows as pairs of units."""
    inside = [path for path in includes if path.startswith(folder + "/")]
    pairs = {(unit_of(path, folder), unit_of(other, folder)) for path in inside for other in includes[path] if other.startswith(folder + "/")}
    return sorted({unit_of(path, folder) for path in inside}), {(begin, end) for begin, end in pairs if begin != end}


def circles_of(units, arrows):
    """Lists of units that reach each other, of two or more."""
    after = {unit: {end for begin, end in arrows if begin == unit} for unit in units}
    reached = {}
    for unit in units:
        found, waiting = set(), [unit]
        while waiting:
            for end in after[waiting.pop()] - found:
                found.add(end)
                waiting.append(end)
        reached[unit] = found
    return sorted(map(list, {tuple(end for end in units if end in reached[unit] and unit in reached[end]) for unit in units if unit in reached[unit]}))


def upward(units, arrows):
    """The arrows that run up, in an order of each circle's units that no move of one unit improves."""
    up = []
    for circle in circles_of(units, arrows):
        own = {pair for pair in arrows if set(pair) <= set(circle)}
        balance = {unit: sum((begin == unit) - (end == unit) for begin, end in own) for unit in circle}
        order = sorted(circle, key=lambda unit: (-balance[unit], unit))  # who includes most stands first
        improved = True
        while improved:
            improved = False
            for unit in circle:
                others = [other for other in order if other != unit]
                costs = [sum((other, unit) in own for other in others)]  # in front of all others
                for other in others:
                    costs.append(costs[-1] + ((unit, other) in own) - ((other, unit) in own))
                if min(costs) < costs[order.index(unit)]:
                    best = costs.index(min(costs))
                    order = others[:best] + [unit] + others[best:]
                    improved = True
        place = {unit: i for i, unit in enumerate(order)}
        up += sorted(pair for pair in own if place[pair[0]] > place[pair[1]])
    return up


class Folder:
    def __init__(self, path, includes):
        units, arrows = arrows_of(path, includes)
        self.path, self.up = path, upward(units, arrows)
        self.files = sum(os.path.dirname(file) == path for file in includes)
        self.units, self.arrows = len(units), len(arrows)

    def row(self):
        return f"| `{self.path}` | {self.files} | {self.units} | {self.arrows} | {len(self.up)} |"


def folders_of(includes):
    paths = set()
    for path in includes:
        parts = path.split("/")[:-1]
        paths.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return [folder for folder in (Folder(path, includes) for path in sorted(paths)) if folder.arrows >= ARROWS_MIN]


def marked(page, text):
    """Where the table lies in a page: behind the first marker, and in front of the second."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        sys.exit(f"count_arrows: {page}: expected one line {BEGIN} and behind it one {END}")
    return text.index(BEGIN) + len(BEGIN), text.index(END)


def check(page, text, includes):
    """What of the page's table is not so, as lines."""
    begin, end = marked(page, text)
    rows = [tuple(map(str, row)) for row in ROW.findall(text[begin:end])]
    if not rows:
        yield "expected a table with rows, found none"
    for path, *numbers in rows:
        said = dict(zip(("files", "units", "arrows", "up"), map(int, numbers)))
        found = Folder(path, includes)
        if len(found.up) > said["up"]:
            yield f"{path}: expected {said['up']} arrows that run up at most, found {len(found.up)}: " + ", ".join(f"{a} -> {b}" for a, b in found.up)
        for what in ("files", "arrows"):
            number = getattr(found, what)
            if abs(number - said[what]) > max(SLACK_MIN, said[what] // SLACK_PART):
                yield f"{path}: expected about {said[what]} {what}, found {number}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--root", default=ROOT, metavar="CHECKOUT")
    parser.add_argument("--arrows", action="store_true")
    parser.add_argument("--check", metavar="PAGE")
    parser.add_argument("--write", metavar="PAGE")
    options = parser.parse_args()
    includes = read_includes(options.root)
    page = options.check or options.write
    if page:
        with open(page, encoding="utf-8") as file:
            text = file.read()
    if options.check:
        faults = list(check(page, text, includes))
        for fault in faults:
            print(f"count_arrows: {page}: {fault}; cmake/count_arrows.py --write {page}", file=sys.stderr)
        sys.exit(1 if faults else 0)
    folders = [Folder(path.rstrip("/"), includes) for path in options.folders] or folders_of(includes)
    table = "\n".join([*HEAD, *(folder.row() for folder in folders)])
    if options.write:
        begin, end = marked(page, text)
        with open(page, "w", encoding="utf-8") as file:
            file.write(f"{text[:begin]}\n\n{table}\n\n{text[end:]}")
        return
    print(table)
    if options.arrows:
        for folder in folders:
            for begin, end in folder.up:
                print(f"{folder.path}: {begin} -> {end}")


if __name__ == "__main__":
    main()
