#!/usr/bin/env python3
"""Writes docs/commands.md, the reference of all commands, from the help texts of the program.

    make_commands.py PROGRAM PAGE.md

Options that several commands have with the same words stand once, at the end of the page.
"""
import re
import sys
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True  # no folder of it in the source tree

from help_text import commands, environment, flags, has_options, options, sections, split_head, text_of

COLUMNS = 140
SHARED = 3  # commands that have an option, for it to stand at the end
SHARED_HEADING = "Options of several commands"
CODE = re.compile(r"(`[^`]+`|'kvant [a-z]+[^']*'|<\|\w+\|>|(?<![\w-])--?[a-zA-Z][\w-]*)")
HELP = ("-h, --help", "--help-all")


def escape(text):
    """Text of a help as Markdown, with its options, commands and control tokens as code."""
    out = []
    for number, part in enumerate(re.split(CODE, text)):
        if number % 2:
            out.append(f"`{part.strip('`')}`" if part[0] != "'" else f"`{part[1:-1]}`")
        else:
            out.append(re.sub(r"\\(?=[^\w\s])|[*|]|#(?= )", r"\\\g<0>", part).replace("<", "&lt;"))
    return "".join(out)


def table(rows):
    lines = ["| Option | What it does |", "| --- | --- |"]
    for names, meaning in rows:
        code = re.sub(r"(?<!\\)\|", r"\\|", escape(meaning))
        lines.append(f"| `{names.replace('|', chr(92) + '|')}` | {code} |")
    return [*lines, ""]


def paragraphs(lines):
    """Paragraphs of text; indented lines stay as they are, in a block of code."""
    out, words, literal = [], [], []

    def end():
        if words:
            out.extend([*textwrap.wrap(escape(" ".join(words)), COLUMNS, break_long_words=False, break_on_hyphens=False), ""])
        if literal:
            out.extend(["```text", *literal, "```", ""])
        words.clear()
        literal.clear()

    for line in lines:
        if (literal if line and not line.startswith("  ") else words) or not line:
            end()
        if line.startswith("  "):
            literal.append(line[2:])
        elif line:
            words.append(line.strip())
    end()
    return out


class Command:
    def __init__(self, program, name, summary):
        self.name, self.summary = name, summary
        head, self.rest = sections(text_of(program, name))
        self.usage, self.body = split_head(head)
        self.groups = [(heading, [option for option in options(lines) if option[0] not in HELP]) for heading, lines in self.rest if has_options(lines)]

    def options(self):
        return [option for _, group in self.groups for option in group]

    def page(self, shared):
        out = [f"## kvant {self.name}", "", escape(self.summary.rstrip(". ") + "."), "", "```text", *self.usage, "```", "", *paragraphs(self.body)]
        for heading, lines in self.rest:
            if heading == "Examples":
                out += ["```sh", *[line.strip() for line in lines if line.strip()], "```", ""]
        for heading, lines in self.rest:
            if heading == "Examples" or has_options(lines):
                continue
            out += [*([escape(heading), ""] if heading.endswith(":") else [f"{escape(heading)}:", ""]), *paragraphs(lines)]
        for heading, group in self.groups:
            own = [option for option in group if option not in shared]
            if own:
                out += [f"**{escape(heading)}**", "", *table(own)]
        also = []
        for heading, group in self.groups:
            codes = [f"`{flags(option[0])[0]}`" for option in group if option in shared]
            if codes:
                also.append(f"- {escape(heading)}: {' '.join(codes)}")
        if also:
            anchor = SHARED_HEADING.lower().replace(" ", "-")
            out += [f"Also, [of several commands](#{anchor}):", "", *also, ""]
        return out


def page_of(program):
    text = text_of(program)
    found = [Command(program, name, summary) for name, summary in commands(text).items()]
    every = [option for command in found for option in command.options()]
    shared = {option for option in every if every.count(option) >= SHARED}
    out = ["# Commands", "", "`cmake/make_commands.py` writes this page from the program's help: `kvant COMMAND --help-all` prints a part of it, `man kvant-run`",
           "another form of it. Every command has `-h` and `--help`, which is shorter, and `--help-all`. Exit codes: 0 done, 1 failed, 2 wrong usage, 128 + N ended by signal N.", "",
           "| Command | What it does |", "| --- | --- |"]
    out += [f"| [`kvant {command.name}`](#kvant-{command.name}) | {escape(command.summary)} |" for command in found]
    out.append("")
    out += ["| Variable of the environment | What it does |", "| --- | --- |"]
    out += [f"| `{name}` | {escape(meaning)} |" for name, meaning in environment(text)]
    out.append("")
    for command in found:
        out += command.page(shared)
    out += [f"## {SHARED_HEADING}", ""]
    headings = {}
    for command in found:
        for heading, group in command.groups:
            for option in group:
                if option in shared:
                    headings.setdefault(option, heading)
    for heading in dict.fromkeys(headings.values()):
        out += [f"**{escape(heading)}**", "", *table([option for option, of in headings.items() if of == heading])]
    while not out[-1]:
        out.pop()
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: make_commands.py PROGRAM PAGE.md")
    Path(sys.argv[2]).write_text(page_of(sys.argv[1]), encoding="utf-8")


if __name__ == "__main__":
    main()
