#!/usr/bin/env python3
"""Writes manual pages from the help texts of the program: kvant.1, and kvant-COMMAND.1 for every command.

    make_manual.py PROGRAM FOLDER
"""
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # no folder of it in the source tree

from help_text import commands, environment, has_options, options, sections, split_head, text_of


def escape(text):
    """A line for troff: hyphens are those of options, and nothing at its beginning is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


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


def option_list(lines):
    """.TP for every option."""
    out = []
    for names, meaning in options(lines):
        out += [".TP", ".B " + escape(names)]
        if meaning:
            out.append(escape(meaning))
    return out


def variables(found):
    """The section of the environment."""
    if not found:
        return []
    return [".SH ENVIRONMENT", *[line for name, meaning in found for line in (".TP", ".B " + escape(name), escape(meaning))]]


def page(name, version, summary, text, also, found):
    head, rest = sections(text)
    usage, body = split_head(head)
    out = [f'.TH "{name.upper()}" "1" "" "kvant {version}" "User Commands"', ".SH NAME", f"{escape(name)} \\- {escape(summary)}", ".SH SYNOPSIS",
           ".nf"]
    out += [escape(line) for line in usage] + [".fi"]
    if body:
        out += [".SH DESCRIPTION", *paragraphs(body)]
    for heading, lines in rest:
        if heading == "Environment":
            continue
        out.append(f".SH {escape(heading.upper())}")
        out += option_list(lines) if has_options(lines) else [".nf", *[escape(line.strip()) for line in lines if line.strip()], ".fi"]
    out += variables(found)
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
    try:
        found = commands(text)
    except ValueError as error:
        raise SystemExit(f"make_manual: {program}: {error}")
    names = [f"kvant-{command}" for command in found]
    summary = "run GGUF language models on the CPU"
    (folder / "kvant.1").write_text(page("kvant", version, summary, text, names, environment(text)))
    for command, what in found.items():
        (folder / f"kvant-{command}.1").write_text(
            page(f"kvant-{command}", version, what[0].lower() + what[1:], text_of(program, command), ["kvant"], environment(text)))


if __name__ == "__main__":
    main()
