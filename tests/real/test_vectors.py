"""Vectors and scores with all-MiniLM-L6-v2's weights, beside sentence-transformers and transformers; make_real_vectors.py wrote the latter's."""
import json
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

from common import EXPECTED, MODELS, RealModel, kvant, path_of
from texts import CLASSIFIER_SEED, DOCUMENTS, PAIRS, sentences

# The numbers are those of vectors of length 1; 32-bit sums have another order.
NUMBER_TOLERANCE = 5e-6
SCORE_TOLERANCE = 1e-4
TIE = 4e-6  # cosines that far apart may be in either order
# Cosines with the vectors of the F32 file: in the mean, and at least. The worst sentences are those like "No." and "?"; kvant had 0.99752,
# 0.99298 and 0.97786 there.
COSINES = {"Q8_0": (0.9995, 0.997), "Q5_K_M": (0.9985, 0.992), "Q4_K_M": (0.9965, 0.976)}


def vectors(model, texts):
    """float32 [texts, dimensions]"""
    with tempfile.TemporaryDirectory() as folder:
        lines, out = Path(folder) / "texts.jsonl", Path(folder) / "vectors.npy"
        lines.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
        kvant("embed", model, "--jsonl", lines, "--truncate", "--format", "npy", "-o", out)
        return np.load(out)


class MiniLM(RealModel):
    name = "minilm"

    @classmethod
    def setUpClass(cls):
        if not path_of(cls.name).exists():
            raise unittest.SkipTest(f"{path_of(cls.name)} is absent: ./dev models {cls.name}")
        cls.expected = json.loads((EXPECTED / "vectors.json").read_text(encoding="utf-8"))

    def test_vectors_are_those_of_sentence_transformers(self):
        texts = sentences()
        exact = vectors(path_of(self.name), texts)
        numbers = np.load(EXPECTED / "vectors.npy")
        self.assertEqual(len(exact), len(numbers))
        np.testing.assert_allclose(np.linalg.norm(exact, axis=1), 1, rtol=0, atol=1e-5)
        np.testing.assert_allclose(exact[:, ::8], numbers, rtol=0, atol=NUMBER_TOLERANCE)
        for kind, (mean, least) in COSINES.items():
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "quantized.gguf"
                kvant("quantize", path_of(self.name), file, kind)
                cosines = (vectors(file, texts).astype(np.float64) * exact).sum(1)
            print(f"{kind}: cosines {cosines.mean():.5f} in the mean, {cosines.min():.5f} at least")
            self.assertGreaterEqual(cosines.mean(), mean, kind)
            self.assertGreaterEqual(cosines.min(), least, kind)

    def test_documents_are_ranked_alike(self):
        documents = vectors(path_of(self.name), [document for document, _ in DOCUMENTS])
        questions = vectors(path_of(self.name), [question for _, question in DOCUMENTS])
        cosines = questions.astype(np.float64) @ documents.T.astype(np.float64)
        in_order = np.take_along_axis(cosines, np.array(self.expected["ranking"]), 1)
        self.assertLess(np.diff(in_order).max(), TIE)
        self.assertGreater((in_order[:, :3] - in_order[:, 1:4]).min(), self.expected["margin"] - TIE)

    def test_cross_encoder_scores_as_transformers(self):
        with tempfile.TemporaryDirectory() as folder:
            model = cross_encoder(Path(folder))
            for (query, document), score in zip(PAIRS, self.expected["scores"]):
                lines = Path(folder) / "document.txt"
                lines.write_text(document + "\n", encoding="utf-8")
                found = kvant("rerank", model, "-q", query, "-f", lines, "--json", "--raw-scores")
                self.assertAlmostEqual(json.loads(found)["score"], score, delta=SCORE_TOLERANCE, msg=query)


def cross_encoder(folder):
    """MiniLM's weights with a classifier of random ones, converted."""
    source = MODELS / "minilm"
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(source / name, folder / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    data = (source / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {name: {**entry, "data": data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]}
               for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__" and "position_ids" not in name}
    row = np.random.default_rng(CLASSIFIER_SEED).normal(0, 0.05, (1, config["hidden_size"])).astype(np.float32)
    tensors["classifier.weight"] = {"dtype": "F32", "shape": list(row.shape), "data": row.tobytes()}
    tensors["classifier.bias"] = {"dtype": "F32", "shape": [1], "data": np.float32([0.1]).tobytes()}
    header, size = {}, 0
    for name, entry in tensors.items():
        outer = name if name.startswith("classifier.") else f"bert.{name}"
        header[outer] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [size, size + len(entry["data"])]}
        size += len(entry["data"])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(entry["data"] for entry in tensors.values()))
    kvant("convert", folder, folder / "cross.gguf")
    return folder / "cross.gguf"


if __name__ == "__main__":
    unittest.main()
