#!/usr/bin/env python3
"""Checks the documents: links, sizes, sentences, sample output, commands, paths and programs in blocks of code.

    check_docs.py PROGRAM [--root FOLDER] [--cxx COMPILER] [--no-run]

A block of code of the language `console` is run: each line `$ COMMAND` with the lines behind it as the output (both streams), in a
temporary folder that the blocks of a page share. A line `...` stands for any lines. `console fails` shows commands that end with an
error, `console figures` numbers and instruction sets that differ from run to run, `console isas` what is printed with each instruction set, and
`console fetched` runs where `./dev models` has fetched the models that it names. Of other commands the flags must be in the help, of programs in
Python and C++ the syntax must be right. Prints a line for each page, and one for each problem; the exit code is 1 if there are any.
"""
import argparse
import concurrent.futures
import glob
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

sys.dont_write_bytecode = True  # no folder of it in the source tree
sys.path.insert(0, str(Path(__file__).resolve().parent))

import commands
import markdown

PAGES = ("README.md", "ARCHITECTURE.md", "STYLE.md", "docs/*.md", "bench/*.md", "models/*/README.md", "findings/README.md")
LINKED = (*PAGES, "bench/results/*.md")  # of these the links alone
BYTES_MAX = {"README.md": 9216, "ARCHITECTURE.md": 15360}
WORDS_MAX = 40
OURS = re.compile(r"(?:\.ci|base|bench|cmake|cpu|cuda|docs|engine|examples|findings|formats|include|models|python|quant|tests|tools)/[\w./{},*-]*$")
COMMANDS_PAGE = "docs/commands.md"


def paths_of(root, patterns):
    return sorted({path for pattern in patterns for path in root.glob(pattern)})


def check_links(root, path, pages):
    for line, target in pages[path].links():
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        if name.startswith("/"):
            yield line, f"the link {target} is an absolute path"
            continue
        linked = (path.parent / unquote(name)).resolve() if name else path
        if not linked.exists():
            yield line, f"the link {target} leads nowhere"
        elif root.resolve() not in (linked, *linked.parents):
            yield line, f"the link {target} leads out of the repository"
        elif anchor and linked.suffix == ".md":
            page = pages.get(linked) or markdown.Page(linked.read_text(encoding="utf-8"))
            if unquote(anchor) not in page.anchors():
                yield line, f"the link {target} leads to no heading"


def check_size(name, size):
    if size > BYTES_MAX.get(name, size):
        yield 1, f"the page has {size} bytes, expected at most {BYTES_MAX[name]}"


def check_sentences(page):
    for line, words in page.sentences():
        if len(words) > WORDS_MAX:
            yield line, f"a sentence of {len(words)} words, expected at most {WORDS_MAX}: {' '.join(words[:8])} ..."


def alternatives(path):
    """a/{b,c}.h is a/b.h and a/c.h."""
    found = re.search(r"\{([^{}]*)\}", path)
    if not found:
        return [path]
    return [one for word in found[1].split(",") for one in alternatives(path[:found.start()] + word + path[found.end():])]


def check_paths(root, page):
    """Files that pages name are there, but for those named foo, which stand for new ones."""
    for line, span in page.spans():
        if OURS.match(span) and not re.search(r"\bfoo\b", span):
            for path in alternatives(span):
                if not glob.glob(str(root / path)):
                    yield line, f"there is no {path}"


def check_programs(root, page, compiler):
    for block in page.code():
        text = "\n".join(block.lines) + "\n"
        if block.language == "python":
            try:
                compile(text, "page", "exec")
            except SyntaxError as error:
                yield block.line + (error.lineno or 1) - 1, f"not Python: {error.msg}"
        elif block.language in ("cpp", "c") and compiler and "#include" in text:
            language = ["-x", "c++", "-std=c++20"] if block.language == "cpp" else ["-x", "c", "-std=c99"]
            run = subprocess.run([*compiler, *language, "-fsyntax-only", "-I", str(root / "include"), "-"], input=text, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, encoding="utf-8")
            if run.returncode != 0:
                yield block.line, f"does not compile: {run.stdout.strip()[:500]}"


def check_consoles(page, program):
    with tempfile.TemporaryDirectory(prefix="kvant-docs-") as folder:
        for block in page.code():
            if block.language == "console":
                try:
                    yield from commands.run_console(block, program, Path(folder))
                except ValueError as error:
                    yield block.line, str(error)


def commands_page(program):
    """The page of all commands, as the program's help gives it."""
    import make_commands

    return make_commands.page_of(program)


def check_commands_page(path, program):
    if path.read_text(encoding="utf-8") != commands_page(program):
        yield 1, "differs from the help: run `cmake --build build/release --target kvant_docs`"


def check_page(root, path, pages, known, arguments):
    """The problems of a page that is more than linked."""
    page, name = pages[path], path.relative_to(root).as_posix()
    yield from check_size(name, path.stat().st_size)
    yield from check_sentences(page)
    yield from check_paths(root, page)
    yield from commands.check_flags(page, known)
    yield from check_programs(root, page, arguments.cxx.split() if arguments.cxx else None)
    if arguments.run:
        yield from check_consoles(page, arguments.program)
    if name == COMMANDS_PAGE:
        yield from check_commands_page(path, arguments.program)


def summary(name, page, size):
    lengths = [len(words) for _, words in page.sentences()]
    mean = sum(lengths) / len(lengths) if lengths else 0
    return f"{name}: {size} bytes, {len(lengths)} sentences of {mean:.1f} words on average, {max(lengths, default=0)} at most"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--root", default=Path(__file__).resolve().parents[2], type=Path)
    parser.add_argument("--cxx", help="a compiler for the blocks in C and C++")
    parser.add_argument("--no-run", dest="run", action="store_false", help="run no command of a page")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    pages = {path: markdown.Page(path.read_text(encoding="utf-8")) for path in paths_of(root, LINKED)}
    known = commands.Help(arguments.program, str(root / "dev"))

    def check(path):
        whole = path in whole_pages
        return [*check_links(root, path, pages), *(check_page(root, path, pages, known, arguments) if whole else ())]

    whole_pages = set(paths_of(root, PAGES))
    problems = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for path, found in zip(pages, pool.map(check, pages)):
            name = path.relative_to(root).as_posix()
            if path in whole_pages:
                print(summary(name, pages[path], path.stat().st_size))
            for line, problem in sorted(found, key=lambda one: one[0]):
                print(f"  {name}:{line}: {problem}")
            problems += len(found)
    if "README.md" not in {path.relative_to(root).as_posix() for path in pages}:
        problems += 1
        print("  there is no README.md")
    print(f"{problems} problems" if problems else "no problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
