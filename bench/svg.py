"""Writes SVG that reads on light and on dark pages: marks, lines, bars and text by class, with colours for both in one style sheet.

A series has a number: its colour is of Okabe and Ito's palette, which colour-blind readers can tell apart, and its mark has a shape of its own.
Coordinates are written with one digit, so that the same figures give the same bytes.
"""
import html

LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808000", "#555555"]
DARK = ["#56b4e9", "#ff8c42", "#2cc79b", "#e39ac4", "#f0c040", "#9ad4f5", "#c8c83c", "#b0b8c0"]
PAPER = {"paper": ("#ffffff", "#0d1117"), "ink": ("#1f2328", "#e6edf3"), "dim": ("#59636e", "#9198a1")}
LINES = {"grid": ("#d8dee4", "#30363d"), "axis": ("#59636e", "#9198a1")}


def style_sheet():
    themes = []
    for theme, colours in enumerate((LIGHT, DARK)):
        rules = [f".{name}{{fill:{pair[theme]}}}" for name, pair in PAPER.items()]
        rules += [f".{name}{{stroke:{pair[theme]}}}" for name, pair in LINES.items()]
        rules += [f".f{i}{{fill:{colour}}}.s{i}{{stroke:{colour}}}" for i, colour in enumerate(colours)]
        themes.append("".join(rules))
    return f"<style>.none{{fill:none}}{themes[0]}@media (prefers-color-scheme:dark){{{themes[1]}}}</style>"


def steps_up_to(top):
    """About five round numbers from 0 to at least `top`."""
    step = 1e-6
    factors = [2, 2.5, 2]
    i = 0
    while top / step > 6:
        step *= factors[i % 3]
        i += 1
    count = 0
    while count * step < top:
        count += 1
    return [k * step for k in range(count + 1)]


class Svg:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="12">',
                      f"<title>{html.escape(title)}</title>", style_sheet(), f'<rect class="paper" width="{width}" height="{height}"/>']

    def text(self, x, y, text, anchor="start", size=12, kind="ink", turned=False):
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{turn}>{html.escape(text)}</text>')

    def rule(self, x1, y1, x2, y2, kind="grid", width=1):
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-width="{width}"/>')

    def mark(self, x, y, series, hollow=False):
        """A circle, square, diamond or triangle of 8 pixels, by the number of the series."""
        paint = f'class="{"none" if hollow else f"f{series % len(LIGHT)}"} s{series % len(LIGHT)}" stroke-width="1.5"'
        if series % 4 == 0:
            self.parts.append(f'<circle {paint} cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            return
        corners = {1: [(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)], 2: [(0, -5), (5, 0), (0, 5), (-5, 0)], 3: [(0, -4.5), (4.5, 3.5), (-4.5, 3.5)]}
        points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners[series % 4])
        self.parts.append(f'<polygon {paint} points="{points}"/>')

    def line(self, points, series, dashed=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self.parts.append(f'<polyline class="none s{series % len(LIGHT)}" points="{path}" stroke-width="2"{dash}/>')

    def bar(self, x, y, width, height, series):
        self.parts.append(f'<rect class="f{series % len(LIGHT)}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>')

    def finish(self):
        return "\n".join([*self.parts, "</svg>", ""])
