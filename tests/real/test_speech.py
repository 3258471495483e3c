"""Released Whisper models in CTranslate2's form: converted, they write what faster-whisper does, and transcribe as openai-whisper does.

tests/reference/make_real_speech.py writes the frames and the texts, compare_speech.py the transcripts. By hand, in this folder:
    KVANT_PROGRAM=../../build/release/kvant python3 -m unittest -v test_speech
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected"
MODELS = Path(os.environ.get("KVANT_REAL_MODELS", ROOT / "build/models"))
PROGRAM = os.environ.get("KVANT_PROGRAM", str(ROOT / "build/release/kvant"))


def kvant(*arguments):
    run = subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise AssertionError(f"kvant {' '.join(map(str, arguments))} ends with {run.returncode}: {run.stderr}")
    return run.stdout


class Speech:
    """A test on the folder `name`."""

    @classmethod
    def setUpClass(cls):
        cls.source = MODELS / cls.name
        if not (cls.source / "model.bin").exists():
            raise unittest.SkipTest(f"{cls.source} is absent: ./dev models {cls.name}")
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = Path(cls.folder.name) / "model.gguf"
        kvant("convert", cls.source, cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_texts_are_those_of_faster_whisper(self):
        for sound, heard in json.loads((EXPECTED / "speech.json").read_text(encoding="utf-8")).items():
            text = kvant("run", self.model, "--frames", EXPECTED / f"speech.{sound}.npy", "--quiet")
            self.assertEqual(text.strip(), heard[self.name]["text"].strip(), sound)

    def test_transcripts_are_those_of_openai(self):
        expected = json.loads((EXPECTED / "transcripts.json").read_text(encoding="utf-8"))[self.name]
        found = json.loads(kvant("transcribe", self.model, EXPECTED / "spoken.flac", "--format", "json", "--quiet"))
        self.assertEqual((found["language"], found["text"]), (expected["language"], expected["text"]))
        self.assertEqual(len(found["segments"]), len(expected["segments"]))
        for ours, theirs in zip(found["segments"], expected["segments"]):
            for key in ("seek", "start", "end", "text", "tokens"):
                self.assertEqual(ours[key], theirs[key], key)
            # The cache holds halves, and sums have another order.
            self.assertAlmostEqual(ours["avg_logprob"], theirs["avg_logprob"], delta=2e-3)
            self.assertAlmostEqual(ours["no_speech_prob"], theirs["no_speech_prob"], delta=2e-3)

    def test_list_of_tokens_stands_in_for_a_tokenizer(self):
        text = "Ask not what your country can do for you;\n  don't, 1961: naïve café, 東京."
        expected = kvant("tokenize", self.model, "-p", text)
        with tempfile.TemporaryDirectory() as folder:
            for file in self.source.iterdir():
                if file.name != "tokenizer.json":
                    shutil.copy(file, folder)
            other = Path(folder) / "other.gguf"
            kvant("convert", folder, other)
            self.assertEqual(kvant("tokenize", other, "-p", text), expected)


class TinyEnglish(Speech, unittest.TestCase):
    name = "whisper-tiny.en"


class Base(Speech, unittest.TestCase):
    name = "whisper-base"


if __name__ == "__main__":
    unittest.main()
