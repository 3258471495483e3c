"""Shows the lines of a file that are nearest to a question: search.py EMBEDDING_MODEL.gguf LINES.txt QUESTION"""
import sys

import numpy as np

import kvant


def main(path, lines_path, question):
    with open(lines_path, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line]
    with kvant.Embedder(path) as embedder:
        of_documents, of_queries = (name if name in embedder.prompts else None for name in ("document", "query"))
        cosines = embedder.encode(lines, prompt_name=of_documents) @ embedder.encode([question], prompt_name=of_queries)[0]
    for i in np.argsort(-cosines, kind="stable")[:3]:
        print(f"{cosines[i]:.3f}  {lines[i]}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: search.py EMBEDDING_MODEL.gguf LINES.txt QUESTION")
    try:
        main(*sys.argv[1:])
    except kvant.KvantError as error:
        sys.exit(f"search.py: {error}")
