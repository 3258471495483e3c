"""What pages say of commands: blocks of a console are run, the flags of other commands are looked up in the help."""
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cmake"))

import help_text

REAL_MODELS = Path(__file__).resolve().parents[2] / "models/real.json"
SECONDS = 60  # that a command of a page may take
SHELL = ("", "sh", "bash", "shell", "console")
SEPARATORS = set("();<>|&")
NUMBER = re.compile(r"\d+(?:\\?\.\d+)?")
ISAS = re.compile(r"\b(?:scalar|avx2|avxvnni|avx512vnni|avx512vbmi|amx|neon|i8mm)\b")


class Help:
    """Commands of the program and the flags of each; commands of ./dev."""

    def __init__(self, program, dev):
        text = help_text.text_of(program)
        self.flags = {None: {"-h", "--help", "--version"}}
        for command in help_text.commands(text):
            found = set()
            for _, lines in help_text.sections(help_text.text_of(program, command))[1]:
                for names, _ in help_text.options(lines):
                    found.update(help_text.flags(names))
            self.flags[command] = found
        usage = subprocess.run([dev, "help"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
        self.dev = set(re.findall(r"^  (\w+)", usage, re.MULTILINE))

    def problems_of(self, words):
        """What is wrong with a command line, whose words these are."""
        while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "time", "exec", "env", "taskset")):
            words = words[1:]
        if not words:
            return []
        name = words[0]
        if name == "./dev" and len(words) > 1:
            if re.match(r"[a-z]+$", words[1]) and words[1] not in self.dev:
                return [f"./dev has no command '{words[1]}'"]
            if words[1] not in ("run", "bench") or words[1:3] == ["bench", "--real"]:
                return []
        elif name != "kvant" and not name.endswith("release/kvant"):
            return []
        return self.problems_of_arguments(words[1:])

    def problems_of_arguments(self, words):
        if not words or re.match(r"[A-Z.\[]", words[0]):
            return []  # COMMAND, [OPTIONS]: a form
        command = None if words[0].startswith("-") else words[0]
        if command == "help":
            return []
        if command not in self.flags:
            return [f"kvant has no command '{command}'"]
        found = [word.strip("[]").split("=")[0] for word in words if re.match(r"\[?--?[a-zA-Z]", word)]
        return [f"kvant {command or ''} has no option {flag}" for flag in found if flag not in self.flags[command]]


def command_lines(block):
    """(line, text) of the commands in a block of code; a backslash at the end of a line goes on in the next one."""
    begun, number = "", 0
    for offset, line in enumerate(block.lines):
        if not begun:
            number = block.line + offset
            if block.language == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        yield number, begun + line
        begun = ""


def split_commands(line):
    """The words of every command in a line of the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands = [[]]
    for word in lexer:
        if set(word) <= SEPARATORS:
            commands.append([])
        elif word != "$":
            commands[-1].append(word)
    return [words for words in commands if words]


def check_flags(page, known):
    """(line, problem) of commands in the page that the program would not know."""
    blocks = [block for block in page.code() if block.language in SHELL and not block.shows_errors]
    lines = [found for block in blocks for found in command_lines(block)]
    lines += [(number, text) for number, text in page.spans() if re.match(r"(kvant|\./dev) ", text)]
    for number, line in lines:
        if not re.search(r"\bkvant\b|\./dev\b", line):
            continue
        try:
            commands = split_commands(line)
        except ValueError as error:
            yield number, f"cannot be read as a command: {error}"
            continue
        for words in commands:
            for problem in known.problems_of(words):
                yield number, problem


def steps_of(block):
    """(line, command, expected lines) of every `$ command` in a block of a console."""
    steps = []
    lines = dict(command_lines(block))
    goes_on = False
    for offset, line in enumerate(block.lines):
        if block.line + offset in lines:
            steps.append((block.line + offset, lines[block.line + offset], []))
        elif not steps:
            raise ValueError(f"line {block.line + offset}: a console begins with `$ COMMAND`")
        elif not goes_on:
            steps[-1][2].append(line)
        goes_on = line.endswith("\\") and (goes_on or block.line + offset in lines)
    return steps


def pattern_of(expected, any_figures):
    """A regular expression for the output: the line `...` stands for any lines, ` ...` at the end of a line for any rest of it; with any_figures a number for any number,
    an instruction set for any, and a limit of `kvant bench` for either, since other work on the machine changes which one holds."""
    out = []
    for line in expected:
        if line.strip() == "...":
            out.append(r"(?:.*\n)*?")
            continue
        text, rest = re.escape(line.rstrip()), ""
        if line.endswith(" ..."):
            text, rest = re.escape(line[:-len(" ...")]), ".*"
        if any_figures:
            text = "@".join(NUMBER.sub(r"[\\d.]+", part) for part in ISAS.split(text)).replace("@", r"\w+")
            text = re.sub(r"(?:\\? )+", " +", text)
            text = re.sub(r"% \+(?:compute|memory)", "% +(?:compute|memory)", text)
        out.append(text + rest + r"\n")
    return re.compile("".join(out) + r"\n*\Z")


def isas_of(program):
    """The instruction sets that the program has for this machine."""
    text = subprocess.run([program, "--version"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    listed = re.search(r"^instruction sets +(.*)$", text, re.MULTILINE)[1].split(", ")
    return [isa for isa in listed if "(" not in isa]


def lacks_models(block, program):
    """Whether a block `console fetched` runs models that `./dev models` has not fetched into the folder beside the program's."""
    fetched = Path(program).resolve().parents[1] / "models"
    known = json.loads(REAL_MODELS.read_text(encoding="utf-8"))
    words = {word for _, line in command_lines(block) for word in line.split()}
    return "fetched" in block.info.split() and not all((fetched / name / f"{name}.gguf").exists() for name in words & set(known))


def run_console(block, program, folder):
    """(line, problem) of the steps of a block; a block `console isas` is run with each instruction set of the machine."""
    if "isas" not in block.info.split():
        yield from run_steps(block, program, folder, {})
        return
    for isa in isas_of(program):
        for number, problem in run_steps(block, program, folder, {"KVANT_ISA": isa}):
            yield number, f"{isa}: {problem}"


def run_steps(block, program, folder, variables):
    """(line, problem) of the steps of a block, run one after the other in the folder; the block `console fails` shows errors."""
    if lacks_models(block, program):
        return
    fails, any_figures = block.shows_errors, "figures" in block.info.split()
    environment = {"PATH": f"{Path(program).resolve().parent}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8", **variables}
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    for number, command, expected in steps_of(block):
        try:
            run = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            yield number, f"'{command}' takes longer than {SECONDS} s"
            continue
        found = [line.rstrip() for line in run.stdout.decode("utf-8", "replace").splitlines()]
        if (run.returncode != 0) != fails:
            yield number, f"'{command}' ends with {run.returncode}, expected {'an error' if fails else '0'}: {' / '.join(found[-3:])}"
        elif not pattern_of(expected, any_figures).match("".join(line + "\n" for line in found)):
            yield number, f"'{command}' prints other lines:\n" + "\n".join(f"      {line}" for line in found)
