"""Chats with released models: answers as transformers writes them; six turns in which a message is taken back and a file continued."""
import json
import tempfile
import unittest
from pathlib import Path

from common import RealModel, dequantized, kvant, path_of

TURNS = ("My name is Ada and I live in Lisbon.", "What is a good breakfast?", "And without eggs?", "How long does it take to make?",
         "What is my name?", "Write one sentence about the city where I live.")
TAKEN_BACK = "Tell me a joke about a lighthouse."
OPTIONS = ("--temp", "0", "-n", "32", "--strict")  # strict: the bits do not depend on what the cache held
PROMPT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"
          "{}<|im_end|>\n<|im_start|>assistant\n")  # as transformers renders the template of SmolLM2


class Chats:
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def chat(self, *lines, options=OPTIONS):
        """The messages of a conversation whose lines are typed, from the file that /save writes at its end."""
        end = self.folder / "end.json"
        kvant("chat", path_of(self.name), *options, stdin="\n".join([*lines, f"/save {end}"]) + "\n")
        return json.loads(end.read_text(encoding="utf-8"))["messages"]

    def test_answers_are_those_of_transformers(self):
        with dequantized(self.name) as file:
            for row in self.expected["answers"]:
                found = kvant("chat", file, "-p", row["question"], "--single-turn", "--temp", "0", "-n", len(row["answer"]), "--kv-type", "f32")
                wanted = kvant("tokenize", file, "--decode", "-p", " ".join(map(str, row["answer"])))
                self.assertEqual(found.strip(), wanted.strip())

    def test_prompts_are_those_of_transformers(self):
        for row in self.expected["answers"]:
            messages = self.folder / "messages.json"
            messages.write_text(json.dumps([{"role": "user", "content": row["question"]}]))
            ids = [int(word) for word in kvant("template", path_of(self.name), messages, "--ids").split()]
            self.assertEqual(ids, row["prompt"])
            if self.name == "smollm2":
                self.assertEqual(kvant("template", path_of(self.name), messages), PROMPT.format(row["question"]))

    def test_six_turns_with_undo_save_and_load(self):
        plain = self.chat(*TURNS)
        self.assertEqual([one["content"] for one in plain if one["role"] == "user"], list(TURNS))
        self.assertEqual(sum(one["role"] == "assistant" and one["content"] != "" for one in plain), len(TURNS))
        saved = self.folder / "saved.json"
        undone = self.chat(*TURNS[:3], TAKEN_BACK, "/undo", *TURNS[3:5], f"/save {saved}", TURNS[5])
        self.assertEqual(undone, plain)
        self.assertEqual(self.chat(f"/load {saved}", TURNS[5]), plain)
        cache = self.folder / "saved.json.kvs"
        self.assertGreater(cache.stat().st_size, 0)
        cache.unlink()  # computed again, from the messages
        self.assertEqual(self.chat(f"/load {saved}", TURNS[5]), plain)


class SmolLM2(Chats, RealModel):
    name = "smollm2"


class Qwen2(Chats, RealModel):
    name = "qwen2.5-coder-0.5b"


if __name__ == "__main__":
    unittest.main()
