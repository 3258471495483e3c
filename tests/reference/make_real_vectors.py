#!/usr/bin/env python3
"""Write what sentence-transformers and transformers make of the texts of tests/real/texts.py with all-MiniLM-L6-v2's weights.

    real/expected/vectors.npy    float32 [1000, 48]: every eighth number of each sentence's vector
    real/expected/vectors.json   {"ranking": the documents for each question, the nearest first, "margin": the least difference of two
                                 neighbours' cosines among the first three, "scores": the logit of each pair by a cross-encoder}

Usage: make_real_vectors.py FOLDER    (FOLDER: minilm, as `./dev models minilm` makes it)
The pinned packages are sentence-transformers 5.7.0, transformers 4.57.1 and torch 2.15.0.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer

REAL = Path(__file__).resolve().parents[1] / "real"
sys.path.insert(0, str(REAL))
from texts import CLASSIFIER_SEED, DOCUMENTS, PAIRS, sentences  # noqa: E402


def cross_encoder(folder):
    config = transformers.AutoConfig.from_pretrained(folder, num_labels=1)
    body = transformers.AutoModel.from_pretrained(folder)
    model = transformers.BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(body.state_dict())
    row = np.random.default_rng(CLASSIFIER_SEED).normal(0, 0.05, (1, config.hidden_size)).astype(np.float32)
    model.classifier.weight.data = torch.from_numpy(row)
    model.classifier.bias.data[:] = 0.1
    return model.double()


def main(folder):
    encoder = SentenceTransformer(folder, device="cpu")
    vectors = encoder.encode(sentences(), batch_size=1)
    documents = encoder.encode([document for document, _ in DOCUMENTS], batch_size=1)
    questions = encoder.encode([question for _, question in DOCUMENTS], batch_size=1)
    cosines = questions.astype(np.float64) @ documents.T.astype(np.float64)
    ranking = np.argsort(-cosines, axis=1, kind="stable")
    in_order = np.take_along_axis(cosines, ranking, 1)
    model = cross_encoder(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        scores = [float(model(**tokenizer(*pair, return_tensors="pt")).logits[0, 0]) for pair in PAIRS]
    np.save(REAL / "expected/vectors.npy", vectors[:, ::8])
    content = {"ranking": ranking.tolist(), "margin": float((in_order[:, :-1] - in_order[:, 1:])[:, :3].min()), "scores": scores}
    (REAL / "expected/vectors.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    print("first documents that are right:", int((ranking[:, 0] == np.arange(len(DOCUMENTS))).sum()), "of", len(DOCUMENTS), "least margin", content["margin"],
          "least of all", float((in_order[:, :-1] - in_order[:, 1:]).min()))
    return vectors


if __name__ == "__main__":
    vectors = main(sys.argv[1])
    if len(sys.argv) > 2:
        np.save(sys.argv[2], vectors)
