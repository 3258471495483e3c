#!/usr/bin/env python3
"""Texts from random tokens under JSON schemas, validated by the Python package jsonschema.

  tests/reference/check_schema_generations.py [--schemas build/release/bench/schemas] [--model MODEL.gguf] [--texts N]
                                              [--data FOLDER]

The schemas are those of json_schemas.json, or of a folder of MaskBench's files. Every text that has ended must be
JSON without a repeated key of `properties`, and valid. A text from random tokens often goes on for ever; such texts
are counted. Without a model the tokens are bytes. KVANT_TEST_FACTOR multiplies the number of texts.
"""
import argparse
import json
import os
import sys

import jsonschema

from check_json_schema_suite import Judge


def cases(data):
    if data is None:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "json_schemas.json"),
                  encoding="utf-8") as file:
            yield from enumerate(json.load(file))
        return
    for name in sorted(os.listdir(data)):
        with open(os.path.join(data, name), encoding="utf-8") as file:
            yield name, json.load(file)["schema"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", default="build/release/bench/schemas")
    parser.add_argument("--model")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    texts = options.texts * int(os.environ.get("KVANT_TEST_FACTOR", "1"))
    judge = Judge(options.schemas, *(["--annotations"] if options.data else []),
                  *([options.model] if options.model else []))
    count = ended = wrong = schemas = 0
    for number, (name, schema) in enumerate(cases(options.data)):
        if number % options.every != 0:
            continue
        answer = judge.ask("S", json.dumps(schema))
        if not answer.startswith("ok"):
            if options.data is None:
                sys.exit("schema %s: %s" % (name, answer))
            continue
        schemas += 1
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=jsonschema.FormatChecker())
        for seed in range(1, texts + 1):
            answer = judge.ask("G", str(seed))
            count += 1
            if answer == "null":
                continue
            ended += 1
            try:
                validator.validate(json.loads(json.loads(answer)))
            except Exception as error:  # pylint: disable=broad-except
                wrong += 1
                print("%s: %s\n  %s" % (name, answer[:300], str(error).splitlines()[0]))
    print("%d schemas, %d texts, %d ended, %d wrong" % (schemas, count, ended, wrong))
    sys.exit(1 if wrong or ended == 0 else 0)


if __name__ == "__main__":
    main()
