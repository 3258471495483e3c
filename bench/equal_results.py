#!/usr/bin/env python3
"""Whether two kvant programs give the same results, bit for bit.

    bench/equal_results.py OLD NEW [--all] [--only TEXT] [--keep FOLDER]

Runs both programs on the same model files and compares logits, texts, beams, batches, programs of
kvant seq, and saved sessions: bytes where both write the same version of the file, and in any case
what each program reads back from its own. Prints one row per comparison with the beginnings of the
SHA-256 of both results, and ends with status 1 at the first difference (with --all: at the end).

Models: the bundled one, formats quantized from it by OLD, and those of ../shared/models where that
folder exists. Needs Python 3.8 and nothing else.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "models" / "shakespeare"
SHARED = Path(os.environ.get("KVANT_SHARED", ROOT.parent / "shared")) / "models"

QUANTIZED = ["Q4_K_M", "Q6_K", "IQ4_XS", "Q5_1", "Q2_K", "TQ2_0"]
PROMPT = "KING RICHARD III:\nNow is the winter of our discontent"
TINY_PROMPT = "Once upon a time, there was a little girl named Lily. She"


class Failed(Exception):
    """A program ended with an error; the message names the command and the error."""


def run(program, arguments, folder):
    """The standard output of `program arguments`, run in `folder`."""
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, check=False)
    if done.returncode != 0:
        error = done.stderr.decode(errors="replace").strip()
        raise Failed(f"kvant {' '.join(arguments)}: status {done.returncode}: {error}")
    return done.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def json_lines(output):
    """The lines of the output that are JSON objects; they may follow a text that is no JSON."""
    found = []
    for line in output.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def only(record, keys):
    """The parts of a JSON object that are results; timings and memory are not."""
    return {key: record[key] for key in keys if key in record}


# ---- What is run. Each function returns {name of a result: its bytes}. ---------------------------


def logits(program, folder, model, options, count):
    numbers = random.Random(count)
    tokens = ",".join(str(numbers.randrange(3, 500)) for _ in range(count))
    run(program, ["logits", model, "--tokens", tokens, "-o", "logits.npy", *options], folder)
    return {"logits": (folder / "logits.npy").read_bytes()}


def text(program, folder, model, options, prompt):
    output = run(program, ["run", model, "-p", prompt, "--json", *options], folder)
    records = [only(r, ("text", "ids", "finish_reason", "beams")) for r in json_lines(output)]
    if not records or not any(r.get("ids") or r.get("beams") for r in records):
        raise Failed(f"kvant run {model}: no tokens in {output[-200:]}")
    return {"text": json.dumps(records, sort_keys=True).encode()}


def batch(program, folder, model, options, prompts):
    lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    (folder / "prompts.jsonl").write_text(lines)
    output = run(program, ["run", model, "--prompts", "prompts.jsonl", *options], folder)
    keys = ("prompt", "sample", "text", "ids", "finish_reason", "seed", "beams")
    records = [only(r, keys) for r in json_lines(output)]
    if len(records) < len(prompts):
        raise Failed(f"kvant run {model}: {len(records)} texts of {len(prompts)} prompts")
    records.sort(key=lambda r: (r["prompt"], r.get("sample", 0)))
    return {"texts": json.dumps(records, sort_keys=True).encode()}


def score(program, folder, model, options, prompt):
    output = run(program, ["score", model, "-p", prompt, "--json", *options], folder)
    return {"scores": json.dumps(json.loads(output), sort_keys=True).encode()}


def sequences(program, folder, model, options, lines):
    """A program of kvant seq: its lengths, tokens and hashes of logits, and the files it writes."""
    (folder / "program.txt").write_text("\n".join(lines) + "\n")
    output = run(program, ["seq", model, "-f", "program.txt", *options], folder)
    keys = ("line", "op", "state", "ids", "text", "logits", "likeliest")
    records = [only(r, keys) for r in json_lines(output)]
    return {"sequences": json.dumps(records, sort_keys=True).encode()}


def saved(program, folder, model, options, lines, names, more):
    """Sequences that one process saves and exports, and that another loads and goes on with."""
    results = sequences(program, folder, model, options, [*lines, "save saved.kvs " + names])
    results["session file"] = (folder / "saved.kvs").read_bytes()
    again = sequences(program, folder, model, options, ["load saved.kvs " + names, *more])
    results["after loading"] = again["sequences"]
    for path in sorted(folder.glob("*.safetensors")):
        results[path.name] = path.read_bytes()
    return results


def session(program, folder, model, options, prompts):
    """kvant run --session: the text. What it saves of the last token, and how a later run goes on,
    are not compared: versions differ in it; programs of kvant seq compare saved sessions."""
    results = {}
    for number, prompt in enumerate(prompts):
        arguments = ["--session", "saved.kvs", "-n", "24", "--temp", "0", *options]
        results[f"text {number}"] = text(program, folder, model, arguments, prompt)["text"]
    return results


# ---- The combinations ----------------------------------------------------------------------------


def ids(seed, count):
    numbers = random.Random(seed)
    return " ".join(str(numbers.randrange(3, 500)) for _ in range(count))


def branches():
    """Forks, reorders, rewinds within and beyond windows, holes, moves, snapshots."""
    return [
        "new A", "append A " + ids(1, 150), "fork A B", "append B " + ids(2, 40),
        "step A 7 B 9", "generate A 8", "generate B 8", "new C", "append C " + ids(3, 33),
        "reorder A B C : 1 1 0", "step A 11 B 12 C 13", "generate C 5", "append A " + ids(4, 290),
        "rewind A 180", "append A 21 22 23", "append B " + ids(5, 40), "rewind B 40",
        "generate B 6", "snapshot C S", "prune C 12 60", "generate C 5", "restore C S",
        "prune C 9 50 moved", "generate C 5", "fork B D", "rewind D 32", "append D 44 45", "drop S",
    ]


def save_cases():
    exports = ["export c.safetensors bhsd C", "export b.safetensors kbhsd B"]
    more = ["tokens A", "logits A 5", "logits B 5", "generate A 8", "generate B 8", "generate C 8",
            "fork A E", "step A 5 E 6", "rewind B 30", "append B 4 5 6",
            "export loaded.safetensors bhsd B"]
    lines = [
        "new A", "append A " + ids(6, 310), "fork A B", "append B " + ids(7, 70), "new C",
        "append C " + ids(8, 31), "fork A D", "prune D 20 60", "append D " + ids(9, 3), *exports,
    ]
    return lines, "A B C D", more


def add_model(cases, name, model, prompt, length):
    """The combinations of one model whose context holds `length` tokens and some."""
    def add(title, function, options, *rest):
        cases.append((f"{name}: {title}", function, str(model), options, rest))

    for kv_type, threads, chunk in (("f32", "1", "512"), ("f16", "2", "64"), ("q8", "3", "17")):
        options = ["--kv-type", kv_type, "-t", threads, "--chunk", chunk]
        title = f"{kv_type}, {threads} threads, chunk {chunk}"
        add(f"logits, {title}", logits, options, length)
        greedy = [*options, "--temp", "0", "-n", "40", "--ignore-eos"]
        add(f"greedy, {title}", text, greedy, prompt)
    mixed = ["-ctk", "q8", "-ctv", "f16", "-t", "2"]
    add("logits, keys q8, values f16, strict", logits, [*mixed, "--strict"], length)


def add_branches(cases, name, model):
    lines, names, more = save_cases()
    for kv_type, threads, chunk in (("f32", "2", "512"), ("f16", "1", "48"), ("q8", "3", "32")):
        options = ["--kv-type", kv_type, "-t", threads, "--chunk", chunk, "--kv-check",
                   "--kv-poison"]
        title = f"{kv_type}, {threads} threads, chunk {chunk}"
        cases.append((f"{name}: forks and rewinds, {title}", sequences, str(model), options,
                      (branches(),)))
        cases.append((f"{name}: saved, {title}", saved, str(model), options, (lines, names, more)))
    cases.append((f"{name}: known prefixes", sequences, str(model),
                  ["--prefix-cache", "-t", "2", "--kv-check"],
                  (["new A", "append A " + ids(1, 200), "new B", "append B " + ids(1, 170),
                    "free A", "new A", "append A " + ids(1, 200), "generate A 4", "generate B 4"],)))


def add_generation(cases, name, model, prompt, draft_model):
    def add(title, function, options, *rest):
        cases.append((f"{name}: {title}", function, str(model), options, rest))

    prompts = [prompt, prompt[:20], "The", prompt + " and all", "ROMEO:"]
    add("sampled", text, ["--seed", "7", "-n", "60", "-t", "2"], prompt)
    add("strict", text, ["--temp", "0", "-n", "40", "--strict", "-t", "3"], prompt)
    add("without a cache", text, ["--temp", "0", "-n", "12", "--no-kv-cache", "-t", "2"], prompt)
    add("4 beams", text, ["--beams", "4", "--num-return", "4", "-n", "32", "-t", "2"], prompt)
    add("4 beams in 2 groups, q8", text,
        ["--beams", "4", "--beam-groups", "2", "--diversity", "0.5", "--num-return", "4", "-n", "24",
         "--kv-type", "q8", "-t", "3"], prompt)
    add("3 drawn beams", text,
        ["--beams", "3", "--beam-sample", "--seed", "5", "-n", "24", "-t", "1"], prompt)
    add("3 beams as ct2", text,
        ["--beams", "3", "--beam-scoring", "ct2", "--patience", "2", "-n", "24", "-t", "2"], prompt)
    add("batch", batch,
        ["--samples", "3", "--seed", "3", "-n", "24", "--parallel", "4", "-t", "2"], prompts)
    add("batch of beams", batch, ["--beams", "3", "-n", "16", "--parallel", "6", "-t", "2"], prompts)
    add("n-gram draft", text, ["--temp", "0", "-n", "60", "--draft", "ngram", "-t", "2"], prompt)
    add("sampled with a draft model", text,
        ["--seed", "9", "-n", "40", "--draft", str(draft_model), "-t", "2"], prompt)
    add("context shift", text,
        ["--temp", "0", "-n", "150", "--ignore-eos", "-c", "96", "--keep", "3", "-t", "2"], prompt)
    add("session, f16", session, ["-t", "2"], [prompt])
    add("session, q8", session, ["--kv-type", "q8", "-t", "1"], [prompt])
    add("scores", score, ["-t", "2"], prompt)


def make_cases(old, models):
    """[(title, function, model, options, more arguments)]; quantizes into the folder `models`."""
    cases = []
    bundled = BUNDLED / "shakespeare.gguf"
    add_model(cases, "shakespeare", bundled, PROMPT, 330)
    add_branches(cases, "shakespeare", bundled)
    quantized = {}
    for kind in QUANTIZED:
        quantized[kind] = models / f"{kind}.gguf"
        source = str(BUNDLED / "shakespeare-bf16.gguf")
        run(old, ["quantize", source, str(quantized[kind]), kind, "-t", "1"], models)
        add_model(cases, kind, quantized[kind], PROMPT, 130)
    add_generation(cases, "shakespeare", bundled, PROMPT, quantized["Q2_K"])
    if not SHARED.is_dir():
        print(f"note: {SHARED} does not exist; its models are left out", file=sys.stderr)
        return cases
    add_model(cases, "stories260K", SHARED / "stories260k" / "stories260K-f32.v3.gguf", TINY_PROMPT,
              200)
    for kind in ("f32", "Q8_0", "Q4_0", "phi3-swa32-f32"):
        model = SHARED / "tinystories-656k" / f"TinyStories-656K-{kind}.gguf"
        add_model(cases, f"656K-{kind}", model, TINY_PROMPT, 300)
        if kind in ("f32", "phi3-swa32-f32"):
            add_branches(cases, f"656K-{kind}", model)
    phi3 = SHARED / "tinystories-656k" / "TinyStories-656K-phi3-swa32-f32.gguf"
    add_generation(cases, "656K-phi3", phi3, TINY_PROMPT,
                   SHARED / "tinystories-656k" / "TinyStories-656K-Q4_0.gguf")
    return cases


# ---- Comparing -----------------------------------------------------------------------------------


def results_of(program, case, folder):
    """The results of a case with one program, by name, or the error as the only one."""
    _, function, model, options, rest = case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return function(program, folder, model, options, *rest)
    except Failed as failed:
        return {"error": str(failed).encode()}


def session_version(data):
    """The version number of a session file, after its eight first bytes."""
    return int.from_bytes(data[8:12], "little")


def compare(title, name, old, new):
    """Prints the row of one result; whether it is equal."""
    if name == "error":
        print(f"{title:64} {'the programs fail':>33}  FAILED", flush=True)
        for which, data in (("old", old), ("new", new)):
            print(f"  {which}: {data.decode(errors='replace') if data else 'no error'}")
        return False
    missing = old is None or new is None
    verdict = "equal" if old == new else "DIFFERS"
    if name == "session file" and not missing and session_version(old) != session_version(new):
        # Another version holds the same content in other bytes: what each program reads back from
        # its own file is compared instead ("after loading", or the next text).
        verdict = f"version {session_version(old)} and {session_version(new)}"
    hashes = ["-" if data is None else digest(data) for data in (old, new)]
    print(f"{title + ', ' + name:72} {hashes[0]:>16} {hashes[1]:>16}  {verdict}", flush=True)
    return verdict != "DIFFERS"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the program whose results count")
    parser.add_argument("new", help="the program that is to give the same")
    parser.add_argument("--all", action="store_true", help="go on after a difference")
    parser.add_argument("--only", default="", help="combinations whose title has this in it")
    parser.add_argument("--keep", help="work in this folder and leave it there")
    arguments = parser.parse_args()
    old, new = (str(Path(program).resolve()) for program in (arguments.old, arguments.new))
    base = Path(arguments.keep or tempfile.mkdtemp(prefix="kvant-equal-")).resolve()
    (base / "models").mkdir(parents=True, exist_ok=True)
    compared = different = combinations = 0
    try:
        for case in make_cases(old, base / "models"):
            if arguments.only not in case[0]:
                continue
            combinations += 1
            found = [results_of(program, case, base / which)
                     for program, which in ((old, "old"), (new, "new"))]
            for name in sorted(set(found[0]) | set(found[1])):
                compared += 1
                if not compare(case[0], name, found[0].get(name), found[1].get(name)):
                    different += 1
            if different and not arguments.all:
                break
    finally:
        if not arguments.keep:
            shutil.rmtree(base, ignore_errors=True)
    print(f"{combinations} combinations, {compared} results, {different} different")
    return 1 if different or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
