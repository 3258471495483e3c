#!/usr/bin/env python3
"""Draws docs/speed.svg: how fast kvant is beside other engines with the usual types, from bench/results/figures.csv.

    draw_speed.py [--check]

bench/results/by-type.svg shows the other types, too. --check draws nothing: it fails if speed.svg is not what the figures say.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # no folder of it in the source tree
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import results_page

PICTURE = ROOT / "docs" / "speed.svg"
TYPES = ("Q4_0", "Q4_K_M", "Q8_0")


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit("usage: draw_speed.py [--check]")
    figures = results_page.read_figures(ROOT / "bench" / "results" / "figures.csv")
    engines = results_page.peers_of(figures)
    machines = results_page.unique(figure.machine for figure in figures)
    usual = [figure for figure in figures if figure.type in TYPES and figure.peer]
    usual.sort(key=lambda figure: (machines.index(figure.machine), engines.index(figure.peer)))  # engines have the colours of by-type.svg
    svg = results_page.draw_by_type(usual)
    if len(sys.argv) == 1:
        PICTURE.write_text(svg, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != svg:
        print(f"{PICTURE} is not what bench/results/figures.csv says: run docs/draw_speed.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
