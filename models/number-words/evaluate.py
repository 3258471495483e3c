#!/usr/bin/env python3
"""Asks the model for held-out numbers through `kvant run` and counts exact answers.

    python evaluate.py [--model FILE] [--kvant PROGRAM] [--count 1000] [--show] [-- OPTIONS OF kvant run]
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import pairs

HERE = pathlib.Path(__file__).resolve().parent


def answers_of(options, sources):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps({"prompt": source}) + "\n" for source in sources))
        file.flush()
        out = subprocess.run([options.kvant, "run", options.model, "--prompts", file.name, "-q", *options.more],
                             check=True, capture_output=True, text=True).stdout
    texts = {line["prompt"]: line["beams"][0]["text"] for line in map(json.loads, out.splitlines())}
    return [texts[i] for i in range(len(sources))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(HERE / "number-words.gguf"))
    parser.add_argument("--kvant", default=str(HERE / "../../build/release/kvant"))
    parser.add_argument("--count", type=int, default=1000, help="sources of each task")
    parser.add_argument("--show", action="store_true", help="print the wrong answers")
    parser.add_argument("more", nargs="*", help="options of kvant run, such as -- --beams 4")
    options = parser.parse_args()
    for task in pairs.TASKS:
        asked = pairs.held_out(task, options.count)
        right = 0
        for (source, expected), found in zip(asked, answers_of(options, [source for source, _ in asked])):
            right += found == expected
            if options.show and found != expected:
                print(f"{source} -> {found} (expected: {expected})")
        print(f"| {task} | {100 * right / len(asked):.1f} |")


if __name__ == "__main__":
    main()
