#!/usr/bin/env python3
"""Write what llama.cpp's own samplers leave of given logits, and how they score it.

The library is the one inside the wheel xllamacpp, called through llama.h with ctypes; no model is
needed, except for DRY, whose breakers need a vocabulary: it is the GGUF file given. Output:

    {"cases": [{"options": {...}, "accepted": [...], "logits": [...],
                "ids": [...], "probabilities": [...]}, ...],
     "adapting": [{"options": {...}, "steps": [{"logits": [...], "chosen": id, ...}, ...]}, ...]}

A case is a chain in llama.cpp's default order, or that of options["samplers"]; `ids` are the tokens
that are left, ascending, and `probabilities` the softmax of what is left. Cases of DRY begin with
equal logits: `relative` has the tokens it changed, and their probability relative to the others'.
`adapting` are samplers that draw, with what they chose. `infill` begins with logits of few tokens of the vocabulary.

Usage: make_sampler_cases.py VOCABULARY.gguf OUTPUT.json   (needs xllamacpp==2026.10.11549, numpy)
"""

import ctypes
import json
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p

import numpy
import xllamacpp.xllamacpp as wheel


class TokenData(Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class TokenDataArray(Structure):
    _fields_ = [("data", POINTER(TokenData)), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool)]


library = ctypes.CDLL(wheel.__file__)


def function(name, result, *arguments):
    found = getattr(library, name)
    found.restype = result
    found.argtypes = arguments
    return found


FLOAT, INT, SEED, SIZE = c_float, c_int32, c_uint32, c_size_t
apply_sampler = function("llama_sampler_apply", None, c_void_p, POINTER(TokenDataArray))
accept = function("llama_sampler_accept", None, c_void_p, INT)
free = function("llama_sampler_free", None, c_void_p)
penalties = function("llama_sampler_init_penalties", c_void_p, INT, INT, FLOAT, FLOAT, FLOAT)
top_n_sigma = function("llama_sampler_init_top_n_sigma", c_void_p, FLOAT)
top_k = function("llama_sampler_init_top_k", c_void_p, INT)
typical = function("llama_sampler_init_typical", c_void_p, FLOAT, SIZE)
top_p = function("llama_sampler_init_top_p", c_void_p, FLOAT, SIZE)
min_p = function("llama_sampler_init_min_p", c_void_p, FLOAT, SIZE)
xtc = function("llama_sampler_init_xtc", c_void_p, FLOAT, FLOAT, SIZE, SEED)
temp_ext = function("llama_sampler_init_temp_ext", c_void_p, FLOAT, FLOAT, FLOAT)
mirostat = function("llama_sampler_init_mirostat", c_void_p, INT, SEED, FLOAT, FLOAT, INT)
mirostat_v2 = function("llama_sampler_init_mirostat_v2", c_void_p, SEED, FLOAT, FLOAT)
adaptive_p = function("llama_sampler_init_adaptive_p", c_void_p, FLOAT, FLOAT, SEED)
init_dry = function(
    "llama_sampler_init_dry", c_void_p, c_void_p, FLOAT, FLOAT, INT, INT, POINTER(c_char_p), SIZE
)

DEFAULTS = {
    "repeat_penalty": 1.0, "repeat_last_n": 64, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "top_n_sigma": -1.0, "top_k": 0, "typical": 1.0, "top_p": 1.0, "min_p": 0.0,
    "xtc_probability": 0.0, "xtc_threshold": 0.1, "temperature": 1.0, "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0, "min_keep": 0, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
    "adaptive_target": -1.0, "adaptive_decay": 0.9,
    "samplers": "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
}  # fmt: skip

vocabulary = None


def load_vocabulary(path):
    """The vocabulary of a GGUF file; llama_model_params is passed in memory as the library has it."""
    from_default = function("llama_model_default_params", ModelParams)
    load = function("llama_model_load_from_file", c_void_p, c_char_p, ModelParams)
    params = from_default()
    model = load(path.encode(), params)
    return function("llama_model_get_vocab", c_void_p, c_void_p)(model)


class ModelParams(Structure):
    # The fields are not needed: the defaults are passed on as they are.
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


def make(name, o, vocab):
    if name == "infill":
        return function("llama_sampler_init_infill", c_void_p, c_void_p)(vocabulary)
    if name == "penalties":
        return penalties(vocab, o["repeat_last_n"], o["repeat_penalty"], o["frequency_penalty"], o["presence_penalty"])
    if name == "dry":
        texts = [text.encode() for text in o["dry_sequence_breakers"]]
        return init_dry(
            vocabulary, o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"],
            o["dry_penalty_last_n"], (c_char_p * len(texts))(*texts), len(texts),
        )  # fmt: skip
    return {
        "top_n_sigma": lambda: top_n_sigma(o["top_n_sigma"]),
        "top_k": lambda: top_k(o["top_k"]),
        "typ_p": lambda: typical(o["typical"], o["min_keep"]),
        "top_p": lambda: top_p(o["top_p"], o["min_keep"]),
        "min_p": lambda: min_p(o["min_p"], o["min_keep"]),
        "xtc": lambda: xtc(o["xtc_probability"], o["xtc_threshold"], o["min_keep"], 1),
        "temperature": lambda: temp_ext(o["temperature"], o["dynatemp_range"], o["dynatemp_exponent"]),
    }[name]()


class Row:
    """A row of candidates in the form of llama.h."""

    def __init__(self, logits):
        self.data = (TokenData * len(logits))()
        for i, logit in enumerate(logits):
            self.data[i] = TokenData(i, logit, 0.0)
        self.array = TokenDataArray(self.data, len(logits), -1, False)

    def left(self):
        """The tokens that are left and their probabilities, by token."""
        kept = [(self.array.data[i].id, self.array.data[i].logit) for i in range(self.array.size)]
        kept = sorted((token, logit) for token, logit in kept if logit > -numpy.inf)
        logits = numpy.array([logit for _, logit in kept], dtype=numpy.float64)
        p = numpy.exp(logits - logits.max())
        return [token for token, _ in kept], [float(f"{x:.7g}") for x in p / p.sum()]


def run_chain(logits, accepted, options):
    o = {**DEFAULTS, **options}
    row = Row(logits)
    for name in filter(None, o["samplers"].split(";")):
        sampler = make(name, o, len(logits))
        for token in accepted:
            accept(sampler, token)
        apply_sampler(sampler, byref(row.array))
        free(sampler)
    ids, p = row.left()
    return {"options": options, "accepted": accepted, "logits": logits, "ids": ids, "probabilities": p}


def run_infill(candidates, options):
    """Logits of some tokens of the vocabulary; the others have none."""
    vocab = function("llama_vocab_n_tokens", INT, c_void_p)(vocabulary)
    logits = [-numpy.inf] * vocab
    for token, logit in candidates:
        logits[token] = logit
    o = {**options, "samplers": "top_k;" + options["samplers"], "top_k": len(candidates)}
    case = run_chain(logits, [], o)
    return {"options": o, "candidates": candidates, "ids": case["ids"], "probabilities": case["probabilities"]}


def piece_of(token):
    buffer = ctypes.create_string_buffer(64)
    to_piece = function("llama_token_to_piece", INT, c_void_p, INT, c_void_p, INT, INT, c_bool)
    return buffer.raw[: max(0, to_piece(vocabulary, token, buffer, 64, 0, False))]


def infill_cases(generator):
    """Groups of tokens that begin each other, few tokens without such, and the end of the text."""
    vocab = function("llama_vocab_n_tokens", INT, c_void_p)(vocabulary)
    end = function("llama_vocab_eos", INT, c_void_p)(vocabulary)
    pieces = [piece_of(token) for token in range(vocab)]
    for spread in (0.5, 2.0, 4.0, 7.0):
        for _ in range(14):
            chosen = set()
            for token in generator.integers(3, vocab, 3):
                like = [t for t in range(vocab) if pieces[t] and (pieces[t].startswith(pieces[token]) or pieces[token].startswith(pieces[t]))]
                chosen.update(int(t) for t in generator.permutation(like)[:4])
            if generator.random() < 0.7:
                chosen.add(end)
            candidates = [[t, round(float(generator.normal(0, spread)) - (6 if t == end else 0), 3)] for t in sorted(chosen)]
            options = {"samplers": str(generator.choice(["infill", "infill;temperature", "temperature;infill"])), "temperature": 0.6}
            yield run_infill(candidates, options)


def run_adapting(rows, options):
    """Samplers that draw and adapt: what they chose, and what was left to choose from, step by step."""
    o = {**DEFAULTS, **options}
    if o["mirostat"] == 1:
        sampler = mirostat(len(rows[0]), 7, o["mirostat_tau"], o["mirostat_eta"], 100)
    elif o["mirostat"] == 2:
        sampler = mirostat_v2(7, o["mirostat_tau"], o["mirostat_eta"])
    else:
        sampler = adaptive_p(o["adaptive_target"], o["adaptive_decay"], 7)
    steps = []
    for logits in rows:
        row = Row(logits)
        apply_sampler(sampler, byref(row.array))
        chosen = row.array.data[row.array.selected].id
        accept(sampler, chosen)
        ids, p = row.left()
        steps.append({"logits": logits, "chosen": chosen, "ids": ids, "probabilities": p})
    free(sampler)
    return {"options": options, "steps": steps}


def make_logits(generator, count, spread):
    return [float(round(x, 3)) for x in generator.normal(0, spread, count)]


def main():
    global vocabulary
    vocabulary = load_vocabulary(sys.argv[1])
    generator = numpy.random.default_rng(20261010)
    text = [int(t) for t in generator.integers(0, 24, 40)]
    repeating = [5, 6, 7, 8, 9, 5, 6, 7, 8, 4, 6, 7, 8, 9, 10, 5, 6, 7, 8]
    options = [
        {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
        {"repeat_penalty": 0.8, "repeat_last_n": 7},
        {"top_n_sigma": 1.0}, {"top_n_sigma": 2.5}, {"top_n_sigma": 0.1, "top_k": 10},
        {"top_k": 1}, {"top_k": 12}, {"typical": 0.7}, {"typical": 0.2, "min_keep": 3},
        {"top_p": 0.8}, {"top_p": 0.3, "min_keep": 5}, {"min_p": 0.1}, {"min_p": 0.3, "min_keep": 4},
        {"xtc_probability": 1.0, "xtc_threshold": 0.05}, {"xtc_probability": 1.0, "xtc_threshold": 0.5},
        {"xtc_probability": 1.0, "xtc_threshold": 0.01, "min_keep": 30},
        {"xtc_probability": 1.0, "xtc_threshold": 0.02, "temperature": 0.0},
        {"temperature": 0.5}, {"temperature": 0.0},
        {"temperature": 1.0, "dynatemp_range": 0.5}, {"temperature": 0.4, "dynatemp_range": 0.9, "dynatemp_exponent": 2.5},
        {"top_k": 20, "temperature": 0.0, "dynatemp_range": 0.7, "dynatemp_exponent": 0.5},
        {"repeat_penalty": 1.2, "top_n_sigma": 2.0, "top_k": 20, "typical": 0.95, "top_p": 0.9, "min_p": 0.02,
         "xtc_probability": 1.0, "xtc_threshold": 0.1, "temperature": 0.7, "dynatemp_range": 0.3},
        {"samplers": "temperature;top_p;min_p", "temperature": 2.0, "top_p": 0.8, "min_p": 0.1},
        {"samplers": "temperature;typ_p", "temperature": 1.7, "typical": 0.6},
        {"samplers": "min_p;temperature;penalties;dry", "min_p": 0.01, "temperature": 0.6, "repeat_penalty": 1.4,
         "presence_penalty": 0.5, "dry_multiplier": 0.8},
        {"samplers": "top_k;penalties;top_k;xtc;top_n_sigma;temperature", "top_k": 18, "frequency_penalty": 0.6,
         "xtc_probability": 1.0, "xtc_threshold": 0.08, "top_n_sigma": 1.2, "temperature": 1.3},
        {"samplers": "xtc;typ_p;top_p", "xtc_probability": 1.0, "xtc_threshold": 0.03, "typical": 0.8, "top_p": 0.9},
        {"samplers": ""},
    ]  # fmt: skip
    cases = [
        run_chain(make_logits(generator, 40, spread), text, chosen) for chosen in options for spread in (1.0, 3.0)
    ]
    dry = [
        {"dry_multiplier": 0.8}, {"dry_multiplier": 0.5, "dry_base": 3.0, "dry_allowed_length": 1},
        {"dry_multiplier": 0.8, "dry_penalty_last_n": 9}, {"dry_multiplier": 0.8, "dry_penalty_last_n": 1000},
        {"dry_multiplier": 0.8, "dry_sequence_breakers": []}, {"dry_multiplier": 0.3, "dry_allowed_length": 0},
    ]  # fmt: skip
    dry_texts = [repeating, text * 3, [3] * 30, repeating * 9]
    vocab = function("llama_vocab_n_tokens", INT, c_void_p)(vocabulary)
    few = [int(t) for t in generator.integers(0, vocab, 8)]
    dry_texts += [[few[int(i)] for i in generator.integers(0, 3, 90)] for _ in range(3)]
    dry_texts += [[int(t) for t in generator.integers(0, vocab, 12)] * 3 for _ in range(3)]
    breaking = {"dry_multiplier": 0.4, "dry_base": 1.2, "dry_sequence_breakers": [" the", "e", " a l", "x y z"]}
    for accepted in dry_texts:
        for chosen in [*dry, breaking]:
            case = run_chain([0.0] * vocab, accepted, chosen)
            # Of equal logits only what is not the commonest probability says anything.
            commonest = max(case["probabilities"])
            changed = [(t, p) for t, p in zip(case["ids"], case["probabilities"]) if p != commonest]
            cases.append(
                {"options": chosen, "accepted": accepted, "vocab": vocab,
                 "relative": [[t, float(f"{p / commonest:.6g}")] for t, p in changed]}
            )  # fmt: skip
    adapting = [
        run_adapting([make_logits(generator, 60, spread) for _ in range(8)], chosen)
        for chosen in [
            {"mirostat": 1}, {"mirostat": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.4},
            {"mirostat": 2, "mirostat_tau": 3.0}, {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
            {"adaptive_target": 0.5}, {"adaptive_target": 0.2, "adaptive_decay": 0.6},
        ]
        for spread in (1.0, 3.0)
    ]  # fmt: skip
    with open(sys.argv[2], "w", encoding="ascii") as file:
        rows = [json.dumps(case, separators=(",", ":")) for case in cases]
        file.write('{"cases": [\n' + ",\n".join(rows) + "\n],\n")
        rows = [json.dumps(case, separators=(",", ":")) for case in adapting]
        file.write('"adapting": [\n' + ",\n".join(rows) + "\n],\n")
        rows = [json.dumps(case, separators=(",", ":")) for case in infill_cases(numpy.random.default_rng(7))]
        file.write('"infill": [\n' + ",\n".join(rows) + "\n]}\n")


if __name__ == "__main__":
    main()
