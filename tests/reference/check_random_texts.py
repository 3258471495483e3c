#!/usr/bin/env python3
"""Texts of random tokens under random schemas, each judged by Python's jsonschema and json. GRM-08.

  tests/reference/check_random_texts.py --schemas build/release/bench/schemas [--model MODEL.gguf] [--count 200] [--texts 1000] [--seed 1]

`--count` schemas that kvant understands, `--texts` complete texts under each. The tokens are those of the model, all that
the grammar allows equally likely, but for those that close something. Needs the Python package jsonschema of Debian 12
(4.10) or a later one. Exits with 1 where a text is wrong, or where kvant refuses a third of the schemas.
"""
import argparse
import collections
import decimal
import json
import re
import sys

import jsonschema
from check_json_schema_suite import Judge
from make_schemas import schemas

# What jsonschema does not check without further packages. kvant's texts are checked by these.
HOST = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FORMATS = {
    "time": r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    "date-time": r"\d{4}-\d\d-\d\d[tT]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    "duration": r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)",
    "email": r"[^@\s]+@\S+",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*",
    "hostname": HOST + r"(\." + HOST + r")*",
    "json-pointer": r"(/([^~/]|~[01])*)*",
}


def checker():
    formats = jsonschema.FormatChecker(formats=("date", "ipv4", "ipv6"))
    for name, pattern in FORMATS.items():
        compiled = re.compile(pattern)
        formats.checks(name)(lambda value, compiled=compiled: not isinstance(value, str) or compiled.fullmatch(value) is not None)
    return formats


def problem(text, validator):
    """Why a text is wrong; None: it is right. Numbers are compared as they are written, not as floats."""
    try:
        value = json.loads(text, parse_float=decimal.Decimal)
    except ValueError as error:
        return str(error)
    return None if validator.is_valid(value) else jsonschema.exceptions.best_match(validator.iter_errors(value)).message


def keywords_in(schema, found):
    """Counts the keywords of a schema: members of objects that are not names of properties."""
    for key, value in schema.items():
        found[key] += 1
        for inner in value.values() if key in ("properties", "patternProperties", "$defs") else value if isinstance(value, list) else [value]:
            if isinstance(inner, dict) and key not in ("enum", "const"):
                keywords_in(inner, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", default="build/release/bench/schemas")
    parser.add_argument("--model", default="models/shakespeare/shakespeare.gguf")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    decimal.getcontext().prec = 700
    judge, formats = Judge(options.schemas, options.model, "--compact"), checker()
    used, judged, wrong, refused, keywords = 0, 0, [], [], collections.Counter()
    for schema in schemas(options.count * 3 // 2, options.seed):
        if used == options.count:
            break
        answer = judge.ask("S", json.dumps(schema))
        if not answer.startswith("ok"):
            refused.append((answer, schema))
            continue
        used += 1
        keywords_in(schema, keywords)
        texts = judge.ask("N", "%d %d" % (options.texts, options.seed + used))
        if not texts.startswith("["):
            sys.exit("%s: %s" % (texts, json.dumps(schema)))
        validator = jsonschema.Draft202012Validator(schema, format_checker=formats)
        for text in json.loads(texts):
            judged += 1
            reason = problem(text, validator)
            if reason is not None:
                wrong.append((text, reason, json.dumps(schema)))
    print("%d texts under %d schemas: %d wrong; %d schemas refused" % (judged, used, len(wrong), len(refused)))
    print("keywords: %s" % ", ".join(sorted(keywords)))
    for case in wrong[:10]:
        print("wrong: %s | %s | %s" % case)
    for answer, schema in refused[:3]:
        print("%s | %s" % (answer, json.dumps(schema)))
    sys.exit(0 if used == options.count and judged == options.count * options.texts and not wrong else 1)


if __name__ == "__main__":
    main()
