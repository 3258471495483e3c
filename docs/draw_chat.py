#!/usr/bin/env python3
"""Draws docs/chat.svg: a conversation with the small model that comes along, as a terminal shows it. Needs tmux.

    draw_chat.py PROGRAM [--check]

The script types the messages into a terminal of tmux, waits for each answer and reads the screen with its colours. Answers are the
likeliest ones, so the picture is the same on each machine, but for tokens per second. --check draws nothing: it fails if chat.svg has
another text.
"""
import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "chat.svg"
MESSAGES = ["Who are you?", "What is 174 + 403?", "What is the day after November 30?", "Spell drunken backwards.", "Write a poem about the sea."]
COLUMNS, ROWS = 80, 30
SECONDS = 60  # that an answer may take
CELL_WIDTH, CELL_HEIGHT, MARGIN, BAR = 8.4, 19, 16, 30
PAPER, INK, DIM, FRAME, TITLE = "#0d1117", "#e6edf3", "#7d8590", "#30363d", "#161b22"
SGR = re.compile(r"\x1b\[([\d;]*)m")


class Terminal:
    """A terminal of tmux with a server of its own, in which a shell runs that has no settings."""

    def __init__(self, program, folder):
        self.tmux = ["tmux", "-S", f"{folder}/socket", "-f", "/dev/null"]
        environment = {"PATH": f"{Path(program).resolve().parent}:{os.environ['PATH']}", "HOME": folder, "LC_ALL": "C.UTF-8", "PS1": "$ ", "HISTFILE": "",
                       "TERM": "xterm-256color"}
        shell = ["env", "-i", *[f"{name}={value}" for name, value in environment.items()], "bash", "--norc", "--noprofile"]
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(ROOT / "models" / "dialogue"), *shell],
                       check=True)

    def type(self, text):
        subprocess.run([*self.tmux, "send-keys", "-l", text], check=True)
        subprocess.run([*self.tmux, "send-keys", "Enter"], check=True)

    def screen(self):
        """Lines with escape sequences, without the empty ones at the end."""
        lines = subprocess.run([*self.tmux, "capture-pane", "-e", "-p"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.split("\n")
        while lines and not plain(lines[-1]).strip():
            lines.pop()
        return lines

    def wait(self, prompt, count=None):
        """Until the last line is the prompt, and so many lines begin with it."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            lines = [plain(line) for line in self.screen()]
            if lines and lines[-1].strip() == prompt and count in (None, sum(line.startswith(prompt) for line in lines)):
                return
            time.sleep(0.05)
        raise SystemExit(f"draw_chat: no prompt in {SECONDS} s; the screen is\n" + "\n".join(lines))

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], stderr=subprocess.DEVNULL)


def plain(line):
    return SGR.sub("", line)


def runs_of(line):
    """(column, text, bold, dim) of each run of equal looks; the codes that kvant writes are 0, 1, 2, 39 and 49."""
    bold = dim = False
    column, found = 0, []
    for number, part in enumerate(SGR.split(line)):
        if number % 2:
            for code in (int(word or 0) for word in part.split(";")):
                bold, dim = {0: (False, False), 1: (True, dim), 2: (bold, True), 22: (False, False)}.get(code, (bold, dim))
        elif part:
            text = part.rstrip()
            start = len(text) - len(text.lstrip())
            if text.strip():
                found.append((column + start, text.strip(), bold, dim))
            column += len(part)
    return found


def draw(lines):
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = BAR + len(lines) * CELL_HEIGHT + 2 * MARGIN - 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" role="img" font-size="14"'
           ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace">', "<title>kvant chat in a terminal</title>",
           f'<rect x="0.5" y="0.5" width="{width - 1:.1f}" height="{height - 1:.1f}" rx="8" fill="{PAPER}" stroke="{FRAME}"/>',
           f'<path d="M0.5 {BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5:.1f}a8 8 0 0 1 8 8V{BAR}z" fill="{TITLE}" stroke="{FRAME}"/>']
    out += [f'<circle cx="{18 + 20 * number}" cy="{BAR / 2:g}" r="6" fill="{colour}"/>' for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))]
    for row, line in enumerate(lines):
        y = BAR + MARGIN + row * CELL_HEIGHT + 10
        for column, text, bold, dim in runs_of(line):
            looks = f'fill="{DIM if dim else INK}"' + (' font-weight="bold"' if bold else "")
            out.append(f'<text x="{MARGIN + column * CELL_WIDTH:.1f}" y="{y}" textLength="{len(text) * CELL_WIDTH:.1f}" xml:space="preserve" {looks}>'
                       f"{html.escape(text, quote=False)}</text>")
    return "\n".join([*out, "</svg>", ""])


def without_speeds(svg):
    return re.sub(r' textLength="[\d.]+"', "", re.sub(r"[\d.]+/s", "N/s", svg))


def conversation(program):
    with tempfile.TemporaryDirectory(prefix="kvant-docs-") as folder:
        terminal = Terminal(program, folder)
        try:
            terminal.wait("$", 1)
            terminal.type("kvant chat dialogue.gguf --temp 0")
            for number, message in enumerate(MESSAGES, 1):
                terminal.wait(">", number)
                terminal.type(message)
            terminal.wait(">", len(MESSAGES) + 1)
            screen = terminal.screen()
            terminal.type("/exit")
            terminal.wait("$")
            return screen
        finally:
            terminal.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    svg = draw(conversation(arguments.program))
    if not arguments.check:
        PICTURE.write_text(svg, encoding="utf-8")
    elif without_speeds(svg) != without_speeds(PICTURE.read_text(encoding="utf-8")):
        print(f"{PICTURE} shows another conversation: run docs/draw_chat.py PROGRAM\n{svg}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
