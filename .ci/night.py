"""The table of the night in docs/test-runs.md, a row for the last run of each part:

    night.py passed PART                      fails unless the part has passed on the same sources
    night.py record PART RESULT SECONDS LOG   writes the row; LOG is what the part printed
"""
import datetime
import hashlib
import os
import re
import subprocess
import sys

import times

TABLE = "docs/test-runs.md"
BEGIN, END = "<!-- rows -->", "<!-- end of rows -->"
PASSED = re.compile(r"^\[  PASSED  \] (\d+) test", re.M)  # a process of the test program
SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) test", re.M)
ENTRIES = re.compile(r"tests failed out of (\d+)")  # ctest
INPUTS = re.compile(r": (\d+) inputs in")  # a fuzz target


def git(*arguments):
    result = subprocess.run(("git",) + arguments, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    return result.stdout if result.returncode == 0 else b""


def tree():
    """A hash of all tracked files but documents, as they are in the work tree; "" without git."""
    files = git("ls-files", "-s", "--", ":!*.md")
    changes = git("diff", "--binary", "--", ":!*.md")
    return hashlib.sha256(files + changes).hexdigest()[:12] if files else ""


def read_table(path=TABLE):
    """The text before the rows, the cells by part, the text after them."""
    with open(path, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN + "\n", 1)
    rows, after = rest.split(END, 1)
    cells = [[cell.strip() for cell in line.strip("| \n").split("|")]
             for line in rows.splitlines()[2:] if line]
    return before, {row[0]: row for row in cells}, after


def what_ran(log):
    """Tests that passed and were skipped, or what else was counted, from what a part printed."""
    passed = sum(map(int, PASSED.findall(log)))
    skipped = sum(map(int, SKIPPED.findall(log)))
    inputs = sum(map(int, INPUTS.findall(log)))
    entries = ENTRIES.search(log)
    if inputs:
        return "%d inputs" % inputs
    text = "%d tests" % passed if passed else ""
    if entries:
        text = (text + ", " if text else "") + entries.group(1) + " entries of ctest"
    return text + (", %d skipped" % skipped if skipped else "")


def full_log(log):
    """What the part printed; with what ctest kept to itself, which says how many tests there were."""
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    preset = os.path.basename(log)[:-4]
    preset = "release" if preset in ("real", "scalar", "avx2", "avxvnni") else preset
    kept = "build/%s/Testing/Temporary/LastTest.log" % preset
    if ENTRIES.search(text) and os.path.exists(kept):
        with open(kept, encoding="utf-8", errors="replace") as file:
            text = "\n".join(ENTRIES.search(text).group(0).splitlines()) + "\n" + file.read()
    return text


def record(part, result, seconds, log):
    before, rows, after = read_table()
    rows[part] = [part, result, what_ran(full_log(log)), seconds,
                  git("rev-parse", "--short=12", "HEAD").decode().strip(), tree(),
                  times.cpu_name(), datetime.datetime.now(datetime.timezone.utc).strftime("%F %H:%M")]
    head = "| part | result | what ran | seconds | commit | sources | CPU | ended (UTC) |\n"
    head += "| --- | --- | --- | ---: | --- | --- | --- | --- |\n"
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + head + "".join(
            "| " + " | ".join(row) + " |\n" for row in rows.values()) + END + after)


def main():
    if sys.argv[1] == "passed":
        row = read_table()[1].get(sys.argv[2])
        return 0 if row and row[1] == "passed" and row[5] and row[5] == tree() else 1
    record(*sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
