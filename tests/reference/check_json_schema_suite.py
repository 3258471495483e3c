#!/usr/bin/env python3
"""Runs the JSON-Schema-Test-Suite through kvant's grammars, and compares the counts with a file.

  tests/reference/check_json_schema_suite.py SUITE [--schemas build/release/bench/schemas] [--show CLASS]

SUITE is a folder with draft2020-12 and draft7, for example json/tests in the source distribution of the Python
package jsonschema. Each instance is one of
  pass            as the suite says
  unsupported     its schema is refused
  false positive  kvant accepts an invalid instance
  false negative  kvant refuses a valid one
Objects have an order in kvant's texts, that of the schema. So an instance is accepted if one order of its keys is.
The script fails if there is a false positive, or if a class is worse than in json_schema_suite.json. --write makes
that file anew.
"""
import argparse
import collections
import itertools
import json
import os
import subprocess
import sys

DRAFTS = {"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
          "draft7": "http://json-schema.org/draft-07/schema#"}
COUNTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "json_schema_suite.json")
ORDERS_MAX = 200


def orders(value):
    """The value with the keys of its objects in all orders."""
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for members in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, members))
    elif isinstance(value, list):
        for items in itertools.product(*(list(orders(item)) for item in value)):
            yield list(items)
    else:
        yield value


class Judge:
    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, *options], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8", errors="surrogatepass")

    def ask(self, letter, value):
        self.process.stdin.write("%s %s\n" % (letter, value))
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def accepts(self, value):
        for one in itertools.islice(orders(value), ORDERS_MAX):
            text = json.dumps(one, ensure_ascii=False)
            answer = self.ask("T", json.dumps(text))
            if answer.startswith("error"):
                return None
            if answer.startswith("1"):
                return True
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("--schemas", default="build/release/bench/schemas")
    parser.add_argument("--show", help="print the cases of this class")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    judge = Judge(options.schemas, "--annotations")
    counts = {}
    for draft, uri in DRAFTS.items():
        classes = collections.Counter()
        folder = os.path.join(options.suite, draft)
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".json"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                groups = json.load(file)
            for group in groups:
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": uri, **schema}
                compiled = judge.ask("S", json.dumps(schema))
                for test in group["tests"]:
                    kind = "unsupported"
                    if compiled.startswith("ok"):
                        found = judge.accepts(test["data"])
                        if found is not None:
                            kind = ("pass" if found == test["valid"] else
                                    "false positive" if found else "false negative")
                    classes[kind] += 1
                    if kind == options.show:
                        print("%s %s | %s | %s | %s | %s" % (draft, name, group["description"], test["description"],
                                                             json.dumps(test["data"])[:100], compiled[:200]))
        counts[draft] = dict(classes)
        print(draft, dict(classes))
    if options.write:
        with open(COUNTS, "w", encoding="utf-8") as file:
            json.dump(counts, file, indent=2, sort_keys=True)
            file.write("\n")
    with open(COUNTS, encoding="utf-8") as file:
        known = json.load(file)
    worse = [draft for draft in DRAFTS
             if counts[draft].get("false positive", 0) > 0 or counts[draft]["pass"] < known[draft]["pass"] or
             counts[draft].get("false negative", 0) > known[draft].get("false negative", 0)]
    if worse:
        sys.exit("worse than %s: %s" % (os.path.basename(COUNTS), ", ".join(worse)))


if __name__ == "__main__":
    main()
