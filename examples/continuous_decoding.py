"""Appends a prompt, generates, goes back to a checkpoint and generates again: the second time gives the same tokens, since a rewound
sequence is what it was. The loop is one of ONNX Runtime GenAI's, with one import changed.

    continuous_decoding.py MODEL.gguf "ROMEO:"
"""
import sys

import kvant as og


def main(path, prompt):
    model = og.Model(path)
    tokenizer = og.Tokenizer(model)
    params = og.GeneratorParams(model)
    generator = og.Generator(model, params)

    generator.append_tokens(tokenizer.encode(prompt))
    for _ in range(10):
        generator.generate_next_token()
    checkpoint_length = generator.token_count()

    continuations = []
    for _ in range(2):
        for _ in range(5):
            generator.generate_next_token()
        text = generator.get_sequence(0)
        continuations.append(text[checkpoint_length:].tolist())
        print(f"{tokenizer.decode(text)}\n--- {len(text)} tokens")
        generator.rewind_to(checkpoint_length)
    if continuations[0] != continuations[1]:
        sys.exit(f"continuous_decoding.py: {continuations[0]} became {continuations[1]}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: continuous_decoding.py MODEL.gguf PROMPT")
    try:
        main(*sys.argv[1:])
    except og.KvantError as error:
        sys.exit(f"continuous_decoding.py: {error}")
