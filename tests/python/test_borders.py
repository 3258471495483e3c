"""The border: bad arguments of every call, memory over many steps, threads, owners freed in any order, closed objects, the bindings."""
import gc
import inspect
import itertools
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import numpy as np

import kvant
from common import NUMBER_WORDS, ROMEO, ROOT, SHAKESPEARE, model


def resident():
    """KiB of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


class Bindings(unittest.TestCase):
    def test_bindings_are_what_the_headers_say(self):
        subprocess.run([sys.executable, ROOT / "python/make_bindings.py", "--check"], check=True)

    def test_sizes_are_those_of_the_library(self):
        # The library refuses structs that are larger than it knows, and fills those that it knows.
        import ctypes

        from kvant import _bindings as c
        from kvant._library import lib

        for name in c.FUNCTIONS:
            struct = getattr(c, name.removesuffix("_default"), None) if name.endswith("_default") else None
            if struct is None:
                continue
            value = struct()
            getattr(lib, name)(ctypes.byref(value), ctypes.sizeof(struct))
            self.assertEqual(value.struct_size, ctypes.sizeof(struct), name)


class BadArguments(unittest.TestCase):
    """A wrong call of everything that is public; each is refused with a reason, and leaves its object as it was."""

    def setUp(self):
        self.runner = kvant.Runner(model(), sequences=3, context=64)
        self.sequence = self.runner.new_sequence().append(ROMEO)
        self.tokenizer = kvant.Tokenizer(model())
        self.params = kvant.GeneratorParams(model())
        self.generator = kvant.Generator(model(), self.params)
        self.generator.append_tokens(ROMEO)
        other = kvant.Runner(model())
        self.stranger = other.new_sequence()
        self.sampler = kvant.Sampler(vocab_size=4096, temperature=0)
        with kvant.Runner(model(NUMBER_WORDS), sequences=2) as reader:
            self.closed_source = reader.encode([3, 4])

    def calls(self):
        m, r, s, t, g = model(), self.runner, self.sequence, self.tokenizer, self.generator
        past = r.past_key_values([s])
        talk = kvant.Conversation(m, "chatml", max_tokens=4, temperature=0, runner_options={"context": 64, "threads": 1})
        e = kvant.Embedder(m, pooling="mean", context=16, threads=1)
        return {
            "Embedder": [lambda: kvant.Embedder(5), lambda: kvant.Embedder(m), lambda: kvant.Embedder(m, pooling="sum"), lambda: kvant.Embedder(m, pooling="rank"),
                         lambda: kvant.Embedder(m, pooling="mean", pin="x"), lambda: kvant.Embedder(m, pooling="mean", context=2**40)],
            "Embedder.tokens": [lambda: e.tokens(5), lambda: e.tokens(""), lambda: e.tokens("a", "query"), lambda: e.tokens("a" * 999)],
            "Embedder.embed": [lambda: e.embed(5), lambda: e.embed([""]), lambda: e.embed([9999]), lambda: e.embed("a", dimensions=-1),
                               lambda: e.embed("a", normalize=-2), lambda: e.embed("a" * 999), lambda: e.embed(["a", [1] * 17])],
            "Embedder.encode": [lambda: e.encode(5), lambda: e.encode([5]), lambda: e.encode("a", batch_size=0), lambda: e.encode(["a"], convert_to_numpy=5),
                                lambda: e.encode("a", truncate_dim=999)],
            "Embedder.similarity": [lambda: e.similarity([[1, 2]], [[1, 2, 3]]), lambda: e.similarity("x", [1])],
            "Embedder.scores": [lambda: e.scores("a", ["b"]), lambda: e.scores(5, ["b"]), lambda: e.scores("a", 5)],
            "Embedder.rank": [lambda: e.rank("a", ["b"]), lambda: e.rank("a", "b")],
            "Embedder.logits": [lambda: e.logits("a"), lambda: e.logits(5)],
            "Embedder.pair_tokens": [lambda: e.pair_tokens("", "a"), lambda: e.pair_tokens("a", 5), lambda: e.pair_tokens("a", "b", 7)],
            "embed": [lambda: kvant.embed(m, "a"), lambda: kvant.embed(e, "a", pooling="last"), lambda: kvant.embed(m, "", pooling="mean")],
            "rerank": [lambda: kvant.rerank(m, "a", ["b"]), lambda: kvant.rerank(e, "a", ["b"])],
            "Model": [lambda: kvant.Model("/nonexistent.gguf"), lambda: kvant.Model(__file__), lambda: kvant.Model(5),
                      lambda: kvant.Model(SHAKESPEARE, progress=lambda *_: False), lambda: kvant.Model(SHAKESPEARE, isa="z80"), lambda: kvant.Model(SHAKESPEARE, wings=2)],
            "Model.metadata": [lambda: m.metadata[5]],
            "Tokenizer": [lambda: kvant.Tokenizer("/nonexistent.gguf"), lambda: kvant.Tokenizer(5)],
            "Tokenizer.encode": [lambda: t.encode(5), lambda: t.encode(None)],
            "Tokenizer.encode_batch": [lambda: t.encode_batch([5])],
            "Tokenizer.prompt": [lambda: t.prompt(["a"])],
            "Tokenizer.decode": [lambda: t.decode([1.5]), lambda: t.decode([[1]]), lambda: t.decode([2**40]), lambda: t.decode([4096])],
            "Tokenizer.decode_batch": [lambda: t.decode_batch(5), lambda: t.decode_batch([[4096]])],
            "Tokenizer.to_token_id": [lambda: t.to_token_id("no such entry")],
            "Tokenizer.token_bytes": [lambda: t.token_bytes(-1)],
            "Tokenizer.create_stream": [lambda: t.create_stream(stop=["a\0b"])],
            "Tokenizer.apply_chat_template": [lambda: t.apply_chat_template([{"role": "user"}], template="no such"),
                                              lambda: kvant.Tokenizer(SHAKESPEARE).apply_chat_template([])],
            "TokenizerStream": [lambda: kvant.TokenizerStream(t, [5])],
            "TokenizerStream.decode": [lambda: t.create_stream().decode(-5)],
            "ChatTemplate": [lambda: kvant.ChatTemplate(m, source="{% if %}")],
            "ChatTemplate.render": [lambda: kvant.ChatTemplate(m, "chatml").render("[{"), lambda: kvant.ChatTemplate(m, "chatml").render("5")],
            "ChatTemplate.tokens": [lambda: kvant.ChatTemplate(m, "chatml").tokens("{}")],
            "SamplingOptions": [lambda: kvant.SamplingOptions(heat=1), lambda: kvant.SamplingOptions(top_k="x"),
                                lambda: kvant.SamplingOptions(seed=-1), lambda: kvant.SamplingOptions(has_seed=1)],
            "Sampler": [lambda: kvant.Sampler(), lambda: kvant.Sampler(vocab_size=0), lambda: kvant.Sampler(t, samplers="top_z"),
                        lambda: kvant.Sampler(t, kvant.SamplingOptions(), top_k=1), lambda: kvant.Sampler(t, top_p=-2.0)],
            "Sampler.sample": [lambda: self.sampler.sample([1.0, 2.0]), lambda: self.sampler.sample(np.full(4096, np.nan))],
            "Sampler.accept": [lambda: self.sampler.accept([1.5])],
            "Sampler.forbid": [lambda: self.sampler.forbid(5000)],
            "Sampler.set_grammar": [lambda: self.sampler.set_grammar("a")],
            "Grammar": [lambda: kvant.Grammar(5, regex="a"), lambda: kvant.Grammar(m), lambda: kvant.Grammar(m, regex="a", json_object=True),
                        lambda: kvant.Grammar(m, regex="(a"), lambda: kvant.Grammar(m, grammar="root ::= x"), lambda: kvant.Grammar(m, choices=[]),
                        lambda: kvant.Grammar(m, json_schema={"minimun": 1}), lambda: kvant.Grammar(m, json_schema={"type": {1}}),
                        lambda: kvant.Grammar(m, regex="a", trigger_tokens=[99999])],
            "Runner": [lambda: kvant.Runner(m, sequences=0), lambda: kvant.Runner(m, kv_type="f64"),
                       lambda: kvant.Runner(m, threads=-1), lambda: kvant.Runner(m, wings=2), lambda: kvant.Runner(m, context="x")],
            "Runner.new_sequence": [lambda: [r.new_sequence() for _ in range(5)]],
            "Runner.add_rows": [lambda: r.add_rows(np.zeros((2, 3))), lambda: r.add_rows(np.zeros(256)), lambda: r.add_rows("x"),
                                lambda: r.add_rows(np.full((1, 256), np.nan)), lambda: r.add_rows(np.zeros((0, 256)))],
            "Runner.encode": [lambda: r.encode([1, 2])],
            "Runner.encode_frames": [lambda: r.encode_frames(np.zeros((2, 3))), lambda: r.encode_frames("x")],
            "Runner.step": [lambda: r.step([(s, [])]), lambda: r.step([(s, [1]), (s, [2])]), lambda: r.step([(self.stranger, [1])]),
                            lambda: r.step([(s, [1])], "some"), lambda: r.step([(s, [4096])]), lambda: r.step([(s, [1])], ["all", "all"]),
                            lambda: r.step([(s, [1] * 90)])],
            "Runner.reorder": [lambda: r.reorder([s], [0, 1]), lambda: r.reorder([s], [3]), lambda: r.reorder([s, s], [0, 0])],
            "Runner.score": [lambda: r.score([([2, 3], 2)]), lambda: r.score([[2]]), lambda: r.score([[2, 9999]]),
                             lambda: r.score([[2, 3]], sources=[[1]]), lambda: r.score([[2, 3]], sources=[]), lambda: r.score([[2] * 90])],
            "Runner.save": [lambda: r.save("/nonexistent/x", [s]), lambda: r.save("/tmp/x", [self.stranger])],
            "Runner.load": [lambda: r.load("/nonexistent"), lambda: r.load(__file__)],
            "Runner.past_key_values": [lambda: r.past_key_values([]), lambda: r.past_key_values([s], "sbhd"),
                                       lambda: r.past_key_values([self.stranger])],
            "Runner.from_past_key_values": [
                lambda: r.from_past_key_values(kvant.PastKeyValues(past.tokens, {})),
                lambda: r.from_past_key_values(kvant.PastKeyValues([[9999, 1, 2]], past.arrays)),
                lambda: r.from_past_key_values(kvant.PastKeyValues([[1, 2]], past.arrays))],
            "PastKeyValues": [lambda: kvant.PastKeyValues([1], {}, "x")],
            "Sequence.append": [lambda: s.append([]), lambda: s.append([-1]), lambda: s.append([4096]), lambda: s.append([1] * 62),
                                lambda: s.append("abc"), lambda: s.append([[1]])],
            "Sequence.logits": [lambda: r.new_sequence().logits()],
            "Sequence.compute_logits": [lambda: s.fork().reset().compute_logits()],
            "Sequence.generate": [lambda: s.generate(kvant.Sampler(vocab_size=5))],
            "Sequence.fork": [lambda: [s.fork() for _ in range(5)]],
            "Sequence.rewind": [lambda: s.rewind(4), lambda: s.rewind(-1)],
            "Sequence.prune": [lambda: s.prune(-1, 1), lambda: s.prune(1, -1)],
            "Sequence.set_source": [lambda: s.set_source(self.closed_source)],
            "Sequence.reuse_prefix": [lambda: s.reuse_prefix([9999])],
            "Sequence.restore": [lambda: s.restore(kvant.Snapshot(r, 77))],
            "Source.new_sequence": [lambda: self.closed_source.new_sequence()],
            "plan_memory": [lambda: kvant.plan_memory(m, context=-3)],
            "generate": [lambda: kvant.generate(m, 5), lambda: kvant.generate(m, "a", heat=1), lambda: kvant.generate(m, "a", samples=0),
                         lambda: kvant.generate(m, [[1.5]]), lambda: kvant.generate(m, "a", max_tokens=-7),
                         lambda: kvant.generate(r, "a", runner_options={"threads": 1}),
                         lambda: kvant.generate(m, "a", sampling=kvant.SamplingOptions(), top_k=1)],
            "stream": [lambda: kvant.stream(m, [[9999]]), lambda: kvant.stream(m, "a", stop=["x\0"])],
            "BeamOptions": [lambda: kvant.BeamOptions(wings=1), lambda: kvant.BeamOptions(early_stopping="maybe"),
                            lambda: kvant.BeamOptions(scoring="bert"), lambda: kvant.BeamOptions(end_tokens=[0.5])],
            "beam_search": [lambda: kvant.beam_search(m, "a", beams=0), lambda: kvant.beam_search(m, "a", beams=2, num_return=3),
                            lambda: kvant.beam_search(r, "a", beams=9), lambda: kvant.beam_search(m, ["a"], sources=[]),
                            lambda: kvant.beam_search(m, "a", search=kvant.BeamOptions(), beams=2)],
            "Conversation": [lambda: kvant.Conversation(m), lambda: kvant.Conversation(5), lambda: kvant.Conversation(m, "no such"),
                             lambda: kvant.Conversation(m, "chatml", beams=0), lambda: kvant.Conversation(m, "chatml", wings=1),
                             lambda: kvant.Conversation(m, "chatml", stop=["a\0b"]), lambda: kvant.Conversation(m, "chatml", tools=[{1}]),
                             lambda: kvant.Conversation(r, "chatml", runner_options={"threads": 1})],
            "Conversation.add": [lambda: talk.add("{"), lambda: talk.add([{"content": "a"}]), lambda: talk.add(5)],
            "Conversation.say": [lambda: talk.say(5), lambda: talk.say("a" * 999)],
            "Conversation.stream": [lambda: list(talk.stream(None)), lambda: list(talk.stream("a" * 999))],
            "Conversation.events": [lambda: list(talk.events(5)), lambda: list(talk.events("a" * 999))],
            "Conversation.edit": [lambda: talk.edit("a"), lambda: talk.edit(5)],
            "Conversation.set_beams": [lambda: talk.set_beams(0), lambda: talk.set_beams("x")],
            "Conversation.set_grammar": [lambda: talk.set_grammar("root ::= ("), lambda: talk.set_grammar(regex="a", wings=1),
                                         lambda: talk.set_grammar(json_schema=5)],
            "Conversation.set_tool_choice": [lambda: talk.set_tool_choice(5), lambda: talk.set_tool_choice("no such"),
                                             lambda: talk.set_tool_choice("required")],
            "Conversation.fork": [lambda: talk.fork(-1), lambda: talk.fork("x")],
            "Conversation.save": [lambda: talk.save("/nonexistent/x"), lambda: talk.save(5)],
            "Conversation.load": [lambda: talk.load("/nonexistent"), lambda: talk.load(__file__)],
            "Config": [lambda: kvant.Config("no-such-model"), lambda: kvant.Config(5)],
            "Config.overlay": [lambda: kvant.Config(SHAKESPEARE).overlay(5.5j), lambda: kvant.Config(SHAKESPEARE).overlay(None)],
            "Config.append_provider": [lambda: kvant.Config(SHAKESPEARE).append_provider("cuda")],
            "GeneratorParams.set_search_options": [lambda: self.params.set_search_options(wings=1)],
            "GeneratorParams.set_guidance": [lambda: self.params.set_guidance("lark_grammar", "start: a"), lambda: self.params.set_guidance("xml", ""),
                                             lambda: self.params.set_guidance("regex", "(a"), lambda: self.params.set_guidance("json_schema", "{")],
            "GeneratorParams.overlay": [lambda: self.params.overlay("{"), lambda: self.params.overlay({"wings": 1})],
            "set_log": [lambda: kvant.set_log(5)],
            "Generator": [lambda: kvant.Generator(model(NUMBER_WORDS), self.params)],
            "Generator.append_tokens": [lambda: g.append_tokens([]), lambda: g.append_tokens([[1], [2]]), lambda: g.append_tokens([[]]),
                                        lambda: g.append_tokens([9999])],
            "Generator.generate_next_token": [lambda: kvant.Generator(m).generate_next_token()],
            "Generator.rewind_to": [lambda: g.rewind_to(9), lambda: g.rewind_to(-1)],
            "Generator.get_output": [lambda: g.get_output("hidden_states")],
            "Generator.set_logits": [lambda: g.set_logits(np.zeros(7))],
            "Generator.get_logits": [lambda: kvant.Generator(m).get_logits()],
            "Generator.restore": [lambda: g.restore(kvant.GeneratorSnapshot([]))],
            "set_log_options": [lambda: kvant.set_log_options(wings=1), lambda: kvant.set_log_options(filename="/nonexistent/x")],
        }

    def test_every_call_refuses_what_is_wrong(self):
        for name, calls in self.calls().items():
            for number, call in enumerate(calls):
                with self.subTest(call=name, number=number):
                    # Python's own for what is no text and no array.
                    with self.assertRaises((kvant.KvantError, TypeError, ValueError, KeyError, OSError)) as caught:
                        call()
                    self.assertTrue(str(caught.exception))
                    if isinstance(caught.exception, kvant.KvantError):
                        self.assertNotIsInstance(caught.exception, kvant.InternalError)
        self.assertEqual(self.sequence.tokens.tolist(), ROMEO)
        self.assertEqual(self.generator.get_sequence(0).tolist(), ROMEO)

    def test_the_table_has_every_public_call_with_arguments(self):
        named = set(self.calls())
        # What takes nothing, or nothing that can be wrong: objects of this package, flags and texts of any kind.
        free = {"Tokenizer.is_end", "Tokenizer.is_control", "Tokenizer.piece", "Model.close", "Runner.set_kv_log", "GeneratorParams",
                "Generator.token_count", "Generator.get_sequence", "PastKeyValues.layer", "Source", "Rows", "Snapshot", "Sequence", "Metadata",
                "TextStream", "TextStream.add", "TextStream.add_of_source", "GeneratorSnapshot"}
        missing = []
        for name in kvant.__all__:
            public = getattr(kvant, name)
            if inspect.isfunction(public):
                missing += [name] if name not in named else []
            if not inspect.isclass(public) or issubclass(public, (Exception, tuple)):
                continue
            if len(inspect.signature(public).parameters) > 0:
                missing += [name] if name not in named | free else []
            for method, function in inspect.getmembers(public, inspect.isfunction):
                if method.startswith("_") or len(inspect.signature(function).parameters) < 2:
                    continue
                whole = f"{name}.{method}"
                missing += [whole] if whole not in named | free and hasattr(function, "__module__") and function.__module__.startswith("kvant") else []
        self.assertEqual(missing, [])

    def test_sequences_out_of_range_name_what_there_is(self):
        with self.assertRaises(IndexError):
            self.generator.get_sequence(3)

    def test_closed_objects_say_so(self):
        runner = kvant.Runner(model())
        sequence = runner.new_sequence().append(ROMEO)
        runner.close()
        for call in (lambda: sequence.append([1]), lambda: len(sequence), runner.new_sequence, lambda: runner.stats):
            with self.assertRaisesRegex(kvant.InvalidError, "closed"):
                call()
        sequence.close()
        runner.close()
        with self.assertRaisesRegex(kvant.InvalidError, "closed"):
            with kvant.Model(SHAKESPEARE) as closed:
                pass
            kvant.Runner(closed)


class Memory(unittest.TestCase):
    def test_a_hundred_thousand_steps_do_not_grow(self):
        params = kvant.GeneratorParams(model(), context=128, threads=1)
        generator = kvant.Generator(model(), params)
        generator.append_tokens(ROMEO)
        tokenizer = kvant.Tokenizer(model())

        def steps(count):
            for _ in range(count):
                if generator.token_count() >= 100:
                    generator.rewind_to(3)
                generator.generate_next_token()
                tokenizer.decode(generator.get_next_tokens())

        steps(2000)
        gc.collect()
        before = resident()
        steps(100_000)
        gc.collect()
        self.assertLess(resident() - before, 2048)

    def test_owners_go_in_any_order(self):
        def make():
            opened = kvant.Model(SHAKESPEARE)
            tokenizer = kvant.Tokenizer(opened)
            runner = kvant.Runner(opened, sequences=2, context=64)
            sequence = runner.new_sequence().append(ROMEO)
            sampler = kvant.Sampler(tokenizer, temperature=0)
            return [opened, tokenizer, runner, sequence, sampler]

        for order in itertools.permutations(range(5)):
            objects = make()
            for number in order:
                objects[number].close()
        # Without close(), by references: what is left works on.
        for last in range(5):
            kept = make()[last]
            gc.collect()
            if isinstance(kept, kvant.Sequence):
                self.assertEqual(len(kept.append([5])), 4)
            if isinstance(kept, kvant.Runner):
                self.assertEqual(len(kept.new_sequence().append(ROMEO)), 3)
            if isinstance(kept, kvant.Tokenizer):
                self.assertEqual(kept.encode("ROMEO:").tolist(), ROMEO)


class Threads(unittest.TestCase):
    def test_the_interpreter_runs_while_a_call_computes(self):
        runner = kvant.Runner(model(), context=1024, threads=1, sequences=1)
        sequence = runner.new_sequence()
        tokens = [2] + [500] * 1000
        done = threading.Event()

        def work():
            for _ in range(5):
                sequence.reset().append(tokens)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        turns = 0
        while not done.is_set():
            turns += 1
        thread.join()
        # A few hundred milliseconds of computing: without the lock given up there would be a handful of turns.
        self.assertGreater(turns, 5000)

    def test_two_threads_have_texts_of_their_own(self):
        expected = [kvant.generate(model(), prompt, max_tokens=30, temperature=0).text for prompt in ("ROMEO:", "JULIET:")]
        found = [None, None]

        def work(number, prompt):
            for _ in range(5):
                with kvant.Runner(model(), threads=1) as runner:
                    found[number] = kvant.generate(runner, prompt, max_tokens=30, temperature=0).text

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(("ROMEO:", "JULIET:"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)

    def test_another_thread_cancels(self):
        runner = kvant.Runner(model(), context=1024, threads=1)
        sequence = runner.new_sequence()
        threading.Timer(0.05, runner.cancel).start()
        with self.assertRaises(kvant.CancelledError):
            while True:
                sequence.reset().append([2] + [500] * 1000)
        runner.check()
        self.assertGreater(len(sequence.reset().append(ROMEO)), 0)

    def test_a_runner_is_not_used_from_its_own_callback(self):
        runner = kvant.Runner(model(), sequences=2)
        with self.assertRaises(kvant.InvalidError):
            runner.new_sequence().append(ROMEO, progress=lambda *_: runner.new_sequence())

    def test_ctrl_c_ends_a_call_with_callbacks(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            kvant.generate(model(), "ROMEO:", max_tokens=5, processors=[interrupt])


if __name__ == "__main__":
    unittest.main()
