#!/usr/bin/env python3
"""Asks the model the held-out questions through `kvant run` and counts right answers.

    python evaluate.py DATA [--model FILE] [--kvant PROGRAM] [--show KIND]

An answer is right if what it ends with, behind its steps, is what is expected; where there are no steps, if all of it is.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def result_of(answer):
    """What stands behind the steps."""
    return answer.strip().rpartition("so ")[2]


def answers_of(options, questions):
    prompts = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in questions]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        file.flush()
        out = subprocess.run([options.kvant, "run", options.model, "--prompts", file.name, "--temp", "0", "-n", "160", "-t", "1", "-q"],
                             check=True, capture_output=True, text=True).stdout
    texts = {line["prompt"]: line["text"] for line in map(json.loads, out.splitlines())}
    return [texts[i] for i in range(len(questions))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--model", default=str(HERE / "dialogue.gguf"))
    parser.add_argument("--kvant", default=str(HERE / "../../build/release/kvant"))
    parser.add_argument("--show", help="print the wrong answers of this kind")
    options = parser.parse_args()
    asked = json.loads((options.data / "heldout.json").read_text())
    right, total = collections.Counter(), collections.Counter()
    for item, found in zip(asked, answers_of(options, [item["question"] for item in asked])):
        is_right = result_of(found) == result_of(item["answer"])
        total[item["kind"]] += 1
        right[item["kind"]] += is_right
        if options.show == item["kind"] and not is_right:
            print(f"{item['question']} -> {found} (expected: {item['answer']})")
    for kind, count in total.items():
        print(f"| {kind} | {100 * right[kind] / count:.0f} |")


if __name__ == "__main__":
    main()
