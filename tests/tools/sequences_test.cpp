// Sequences from the shell: programs of operations, batches of prompts, beams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "tests/tools/sequences.h"

namespace kvant::test {
namespace {

// ---- kvant seq ----------------------------------------------------------------------------------

TEST_F(Sequences, EveryOperationPrintsALineOfJson) {
  const std::string file = folder_ / "a b.kv";
  const std::string program =
      "# comment\n\n  new A\r\nappend A \"ROMEO:\"  # text\nappend A 14\nfork A B\n"
      "step A 450 B 295\nreorder A B : 1 0\nlogits A 3\nsnapshot A S\ngenerate A 4\nrestore A S\n"
      "drop S\nprune B 2 2\nrewind A 3\ntokens A\nprune A 1 1 moved\nsave \"" +
      file + "\" A B\nfree A\nload \"" + file +
      "\" C D\nreset B\nstats\ncheck\nnew \"x y\"\nappend \"x y\" \"say \\\"#\\\"\"\n";
  const std::vector<json> lines = SeqLines(program, {"--kv-check", "--kv-poison"});
  Words operations;
  for (const json& line : lines) operations.push_back(line["op"]);
  EXPECT_EQ(operations, (Words{"new",    "append",   "append",   "fork",    "step",  "reorder",
                               "logits", "snapshot", "generate", "restore", "drop",  "prune",
                               "rewind", "tokens",   "prune",    "save",    "free",  "load",
                               "reset",  "stats",    "check",    "new",     "append"}));
  EXPECT_EQ(lines[0]["line"], 3);
  EXPECT_EQ(State(lines[0])["length"], 0);
  EXPECT_FALSE(State(lines[0]).contains("top"));
  EXPECT_EQ(lines[1]["tokens"], 3);
  EXPECT_EQ(State(lines[3]), (json{{"sequence", "B"},
                                   {"length", 4},
                                   {"top", State(lines[2])["top"]},
                                   {"logits_xxh64", State(lines[2])["logits_xxh64"]}}));
  // After the exchange, B has the logits that A had after the step, bit for bit.
  EXPECT_EQ(State(lines[5], 1)["logits_xxh64"], State(lines[4], 0)["logits_xxh64"]);
  EXPECT_EQ(State(lines[5], 0)["logits_xxh64"], State(lines[4], 1)["logits_xxh64"]);
  EXPECT_NE(State(lines[4], 0)["logits_xxh64"], State(lines[4], 1)["logits_xxh64"]);
  EXPECT_EQ(lines[6]["logits"].size(), 3u);
  EXPECT_EQ(lines[6]["logits"][0]["id"], State(lines[5], 0)["top"]);
  EXPECT_EQ(lines[8]["ids"].size(), 4u);
  EXPECT_EQ(State(lines[9])["logits_xxh64"], State(lines[7])["logits_xxh64"]);  // restore
  EXPECT_EQ(State(lines[11])["length"], 5);                                     // pruned in place
  EXPECT_EQ(lines[13]["ids"], (json{2, 1894, 4041}));
  EXPECT_EQ(State(lines[14])["length"], 2);  // moved
  EXPECT_EQ(State(lines[17], 0)["length"], 2);
  EXPECT_EQ(State(lines[17], 1)["length"], 5);
  EXPECT_EQ(lines[19]["stats"]["sequences"], 3);
  EXPECT_EQ(lines[20]["ok"], true);
  EXPECT_EQ(State(lines[21])["sequence"], "x y");
}

TEST_F(Sequences, WrongLinesAreNamedAndEndTheProgram) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"foo A", "expected an operation, found 'foo'"},
      {"apend A 1", "did you mean 'append'?"},
      {"new", "expected 'new A'"},
      {"new C B", "expected a source, found 'B'"},
      {"new A", "expected a new name, found 'A'"},
      {"free Z", "expected a sequence, found 'Z'"},
      {"append A", "expected 'append A 1 15 27' or 'append A \"text\"'"},
      {"append A 1 x", "expected a number, found 'x'"},
      {"append A 4096", "expected an id from 0 to 4095, found 4096"},
      {"append A -1", "expected an id from 0 to 4095, found -1"},
      {"append A 99999999999999999999", "expected a number"},
      {"append A \"open", "expected a closing quote"},
      {"append A \"open \\\"", "expected a closing quote"},
      {"append A \"x\" 15", "expected a number, found 'x'"},
      {"append A 15 \"x\"", "expected a number, found 'x'"},
      {"step A", "no tokens to process"},
      {"step 15 A", "expected 'step A 15 16 B 27'"},
      {"step A 15 C 2", "expected a number, found 'C'"},
      {"step A 1 A 2", "appears twice"},
      {"generate A -1", "expected a count, found '-1'"},
      {"generate B 1", "no tokens, so no logits"},
      {"logits B 1", "no tokens, so no logits"},
      {"export x hbsd A", "expected bhsd, kbhsd or bkhsd, found \"hbsd\""},
      {"export x bhsd A B", "expected sequences of one length, found 3 and 0 tokens"},
      {"import x bhsd A", "expected a new name, found 'A'"},
      {"logits A -1", "expected a count, found '-1'"},
      {"fork A A", "expected a new name, found 'A'"},
      {"reorder A B : 0", "expected 'reorder A B C : 2 2 0'"},
      {"reorder A B : 0 2", "expected parents from 0 to 1, found 2"},
      {"reorder A A : 0 1", "line 4"},
      {"rewind A 4", "rewind to 4: the sequence has 3 tokens"},
      {"rewind A -1", "rewind to -1"},
      {"rewind A 1 later", "expected 'no-replay', found 'later'"},
      {"prune A 2 2", "keep 2 and 2 of 3 tokens"},
      {"prune A 1 1 up", "expected 'moved', found 'up'"},
      {"snapshot A", "expected 'snapshot A S'"},
      {"restore A S", "expected the name of a snapshot"},
      {"drop S", "expected the name of a snapshot"},
      {"save x", "expected 'save FILE A B'"},
      {"load x A", "expected a new name, found 'A'"},
      {"load x C C", "expected different names, found 'C'"},
      {"stats A", "expected 'stats'"},
  };
  for (const auto& [line, message] : cases) {
    const ProgramRun run = Seq("new A\nappend A 5 6 7\nnew B\n" + line + "\nstats\n");
    ExpectRefused(run, 2, message);
    EXPECT_THAT(run.error, StartsWith("kvant: line 4: ")) << line;
    EXPECT_EQ(Lines(run.out).size(), 3u) << line;
  }
  ExpectRefused(Seq("new A\nsave /nonexistent/x A\n"), 1, "line 2: /nonexistent/x: cannot create");
  ExpectRefused(Seq("load /nonexistent/x A\n"), 1, "line 1: /nonexistent/x: No such file");
  ExpectRefused(Seq("new A\nnew B\nnew C\n", {"--sequences", "2"}), 1,
                "there is room for 2 sequences");
  ExpectRefused(Seq("new A\nappend A \"To be, or not to be\"\n", {"-c", "4"}), 1,
                "do not fit the context of 4");
  ExpectRefused(RunProgram({"seq", Shakespeare()}), 2, "no program given");
  ExpectRefused(RunProgram({"seq", Shakespeare(), "-f", "/nonexistent"}), 1, "cannot open");
  EXPECT_EQ(SeqLines("").size(), 0u);
}

TEST_F(Sequences, EqualBitsHaveEqualHashesAfterRewindAndRestart) {
  for (const std::string type : {"f16", "q8"}) {
    const std::string file = folder_ / ("saved." + type);
    const Words options = {"--kv-type", type, "--kv-check", "--kv-poison"};
    const auto lines =
        SeqLines("new A\nappend A \"ROMEO:\"\ngenerate A 30\nfork A B\nsave " + file +
                     " A B\nrewind A 2\nappend A 4041\ngenerate A 30\n"
                     "generate B 5\nappend B \"\\nWho\"\n",
                 options);
    EXPECT_EQ(State(lines[6])["logits_xxh64"], State(lines[1])["logits_xxh64"]);
    EXPECT_EQ(lines[7]["ids"], lines[2]["ids"]);
    EXPECT_EQ(State(lines[7]), State(lines[2]));
    const auto later =
        SeqLines("load " + file + " B C\ngenerate C 5\nappend C \"\\nWho\"\ntokens B\n", options);
    EXPECT_EQ(State(later[0])["logits_xxh64"], State(lines[2])["logits_xxh64"]);
    EXPECT_EQ(later[1]["ids"], lines[8]["ids"]);
    EXPECT_EQ(State(later[2])["logits_xxh64"], State(lines[9])["logits_xxh64"]);
    EXPECT_EQ(later[3]["ids"].size(), 33u);
  }
  // A file of another type, and one that was cut, are refused by name.
  ExpectRefused(Seq("load " + (folder_ / "saved.q8") + " A B\n"), 1,
                "line 1: " + (folder_ / "saved.q8"));
  std::filesystem::resize_file(folder_ / "saved.f16", 500);
  ExpectRefused(Seq("load " + (folder_ / "saved.f16") + " A B\n"), 1, "ends at byte 500");
}

// ---- kvant run --prompts ------------------------------------------------------------------------

TEST_F(Sequences, SamplesOfPromptsAreThoseOfSingleRuns) {
  const std::string prompts =
      Write("prompts.jsonl",
            "{\"prompt\": \"ROMEO:\"}\n\n{\"prompt\": \"na\\u00efve \\ud834\\udd1e\", "
            "\"id\": 7}\n{\"prompt\": \"\"}\n");
  std::map<std::pair<int, int>, json> texts;
  for (const json& line : Lines(Text(
           {"--prompts", prompts, "--samples", "3", "--parallel", "4", "-n", "12", "-s", "5"}))) {
    texts[{line["prompt"], line["sample"]}] = line;
    const bool named = line["prompt"] == 1;  // this line has an id
    EXPECT_EQ(line.size(), named ? 7u : 6u);
    if (named) {
      EXPECT_EQ(line["id"], 7);
    }
  }
  ASSERT_EQ(texts.size(), 9u);
  const std::vector<std::string> plain = {"ROMEO:", "naïve 𝄞", ""};
  for (const auto& [key, line] : texts) {
    const auto [prompt, sample] = key;
    if (sample == 1) continue;
    const json alone = json::parse(Text({"-p", plain[static_cast<size_t>(prompt)], "-n", "12", "-s",
                                         std::to_string(5 + sample), "--json"}));
    EXPECT_EQ(line["ids"], alone["ids"]) << prompt << " " << sample;
    EXPECT_EQ(line["text"], alone["text"]);
    EXPECT_EQ(line["finish_reason"], alone["finish_reason"]);
    EXPECT_EQ(line["seed"], 5 + sample);
  }
  // From standard input, many samples, one at a time.
  const auto many = Lines(Text({"--prompts", "-", "--samples", "16", "--parallel", "1", "-n", "2"},
                               "{\"prompt\": \"ROMEO:\"}"));
  ASSERT_EQ(many.size(), 16u);
  for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ(many[i]["sample"], i);
}

// Each line answers for itself.
TEST_F(Sequences, WrongPromptsGetAnErrorAndOthersAnAnswer) {
  std::string words;
  for (int i = 0; i < 300; ++i) words += "word ";
  const std::string nul = std::string("{\"prompt\": \"a\"}") + '\0' + "{\"prompt\": \"b\"}\n";
  const std::string prompts =
      Write("prompts.jsonl",
            "{\"prompt\":\"a\"}\n{\"promt\":\"a\"}\n\n{\"prompt\":\n{\"prompt\": \"\xff\"}\n" +
                nul + "[\"a\"]\n{\"prompt\":\"a\",\"n\":3}\n{\"prompt\":\"" + words +
                "\",\"id\":\"long\"}\n{\"prompt\":\"b\"}\n");
  const std::vector<std::string> errors = {
      "",
      "line 2: expected {\"prompt\": TEXT}",
      "line 4: expected {\"prompt\": TEXT}, found what is not valid JSON",
      "line 5: expected {\"prompt\": TEXT}, found what is not valid JSON",
      "line 6: expected JSON, found a NUL byte",
      "line 7: expected {\"prompt\": TEXT}",
      "line 8: expected the keys \"prompt\" and \"id\", found \"n\"",
      "but the context has room for 64",
      ""};
  for (const Words& mode : {Words{}, Words{"--beams", "2"}}) {
    const ProgramRun run = RunModel(With({"--prompts", prompts, "-c", "64", "-n", "2"}, mode));
    ExpectRefused(run, 1, "prompts.jsonl: 7 of 9 prompts could not be answered");
    const auto lines = Lines(run.out);
    ASSERT_EQ(lines.size(), errors.size());
    std::map<size_t, json> answers;
    for (const json& line : lines) answers[line["prompt"]] = line;
    for (size_t i = 0; i < errors.size(); ++i) {
      EXPECT_EQ(answers[i].contains("error"), !errors[i].empty()) << i;
      EXPECT_EQ(answers[i].contains("finish_reason"), errors[i].empty()) << i;
      if (!errors[i].empty()) {
        EXPECT_THAT(answers[i]["error"].get<std::string>(), HasSubstr(errors[i]));
      }
    }
    EXPECT_EQ(answers[7]["id"], "long");
  }
}

TEST_F(Sequences, WrongPromptsAreRefused) {
  const std::string good = Write("good.jsonl", "{\"prompt\": \"a\"}\n");
  const auto refuse = [&](const std::string& text, const std::string& message) {
    ExpectRefused(RunModel({"--prompts", Write("bad.jsonl", text), "-n", "1"}), 2, message);
  };
  refuse("", "bad.jsonl: no prompts");
  refuse("\n \n", "bad.jsonl: no prompts");
  ExpectRefused(RunModel({"--prompts", folder_.path().string()}), 1, "Is a directory");
  ExpectRefused(RunModel({"--prompts", "/nonexistent"}), 1, "cannot open");
  ExpectRefused(RunModel({"--prompts", good, "-p", "x"}), 2, "a prompt: not possible together");
  ExpectRefused(RunModel({"--prompts", good, "-"}), 2, "a prompt: not possible together");
  for (const Words& option : {Words{"--session", "s"},
                              {"--draft", "ngram"},
                              {"--echo"},
                              {"--context-shift"},
                              {"--no-kv-cache"}}) {
    ExpectRefused(RunModel(With({"--prompts", good}, option)), 2,
                  option[0] + ": not possible together with --prompts");
  }
  ExpectRefused(RunModel({"--samples", "2", "-p", "x"}), 2, "--samples: expected --prompts");
}

// ---- kvant run --beams --------------------------------------------------------------------------

TEST_F(Sequences, BeamsTellTheirTextsScoresAndParents) {
  const Words options = {"-n", "9", "--beams", "3", "--num-return", "2", "--length-penalty", "0.5"};
  const json out = json::parse(Text(With({"-p", "ROMEO:", "--json"}, options)));
  EXPECT_EQ(out["prompt_ids"], (json{2, 1894, 4041}));
  EXPECT_EQ(out["steps"], 9);
  EXPECT_EQ(out["finish_reason"], "done");
  ASSERT_EQ(out["beams"].size(), 2u);
  for (const json& beam : out["beams"]) {
    const size_t length = beam["ids"].size();
    ASSERT_EQ(beam["logprobs"].size(), length);
    ASSERT_EQ(beam["parents"].size(), length);
    double sum = 0;
    for (const json& log_prob : beam["logprobs"]) sum += log_prob.get<double>();
    EXPECT_NEAR(beam["score"].get<double>(), sum / std::sqrt(static_cast<double>(length)), 1e-4);
    EXPECT_EQ(beam["parents"][0], 0);
    EXPECT_EQ(beam["ended"], false);
  }
  EXPECT_GE(out["beams"][0]["score"].get<double>(), out["beams"][1]["score"].get<double>());
  EXPECT_EQ(Text(With({"-p", "ROMEO:"}, options)),
            out["beams"][0]["text"].get<std::string>() + "\n" +
                out["beams"][1]["text"].get<std::string>() + "\n");
  // Several prompts at once give these texts, too, also where they wait for each other.
  const std::string prompts =
      Write("prompts.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"ROMEO:\"}\n{\"prompt\":\"B\"}\n");
  for (const std::string parallel : {"3", "9"}) {
    std::map<int, json> found;
    for (const json& line :
         Lines(Text(With({"--prompts", prompts, "--parallel", parallel}, options)))) {
      found[line["prompt"]] = line["beams"];
      EXPECT_EQ(line["finish_reason"], "done");
    }
    EXPECT_EQ(found.size(), 3u);
    EXPECT_EQ(found[1], out["beams"]);
  }
  EXPECT_EQ(json::parse(
                Text(With({"-p", "ROMEO:", "--json", "--kv-check", "--kv-poison", "--kv-prealloc"},
                          options)))["beams"],
            out["beams"]);
}

TEST_F(Sequences, DrawnBeamsAreThoseOfTheirSeed) {
  const Words request = {"-p", "ROMEO:", "-n", "12", "--beams", "2", "--beam-sample", "--json"};
  const json first = json::parse(Text(request));
  const json second = json::parse(Text(request));
  EXPECT_NE(first["seed"], second["seed"]);
  const std::string seed = std::to_string(first["seed"].get<uint64_t>());
  EXPECT_EQ(json::parse(Text(With(request, {"--seed", seed}))), first);
}

// Each option does what it says to the ids, in greedy search and in beam search.
TEST_F(Sequences, BeamsMayBeForcedAndBanned) {
  for (const std::string beams : {"1", "3"}) {
    const auto ids = [&](const Words& options) {
      const json out =
          json::parse(Text(With({"-p", "ROMEO:", "-n", "6", "--beams", beams, "--json"}, options)));
      return out["beams"][0]["ids"].get<std::vector<int>>();
    };
    const std::vector<int> plain = ids({});
    ASSERT_EQ(plain.size(), 6u);
    const std::string first = std::to_string(plain[0]);
    const std::string second = std::to_string(plain[1]);
    for (const std::string option : {"--suppress-ids", "--begin-suppress-ids", "--bad-words-ids"}) {
      EXPECT_NE(ids({option, first})[0], plain[0]) << option;
    }
    const std::vector<int> banned = ids({"--bad-words-ids", "7;" + first + "," + second});
    for (size_t i = 0; i + 1 < banned.size(); ++i) {
      EXPECT_FALSE(banned[i] == plain[0] && banned[i + 1] == plain[1]);
    }
    EXPECT_EQ(ids({"--forced-eos-id", "9"}).back(), 9);
    // The prompt has three tokens.
    EXPECT_EQ(ids({"--forced-bos-id", "9"}), plain);
  }
  // BOS is the whole prompt.
  const json forced = json::parse(Text(
      {"-n", "3", "--beams", "1", "--forced-bos-id", "9", "--begin-suppress-ids", "9", "--json"}));
  EXPECT_EQ(forced["prompt_ids"].size(), 1u);
  EXPECT_EQ(forced["beams"][0]["ids"][0], 9);
  EXPECT_EQ(forced["beams"][0]["logprobs"][0], 0.0);
  EXPECT_NE(forced["beams"][0]["ids"][1], 9);
}

// Keys of a file are as good as options, and options go before them.
TEST_F(Sequences, ModelsMayAskForASearch) {
  const std::string model = folder_ / "asks.gguf";
  const auto make = [&](const Words& settings) {
    Words arguments = {"quantize", Shakespeare(), model, "COPY"};
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--override-kv", "gemma3.generation." + setting});
    }
    const ProgramRun made = RunProgram(arguments);
    ASSERT_EQ(made.code, 0) << made.error;
  };
  const Words request = {"-p", "ROMEO:", "--json"};
  const auto run = [&](const Words& options) {
    return RunProgram(With(With({"run", model, "-t", "1"}, request), options));
  };
  const auto beams = [](const std::string& text) { return json::parse(text)["beams"]; };
  make({"num_beams=int:3", "suppress_ids=int:295", "max_length=int:12", "forced_eos_id=int:9",
        "length_penalty=float:0.5"});
  const Words same = {"--suppress-ids", "295", "--forced-eos-id", "9", "--length-penalty", "0.5"};
  const ProgramRun asked = run({});
  EXPECT_THAT(asked.error, HasSubstr("search as the model's file asks"));
  EXPECT_THAT(asked.error, HasSubstr("num_beams length_penalty max_length forced_eos_id"));
  EXPECT_EQ(beams(asked.out),  // the prompt has three tokens
            beams(Text(With(With(request, same), {"--beams", "3", "-n", "9"}))));
  EXPECT_EQ(beams(run({"--beams", "1", "-n", "4", "-q"}).out),
            beams(Text(With(With(request, same), {"--beams", "1", "-n", "4"}))));
  const ProgramRun plain = run({"--no-model-defaults", "--temp", "0", "-n", "4"});
  EXPECT_EQ(plain.error, "");
  EXPECT_FALSE(json::parse(plain.out).contains("beams"));
  make({"forced_bos_id=int:999999"});
  ExpectRefused(run({}), 1,
                "asks.gguf: key gemma3.generation.forced_bos_id: expected a token below");
}

TEST_F(Sequences, BeamOptionsThatMakeNoSenseAreNamed) {
  const auto refuse = [](const Words& options, const std::string& message) {
    ExpectRefused(RunModel(With({"-p", "x", "-n", "2"}, options)), 2, message);
  };
  refuse({"--beams", "3", "--num-return", "4"}, "num-return: expected 1 to 3, found 4");
  refuse({"--beams", "3", "--beam-groups", "2"}, "beam-groups: expected a divisor of 3 beams");
  refuse({"--beams", "4", "--beam-groups", "2"}, "diversity-penalty: expected a number above 0");
  refuse({"--beams", "2", "--early-stopping", "x"},
         "early-stopping: expected true, false or never");
  refuse({"--beams", "2", "--beam-scoring", "x"}, "beam-scoring: expected hf, ct2, whisper or oga");
  refuse({"--beams", "2", "--length-penalty", "x"}, "--length-penalty: expected a number");
  refuse({"--beams", "2", "--length-penalty", "nan"}, "length-penalty: expected a number");
  refuse({"--beams", "0"}, "--beams: expected a whole number from 1");
  refuse({"--beams", "2", "-n", "0"}, "-n: expected at least 1 token with --beams");
  refuse({"--beams", "2", "--stop", "x"}, "--stop: not possible together with --beams");
  refuse({"--beams", "2", "--suppress-ids", "4,x"}, "--suppress-ids: expected whole numbers");
  refuse({"--beams", "2", "--bad-words-ids", "4;;5"}, "--bad-words-ids: expected whole numbers");
  refuse({"--beams", "2", "--begin-suppress-ids", "99999"},
         "begin-suppress: token 99999 is outside the vocabulary of");
  refuse({"--beams", "2", "--forced-bos-id", "-1"}, "--forced-bos-id: expected a whole number");
  refuse({"--beams", "2", "--forced-bos-id", "5", "--suppress-ids", "5"},
         "suppress: expected tokens that are not forced, found 5");
  refuse({"--beams", "2", "--forced-eos-id", "5", "--beam-scoring", "ct2"},
         "forced-eos: expected beam-scoring hf");
  refuse({"--beams", "2", "--forced-eos-id", "5", "--ignore-eos"},
         "--forced-eos-id: not possible together with --ignore-eos");
  refuse({"--beams", "2", "--logit-bias", "5+1"}, "--logit-bias: not possible together");
  refuse({"--beams", "2", "--session", "s"}, "--session: not possible together with --beams");
  refuse({"--beams", "2", "--draft", "ngram"}, "--draft: not possible together with --beams");
  for (const Words& option : {Words{"--num-return", "2"},
                              {"--length-penalty", "2"},
                              {"--early-stopping", "true"},
                              {"--beam-groups", "2"},
                              {"--diversity", "1"},
                              {"--beam-scoring", "hf"},
                              {"--patience", "2"},
                              {"--min-tokens", "1"},
                              {"--no-repeat-ngram", "2"},
                              {"--bad-words-ids", "5,6;9"},
                              {"--min-length", "2"},
                              {"--forced-bos-id", "5"},
                              {"--forced-eos-id", "5"},
                              {"--suppress-ids", "5"},
                              {"--begin-suppress-ids", "5"},
                              {"--renormalize"},
                              {"--beam-sample"}}) {
    refuse(option, option[0] + ": expected --beams with it");
  }
}

}  // namespace
}  // namespace kvant::test
