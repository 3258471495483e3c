"""Who goes first: passes are counted, not seconds. tests/engine/generate/prompt_turns_test.cpp has a clock of its own."""
import concurrent.futures
import unittest

from common import ENDLESS, LONG, TEXT_MODEL, Server, ServerCase, leave

TEXTS = "/v1/completions"
SLOW = {"KVANT_ISA": "scalar"}


def ids(count, first=0):
    return [5 + (first + i * 7) % 90 for i in range(count)]


class Slices(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "4", "--stall-ms", "1", "--no-cache-prompt", *LONG)

    def test_no_step_goes_without_the_text(self):
        """While ten prompts of 4000 tokens are read a text gets a token in every step, and no step takes much of a prompt."""
        text = self.server.begin(TEXTS, ENDLESS)
        self.server.wait_until(lambda metrics: metrics["llamacpp:tokens_predicted_total"] > 20)
        before = self.server.metrics()
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            bodies = [{"prompt": ids(4000, i), "max_tokens": 1, "temperature": 0, "ignore_eos": True} for i in range(10)]
            list(threads.map(lambda body: self.server.post(TEXTS, body), bodies))
        # A pass is counted behind the answers that come from it.
        read_all = before["llamacpp:prompt_tokens_total"] + 40000
        after = self.server.wait_until(lambda metrics: metrics["llamacpp:prompt_tokens_total"] >= read_all)
        steps, made, read = (after["llamacpp:" + name] - before["llamacpp:" + name]
                             for name in ("n_decode_total", "tokens_predicted_total", "prompt_tokens_total"))
        self.assertEqual(read, 40000)
        self.assertGreaterEqual(made + 1, steps)  # the last step may not yet have been counted
        self.assertGreaterEqual(steps, 40000 / 512)
        leave(text, True)

    def test_slices(self):
        """A prompt is read in as many pieces beside a text."""
        text = self.server.begin(TEXTS, ENDLESS)
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
        events = self.server.stream(TEXTS, {"prompt": ids(4000), "max_tokens": 1, "return_progress": True})
        done = [event["prompt_progress"]["processed"] for event in events if "prompt_progress" in event]
        self.assertEqual((done[0], done[-1]), (0, 4000))
        self.assertLessEqual(max(later - one for one, later in zip(done, done[1:])), 512)
        leave(text, True)


class Crowds(unittest.TestCase):
    def test_short_ones_do_not_wait(self):
        """Among 30 texts without an end, and behind a long prompt, a short one is answered while the long one is read."""
        with Server(TEXT_MODEL, "--parallel", "32", "-c", "9000", "--no-cache-prompt", threads=1, environment=SLOW) as server:
            texts = [server.begin(TEXTS, ENDLESS) for _ in range(30)]
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 30)
            long_one = server.begin(TEXTS, {"prompt": ids(8000), "max_tokens": 1})
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 31)
            before = server.metrics()
            self.assertEqual(server.post(TEXTS, {"prompt": ids(60), "max_tokens": 2, "ignore_eos": True})["usage"]["completion_tokens"], 2)
            # The short one is counted until the pass after its answer; then the long one is still there.
            after = server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] <= 31)
            self.assertEqual(after["llamacpp:requests_processing"], 31)
            self.assertGreater(after["llamacpp:prompt_tokens_total"], before["llamacpp:prompt_tokens_total"])
            for connection in (*texts, long_one):
                leave(connection, False)


class Company(unittest.TestCase):
    def test_texts_that_share_less_than_a_block(self):
        """Beside a text that begins with the same few tokens another one has the bits that it has alone."""
        answers = []
        for company in (False, True):
            with Server(TEXT_MODEL, "--parallel", "2", *LONG) as server:
                other = server.begin(TEXTS, {**ENDLESS, "prompt": ids(40), "stream": True}) if company else None
                if company:
                    other.getresponse().readline()
                for shared in (1, 31):
                    body = {"prompt": ids(shared) + ids(64 - shared, 3), "max_tokens": 3, "temperature": 0, "logprobs": 1, "ignore_eos": True}
                    answer = server.post(TEXTS, body)
                    answers.append((answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                                    answer["choices"][0]["logprobs"]["token_logprobs"]))
                if company:
                    leave(other, True)
        self.assertEqual(answers[:2], answers[2:])
        self.assertEqual([cached for cached, _ in answers], [0] * 4)


class Prefixes(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "8", *LONG)

    def test_a_new_prefix_of_many_is_computed_once(self):
        prefix = ids(2000)
        before = self.server.metrics()["llamacpp:prompt_tokens_total"]
        bodies = [{"prompt": [*prefix, *ids(10, 300 + i)], "max_tokens": 2} for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda body: self.server.post(TEXTS, body), bodies))
        self.assertLessEqual(self.server.metrics()["llamacpp:prompt_tokens_total"] - before, 2000 + 8 * 10 + 64)
        ninth = self.server.post(TEXTS, {"prompt": [*prefix, 310], "max_tokens": 2})["usage"]
        self.assertGreaterEqual(ninth["prompt_tokens_details"]["cached_tokens"], 1984)

    def test_samples_have_one_prompt(self):
        """It is computed once for all of them."""
        before = self.server.metrics()["llamacpp:prompt_tokens_total"]
        data = self.server.post(TEXTS, {"prompt": ids(300), "n": 4, "max_tokens": 3, "cache_prompt": False})
        self.assertEqual((len(data["choices"]), data["usage"]["prompt_tokens"]), (4, 300))
        self.assertEqual(self.server.metrics()["llamacpp:prompt_tokens_total"] - before, 300)


class Strict(unittest.TestCase):
    """What is known of a prompt changes no bit with --strict; without it equal numbers of known tokens give equal bits."""

    def answers(self, server, cut, size=150):
        """The same request behind one whose prompt is its beginning."""
        prompt = ids(size, cut)
        server.post(TEXTS, {"prompt": prompt[:cut], "max_tokens": 3, "temperature": 0})
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 5, "ignore_eos": True}
        warm, again, cold = server.post(TEXTS, body), server.post(TEXTS, body), server.post(TEXTS, {**body, "cache_prompt": False})
        self.assertEqual(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        return warm, again, cold

    def test_strict(self):
        with Server(TEXT_MODEL, "--strict") as server:
            self.assertIs(server.ask("GET", "/props")[2]["strict"], True)
            known = set()
            for cut in (1, 5, 31, 32, 33, 63, 64, 65, 70, 96, 100, 127, 128, 129, 140, 149):
                warm, again, cold = self.answers(server, cut)
                self.assertEqual(warm["choices"][0]["logprobs"], cold["choices"][0]["logprobs"], cut)
                self.assertEqual(again["choices"][0]["logprobs"], cold["choices"][0]["logprobs"], cut)
                known.add(warm["usage"]["prompt_tokens_details"]["cached_tokens"])
            self.assertGreater(max(known), 64)

    def test_equal_numbers(self):
        with Server(TEXT_MODEL) as server:
            self.assertIs(server.ask("GET", "/props")[2]["strict"], False)
            for cut in (70, 130):
                found = {}
                for answer in (*self.answers(server, cut), *self.answers(server, cut)):
                    known = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                    self.assertEqual(found.setdefault(known, answer["choices"][0]["logprobs"]), answer["choices"][0]["logprobs"])


if __name__ == "__main__":
    unittest.main()
