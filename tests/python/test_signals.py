"""Signals in calls that compute: handlers run in the midst of them, what a handler raises ends the call and comes out of it, and the
objects go on as if nothing had been."""
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import kvant
from common import NUMBER_WORDS, ROMEO, ROOT, SHAKESPEARE, model

sys.path.insert(0, str(ROOT / "tests"))
import embedding_models  # noqa: E402

LONG = [2] + [500 + i % 90 for i in range(1000)]


def seconds_until_it_ends(case, call, after):
    """Sends SIGINT so many seconds after the call has begun. How long the call computes from then on: other programs do not count."""
    sent = []

    def send():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    with case.assertRaises(KeyboardInterrupt):
        call()
    ended = time.process_time()
    timer.join()
    return ended - sent[0]


class Interrupted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Slow, so that a pass over LONG takes seconds where a signal is to end it.
        cls.slow = kvant.Model(SHAKESPEARE, isa="scalar")

    def setUp(self):
        self.handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, self.handler)

    def runner(self, **options):
        out = kvant.Runner(self.slow, **{"context": 1024, "chunk": 1024, "sequences": 4, "threads": 2, **options})
        self.addCleanup(out.close)
        return out

    def send(self, runner, number=signal.SIGINT):
        """Sends a signal soon after the runner's next pass has begun, for which it takes a block."""
        timers = []

        def tell(line):
            if "block_alloc" in line and not timers:
                timers.append(threading.Timer(0.01, os.kill, (os.getpid(), number)))
                timers[0].start()
                self.addCleanup(timers[0].join)

        runner.set_kv_log(tell)

    def test_prefill_ends_within_its_pass(self):
        for options in ({}, {"threads": 1}, {"threads": 7}):
            runner = self.runner(**options)
            sequence, other = runner.new_sequence().append(ROMEO), runner.new_sequence()
            tokenizer = kvant.Tokenizer(self.slow)
            before, passes = sequence.logits(), runner.stats["passes"]
            for name, call in {
                    "append": lambda: sequence.append(LONG),
                    "append with progress": lambda: sequence.append(LONG, progress=lambda *_: None),
                    "step": lambda: runner.step([(sequence, LONG), (other, ROMEO)]),
                    "step with rows": lambda: runner.step([(sequence, LONG)], "all", rows=lambda *_: None),
                    "score": lambda: runner.score([LONG]),
                    "generate": lambda: kvant.generate(runner, LONG, max_tokens=4),
                    "stream": lambda: next(kvant.stream(runner, LONG, max_tokens=4)),
                    "processors": lambda: kvant.generate(runner, LONG, max_tokens=4, processors=[lambda *_: None]),
                    "beam_search": lambda: kvant.beam_search(runner, LONG, beams=2, max_new_tokens=4),
                    "beam_search with on_step": lambda: kvant.beam_search(runner, LONG, beams=2, max_new_tokens=4, on_step=lambda *_: None),
                    "say": lambda: kvant.Conversation(runner, "chatml", max_tokens=4).say(tokenizer.decode(LONG[:600])),
            }.items():
                with self.subTest(call=name, **options):
                    self.send(runner)
                    with self.assertRaises(KeyboardInterrupt):
                        call()
                    self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
                    self.assertEqual((runner.stats["passes"], len(sequence)), (passes, len(ROMEO)))
                    self.assertEqual(sequence.logits().tolist(), before.tolist())
            runner.check()

    def test_a_text_ends_between_its_tokens(self):
        runner = self.runner(threads=1)
        tokens = []
        for name, call in {
                "generate": lambda: kvant.generate(runner, ROMEO, max_tokens=1000, ignore_end=True),
                "processors": lambda: kvant.generate(runner, ROMEO, max_tokens=1000, ignore_end=True,
                                                     processors=[lambda text, _logits: tokens.append(len(text))]),
                "stream": lambda: [piece for piece in kvant.stream(runner, ROMEO, max_tokens=1000, ignore_end=True)],
                "beam_search": lambda: kvant.beam_search(runner, ROMEO, beams=2, max_new_tokens=1000, end_tokens=[], on_step=lambda *_: None),
        }.items():
            with self.subTest(call=name):
                passes = runner.stats["passes"]
                self.send(runner)
                with self.assertRaises(KeyboardInterrupt):
                    call()
                self.assertLess(runner.stats["passes"], passes + 900)
                self.assertEqual(runner.stats["sequences"], 0)

    def test_a_function_of_the_caller_is_interrupted_where_it_is(self):
        found = []

        def wait(*_):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                for _ in range(6000):
                    time.sleep(0.01)
                found.append("waited")
            except KeyboardInterrupt:
                found.append("interrupted")
                raise

        for call in (lambda: kvant.generate(model(), ROMEO, max_tokens=2, processors=[wait]),
                     lambda: kvant.beam_search(model(), ROMEO, beams=2, max_new_tokens=2, on_step=wait),
                     lambda: kvant.Runner(model(), context=64).new_sequence().append(ROMEO, progress=wait),
                     lambda: kvant.Runner(model(NUMBER_WORDS)).encode([3, 4], rows=wait)):
            found.clear()
            with self.assertRaises(KeyboardInterrupt):
                call()
            self.assertEqual(found, ["interrupted"])

    def ends_soon(self, call, after=0.3):
        """Within 100 ms on a quiet machine. Calls that go on to their end take seconds, and a busy machine some times as long, so half a second is the limit."""
        found = []
        while len(found) < 5 and min(found, default=1) > 0.1:
            found.append(seconds_until_it_ends(self, call, after))
        self.assertLess(min(found), 0.5)

    def test_embedders_end_soon_and_go_on(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        paths = embedding_models.write(folder.name)
        texts = ["the panda is a bear " * 3 + str(number) for number in range(50_000)]
        for model_name, name, call in (("minibert", "embed", lambda embedder, texts: embedder.embed(texts)),
                                       ("minibert", "encode", lambda embedder, texts: embedder.encode(texts, batch_size=len(texts))),
                                       ("minirank", "rank", lambda embedder, texts: embedder.rank("bear", texts)),
                                       ("minilabels", "logits", lambda embedder, texts: embedder.logits(texts))):
            with self.subTest(call=name), kvant.Embedder(paths[model_name], threads=1) as embedder:
                before = call(embedder, texts[:3])
                self.ends_soon(lambda: call(embedder, texts))
                self.assertEqual(repr(call(embedder, texts[:3])), repr(before))

    def test_long_calls_end_soon(self):
        runner = self.runner(threads=1)
        for name, call in {"append": lambda: runner.new_sequence().append(LONG), "score": lambda: runner.score([LONG] * 3),
                           "generate": lambda: kvant.generate(runner, LONG, max_tokens=4),
                           "beam_search": lambda: kvant.beam_search(runner, LONG[:40], beams=4, max_new_tokens=900, end_tokens=[])}.items():
            with self.subTest(call=name):
                self.ends_soon(call)

    def test_an_encoder_is_interrupted(self):
        slow = kvant.Model(NUMBER_WORDS, isa="scalar")
        source = [3 + i % 50 for i in range(slow.info.source_length or 500)]
        with kvant.Runner(slow, sequences=2, threads=1) as runner:
            runner.encode(source[:3])
            before = runner.stats["encoder_passes"]
            self.send(runner)
            with self.assertRaises(KeyboardInterrupt):
                for number in range(100_000):
                    runner.encode([*source[:-2], 3 + number % 50, 3 + number // 50 % 50], rows=lambda *_: None)
            self.assertLess(runner.stats["encoder_passes"] - before, 100_000)

    def test_a_handler_that_raises_nothing_ends_nothing(self):
        runner = self.runner()
        sequence = runner.new_sequence()
        came = []

        def handle(_number, _frame):
            try:
                runner.stats
            except kvant.InvalidError:
                came.append("in the call")

        signal.signal(signal.SIGINT, handle)
        self.send(runner)
        sequence.append(LONG)
        self.assertEqual((came, len(sequence)), (["in the call"], len(LONG)))
        self.assertIs(signal.getsignal(signal.SIGINT), handle)

    def test_handlers_of_other_signals_end_calls_as_well(self):
        runner = self.runner()
        sequence = runner.new_sequence()

        def handle(_number, _frame):
            raise TimeoutError("too long")

        before = signal.signal(signal.SIGALRM, handle)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.send(runner, signal.SIGALRM)
        with self.assertRaisesRegex(TimeoutError, "too long"):
            sequence.append(LONG)
        self.assertEqual((len(sequence), runner.stats["passes"]), (0, 0))

    def test_other_threads_are_left_alone(self):
        runner = self.runner()
        sequence = runner.new_sequence()
        thread = threading.Thread(target=sequence.append, args=(LONG,))
        self.send(runner)
        with self.assertRaises(KeyboardInterrupt):
            thread.start()
            while thread.is_alive():
                time.sleep(0.001)
        thread.join()
        self.assertEqual(len(sequence), len(LONG))

    def test_a_conversation_in_pieces_ends(self):
        runner = self.runner()
        chat = kvant.Conversation(runner, "chatml", max_tokens=4)
        text = kvant.Tokenizer(self.slow).decode(LONG[:600])
        self.send(runner)
        with self.assertRaises(KeyboardInterrupt):
            list(chat.stream(text))
        self.assertEqual((chat.messages, runner.stats["passes"]), ([], 0))
        self.assertEqual(chat._info().held_tokens, 0)
        self.assertTrue(chat.say("Hello"))  # the next answer is not ended by what ended this one

    def test_a_generator_goes_on_where_it_was(self):
        for search in ({}, {"num_beams": 3}):
            params = kvant.GeneratorParams(self.slow, threads=1, context=64)
            params.set_search_options(max_length=62, **search)
            plain, disturbed = kvant.Generator(self.slow, params), kvant.Generator(self.slow, params)
            for generator in (plain, disturbed):
                self.addCleanup(generator.close)
            self.send(disturbed.runner)
            with self.assertRaises(KeyboardInterrupt):
                disturbed.append_tokens(LONG[:60])
            self.assertEqual(disturbed.token_count(), 0)
            # From here on in every call, when its step is done.
            disturbed.runner.set_kv_log(lambda line: os.kill(os.getpid(), signal.SIGINT) if "update: present.5.value" in line else None)
            with self.assertRaises(KeyboardInterrupt):
                disturbed.append_tokens(ROMEO)
            plain.append_tokens(ROMEO)
            self.assertEqual(disturbed.token_count(), len(ROMEO))
            while not plain.is_done():
                plain.generate_next_token()
            times = 0
            while not disturbed.is_done():
                try:
                    disturbed.generate_next_token()
                except KeyboardInterrupt:
                    times += 1
            self.assertGreater(times, 10)
            self.assertEqual(disturbed.get_sequence().tolist(), plain.get_sequence().tolist())

    def test_calls_in_callbacks_are_interrupted_inside_out(self):
        inner, found = self.runner(), []

        def nested(*_):
            self.send(inner)
            try:
                inner.new_sequence().append(LONG)
            except KeyboardInterrupt:
                found.append("inner")
                raise

        with self.assertRaises(KeyboardInterrupt):
            kvant.generate(model(), ROMEO, max_tokens=3, processors=[nested])
        self.assertEqual((found, inner.stats["passes"]), (["inner"], 0))
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


if __name__ == "__main__":
    unittest.main()
