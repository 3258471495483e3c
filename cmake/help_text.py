"""Reads what `kvant --help` and `kvant COMMAND --help-all` print: sections, options, the list of commands."""
import re
import subprocess

OPTION = re.compile(r" {2,6}(-.*?)(?:  +(.*))?$")  # "  -p, --prompt TEXT           The prompt"
# How many there are is a fact of the machine, not of the program.
THREADS = re.compile(r"\(default: \d+, (the performance cores available)\)")


def text_of(program, *words):
    text = subprocess.run([program, *words, "--help-all" if words else "--help"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return THREADS.sub(r"(default: \1)", text)


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


def split_head(head):
    """The lines of the synopsis, without "Usage:", and those of the description."""
    usage = [line for number, line in enumerate(head) if line.startswith("Usage:") or (line.startswith("       ") and number < 4)]
    body = [line for line in head if line not in usage]
    while body and not body[0]:
        body.pop(0)
    while body and not body[-1]:
        body.pop()
    return [re.sub(r"^(Usage:|       )\s*", "", line) for line in usage], body


def has_options(lines):
    return any(OPTION.match(line) for line in lines)


def options(lines):
    """(names, meaning) of every option; a continuation is indented further than any name."""
    found = []
    for line in lines:
        option = OPTION.match(line)
        if option:
            found.append([option[1].strip(), (option[2] or "").strip()])
        elif line.strip() and found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return [tuple(option) for option in found]


def flags(names):
    """-p and --prompt of "-p, --prompt TEXT"."""
    return [word.rstrip(",") for word in names.split() if word.startswith("-")]


def environment(text):
    """(name, meaning) of the variables that `kvant --help` lists."""
    for heading, lines in sections(text)[1]:
        if heading == "Environment":
            return [tuple(line.split(None, 1)) for line in lines if line.strip()]
    return []


def commands(text):
    """{name: summary} of what `kvant --help` prints."""
    for heading, lines in sections(text)[1]:
        if heading == "Commands":
            return dict(line.split(None, 1) for line in lines if line.strip())
    raise ValueError("the help lists no commands")
