#!/usr/bin/env python3
"""Writes manual pages from the help texts of the program: kvant.1, and kvant-COMMAND.1 for every command.

    make_manual.py PROGRAM FOLDER
"""
import re
import subprocess
import sys
from pathlib import Path

OPTION = re.compile(r" {2,6}(-.*?)(?:  +(.*))?$")  # "  -p, --prompt TEXT           The prompt"


def text_of(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def escape(text):
    """A line for troff: hyphens are those of options, and nothing at its beginning is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def sections(text):
    """What stands before the first heading, and (heading, lines) for each."""
    lines = text.splitlines()
    found, current = [], []
    head = current
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        before = lines[number - 1] if number > 0 else ""
        if line and not line.startswith(" ") and before == "" and following.startswith("  "):
            current = []
            found.append((line, current))
        else:
            current.append(line)
    return head, found


def paragraphs(lines):
    """.PP for every paragraph; indented lines stay as they are."""
    out, literal = [], False
    for line in lines:
        if line.startswith("  ") != literal and line:
            literal = not literal
            out.append(".nf" if literal else ".fi")
        out.append(escape(line) if line else ".PP")
    if literal:
        out.append(".fi")
    while out and out[-1] == ".PP":
        out.pop()
    return out


def options(lines):
    """.TP for every option; a continuation is indented further than any name."""
    out = []
    for line in lines:
        found = OPTION.match(line)
        if found:
            out += [".TP", ".B " + escape(found[1].strip())]
            if found[2]:
                out.append(escape(found[2].strip()))
        elif line.strip():
            out.append(escape(line.strip()))
    return out


def page(name, version, summary, text, also):
    head, rest = sections(text)
    usage = [line for line in head if line.startswith("Usage:") or (line.startswith("       ") and head.index(line) < 4)]
    body = [line for line in head if line not in usage]
    while body and not body[0]:
        body.pop(0)
    out = [f'.TH "{name.upper()}" "1" "" "kvant {version}" "User Commands"', ".SH NAME", f"{escape(name)} \\- {escape(summary)}", ".SH SYNOPSIS",
           ".nf"]
    out += [escape(re.sub(r"^(Usage:|       )\s*", "", line)) for line in usage] + [".fi"]
    if body:
        out += [".SH DESCRIPTION", *paragraphs(body)]
    for heading, lines in rest:
        out.append(f".SH {escape(heading.upper())}")
        with_options = any(OPTION.match(line) for line in lines)
        out += options(lines) if with_options else [".nf", *[escape(line.strip()) for line in lines if line.strip()], ".fi"]
    out += [".SH EXIT STATUS", "0 done, 1 failed, 2 wrong usage, 128 + N ended by signal N.", ".SH SEE ALSO",
            ",\n".join(f".BR {escape(other)} (1)" for other in also).replace(",\n", " ,\n") if also else ""]
    return "\n".join(line for line in out if line) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: make_manual.py PROGRAM FOLDER")
    program, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    text = text_of(program)
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    commands = {}
    for heading, lines in sections(text)[1]:
        if heading == "Commands":
            commands = dict(line.split(None, 1) for line in lines if line.strip())
    if not commands:
        raise SystemExit(f"make_manual: {program} --help lists no commands")
    names = [f"kvant-{command}" for command in commands]
    summary = "run GGUF language models on the CPU"
    (folder / "kvant.1").write_text(page("kvant", version, summary, text, names))
    for command, what in commands.items():
        (folder / f"kvant-{command}.1").write_text(
            page(f"kvant-{command}", version, what[0].lower() + what[1:], text_of(program, command), ["kvant"]))


if __name__ == "__main__":
    main()
