"""Makes the tables and plots of RESULTS.md and results/by-type.md from results/figures.csv; `bench/plot --results` runs it.

A line of figures.csv is what kvant and one other engine (or none) did in one run: machine; date; commit; state of the machine (quiet, shared or
busy); model and type; test (pp or tg with its tokens); depth and type of the cache; kvant's tokens/s; what that is of a limit; peer, its
version, its best way and its tokens/s (or a word, where it made none); the ratio as it was measured (empty: one number over the other); the command.

Where several lines have the same machine, model, test, depth, cache and peer, the quietest counts, among those the newest, then the last.
RESULTS.md has one table: a row for each machine and kind of model, with the median and the range of the ratios that count. results/by-type.md
has a table for each machine, with a row for each model and type.
Machines, engines and rows stand in the order of their first lines, rows of the main model first.
"""
import csv
import math
import os
import re
import statistics
import sys

from svg import Svg, steps_up_to

FIELDS = ["machine", "date", "commit", "state", "model", "type", "test", "depth", "kv", "kvant", "limit", "peer", "version", "way", "peer_tokens", "ratio",
          "command"]
STATES = ["busy", "shared", "quiet"]
KINDS = {"pp": "Prefill", "tg": "Decode"}
BEGIN, END = "<!-- written by bench/plot --results -->", "<!-- end of what it writes -->"
MAIN_MODEL = "1b"  # its rows are called by their type alone
MAIN_KV = "f16"
WIDTH = 860


class Bad(Exception):
    """A line of figures.csv that cannot be read; says which field, what was expected and what was found."""


class Figure:
    def __init__(self, number, fields):
        if len(fields) != len(FIELDS):
            raise Bad(f"line {number}: expected {len(FIELDS)} fields, found {len(fields)}")
        values = dict(zip(FIELDS, (field.strip() for field in fields)))
        patterns = {"date": r"\d{4}-\d\d-\d\d", "state": "|".join(STATES), "test": r"(pp|tg)\d+", "depth": r"\d+", "kvant": r"\d+(\.\d+)?",
                    "ratio": r"(\d+(\.\d+)?)?", "machine": ".+", "commit": ".+", "model": ".+", "type": ".+", "kv": ".+", "command": ".+"}
        for field, pattern in patterns.items():
            if not re.fullmatch(pattern, values[field]):
                raise Bad(f"line {number}: {field}: expected {pattern}, found: {values[field]!r}")
        if bool(values["peer"]) != bool(values["peer_tokens"]):
            raise Bad(f"line {number}: peer and peer_tokens: expected both or neither")
        self.number = number
        self.machine, self.date, self.commit, self.state = (values[name] for name in ("machine", "date", "commit", "state"))
        self.model, self.type, self.test, self.kind = values["model"], values["type"], values["test"], values["test"][:2]
        self.depth, self.kv, self.kvant, self.limit = int(values["depth"]), values["kv"], values["kvant"], values["limit"]
        self.peer, self.version, self.peer_tokens = values["peer"], values["version"], values["peer_tokens"]
        self.peer_speed = float(self.peer_tokens) if re.fullmatch(r"\d+(\.\d+)?", self.peer_tokens) else None
        self.ratio = None
        if self.peer_speed:
            self.ratio = float(values["ratio"]) if values["ratio"] else float(self.kvant) / self.peer_speed
        if self.ratio is not None and self.ratio <= 0:
            raise Bad(f"line {number}: kvant, peer_tokens, ratio: expected numbers above 0")
        self.rank = (STATES.index(self.state), self.date, number)

        self.name = self.type if self.model == MAIN_MODEL else f"{self.model} {self.type}"
        self.row = self.name if self.kv == MAIN_KV else f"{self.name}, {self.kv} KV"  # of a table


def read_figures(path):
    with open(path, encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    if not lines or lines[0] != FIELDS:
        raise Bad(f"line 1: expected {','.join(FIELDS)}")
    return [Figure(number, fields) for number, fields in enumerate(lines[1:], 2) if fields]


def unique(values):
    return list(dict.fromkeys(values))


def rows_of(figures):
    return unique(f.row for f in sorted(figures, key=lambda f: f.model != MAIN_MODEL))


def peers_of(figures):
    """The other engines in the order of their colours."""
    return unique(f.peer for f in figures if f.peer)


class Cells:
    """The figures that count of one machine, model, type, kind of test, depth and cache: one for each peer, and kvant's own."""

    def __init__(self, figures):
        self.by_peer = {}
        for figure in sorted(figures, key=lambda figure: figure.rank):
            self.by_peer[figure.peer] = figure  # the best comes last
        self.ours = max(figures, key=lambda figure: figure.rank, default=None)

    def peer_text(self, peer):
        figure = self.by_peer.get(peer)
        if figure is None:
            return ""
        if figure.ratio is None:
            return figure.peer_tokens
        beside = figure.peer_tokens if figure.kvant == self.ours.kvant else f"{figure.kvant} : {figure.peer_tokens}"
        return f"{figure.ratio:.2f} ({beside})"

    def used(self):
        return unique([*([self.ours] if self.ours else []), *self.by_peer.values()])


# ---- Tables ----------------------------------------------------------------------------------------


def rows_text(names):
    return " and ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def run_texts(figures):
    """One text for each run that a table shows: when, what, beside what."""
    runs = {}
    for figure in figures:
        runs.setdefault((figure.date, figure.commit, figure.state), []).append(figure)
    for (date, commit, state), members in sorted(runs.items(), reverse=True):
        tests_by_rows = {}
        for test in unique(f.test for f in members):
            tests_by_rows.setdefault(tuple(unique(f.row for f in members if f.test == test)), []).append(test)
        what = ", ".join(f"{' and '.join(tests)} of {rows_text(rows)}" for rows, tests in tests_by_rows.items())
        commit = commit if " " in commit else f"commit {commit}"
        peers = unique(f"{f.peer} {f.version}".strip() for f in members if f.peer)
        yield f"{date}, {commit}, {state}: {what}" + (f" beside {' and '.join(peers)}" if peers else "")


def table_of(machine, figures):
    shallow = [f for f in figures if f.machine == machine and f.depth == 0]
    beside = {f.peer for f in shallow}
    peers = [peer for peer in peers_of(figures) if peer in beside]
    head = ["Type"]
    for kind in KINDS.values():
        head += [kind, "of its limit", *(f"kvant / {peer}" for peer in peers)]
    lines = [f"### {machine}", "", f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    shown = []
    for name in rows_of(shallow):
        row = [name]
        for kind in KINDS:
            cells = Cells([f for f in shallow if (f.row, f.kind) == (name, kind)])
            shown += cells.used()
            row += [cells.ours.kvant if cells.ours else "", cells.ours.limit if cells.ours else "", *(cells.peer_text(peer) for peer in peers)]
        lines.append(f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return [*lines, "", "Runs:", "", *(f"- {run}." for run in run_texts(unique(shown))), ""]


def ratio_text(figures, kind, peer):
    """The median and the range of the ratios that count beside one engine, and how many they are."""
    of_peer = [f for f in figures if f.kind == kind and f.peer == peer and f.ratio]
    places = unique((f.machine, f.row, f.depth) for f in of_peer)
    ratios = [Cells([f for f in of_peer if (f.machine, f.row, f.depth) == place]).by_peer[peer].ratio for place in places]
    if len(ratios) < 2:
        return f"{ratios[0]:.2f}" if ratios else ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {len(ratios)})"


def summary_of(figures):
    """The table of RESULTS.md: by machine and kind of model, then all machines behind a long text."""
    kinds = {"1B, by type": lambda f: f.depth == 0 and f.model == MAIN_MODEL, "larger models": lambda f: f.depth == 0 and f.model != MAIN_MODEL}
    rows = [(machine, what, [f for f in figures if f.machine == machine and is_one(f)]) for machine in unique(f.machine for f in figures)
            for what, is_one in kinds.items()]
    for depth in unique(f.depth for f in figures if f.depth):
        deep = [f for f in figures if f.depth == depth]
        machines = len({f.machine for f in deep if f.ratio})
        rows.append((f"{machines} machine{'s'[:machines - 1]}", f"1B behind {depth} tokens", [f for f in deep if f.model == MAIN_MODEL]))
    columns = [(kind, peer) for kind in KINDS for peer in peers_of(figures)]
    head = ["Machine", "Models", *(f"{KINDS[kind]} / {peer}" for kind, peer in columns)]
    lines = [f"| {' | '.join(head)} |", "| --- | --- |" + " ---: |" * len(columns)]
    for machine, what, members in rows:
        cells = [ratio_text(members, kind, peer) for kind, peer in columns]
        if any(cells):
            lines.append(f"| {' | '.join([machine, what, *cells])} |".replace("|  |", "| |").replace("|  |", "| |"))
    return lines


# ---- By type ---------------------------------------------------------------------------------------


class Ratios:
    """A logarithmic axis of ratios in one column of the plot."""

    def __init__(self, left, width, low, high):
        self.left, self.width, self.low, self.high = left, width, low, high
        self.ticks = [tick for tick in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50) if low <= tick <= high]

    def x(self, ratio):
        return self.left + self.width * math.log(ratio / self.low) / math.log(self.high / self.low)


def draw_by_type(figures):
    with_peer = [f for f in figures if f.depth == 0 and f.ratio]
    peers = peers_of(figures)
    ratios = [f.ratio for f in with_peer]
    low, high = min([0.7, *ratios]) * 0.9, max([2, *ratios]) * 1.1
    columns = {kind: Ratios(160 + 350 * i, 320, low, high) for i, kind in enumerate(KINDS)}
    groups = {}  # types of one model and different models have axes of their own
    for figure in sorted(with_peer, key=lambda f: f.model != MAIN_MODEL):
        what = "types of the 1B model" if figure.model == MAIN_MODEL else "larger models"
        groups.setdefault((figure.machine, what), []).append(figure)
    machines = unique(f.machine for f in with_peer)
    groups = {place: rows_of(groups[place]) for place in sorted(groups, key=lambda place: machines.index(place[0]))}
    cells = {(f.machine, f.row, f.kind): Cells([g for g in with_peer if (g.machine, g.row, g.kind) == (f.machine, f.row, f.kind)]) for f in with_peer}
    heights = {(machine, row): 16 + 6 * (len({f.peer for f in with_peer if (f.machine, f.row) == (machine, row)}) > 1) for machine, row, _ in cells}
    height = 92 + sum(heights.values()) + 64 * len(groups)
    svg = Svg(WIDTH, height, "kvant beside other engines, by type")
    svg.text(16, 26, "How many times as fast as other engines, by type", size=16)
    svg.text(16, 46, "kvant's tokens/s over the other's, two threads; right of 1 kvant is faster. Logarithmic.", kind="dim")
    for i, peer in enumerate(peers):
        svg.mark(22 + 150 * i, 66, i + 1)
        svg.text(32 + 150 * i, 70, f"beside {peer}")
    top = 92
    for (machine, what), names in groups.items():
        svg.text(16, top, machine, size=14)
        svg.text(16, top + 16, what, kind="dim")
        bottom = top + 26 + sum(heights[machine, name] for name in names)
        for kind, axis in columns.items():
            svg.text(axis.left + axis.width / 2, top + 12, f"{KINDS[kind]}, times as fast", anchor="middle", size=13)
            for tick in axis.ticks:
                one = tick == 1
                svg.rule(axis.x(tick), top + 20, axis.x(tick), bottom, kind="axis" if one else "grid", width=1.5 if one else 1)
                svg.text(axis.x(tick), bottom + 14, f"{tick:g}", anchor="middle", size=11, kind="dim")
        y = top + 24
        for name in names:
            y += heights[machine, name] / 2
            svg.text(150, y + 4, name, anchor="end")
            for kind, axis in columns.items():
                figure_of = cells[machine, name, kind].by_peer if (machine, name, kind) in cells else {}
                for i, peer in enumerate(peer for peer in peers if peer in figure_of):
                    at = y + (0 if len(figure_of) == 1 else 8 * i / (len(figure_of) - 1) - 4)
                    svg.line([(axis.x(1), at), (axis.x(figure_of[peer].ratio), at)], peers.index(peer) + 1)
                    svg.mark(axis.x(figure_of[peer].ratio), at, peers.index(peer) + 1)
            y += heights[machine, name] / 2
        top = bottom + 38
    return svg.finish()


# ---- By depth --------------------------------------------------------------------------------------


def draw_panel(svg, figures, box, kind, peers, all_peers):
    """Bars of kvant and the peers at each depth and type of cache; box: left, top, width, height of the bars."""
    left, top, width, height = box
    places = sorted({(f.depth, f.kv) for f in figures if f.kind == kind and f.peer in peers})
    cells = {place: Cells([f for f in figures if f.peer in peers and (f.kind, f.depth, f.kv) == (kind, *place)]) for place in places}
    speeds = [speed for cell in cells.values() for f in cell.by_peer.values() for speed in (float(f.kvant), f.peer_speed)]
    ticks = steps_up_to(max(speeds, default=1))
    svg.text(left + width / 2, top - 12, KINDS[kind], anchor="middle", size=13)
    svg.text(left - 44, top + height / 2, "tokens/s", anchor="middle", kind="dim", turned=True)
    for tick in ticks:
        y = top + height * (1 - tick / ticks[-1])
        svg.rule(left, y, left + width, y, kind="grid" if tick else "axis")
        svg.text(left - 6, y + 4, f"{tick:g}", anchor="end", size=11, kind="dim")
    slot = width / max(len(places), 1)
    bar = min(40, slot * 0.8 / (len(peers) + 1))
    for i, (depth, kv) in enumerate(places):
        cell = cells[depth, kv]
        drawn = [(0, cell.ours.kvant), *((all_peers.index(peer) + 1, cell.by_peer[peer].peer_tokens) for peer in peers if peer in cell.by_peer)]
        centre = left + slot * (i + 0.5)
        for k, (series, tokens) in enumerate(drawn):
            x = centre + (k - len(drawn) / 2) * bar
            length = height * float(tokens) / ticks[-1]
            svg.bar(x + 1, top + height - length, bar - 2, length, series)
            svg.text(x + bar / 2, top + height - length - 4, tokens, anchor="middle", size=11)
        label = f"{depth}" if depth == 0 else f"{depth}, {kv}"
        svg.text(centre, top + height + 15, label, anchor="middle")
        ratios = " and ".join(f"{cell.by_peer[peer].ratio:.2f}" for peer in peers if peer in cell.by_peer)
        svg.text(centre, top + height + 30, f"{ratios} times", anchor="middle", size=11, kind="dim")
    svg.text(left + width / 2, top + height + 47, "tokens in the cache, type of keys and values", anchor="middle", size=11, kind="dim")


def draw_by_depth(figures):
    machines = unique(f.machine for f in figures)
    deep = sorted(unique((f.machine, f.name) for f in figures if f.depth and f.peer_speed), key=lambda place: machines.index(place[0]))
    all_peers = peers_of(figures)
    svg = Svg(WIDTH, 84 + 250 * len(deep), "kvant beside other engines, by depth")
    svg.text(16, 26, "Tokens per second by depth", size=16)
    used = unique(f.peer for f in figures if f.depth and f.peer_speed)
    for i, (series, name) in enumerate([(0, "kvant"), *((all_peers.index(peer) + 1, peer) for peer in used)]):
        svg.bar(16 + 130 * i, 42, 12, 12, series)
        svg.text(34 + 130 * i, 53, name)
    for row, (machine, name) in enumerate(deep):
        members = [f for f in figures if (f.machine, f.name) == (machine, name) and (f.peer_speed or not f.peer)]
        top = 84 + 250 * row
        svg.text(16, top + 6, f"{machine}, {members[0].model} {members[0].type}", size=14)
        for i, kind in enumerate(KINDS):
            peers = unique(f.peer for f in members if f.depth and f.kind == kind and f.peer)
            if peers:
                draw_panel(svg, members, (70 + 420 * i, top + 40, 350, 130), kind, peers, all_peers)
    return svg.finish()


# ---- The pages -------------------------------------------------------------------------------------


def filled(path, name, lines):
    """A page with what stands between its two markers replaced."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise Bad(f"{name}: expected one line {BEGIN} and behind it one {END}")
    return page[:page.index(BEGIN)] + "\n".join([BEGIN, "", *lines, ""]) + page[page.index(END):]


def pages(folder):
    """The expected content of every written file: {path: text}."""
    figures = read_figures(os.path.join(folder, "results", "figures.csv"))
    tables = [line for machine in unique(f.machine for f in figures if f.depth == 0) for line in table_of(machine, figures)]
    written = {"RESULTS.md": [*summary_of(figures), ""], os.path.join("results", "by-type.md"): tables}
    texts = {os.path.join(folder, name): filled(os.path.join(folder, name), name, lines) for name, lines in written.items()}
    plots = {"by-type.svg": draw_by_type(figures), "by-depth.svg": draw_by_depth(figures)}
    return {**texts, **{os.path.join(folder, "results", name): svg for name, svg in plots.items()}}


def update(folder, only_check):
    """Writes the page and its plots, or compares; returns an exit code."""
    try:
        wanted = pages(folder)
    except (Bad, OSError) as error:
        print(f"plot: {os.path.join(folder, 'results', 'figures.csv')}: {error}", file=sys.stderr)
        return 1
    stale = 0
    for path, text in wanted.items():
        found = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = file.read()
        if found == text:
            continue
        if only_check:
            stale = 1
            print(f"plot: {path}: expected what results/figures.csv says; run bench/plot --results", file=sys.stderr)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return stale
