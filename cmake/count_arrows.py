#!/usr/bin/env python3
"""Prints how the files of each folder hang together, as a Markdown table; ARCHITECTURE.md holds the table.

    cmake/count_arrows.py [FOLDER...] [--arrows] [--check PAGE | --write PAGE]

A room of a folder is one of its subfolders, or a unit: the files with one stem, such as plan.h and plan.cpp. An arrow leads from a room to
another one in the same folder where a file of the first includes a file of the second, however often. A public header, kvant/NAME.h, counts
as a part of the unit with the one NAME.cpp. Rooms stand in the order in which the
fewest arrows run up, as far as a search finds it; an arrow runs up where two rooms or more include each other in a circle.

Columns: files of the folder itself, files with those of its subfolders, rooms, arrows, arrows that run up. Without FOLDER: every folder of the
sources with at least six rooms and one arrow. --arrows lists the arrows that run up, too. --write puts the table into PAGE, between its
two markers; --check fails where PAGE holds another table.
"""
import argparse
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TREES = ["base", "quant", "formats", "cpu", "cuda", "engine", "tools"]
SUFFIXES = (".h", ".cpp", ".inl", ".cu")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ROOMS_MIN = 6
BEGIN, END = "<!-- written by cmake/count_arrows.py -->", "<!-- end of what it writes -->"


def read_includes(root):
    """{path of a file: paths of the files that it includes}, of all source files below the trees."""
    files = {}
    for tree in TREES:
        for folder, folders, names in os.walk(os.path.join(root, tree)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        files[os.path.relpath(path, root).replace(os.sep, "/")] = INCLUDE.findall(file.read())
    sources = {}  # {stem: its .cpp files}, which implement the public header of that name
    for path in files:
        if path.endswith(".cpp"):
            sources.setdefault(os.path.basename(path)[:-4], []).append(path)

    def place_of(name):
        found = sources.get(name[len("kvant/"):-2], []) if name.startswith("kvant/") else []
        return found[0] if len(found) == 1 else name

    places = {path: {place_of(name) for name in included} - {path} for path, included in files.items()}
    return {path: {name for name in included if name in files} for path, included in places.items()}


def room_of(path, folder):
    """The room of `folder` that a file below it belongs to."""
    rest = path[len(folder) + 1:].split("/")
    return rest[0] + "/" if len(rest) > 1 else rest[0].split(".")[0]


def arrows_of(folder, includes):
    """Rooms of a folder, and its arrows as pairs of rooms."""
    inside = [path for path in includes if path.startswith(folder + "/")]
    rooms = sorted({room_of(path, folder) for path in inside})
    arrows = set()
    for path in inside:
        for other in includes[path]:
            if other.startswith(folder + "/"):
                pair = room_of(path, folder), room_of(other, folder)
                if pair[0] != pair[1]:
                    arrows.add(pair)
    return rooms, arrows


def circles_of(rooms, arrows):
    """Sets of rooms that reach each other, of two or more."""
    after = {room: {to for begin, to in arrows if begin == room} for room in rooms}
    reached = {}
    for room in rooms:
        found, open_rooms = set(), [room]
        while open_rooms:
            for to in after[open_rooms.pop()] - found:
                found.add(to)
                open_rooms.append(to)
        reached[room] = found
    circles = {frozenset(to for to in reached[room] if room in reached[to]) for room in rooms if room in reached[room]}
    return sorted((sorted(circle) for circle in circles))


def upward(rooms, arrows):
    """The arrows that run up: those against an order of each circle's rooms, improved until no room has a better place."""
    up = []
    for circle in circles_of(rooms, arrows):
        members = set(circle)
        own = {pair for pair in arrows if members.issuperset(pair)}
        degree = {room: sum((begin == room) - (end == room) for begin, end in own) for room in circle}
        order = sorted(circle, key=lambda room: (-degree[room], room))  # who includes most stands first
        improved = True
        while improved:
            improved = False
            for room in circle:
                others = [other for other in order if other != room]
                # Behind i rooms, the arrows of this room that run up: from rooms behind it, and to rooms before it.
                cost = sum((other, room) in own for other in others)
                costs = [cost]
                for other in others:
                    cost += ((room, other) in own) - ((other, room) in own)
                    costs.append(cost)
                place = order.index(room)
                if min(costs) < costs[place]:
                    best = costs.index(min(costs))
                    order = others[:best] + [room] + others[best:]
                    improved = True
        place = {room: i for i, room in enumerate(order)}
        up += sorted(pair for pair in own if place[pair[0]] > place[pair[1]])
    return up


def folders_of(includes):
    folders = set()
    for path in includes:
        parts = path.split("/")[:-1]
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return sorted(folders)


def table_of(folders, includes):
    lines = ["| Folder | Files | with subfolders | Rooms | Arrows | run up |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    ups = {}
    for folder in folders:
        rooms, arrows = arrows_of(folder, includes)
        ups[folder] = upward(rooms, arrows)
        own = sum(os.path.dirname(path) == folder for path in includes)
        all_files = sum(path.startswith(folder + "/") for path in includes)
        lines.append(f"| `{folder}` | {own} | {all_files} | {len(rooms)} | {len(arrows)} | {len(ups[folder])} |")
    return "\n".join(lines) + "\n", ups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--root", default=ROOT, help="another checkout")
    parser.add_argument("--arrows", action="store_true")
    parser.add_argument("--check", metavar="PAGE")
    parser.add_argument("--write", metavar="PAGE")
    options = parser.parse_args()
    includes = read_includes(options.root)
    folders = [folder.rstrip("/") for folder in options.folders]
    if not folders:
        folders = [f for f in folders_of(includes) if len(arrows_of(f, includes)[0]) >= ROOMS_MIN and arrows_of(f, includes)[1]]
    table, ups = table_of(folders, includes)
    print(table, end="")
    if options.arrows:
        for folder, pairs in ups.items():
            for begin, end in pairs:
                print(f"{folder}: {begin} -> {end}")


if __name__ == "__main__":
    main()
