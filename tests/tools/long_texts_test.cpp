// One long text from the shell: sessions, drafts, shifted contexts; the log and the memory of the
// cache; readers that go away and interruptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/engine/arch/predicting_model.h"
#include "tests/tools/sequences.h"

namespace kvant::test {
namespace {

using LongTexts = Sequences;

TEST_F(LongTexts, ASessionGoesOnWhereItEnded) {
  for (const std::string type : {"f16", "q8"}) {
    const std::string file = folder_ / ("session." + type);
    const Words session = {"--json", "--session", file, "--kv-type", type};
    const json whole =
        json::parse(Text(With(Greedy("ROMEO:", "40"), {"--json", "--kv-type", type})));
    const json first = json::parse(Text(With(Greedy("ROMEO:", "20"), session)));
    ASSERT_TRUE(std::filesystem::exists(file));
    const std::string so_far = "ROMEO:" + first["text"].get<std::string>();
    const json second = json::parse(RunModel(With(Greedy(so_far, "20"), session)).out);
    EXPECT_EQ(first["text"].get<std::string>() + second["text"].get<std::string>(),
              whole["text"].get<std::string>());
    EXPECT_EQ(second["prompt_tokens"], 23);
    // The last token alone, for its logits.
    EXPECT_EQ(second["timings"]["prefill_tokens"], 1);
    // Another text shares only its beginning, and says so before the rest is dropped.
    const ProgramRun rewound =
        RunModel(With(Greedy("ROMEO: No", "3"), With(session, {"--session-rewind"})));
    EXPECT_THAT(rewound.error,
                HasSubstr("goes back to the first 3 of 43 saved tokens, and drops 40"));
    const json other = json::parse(rewound.out);
    EXPECT_EQ(other["timings"]["prefill_tokens"], other["prompt_tokens"].get<int>() - 3);
  }
}

// A text that -n cuts goes on inside its grammar.
TEST_F(LongTexts, ASessionKeepsTheGrammarOfItsText) {
  const Words grammar = {"--regex", "[A-Z]{4,9}: [a-z ]{20,40}[.] [A-Z][a-z]{2,9}[!?]"};
  const std::string whole = Text(With(Greedy("ROMEO:", "80"), grammar));
  const std::string file = folder_ / "session";
  const auto run = [&](const Words& options) {
    const ProgramRun made = RunModel(With(options, {"--temp", "0", "--session", file}));
    EXPECT_EQ(made.code, 0) << made.error;
    return made;
  };
  const ProgramRun first = run(With({"-p", "ROMEO:", "-n", "4"}, grammar));
  EXPECT_THAT(first.error, HasSubstr("-n ends the text before its grammar does"));
  std::string text = first.out;
  text.pop_back();
  // With the same grammar, or without naming it.
  for (const Words& options : {grammar, Words{}}) {
    text += run(With({"-n", "3"}, options)).out;
    text.pop_back();
  }
  text += run({"-n", "80"}).out;
  EXPECT_EQ(text, whole);
  // It is over now: what follows is free. Another grammar begins anew.
  EXPECT_EQ(run({"-n", "5", "-q", "--choices", "aye,aye"}).out, "aye\n");
  EXPECT_EQ(json::parse(run({"-n", "6", "-q", "--json"}).out)["ids"].size(), 6u);
}

// Runs with one file make one text, whatever each of them is given.
TEST_F(LongTexts, NothingThatWasSavedIsLost) {
  const std::string file = folder_ / "session";
  const auto run = [&](const Words& options) {
    return RunModel(With(options, {"--temp", "0", "--session", file}));
  };
  const std::string whole = Text(Greedy("ROMEO:", "30"));
  std::string text = run({"-p", "ROMEO:", "-n", "10"}).out;
  text.pop_back();
  // Without a prompt: at the end.
  const ProgramRun more = run({"-n", "20"});
  EXPECT_EQ(text + more.out, whole);
  EXPECT_THAT(more.error, HasSubstr("session: goes on at the end of its 13 tokens\n"));
  EXPECT_EQ(more.error_lines(), 1u);
  text = whole.substr(0, whole.size() - 1);
  // A prompt that the saved text begins with would drop the rest: refused, and nothing changed.
  const auto before = ReadFile(file);
  ExpectRefused(run({"-p", "ROMEO:", "-n", "3"}), 2,
                "the saved text of 33 tokens begins with this");
  EXPECT_EQ(ReadFile(file), before);
  // A prompt that repeats the text and goes on.
  const ProgramRun repeated = run({"-p", "ROMEO:" + text + "\n\nJULIET:", "-n", "5", "--json"});
  EXPECT_THAT(repeated.error, HasSubstr("the prompt repeats its 33 tokens"));
  const json second = json::parse(repeated.out);
  EXPECT_LT(second["timings"]["prefill_tokens"], 10);
  text += "\n\nJULIET:" + second["text"].get<std::string>();
  // Any other prompt is the next piece, without a BOS in between.
  const json third = json::parse(run({"-p", "\n\nNURSE:", "-n", "5", "--json", "-q"}).out);
  text += "\n\nNURSE:" + third["text"].get<std::string>();
  const ProgramRun all = run({"-n", "0", "--json", "-q"});
  EXPECT_EQ(all.error, "");
  std::string ids;
  const json saved_ids = json::parse(all.out)["prompt_ids"];
  EXPECT_EQ(std::count(saved_ids.begin(), saved_ids.end(), json(2)), 1);
  for (const json& id : saved_ids) ids += id.dump() + " ";
  EXPECT_EQ(RunProgram({"tokenize", Shakespeare(), "--decode", "-"}, {.text = ids}).out,
            "ROMEO:" + text);
}

TEST_F(LongTexts, OneProcessAtATimeUsesASession) {
  const std::string file = folder_ / "session";
  const std::string command =
      "\"$KVANT\" run '" + Shakespeare() + "' -t 1 --temp 0 --session " + file;
  // The first waits for its prompt while the second is refused; there is no file before it ends.
  const ProgramRun both =
      RunShell("(sleep 3; printf ROMEO:) | " + command + " -n 3 - > " + (folder_ / "first") +
               " & until [ -e " + file + " ]; do sleep 0.02; done; " + command +
               " -p JULIET: -n 1; code=$?; wait; exit $code");
  ExpectRefused(both, 1, "session: another process is using this session");
  EXPECT_EQ(both.out, "");
  EXPECT_EQ(json::parse(RunModel({"--session", file, "-n", "0", "--json"}).out)["prompt_tokens"],
            6);
  // One that could not begin leaves nothing behind.
  const std::string other = folder_ / "other";
  ExpectRefused(RunModel({"--session", other, "-c", "1", "-p", "a b c d e", "-n", "1"}), 1, "room");
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(LongTexts, APromptCacheHoldsThePrompt) {
  const std::string file = folder_ / "cache";
  const auto run = [&](const std::string& prompt, const Words& options) {
    return json::parse(
        Text(With(Greedy(prompt, "6"), With({"--json", "--prompt-cache", file}, options))));
  };
  const json first = run("ROMEO:\nI am a woman", {});
  const json second = run("ROMEO:\nI am a woman", {});
  EXPECT_EQ(second["ids"], first["ids"]);
  EXPECT_EQ(second["timings"]["prefill_tokens"], 1);
  const auto before = ReadFile(file);
  const json third = run("ROMEO:\nI am a man", {"--prompt-cache-ro"});
  EXPECT_LT(third["timings"]["prefill_tokens"], third["prompt_tokens"]);
  EXPECT_EQ(ReadFile(file), before);
}

TEST_F(LongTexts, ADamagedSessionIsRefusedAndKept) {
  const std::string file = folder_ / "session";
  const Words session = With(Greedy("ROMEO:", "5"), {"--session", file});
  Text(session);
  std::filesystem::resize_file(file, 1000);
  const auto before = ReadFile(file);
  ExpectRefused(RunModel(session), 1, file + ": session file: ends at byte 1000");
  EXPECT_EQ(ReadFile(file), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  std::filesystem::remove(file);
  Text(session);
  ExpectRefused(RunModel(With(session, {"-ctk", "q8"})), 1, "other types");
  for (const auto& [path, code] :
       std::map<std::string, int>{{"/nonexistent/x", 1}, {"", 2}, {folder_.path().string(), 1}}) {
    const ProgramRun run = RunModel(With(Greedy("x", "5"), {"--session", path}));
    EXPECT_EQ(run.code, code) << path;
    EXPECT_EQ(run.out, "") << path;
    EXPECT_EQ(run.error_lines(), 1u);
  }
  for (const char* option : {"--session", "--draft", "--keep"}) {
    const char* value = option == std::string("--keep") ? "1" : "ngram";
    ExpectRefused(RunModel(With(Greedy("x", "5"), {option, value, "--no-kv-cache"})), 2,
                  std::string(option) + ": not possible together with --no-kv-cache");
  }
}

TEST_F(LongTexts, DraftsChangeNothing) {
  const Words request = With(Greedy("ROMEO:", "80"), {"--json"});
  const json plain = json::parse(Text(request));
  EXPECT_FALSE(plain.contains("draft"));
  const json ngram = json::parse(Text(With(request, {"--draft", "ngram"})));
  EXPECT_EQ(ngram["ids"], plain["ids"]);
  EXPECT_EQ(ngram["text"], plain["text"]);
  const json model = json::parse(
      Text(With(request, {"--draft", "shakespeare", "--draft-tokens", "4", "--draft-always"})));
  EXPECT_EQ(model["text"], plain["text"]);
  EXPECT_EQ(model["draft"]["drafted_tokens"], 63);  // 79 = 15 * 5 + 4
  EXPECT_EQ(model["draft"]["accepted_tokens"], 63);
  EXPECT_EQ(model["draft"]["passes"], 16);
  // llama.cpp's words.
  const Words simple = With(request, {"--spec-type", "ngram-simple", "--draft-always"});
  EXPECT_EQ(json::parse(Text(simple))["draft"],
            json::parse(Text(With(request, {"--draft", "ngram", "--draft-always"})))["draft"]);
  ExpectRefused(RunModel(With(request, {"--spec-type", "draft-eagle3"})), 2,
                "--spec-type: expected none, draft-simple");
  const Words sampled = {"-p", "ROMEO:", "-n", "40", "-s", "3"};
  EXPECT_EQ(Text(With(sampled, {"--draft", "shakespeare"})), Text(sampled));
  ExpectRefused(RunModel(With(request, {"--draft", "/nonexistent"})), 1, "/nonexistent");
  ExpectRefused(RunModel(With(request, {"--draft", ""})), 2,
                "--draft: expected a model, ngram or mtp");
  ExpectRefused(RunModel(With(request, {"--draft", "ngram", "--draft-tokens", "32"})), 2,
                "--draft-tokens: expected a whole number from 1 to 31");
  ExpectRefused(RunModel(With(request, {"--draft", SourcePath("tests/reference/random_llamas/"
                                                              "gqa-6q3kv-tied-f16.gguf")})),
                2, "draft: expected a model of 4096 tokens");
}

TEST_F(LongTexts, LayersOfTheModelGuess) {
  PredictingModel predicting("qwen35");
  const auto path = predicting.seeded().Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto run = [](const Words& words) {
    const ProgramRun done = RunProgram(With({"run"}, words));
    EXPECT_EQ(done.code, 0) << done.error;
    return json::parse(done.out);
  };
  const Words words = {*path, "-p", "a", "-n", "40", "-t", "1", "--json", "-q", "--ignore-eos"};
  const Words request = With(words, {"--temp", "0"});
  const json plain = run(request);
  EXPECT_FALSE(plain.contains("draft"));
  const json drafted = run(With(request, {"--draft", "mtp:2", "--draft-always"}));
  EXPECT_EQ(drafted["ids"], plain["ids"]);
  EXPECT_EQ(drafted["text"], plain["text"]);
  EXPECT_GT(drafted["draft"]["drafted_tokens"], 40);
  const json word =
      run(With(request, {"--spec-type", "draft-mtp", "--draft-always", "--draft-tokens", "2"}));
  EXPECT_EQ(word["draft"], drafted["draft"]);
  const Words sampled = With(words, {"--temp", "1", "-s", "3"});
  EXPECT_EQ(run(With(sampled, {"--draft", "mtp"}))["ids"], run(sampled)["ids"]);

  const Words other = Greedy("ROMEO:", "5");
  ExpectRefused(RunModel(With(other, {"--draft", "mtp"})), 1, "no layers that predict further");
  for (const char* wrong : {"mtp:0", "mtp:32", "mtp:", "mtp:2x"}) {
    ExpectRefused(RunModel(With(other, {"--draft", wrong})), 2,
                  "--draft: expected mtp:N with N from 1 to 31");
  }
  ExpectRefused(RunModel(With(other, {"--draft", "mtp", "--spec-type", "draft-simple"})), 2,
                "--spec-type: draft-simple expects --draft with a model, found 'mtp'");
  ExpectRefused(RunModel(With(other, {"--draft", "mtp:2", "--draft-tokens", "9"})), 2,
                "--draft-tokens: expected none beside --draft mtp:2");
  ExpectRefused(RunProgram({"inspect", *path, "--draft", "mtp"}), 2,
                "--draft: expected --plan, --shares or --memory with it");
}

// An option that cannot work is refused before the first token.
TEST_F(LongTexts, RecurrentModelsCannotShift) {
  const std::string file = folder_ / "session";
  const Words begin = {"run", "lfm2-tiny", "-t", "1", "-c", "32", "--temp", "0", "--session", file};
  ASSERT_EQ(RunProgram(With(begin, {"-p", "ROMEO:", "-n", "8"})).code, 0);
  const auto before = ReadFile(file);
  for (const Words& option : {Words{"--context-shift"}, {"--keep", "2"}}) {
    const ProgramRun run = RunProgram(With(begin, With({"-n", "60"}, option)));
    ExpectRefused(run, 1, option[0] + ": a full context cannot move on with this model");
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(ReadFile(file), before);
  }
  EXPECT_EQ(RunProgram(With(begin, {"-n", "4", "-q"})).code, 0);
}

// A saved text outlives an error that comes in the middle of the next one.
TEST_F(LongTexts, AnErrorLeavesTheSavedText) {
  const std::string file = folder_ / "session";
  const Words session = {"--session", file, "--temp", "0", "-q"};
  Text(With(session, {"-p", "ROMEO:", "-n", "5"}));
  const auto before = ReadFile(file);
  ExpectRefused(
      RunModel(With(session, {"-c", "16", "-p", "\nA word, a word, and then another word."})), 1,
      "the context has room for 16");
  ExpectRefused(RunModel(With(session, {"-n", "3", "--draft",
                                        SourcePath("tests/reference/"
                                                   "random_llamas/gqa-6q3kv-tied-f16.gguf")})),
                2, "draft: ");
  EXPECT_EQ(ReadFile(file), before);
  const ProgramRun full = RunModel(With(session, {"-n", "3"}), {.stdout_path = "/dev/full"});
  EXPECT_EQ(full.code, 1);
  Text(With(session, {"-n", "1"}));
}

TEST_F(LongTexts, TellsWhereAFullContextCutsATextShort) {
  const Words cut = With(Greedy("ROMEO:", "60"), {"-c", "24"});
  const ProgramRun run = RunModel(cut);
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(
      run.error,
      "kvant: note: the context of 24 tokens is full: the text ends here; -c makes it larger\n");
  EXPECT_EQ(Text(With(cut, {"-q"})), run.out);
  Text(With(cut, {"-n", "10"}));
}

TEST_F(LongTexts, AShiftedContextGoesOn) {
  const Words request = With(Greedy("ROMEO:", "60"), {"-c", "24", "--json", "--kv-check"});
  const json full = json::parse(Text(request));
  EXPECT_EQ(full["finish_reason"], "context");
  EXPECT_EQ(full["ids"].size(), 22u);
  const json shifted = json::parse(Text(With(request, {"--context-shift", "--keep", "3"})));
  EXPECT_EQ(shifted["finish_reason"], "length");
  ASSERT_EQ(shifted["ids"].size(), 60u);
  EXPECT_TRUE(std::equal(full["ids"].begin(), full["ids"].end(), shifted["ids"].begin()));
  EXPECT_EQ(json::parse(Text(With(request, {"--keep", "3"})))["ids"], shifted["ids"]);
  const json anew = json::parse(Text(With(request, {"--context-shift"})));
  EXPECT_EQ(json::parse(Text(With(request, {"--keep", "0"})))["ids"], anew["ids"]);
  for (const std::string wrong : {"x", "-2", ""}) {
    ExpectRefused(RunModel(With(request, {"--keep", wrong})), 2,
                  "--keep: expected a whole number from -1");
  }
}

// ---- What happens in the cache ------------------------------------------------------------------

TEST_F(LongTexts, TheLogTellsTheShapeOfEveryLayer) {
  const std::string log = folder_ / "kv.log";
  // Fifteen tokens.
  const Words request = Greedy("ROMEO:\nI am a woman, and a woman's wife", "4");
  const std::string text = Text(request);
  EXPECT_EQ(Text(With(request, {"--log", "kv", "--log-file", log})), text);
  std::ifstream file(log);
  std::vector<std::string> inputs, updates;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Adding KV cache input: ")) {
      EXPECT_TRUE(updates.empty());
      inputs.push_back(line);
    } else if (line.starts_with("KV cache update: ")) {
      updates.push_back(line);
    } else {
      EXPECT_THAT(line, StartsWith("KV event: "));
    }
  }
  ASSERT_EQ(inputs.size(), 12u);  // keys and values of six layers
  EXPECT_EQ(inputs[0], "Adding KV cache input: past_key_values.0.key shape=[1,2,0,64]");
  EXPECT_EQ(inputs[11], "Adding KV cache input: past_key_values.5.value shape=[1,2,0,64]");
  ASSERT_EQ(updates.size(), 4u * 12);
  for (size_t i = 0; i < updates.size(); ++i) {
    EXPECT_EQ(updates[i], "KV cache update: present." + std::to_string(i % 12 / 2) +
                              (i % 2 == 0 ? ".key" : ".value") + " shape=[1,2," +
                              std::to_string(15 + i / 12) + ",64]");
  }
  // The log can be written to stderr instead.
  const ProgramRun run = RunModel(With(request, {"--log", "kv"}));
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, text);
  std::ifstream again(log);
  EXPECT_EQ(run.error, std::string(std::istreambuf_iterator<char>(again), {}));
  ExpectRefused(RunModel(With(request, {"--log", "all"})), 2, "--log: expected kv, found 'all'");
  ExpectRefused(RunModel(With(request, {"--log-file", log})), 2, "--log-file: expected --log kv");
  ExpectRefused(RunModel(With(request, {"--log", "kv", "--log-file", "/nonexistent/x"})), 1,
                "--log-file: cannot write");
  const ProgramRun events = Seq("new A\nappend A 5 6 7\nfork A B\nrewind B 1\n", {"--log", "kv"});
  EXPECT_THAT(events.error, HasSubstr("KV event: fork sequence=0 copy=1\n"));
  EXPECT_THAT(events.error, HasSubstr("KV event: rewind sequence=1"));
}

TEST_F(LongTexts, ABudgetIsRefusedWithWhatIsNeededAndWhatFits) {
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  for (const Words& mode : {Words{"-p", "ROMEO:"},
                            {"-p", "ROMEO:", "--beams", "2"},
                            {"--prompts", prompts},
                            {"--prompts", prompts, "--beams", "2"}}) {
    const ProgramRun run = RunModel(With(mode, {"-n", "3", "--kv-budget", "50K"}));
    ExpectRefused(run, 1, " bytes are needed for ");
    EXPECT_THAT(run.error, HasSubstr("50000 of 50000 are free"));
    EXPECT_THAT(run.error, HasSubstr("would fit"));
    // One that would fit does.
    const std::string name = "--kv-budget ";
    const std::string budget =
        run.error.substr(run.error.find(name) + name.size(),
                         run.error.find(" would fit") - run.error.find(name) - name.size());
    EXPECT_EQ(RunModel(With(mode, {"-n", "3", "--kv-budget", budget})).code, 0) << budget;
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(Text(With(Greedy("ROMEO:", "9"), {"--kv-budget", "96KiB"})),
            Text(Greedy("ROMEO:", "9")));
  for (const std::string wrong : {"0", "-5", "x", "1T", "99999999999999999999G"}) {
    ExpectRefused(RunModel({"-p", "x", "--kv-budget", wrong}), 2, "--kv-budget: expected a size");
  }
}

TEST_F(LongTexts, ChecksPoisonAndTypesOfTheCache) {
  const Words request = Greedy("ROMEO:", "40");
  const std::string text = Text(request);
  EXPECT_EQ(Text(With(request, {"--kv-check", "--kv-poison"})), text);
  EXPECT_EQ(Text(With(request, {"--kv-check", "--kv-poison", "--kv-prealloc"})), text);
  // Keys and values have the types that were asked for: `bytes` are those of one token's keys and
  // values in one of the twelve heads.
  struct Case {
    Words options;
    int bytes;
  };
  for (const Case& types : {Case{{"--kv-type", "f32"}, 2 * 64 * 4},
                            {{"-ctk", "f32", "-ctv", "f16"}, 64 * 4 + 64 * 2},
                            {{"--kv-type", "q8"}, 2 * (64 + 4)},
                            {{"--kv-type", "q8_0", "--no-kv-rotation"}, 2 * (64 + 4)},
                            {{"--kv-type-k", "q8", "--kv-type-v", "f32"}, 64 + 4 + 64 * 4}}) {
    const auto lines = SeqLines("new A\nappend A 5\nstats\n", types.options);
    EXPECT_EQ(lines[2]["stats"]["kv_bytes_written"], 12 * types.bytes);
    EXPECT_THAT(Text(With(request, types.options)), StartsWith("\nI am "));
  }
  ExpectRefused(RunModel(With(request, {"-ctk", "q4_0"})), 2, "expected f32, f16 or q8");
}

TEST_F(LongTexts, TheMemoryPlanTellsWhatFits) {
  const auto inspect = [](const Words& options) {
    const ProgramRun run =
        RunProgram(With({"inspect", Shakespeare(), "--memory", "--json"}, options));
    EXPECT_EQ(run.code, 0) << run.error;
    return json::parse(run.out, nullptr, false)["memory"];
  };
  const json half = inspect({});
  const json int8 = inspect({"--kv-type", "q8", "--budget", "100M"});
  EXPECT_EQ(half["kv"].get<uint64_t>() * (64 + 4), int8["kv"].get<uint64_t>() * 64 * 2);
  EXPECT_EQ(int8["budget"], 100000000);
  const uint64_t other = int8["total"].get<uint64_t>() - int8["kv"].get<uint64_t>();
  EXPECT_EQ(int8["budget_kv"], 100000000 - other);
  EXPECT_EQ(int8["fit_sequences"], (100000000 - other) / int8["kv"].get<uint64_t>());
  EXPECT_EQ(inspect({"--budget", "1M"})["fit_sequences"], 0);
  ExpectRefused(RunProgram({"inspect", Shakespeare(), "--memory", "--budget", "x"}), 2, "--budget");
}

// ---- The shell ----------------------------------------------------------------------------------

TEST_F(LongTexts, ReadersThatGoAwayEndQuietly) {
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  for (const std::string& command :
       {"run '" + Shakespeare() + "' -t 1 --prompts " + prompts + " --samples 4 -n 20",
        "run '" + Shakespeare() + "' -t 1 --prompts " + prompts + " --beams 2 -n 20",
        "seq '" + Shakespeare() +
            "' -t 1 -f <(echo new A; echo append A 5; yes 'generate A 1' | head -300)"}) {
    const ProgramRun run = RunShell("\"$KVANT\" " + command + " | head -c 20");
    EXPECT_EQ(run.code, 0) << command;
    EXPECT_EQ(run.error, "") << command;
    EXPECT_EQ(run.out.size(), 20u);
  }
}

TEST_F(LongTexts, InterruptionsKeepWhatThereIs) {
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  const Words long_text = {"-n", "-1", "--ignore-eos", "-c", "30000", "-q", "--log", "kv"};
  const ProgramInput soon = {.interrupt_after_error_bytes = 20'000};  // some twenty steps
  const ProgramRun samples =
      RunModel(With({"--prompts", prompts, "--samples", "2"}, long_text), soon);
  EXPECT_EQ(samples.code, 130);
  EXPECT_EQ(Lines(samples.out).size(), 4u);
  for (const json& line : Lines(samples.out)) EXPECT_EQ(line["finish_reason"], "cancelled");
  const ProgramRun beams = RunModel(With({"-p", "A", "--beams", "3", "--json"}, long_text), soon);
  EXPECT_EQ(beams.code, 130);
  EXPECT_EQ(Lines(beams.out).at(0)["finish_reason"], "cancelled");
  EXPECT_FALSE(Lines(beams.out).at(0)["beams"].empty());
  const ProgramRun batch = RunModel(With({"--prompts", prompts, "--beams", "3"}, long_text), soon);
  EXPECT_EQ(batch.code, 130);
  EXPECT_EQ(Lines(batch.out).size(), 2u);
  // A session is saved, and goes on.
  const std::string file = folder_ / "session";
  const ProgramRun session =
      RunModel(With({"-p", "ROMEO:", "--temp", "0", "--session", file}, long_text), soon);
  EXPECT_EQ(session.code, 130);
  ASSERT_TRUE(std::filesystem::exists(file));
  const Words back = {"--session", file, "--json", "-c", "1000", "--session-rewind"};
  const json later = json::parse(RunModel(With(Greedy("ROMEO:\nI am a woman", "3"), back)).out);
  EXPECT_EQ(later["timings"]["prefill_tokens"], 1);
}

TEST_F(LongTexts, CompletionKnowsTheOptions) {
  const auto options = [](const std::string& command) {
    Words words;
    std::istringstream stream(RunProgram({command, "--list-options"}).out);
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  };
  for (const char* option :
       {"--beams",         "--length-penalty", "--early-stopping", "--num-return",
        "--beam-groups",   "--diversity",      "--beam-scoring",   "--beam-sample",
        "--forced-bos-id", "--forced-eos-id",  "--suppress-ids",   "--begin-suppress-ids",
        "--bad-words-ids", "--min-length",     "--renormalize",    "--no-model-defaults",
        "--prompts",       "--samples",        "--parallel",       "--session",
        "--context-shift", "--draft",          "--draft-tokens",   "--log",
        "--log-file",      "--kv-type",        "--kv-type-k",      "--kv-type-v",
        "--cache-type-k",  "--kv-check",       "--kv-poison",      "--kv-prealloc",
        "--kv-budget",     "--no-kv-rotation", "--source-kv-type"}) {
    EXPECT_THAT(options("run"), testing::Contains(option));
  }
  for (const char* option : {"--sequences", "--prefix-cache", "--strict", "--kv-type", "--log"}) {
    EXPECT_THAT(options("seq"), testing::Contains(option));
  }
  EXPECT_THAT(options("inspect"), testing::IsSupersetOf({"--memory", "--budget", "--kv-type"}));
  EXPECT_THAT(RunProgram({"--list-commands"}).out, HasSubstr("seq\n"));
}

}  // namespace
}  // namespace kvant::test
