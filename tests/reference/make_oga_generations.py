#!/usr/bin/env python3
"""Write a tiny random Llama and what ONNX Runtime GenAI's Generator finds on it.

    beam_search/oga.gguf   one layer, heads of 16, which is the least that the program takes
    beam_search/oga.json   a row for each search: prompts, options of the search, the sequences in the end; for single texts also token counts
                           and next tokens after each step, for searches how long the sequences were that it could be asked for at each step

The model is made as those of make_beam_fixtures.py and put through the package's own builder, in float32.

Usage: make_oga_generations.py [PYTHON]
The pinned packages are onnxruntime-genai 0.18.0, transformers 4.57.1 and torch 2.8.0; the package's builder, which PYTHON runs, needs
transformers 5.24.0.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

import make_beam_fixtures as fixtures

OUT = Path(__file__).parent / "beam_search/oga.json"
PROMPTS = [[1], [1, 5, 9], [1, 17, 33, 8, 21], [1, 30, 30, 4, 12, 25, 7, 11]]
MAX_LENGTH = 24
BEAMS = [
    dict(num_beams=2),
    dict(num_beams=3, num_return_sequences=3, length_penalty=0.5),
    dict(num_beams=4, num_return_sequences=4, early_stopping=False),
    dict(num_beams=4, num_return_sequences=2, length_penalty=2.0, early_stopping=False),
    dict(num_beams=3, num_return_sequences=2, repetition_penalty=1.4),
    dict(num_beams=3, num_return_sequences=2, no_repeat_ngram_size=2),
    dict(num_beams=5, num_return_sequences=5, min_length=14, length_penalty=-0.5),
]
TEXTS = [
    dict(),
    dict(repetition_penalty=1.3),
    dict(min_length=16),
    dict(no_repeat_ngram_size=2),
    dict(no_repeat_ngram_size=3, repetition_penalty=1.1),
]


def build(folder):
    fixtures.HEAD_DIM, fixtures.LAYERS = 16, 1
    config, kind, _ = fixtures.MODELS["mha"]
    model = fixtures.make_model(config, kind, dict(num_attention_heads=2, num_key_value_heads=2), seed=1)
    fixtures.write_gguf(model, OUT.with_suffix(".gguf"))
    model.config.eos_token_id = 2
    model.save_pretrained(f"{folder}/hf")
    vocabulary = {f"t{i}": i for i in range(fixtures.VOCAB)}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                 "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t3"}}
    Path(f"{folder}/hf/tokenizer.json").write_text(json.dumps(tokenizer))
    Path(f"{folder}/hf/tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t3", "bos_token": "t1", "eos_token": "t2", "pad_token": "t0"}))
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    subprocess.run([python, "-m", "onnxruntime_genai.models.builder", "-i", f"{folder}/hf", "-o", f"{folder}/oga", "-p", "fp32",
                    "-e", "cpu", "-c", f"{folder}/cache"], check=True, stdout=subprocess.DEVNULL)
    settings = json.loads(Path(f"{folder}/oga/genai_config.json").read_text())
    settings["model"].update(eos_token_id=2, pad_token_id=0)
    settings["search"].update(do_sample=False, top_k=1, top_p=1.0, temperature=1.0)
    Path(f"{folder}/oga/genai_config.json").write_text(json.dumps(settings))
    return og.Model(f"{folder}/oga")


def generator_of(model, options):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=MAX_LENGTH, **options)
    return og.Generator(model, params)


def run(model, prompts, options):
    generator = generator_of(model, options | ({"batch_size": len(prompts)} if len(prompts) > 1 else {}))
    width = max(map(len, prompts))
    rows = np.array([[0] * (width - len(prompt)) + prompt for prompt in prompts], np.int32)
    generator.append_tokens(rows if len(prompts) > 1 else rows[0])
    steps = []
    while not generator.is_done():
        generator.generate_next_token()
        if options.get("num_beams", 1) == 1:
            steps.append([generator.token_count(), *generator.get_next_tokens().tolist()])
    texts = [generator.get_sequence(i).tolist() for i in range(len(prompts) * options.get("num_return_sequences", 1))]
    return {"prompts": prompts, "options": options, "texts": texts, "steps": steps}


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = build(folder)
        rows = [run(model, [prompt], options) for prompt in PROMPTS for options in BEAMS + TEXTS]
        rows += [run(model, [prompt, [*prompt[:-1], prompt[-1] + 1]], options) for prompt in PROMPTS[1:] for options in TEXTS[:2]]
    OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(len(rows), "rows")


if __name__ == "__main__":
    main()
