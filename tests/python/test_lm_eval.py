"""The adapter of lm-evaluation-harness (PyPI: lm_eval): multiple choice gives what `kvant perplexity --multiple-choice` gives on the same
questions. Where the harness is not installed, the few names that the adapter takes from it are stood in for, and only what the harness
itself does with a local task is left out. No network is needed."""
import importlib.util
import json
import os
import random
import sys
import tempfile
import types
import unittest
from dataclasses import dataclass
from pathlib import Path

import kvant
from common import ROOT, SHAKESPEARE, log_softmax, logit_rows, model, program_json

CHOICES = 4
# Lines of the play the model was trained on, so that there is something to know.
LINES = ["What say you to my suit?", "I pray you, sir, go with us.", "My lord, the king is dead.", "O, that I were a man of war!",
         "Come, let us to the duke of York.", "Thou art a traitor to the crown.", "Good morrow, cousin.", "He hath no friends but what are foes.",
         "I will not be the man to speak of this.", "Here comes the lady of the house.", "The people are the city.", "Let me have leave to speak.",
         "Farewell, my gentle lord of Gloucester.", "What, is he gone to the prince?", "Speak, speak.", "God save the king."]


def tasks():
    """Contexts and how they go on, beside how others do."""
    draw, out = random.Random(5), []
    for number, line in enumerate(LINES):
        words = line.split()
        cut = max(1, len(words) // 2)
        ends = [" ".join(words[cut:])]
        while len(ends) < CHOICES:
            other = draw.choice(LINES).split()
            end = " ".join(other[max(1, len(other) // 2):])
            ends += [end] if end not in ends else []
        answer = number % CHOICES
        ends[0], ends[answer] = ends[answer], ends[0]
        out.append({"context": " ".join(words[:cut]), "choices": ends, "answer": answer})
    return out


INSTALLED = importlib.util.find_spec("lm_eval") is not None


def stand_in():
    """Modules with what the adapter takes from lm_eval.api."""
    @dataclass
    class Instance:
        request_type: str
        doc: dict
        args: tuple
        idx: int

    names = {"lm_eval": {}, "lm_eval.models": {}, "lm_eval.api": {}, "lm_eval.api.instance": {"Instance": Instance},
             "lm_eval.api.model": {"LM": type("LM", (), {})},
             "lm_eval.api.registry": {"register_model": lambda name: lambda kind: kind}}
    for name, members in names.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
        if not INSTALLED:
            stand_in()
        from kvant.lm_eval import KvantLM

        cls.lm = KvantLM(str(SHAKESPEARE), context=256, kv_type="f32")

    def evaluate(self, folder):
        import lm_eval
        from lm_eval.tasks import TaskManager

        file = Path(folder) / "questions.jsonl"
        file.write_text("".join(json.dumps(task) + "\n" for task in tasks()))
        (Path(folder) / "lines.yaml").write_text(f"""task: lines
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_target: answer
doc_to_choice: choices
target_delimiter: " "
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
""")
        found = lm_eval.simple_evaluate(model=self.lm, tasks=["lines"], bootstrap_iters=0,
                                        task_manager=TaskManager(include_path=folder, include_defaults=False))
        return file, found["results"]["lines"]

    def test_choices_are_those_of_the_program(self):
        from lm_eval.api.instance import Instance

        right = per_byte = 0
        for task in tasks():
            requests = [Instance("loglikelihood", {}, (task["context"], " " + choice), number)
                        for number, choice in enumerate(task["choices"])]
            scores = [score for score, _ in self.lm.loglikelihood(requests)]
            right += scores.index(max(scores)) == task["answer"]
            scores = [score / len(choice.encode()) for score, choice in zip(scores, task["choices"])]
            per_byte += scores.index(max(scores)) == task["answer"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "questions.jsonl"
            file.write_text("".join(json.dumps(task) + "\n" for task in tasks()))
            expected = program_json("perplexity", SHAKESPEARE, "--multiple-choice", file, "-c", 256, "--kv-type", "f32")
        self.assertAlmostEqual(right / len(LINES), expected["accuracy"], places=9)
        self.assertAlmostEqual(per_byte / len(LINES), expected["accuracy_per_byte"], places=9)
        self.assertTrue(0 < right < len(LINES))  # else nothing would be compared

    def test_messages_go_through_the_models_template(self):
        from kvant.lm_eval import KvantLM

        dialogue = KvantLM(str(ROOT / "models/dialogue/dialogue.gguf"), context=256)
        said = [{"role": "user", "content": "What day comes after Monday?"}]
        text = dialogue.apply_chat_template(said)
        self.assertIn("What day comes after Monday?", text)
        self.assertEqual(dialogue.tokenizer_.prompt(text).tolist(),
                         dialogue.tokenizer_.apply_chat_template(said, tokenize=True).tolist())
        self.assertTrue(text.startswith(dialogue.apply_chat_template(said, add_generation_prompt=False)))

    @unittest.skipUnless(INSTALLED, "lm_eval is not installed")
    def test_the_harness_still_finds_its_own_models(self):
        from lm_eval.api.registry import get_model

        self.assertEqual(get_model("local-completions").__name__, "LocalCompletionsAPI")

    @unittest.skipUnless(INSTALLED, "lm_eval is not installed")
    def test_a_local_task_gives_what_the_program_gives(self):
        with tempfile.TemporaryDirectory() as folder:
            file, found = self.evaluate(folder)
            expected = program_json("perplexity", SHAKESPEARE, "--multiple-choice", file, "-c", 256, "--kv-type", "f32")
        self.assertAlmostEqual(found["acc,none"], expected["accuracy"], places=6)
        self.assertGreater(found["acc,none"], 1.2 / CHOICES)
        self.assertAlmostEqual(found["acc_norm,none"], expected["accuracy_per_byte"], places=6)

    def test_log_probabilities_are_those_of_the_logits(self):
        from lm_eval.api.instance import Instance

        pairs = [("ROMEO:", "\nO"), ("", "ROMEO"), ("Come, let us", " to the duke of York.")]
        requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
        for (context, continuation), (found, greedy) in zip(pairs, self.lm.loglikelihood(requests)):
            tokens, first = self.lm._pair(context, continuation)
            rows = log_softmax(logit_rows(tokens, SHAKESPEARE, "--kv-type", "f32"))
            expected = sum(rows[i - 1, tokens[i]] for i in range(first, len(tokens)))
            self.assertAlmostEqual(found, expected, delta=0.05)
            self.assertEqual(greedy, all(rows[i - 1].argmax() == tokens[i] for i in range(first, len(tokens))))

    def test_white_space_at_the_end_of_a_context_is_scored(self):
        from lm_eval.api.instance import Instance

        pairs = [("ROMEO:\n", "O"), ("Come, let us", " to"), ("Come, let us ", "to the duke"), ("ROMEO: \n\n", "Farewell"), ("ROMEO:\t", "x"),
                 (" \n", "O"), ("", "\nO")]
        for context, continuation in pairs:
            inner = context.rstrip()
            moved = (inner, context[len(inner):] + continuation)
            with self.subTest(context=context):
                tokens, first = self.lm._pair(context, continuation)
                # All that the context alone has is not scored, and all else is.
                alone = self.lm.tok_encode(inner) or [2]
                self.assertEqual((list(tokens[:first]), list(tokens[first:])), (alone, self.lm.tok_encode("".join(moved))[len(alone):]))
                found = self.lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in ((context, continuation), moved)])
                self.assertEqual(found[0], found[1])
                if INSTALLED and inner:
                    self.assertEqual(self.harness_pair(context, continuation), (alone, list(tokens[first:])))

    def harness_pair(self, context, continuation):
        """As the harness' own class of models with a tokenizer divides them."""
        import types

        from lm_eval.api.model import TemplateLM

        return TemplateLM._encode_pair(types.SimpleNamespace(backend="causal", tok_encode=self.lm.tok_encode), context, continuation)

    def test_texts_without_room_for_a_prompt_are_refused(self):
        from lm_eval.api.instance import Instance

        for most in (256, 300):
            with self.assertRaisesRegex(kvant.InvalidError, rf"max_gen_toks: expected less than the context of 256 tokens, found {most}"):
                self.lm.generate_until([Instance("generate_until", {}, ("ROMEO:", {"max_gen_toks": most}), 0)])
        long = "ROMEO: " + "Good morrow, cousin. " * 40
        text, = self.lm.generate_until([Instance("generate_until", {}, (long, {"max_gen_toks": 250, "until": []}), 0)])
        last = self.lm.tokenizer_.prompt(long)[-6:]
        self.assertEqual(text, kvant.generate(self.lm.runner, last, max_tokens=250, temperature=0).text)

    def test_long_texts_are_scored_in_windows(self):
        from lm_eval.api.instance import Instance

        text = " ".join(LINES) * 12
        found, = self.lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
        tokens = kvant.Tokenizer(model()).encode(text)
        self.assertGreater(len(tokens), 512)
        mean = found / (len(tokens) - 1)
        self.assertTrue(-12 < mean < -0.5, mean)
        whole = kvant.Runner(model(), kv_type="f32", sequences=2).score([tokens[:200]])[0].log_probs.sum()
        first, = self.lm.loglikelihood_rolling(
            [Instance("loglikelihood_rolling", {}, (kvant.Tokenizer(model()).decode(tokens[1:200]),), 0)])
        self.assertAlmostEqual(first, float(whole), delta=0.5)

    def test_texts_end_at_stop_texts(self):
        from lm_eval.api.instance import Instance

        whole = kvant.generate(model(), "ROMEO:", max_tokens=30, temperature=0, runner_options={"kv_type": "f32"}).text
        stop = whole[14:18]
        text, = self.lm.generate_until([Instance("generate_until", {}, ("ROMEO:", {"until": [stop], "max_gen_toks": 30}), 0)])
        self.assertEqual(text, whole[:whole.index(stop)])


if __name__ == "__main__":
    unittest.main()
