"""Continues a text with the likeliest tokens: complete.py MODEL.gguf TEXT"""
import sys

import kvant


def main(path, text):
    with kvant.Model(path) as model:
        for piece in kvant.stream(model, text, max_tokens=32, temperature=0):
            print(piece.text, end="", flush=True)
        print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: complete.py MODEL.gguf TEXT")
    try:
        main(*sys.argv[1:])
    except kvant.KvantError as error:
        sys.exit(f"complete.py: {error}")
