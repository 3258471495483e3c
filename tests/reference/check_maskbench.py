#!/usr/bin/env python3
"""Runs the schemas of MaskBench (github.com/guidance-ai/jsonschemabench, maskbench/data) through kvant's grammars.

  tests/reference/check_maskbench.py DATA [--model MODEL.gguf] [--schemas build/release/bench/schemas] [--every N]
                                     [--strict] [--show CLASS] [--llguidance]

DATA has a file for each schema, with instances that are valid or not. As in MaskBench, a schema has passed if it is
understood and each instance is accepted or refused as it should be, in the order of keys that the file has; valid ones
that are accepted in another order have a class of their own. With a model
the instances are its tokens, and the times of masks are printed. --strict: unknown keywords are errors. --every: only
each N-th file. --llguidance: times llguidance 1.9.1 on each file that both understand, in turn, too; it needs the
Python packages llguidance, gguf and numpy, and --model. The files have no license, so that they stand outside of the repository.
"""
import argparse
import collections
import importlib.util
import json
import os
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

from check_json_schema_suite import Judge


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Llguidance:
    """Times of llguidance's masks with the vocabulary of a model."""

    def __init__(self, model):
        loader = SourceFileLoader("compare_grammars", str(Path(__file__).resolve().parents[2] / "bench/compare_grammars"))
        self.grammars = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare_grammars", loader))
        loader.exec_module(self.grammars)
        texts, end = self.grammars.token_texts(model)
        self.texts, self.end = texts, end
        self.tokenizer = self.grammars.llguidance_tokenizer(texts, end)
        self.first, self.masks, self.refused = [], [], 0

    def run(self, schema, tests):
        import llguidance
        import llguidance.numpy as masks
        bits = masks.allocate_token_bitmask(1, len(self.texts))
        for number, test in enumerate(tests):
            begin = time.thread_time()
            matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), {"lenient": False}))
            if matcher.is_error():
                self.refused += 1
                return
            masks.fill_next_token_bitmask(matcher, bits, 0)
            if number == 0:
                self.first.append((time.thread_time() - begin) * 1e6)
            text = json.dumps(test["data"], ensure_ascii=False).encode("utf-8", "replace")
            for token in [*self.grammars.tokenize(text, self.texts), self.end]:
                begin = time.thread_time()
                masks.fill_next_token_bitmask(matcher, bits, 0)
                went_on = matcher.consume_token(token)
                self.masks.append((time.thread_time() - begin) * 1e6)
                if not went_on:
                    break


def print_times(name, first, masks):
    print("%s: compile and first mask: p50 %.0f p95 %.0f p99 %.0f largest %.0f us" % (
        name, percentile(first, 0.5), percentile(first, 0.95), percentile(first, 0.99), percentile(first, 1)))
    if masks:
        print("%s: masks: %d, mean %.1f p50 %.1f p99 %.1f p99.9 %.1f largest %.0f us" % (
            name, len(masks), sum(masks) / len(masks), percentile(masks, 0.5), percentile(masks, 0.99),
            percentile(masks, 0.999), percentile(masks, 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model")
    parser.add_argument("--llguidance", action="store_true")
    parser.add_argument("--schemas", default="build/release/bench/schemas")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--show", help="print the files of this class: refused, accepts invalid, refuses valid, error")
    options = parser.parse_args()
    words = ([] if options.strict else ["--annotations"]) + ([options.model] if options.model else [])
    peer = Llguidance(options.model) if options.llguidance else None
    judge = Judge(options.schemas, *words)
    classes = collections.Counter()
    first, masks = [], []
    for name in sorted(os.listdir(options.data))[::options.every]:
        with open(os.path.join(options.data, name), encoding="utf-8") as file:
            case = json.load(file)
        compiled = judge.ask("S", json.dumps(case["schema"]))
        found, detail = "passed", ""
        if not compiled.startswith("ok"):
            found, detail = "refused", compiled
        else:
            first.append(float(compiled.split()[1]))
            for number, test in enumerate(case["tests"]):
                text = json.dumps(test["data"], ensure_ascii=False)
                answer = judge.ask("T", json.dumps(text)).split()
                masks.extend(float(word) for word in answer[1:] if answer[0] != "error")
                if answer[0] == "error":
                    found, detail = "error", " ".join(answer)
                elif (answer[0] == "1") != test["valid"]:
                    found = "accepts invalid"
                    if test["valid"]:
                        reordered = judge.ask("R", json.dumps(text)) == "1"
                        found = "passed in another order" if reordered else "refuses valid"
                    detail = "%d %s" % (number, text[:300])
                if found != "passed":
                    break
        classes[found] += 1
        if peer and found != "refused":
            peer.run(case["schema"], case["tests"])
        if found == options.show:
            print("%s | %s" % (name, detail))
    print(dict(classes), "of", sum(classes.values()))
    print_times("kvant", first, masks)
    if peer:
        print("llguidance: %d refused" % peer.refused)
        print_times("llguidance", peer.first, peer.masks)
    sys.exit(1 if classes["accepts invalid"] else 0)


if __name__ == "__main__":
    main()
