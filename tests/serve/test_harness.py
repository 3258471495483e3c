"""What lm-evaluation-harness asks of a server (its models local-completions and local-chat-completions), and that it gets what
`kvant score` says in one process. Requests and the reading of answers are those of the harness, written anew."""
import concurrent.futures
import json
import random
import unittest

from common import CHAT_MODEL, TEXT_MODEL, ServerCase, run_kvant

LINES = ["What say you to my suit?", "I pray you, sir, go with us.", "My lord, the king is dead.", "Come, let us to the duke of York.",
         "Thou art a traitor to the crown.", "Good morrow, cousin.", "Farewell, my gentle lord of Gloucester.", "God save the king.",
         "The people are the city.", "Here comes the lady of the house."]
BATCH = 8


def pairs():
    """Contexts and continuations, 50 of them: each line's own end, and ends of others."""
    chance, out = random.Random(9), []
    for line in LINES:
        words = line.split()
        cut = max(1, len(words) // 2)
        for end in [" ".join(words[cut:])] + [" ".join(chance.choice(LINES).split()[2:]) or "so" for _ in range(4)]:
            out.append((" ".join(words[:cut]), " " + end))
    return out


class Harness(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "8")

    def encode(self, text):
        return self.server.post("/v1/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def score(self, batch):
        """A batch of tokens, and how many of each are its context -> log-probabilities of the rest, and whether all were the likeliest."""
        data = self.server.post("/v1/completions", {"model": "m", "prompt": [tokens for tokens, _ in batch], "temperature": 0, "max_tokens": 1,
                                                    "logprobs": 1, "seed": 1234, "echo": True})
        out = []
        for choice, (_, first) in zip(sorted(data["choices"], key=lambda one: one["index"]), batch, strict=True):
            listed = choice["logprobs"]
            found, top = listed["token_logprobs"][first:-1], listed["top_logprobs"][first:-1]
            out.append((found, all(one == max(likeliest.values()) for one, likeliest in zip(found, top, strict=True))))
        return out

    def test_scores(self):
        """In batches of 8 by 8 threads, to the last digit."""
        self.assertLessEqual({"eos_token", "bos_token", "pad_token", "chat_template"}, set(self.server.ask("GET", "/tokenizer_info")[2]))
        prefix = self.server.post("/tokenize", {"content": "", "add_special": True})["tokens"]  # BOS
        rows, texts = [], []
        for context, continuation in pairs():
            before = self.encode(context)
            whole = self.encode(context + continuation)
            self.assertEqual(whole[:len(before)], before)
            rows.append(([*prefix, *whole], len(prefix) + len(before)))
            texts.append(context + continuation)
        batches = [rows[i:i + BATCH] for i in range(0, len(rows), BATCH)]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            found = sum(threads.map(self.score, batches), [])
        likeliest = 0
        for (tokens, first), text, (log_probs, is_greedy) in zip(rows, texts, found, strict=True):
            code, out, error = run_kvant("score", TEXT_MODEL, "-p", text, "--json", "--top", "1")
            self.assertEqual(code, 0, error)
            scored = json.loads(out)["tokens"]
            self.assertEqual([token["id"] for token in scored], tokens)
            self.assertEqual(log_probs, [token["logprob"] for token in scored[first:]], text)
            self.assertEqual(is_greedy, all(token["rank"] == 1 for token in scored[first:]), text)
            likeliest += is_greedy
        self.assertTrue(likeliest < len(rows))

    def test_rolling(self):
        """A whole text behind BOS, as perplexities of words are computed."""
        text = " ".join(LINES)
        tokens = self.server.post("/tokenize", {"content": text, "add_special": True})["tokens"]
        (log_probs, _), = self.score([(tokens, 1)])
        _, out, _ = run_kvant("score", TEXT_MODEL, "-p", text, "--json")
        self.assertAlmostEqual(sum(log_probs), json.loads(out)["logprob_sum"], delta=1e-4)

    def test_generation(self):
        """Texts that end at the harness' stops; the tokens of a prompt are text again."""
        prompt = "ROMEO:"
        body = {"model": "m", "prompt": [prompt], "max_tokens": 30, "temperature": 0, "stop": ["\n\n", "JULIET"], "seed": 1234}
        choice, = self.server.post("/v1/completions", body)["choices"]
        self.assertNotIn("\n\n", choice["text"])
        self.assertEqual(self.server.post("/v1/detokenize", {"tokens": self.encode(prompt)})["prompt"], prompt)


class Chats(ServerCase):
    model = CHAT_MODEL

    def test_generation(self):
        body = {"messages": [{"role": "user", "content": "What is 17 + 25?", "type": "text"}], "model": "m", "max_tokens": 60, "temperature": 0,
                "stop": ["Question:"], "seed": 1234}
        choice, = self.server.post("/v1/chat/completions", body)["choices"]
        self.assertIn("42", choice["message"]["content"])


if __name__ == "__main__":
    unittest.main()
