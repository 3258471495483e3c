#!/usr/bin/env python3
"""Logits of llama.cpp for a released model, for compare_real_models.py: run by a Python with xllamacpp==2026.10.11549 and numpy.

    llama_cpp_real_models.py MODEL TOKENS.json CHUNK OUT.npy     behind each token, CHUNK tokens at once; the cache is f16
"""
import ctypes
import json
import os
import struct
import sys

import numpy as np
import xllamacpp.xllamacpp as wheel

from compare_with_llama_cpp import Batch, Params

library = ctypes.CDLL(wheel.__file__)


def function(name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


def batch_of(tokens, first):
    """A batch of one sequence whose every token wants its logits; and what must live as long."""
    count = len(tokens)
    ids = (ctypes.c_int32 * count)(*tokens)
    positions = (ctypes.c_int32 * count)(*range(first, first + count))
    counts = (ctypes.c_int32 * count)(*[1] * count)
    sequence = (ctypes.c_int32 * 1)(0)
    sequences = (ctypes.c_void_p * count)(*[ctypes.addressof(sequence)] * count)
    wanted = (ctypes.c_int8 * count)(*[1] * count)
    kept = (ids, positions, counts, sequence, sequences, wanted)
    address = ctypes.addressof
    return Batch(count, address(ids), None, address(positions), address(counts), address(sequences), address(wanted)), kept


def logits(path, tokens, chunk):
    model = function("llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, Params)(
        path.encode(), function("llama_model_default_params", Params)())
    if not model:
        raise RuntimeError(f"{path}: llama.cpp does not load the file")
    vocab = function("llama_vocab_n_tokens", ctypes.c_int32, ctypes.c_void_p)(
        function("llama_model_get_vocab", ctypes.c_void_p, ctypes.c_void_p)(model))
    params = function("llama_context_default_params", Params)()
    struct.pack_into("<III", params.bytes, 0, len(tokens), chunk, chunk)  # n_ctx, n_batch, n_ubatch
    context = function("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, Params)(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    # One thread: on a machine with other work several wait for one another, and the results are the same.
    function("llama_set_n_threads", None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(context, 1, 1)
    decode = function("llama_decode", ctypes.c_int32, ctypes.c_void_p, Batch)
    row_of = function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int32)
    out = np.empty((len(tokens), vocab), np.float32)
    for first in range(0, len(tokens), chunk):
        part = tokens[first:first + chunk]
        batch, _kept = batch_of(part, first)
        if decode(context, batch) != 0:
            raise RuntimeError("llama.cpp cannot decode")
        for i in range(len(part)):
            out[first + i] = np.ctypeslib.as_array(row_of(context, i), (vocab,))
    return out


def main():
    path, tokens, chunk, output = sys.argv[1:]
    with open(tokens, encoding="ascii") as file:
        np.save(output, logits(path, json.load(file), int(chunk)))
    os._exit(0)  # it may crash while it ends


if __name__ == "__main__":
    main()
