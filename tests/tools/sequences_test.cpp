// Sequences from the shell, on the model that comes with kvant: programs of operations, batches,
// beams, sessions, drafts, shifted contexts, the log and the memory of the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

std::string Model() { return SourcePath("models/shakespeare/shakespeare.gguf"); }

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// kvant run on one thread: the tests share the machine.
ProgramRun RunModel(const Words& arguments, const ProgramInput& input = {}) {
  return RunProgram(With({"run", Model(), "-t", "1"}, arguments), input);
}

// The same; it succeeded silently and printed this.
std::string Text(const Words& arguments, const std::string& stdin_text = "") {
  const ProgramRun run = RunModel(arguments, {.text = stdin_text});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.error, "");
  return run.out;
}

// Lines of JSON.
std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

ProgramRun Seq(const std::string& program, const Words& options = {}) {
  return RunProgram(With({"seq", Model(), "-t", "1", "-"}, options), {.text = program});
}

// The lines of a program that succeeds.
std::vector<json> SeqLines(const std::string& program, const Words& options = {}) {
  const ProgramRun run = Seq(program, options);
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.error, "");
  return Lines(run.out);
}

json State(const json& line, size_t i = 0) { return line["state"][i]; }

void ExpectRefused(const ProgramRun& run, int code, const std::string& message) {
  EXPECT_EQ(run.code, code) << run.error;
  EXPECT_THAT(run.error, HasSubstr(message));
  EXPECT_EQ(run.error_lines(), 1u) << run.error;
}

class Sequences : public testing::Test {
 protected:
  void SetUp() override { KVANT_SKIP_WITHOUT_PROGRAM(); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  TemporaryFolder folder_;
};

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
  // What A was after the step is B's after the exchange, bit for bit.
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
      {"new A B", "expected 'new A'"},
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
      {"step A", "expected 'step A 15 B 27'"},
      {"step A 1 A 2", "appears twice"},
      {"generate A -1", "expected a count, found '-1'"},
      {"generate B 1", "expected a sequence whose last token has logits"},
      {"logits B 1", "expected a sequence whose last token has logits"},
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
  ExpectRefused(Seq("new A\nnew B\nnew C\n", {"--sequences", "2"}), 1, "all 2 sequences");
  ExpectRefused(Seq("new A\nappend A \"To be, or not to be\"\n", {"-c", "4"}), 1,
                "do not fit the context of 4");
  ExpectRefused(RunProgram({"seq", Model()}), 2, "no program given");
  ExpectRefused(RunProgram({"seq", Model(), "-f", "/nonexistent"}), 1, "cannot open");
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

TEST_F(Sequences, SamplesOfPromptsAreThoseOfSingleRuns) {  // KV-46, KV-47
  const std::string prompts =
      Write("prompts.jsonl",
            "{\"prompt\": \"ROMEO:\"}\n\n{\"prompt\": \"na\\u00efve \\ud834\\udd1e\", "
            "\"id\": 7}\n{\"prompt\": \"\"}\n");
  std::map<std::pair<int, int>, json> texts;
  for (const json& line : Lines(Text(
           {"--prompts", prompts, "--samples", "3", "--parallel", "4", "-n", "12", "-s", "5"}))) {
    texts[{line["prompt"], line["sample"]}] = line;
    EXPECT_EQ(line.size(), 6u);
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

TEST_F(Sequences, WrongPromptsAreRefused) {
  const std::string good = Write("good.jsonl", "{\"prompt\": \"a\"}\n");
  const auto refuse = [&](const std::string& text, const std::string& message) {
    ExpectRefused(RunModel({"--prompts", Write("bad.jsonl", text), "-n", "1"}), 2, message);
  };
  refuse("", "bad.jsonl: no prompts");
  refuse("\n \n", "bad.jsonl: no prompts");
  refuse("{\"prompt\":\"a\"}\n{\"promt\":\"a\"}\n",
         "bad.jsonl: line 2: expected {\"prompt\": TEXT}");
  refuse("\n{\"prompt\":",
         "bad.jsonl: line 2: expected {\"prompt\": TEXT}, found what is not valid");
  refuse("{\"prompt\": \"\xff\"}", "not valid JSON");
  refuse("[\"a\"]", "line 1: expected");
  ExpectRefused(RunModel({"--prompts", folder_.path().string()}), 1, "Is a directory");
  ExpectRefused(RunModel({"--prompts", "/nonexistent"}), 1, "cannot open");
  ExpectRefused(RunModel({"--prompts", good, "-p", "x"}), 2, "a prompt: not possible together");
  ExpectRefused(RunModel({"--prompts", good, "-"}), 2, "a prompt: not possible together");
  for (const Words& option : {Words{"--session", "s"},
                              {"--draft", "ngram"},
                              {"--echo"},
                              {"--context-shift", "keep=0"},
                              {"--no-kv-cache"}}) {
    ExpectRefused(RunModel(With({"--prompts", good}, option)), 2,
                  option[0] + ": not possible together with --prompts");
  }
  ExpectRefused(RunModel({"--samples", "2", "-p", "x"}), 2, "--samples: expected --prompts");
  std::string words;
  for (int i = 0; i < 300; ++i) words += "word ";
  const std::string long_prompt =
      Write("long.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"" + words + "\"}\n");
  for (const Words& mode : {Words{}, Words{"--beams", "2"}}) {
    const ProgramRun run = RunModel(With({"--prompts", long_prompt, "-c", "64", "-n", "2"}, mode));
    ExpectRefused(run, 1, "prompt 1 has");
    EXPECT_EQ(run.out, "");
  }
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
  // The same for several prompts at once, also where they wait for each other.
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
                              {"--beam-sample"}}) {
    refuse(option, option[0] + ": expected --beams 2 or more with it");
  }
}

// ---- One long text ------------------------------------------------------------------------------

Words Greedy(const std::string& prompt, const std::string& tokens) {
  return {"-p", prompt, "--temp", "0", "-n", tokens};
}

TEST_F(Sequences, ASessionGoesOnWhereItEnded) {
  for (const std::string type : {"f16", "q8"}) {
    const std::string file = folder_ / ("session." + type);
    const Words session = {"--json", "--session", file, "--kv-type", type};
    const json whole =
        json::parse(Text(With(Greedy("ROMEO:", "40"), {"--json", "--kv-type", type})));
    const json first = json::parse(Text(With(Greedy("ROMEO:", "20"), session)));
    ASSERT_TRUE(std::filesystem::exists(file));
    const std::string so_far = "ROMEO:" + first["text"].get<std::string>();
    const json second = json::parse(Text(With(Greedy(so_far, "20"), session)));
    EXPECT_EQ(first["text"].get<std::string>() + second["text"].get<std::string>(), whole["text"]);
    EXPECT_EQ(second["prompt_tokens"], 23);
    // The last token of the first run was shown, not processed.
    EXPECT_EQ(second["timings"]["prefill_tokens"], 1);
    // Another text shares only its beginning.
    const json other = json::parse(Text(With(Greedy("ROMEO: No", "3"), session)));
    EXPECT_EQ(other["timings"]["prefill_tokens"], other["prompt_tokens"].get<int>() - 3);
  }
}

TEST_F(Sequences, ADamagedSessionIsRefusedAndKept) {
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
  for (const char* option : {"--session", "--draft", "--context-shift"}) {
    const char* value = option == std::string("--context-shift") ? "keep=1" : "ngram";
    ExpectRefused(RunModel(With(Greedy("x", "5"), {option, value, "--no-kv-cache"})), 2,
                  std::string(option) + ": not possible together with --no-kv-cache");
  }
}

TEST_F(Sequences, DraftsChangeNothing) {  // KV-44
  const Words request = With(Greedy("ROMEO:", "80"), {"--json"});
  const json plain = json::parse(Text(request));
  EXPECT_FALSE(plain.contains("draft"));
  const json ngram = json::parse(Text(With(request, {"--draft", "ngram"})));
  EXPECT_EQ(ngram["ids"], plain["ids"]);
  EXPECT_EQ(ngram["text"], plain["text"]);
  const json model =
      json::parse(Text(With(request, {"--draft", "shakespeare", "--draft-tokens", "4"})));
  EXPECT_EQ(model["text"], plain["text"]);
  EXPECT_EQ(model["draft"]["drafted_tokens"], 63);  // 79 = 15 * 5 + 4
  EXPECT_EQ(model["draft"]["accepted_tokens"], 63);
  EXPECT_EQ(model["draft"]["passes"], 16);
  const Words sampled = {"-p", "ROMEO:", "-n", "40", "-s", "3"};
  EXPECT_EQ(Text(With(sampled, {"--draft", "shakespeare"})), Text(sampled));
  ExpectRefused(RunModel(With(request, {"--draft", "/nonexistent"})), 1, "/nonexistent");
  ExpectRefused(RunModel(With(request, {"--draft", ""})), 2, "--draft: expected a model or ngram");
  ExpectRefused(RunModel(With(request, {"--draft", "ngram", "--draft-tokens", "32"})), 2,
                "--draft-tokens: expected a whole number from 1 to 31");
  ExpectRefused(RunModel(With(request, {"--draft", SourcePath("tests/reference/random_llamas/"
                                                              "gqa-6q3kv-tied-f16.gguf")})),
                2, "draft: expected a model of 4096 tokens");
}

TEST_F(Sequences, AShiftedContextGoesOn) {
  const Words request = With(Greedy("ROMEO:", "60"), {"-c", "24", "--json", "--kv-check"});
  const json full = json::parse(Text(request));
  EXPECT_EQ(full["finish_reason"], "context");
  EXPECT_EQ(full["ids"].size(), 22u);
  const json shifted = json::parse(Text(With(request, {"--context-shift", "keep=4"})));
  EXPECT_EQ(shifted["finish_reason"], "length");
  ASSERT_EQ(shifted["ids"].size(), 60u);
  EXPECT_TRUE(std::equal(full["ids"].begin(), full["ids"].end(), shifted["ids"].begin()));
  for (const std::string wrong : {"4", "keep=", "keep=-1", "keep=x", "stay=3", ""}) {
    ExpectRefused(RunModel(With(request, {"--context-shift", wrong})), 2,
                  "--context-shift: expected keep=N");
  }
}

// ---- What happens in the cache ------------------------------------------------------------------

TEST_F(Sequences, TheLogTellsTheShapeOfEveryLayer) {  // KV-70
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
  // The same on stderr.
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

TEST_F(Sequences, ABudgetIsRefusedWithWhatIsNeededAndWhatFits) {  // KV-22
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  for (const Words& mode : {Words{"-p", "ROMEO:"},
                            {"-p", "ROMEO:", "--beams", "2"},
                            {"--prompts", prompts},
                            {"--prompts", prompts, "--beams", "2"}}) {
    const ProgramRun run = RunModel(With(mode, {"-n", "3", "--kv-budget", "50K"}));
    ExpectRefused(run, 1, " bytes are needed for ");
    EXPECT_THAT(run.error, HasSubstr("50000 of 50000 are free"));
    EXPECT_THAT(run.error, HasSubstr("would fit"));
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(Text(With(Greedy("ROMEO:", "9"), {"--kv-budget", "96KiB"})),
            Text(Greedy("ROMEO:", "9")));
  for (const std::string wrong : {"0", "-5", "x", "1T", "99999999999999999999G"}) {
    ExpectRefused(RunModel({"-p", "x", "--kv-budget", wrong}), 2, "--kv-budget: expected a size");
  }
}

TEST_F(Sequences, ChecksPoisonAndTypesOfTheCache) {
  const Words request = Greedy("ROMEO:", "40");
  const std::string text = Text(request);
  EXPECT_EQ(Text(With(request, {"--kv-check", "--kv-poison"})), text);
  EXPECT_EQ(Text(With(request, {"--kv-check", "--kv-poison", "--kv-prealloc"})), text);
  // What was asked for is what is held: bytes of one token's keys and of its values in one of the
  // twelve heads.
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

TEST_F(Sequences, TheMemoryPlanTellsWhatFits) {  // KV-20, KV-22
  const auto inspect = [](const Words& options) {
    const ProgramRun run = RunProgram(With({"inspect", Model(), "--memory", "--json"}, options));
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
  ExpectRefused(RunProgram({"inspect", Model(), "--memory", "--budget", "x"}), 2, "--budget");
}

// ---- The shell ----------------------------------------------------------------------------------

TEST_F(Sequences, ReadersThatGoAwayEndQuietly) {
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  for (const std::string& command :
       {"run '" + Model() + "' -t 1 --prompts " + prompts + " --samples 4 -n 20",
        "run '" + Model() + "' -t 1 --prompts " + prompts + " --beams 2 -n 20",
        "seq '" + Model() +
            "' -t 1 -f <(echo new A; echo append A 5; yes 'generate A 1' | head -300)"}) {
    const ProgramRun run = RunShell("\"$KVANT\" " + command + " | head -c 20");
    EXPECT_EQ(run.code, 0) << command;
    EXPECT_EQ(run.error, "") << command;
    EXPECT_EQ(run.out.size(), 20u);
  }
}

TEST_F(Sequences, InterruptionsKeepWhatThereIs) {
  const std::string prompts = Write("p.jsonl", "{\"prompt\":\"A\"}\n{\"prompt\":\"B\"}\n");
  const Words long_text = {"-n", "-1", "--ignore-eos", "-c", "30000", "-q"};
  const ProgramInput soon = {.interrupt_after_ms = 250};
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
  const json later = json::parse(
      Text(With(Greedy("ROMEO:\nI am a woman", "3"), {"--session", file, "--json", "-c", "1000"})));
  EXPECT_EQ(later["timings"]["prefill_tokens"], 1);
}

TEST_F(Sequences, CompletionKnowsTheOptions) {
  const auto options = [](const std::string& command) {
    Words words;
    std::istringstream stream(RunProgram({command, "--list-options"}).out);
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  };
  for (const char* option :
       {"--beams",         "--length-penalty", "--early-stopping", "--num-return",
        "--beam-groups",   "--diversity",      "--beam-scoring",   "--beam-sample",
        "--prompts",       "--samples",        "--parallel",       "--session",
        "--context-shift", "--draft",          "--draft-tokens",   "--log",
        "--log-file",      "--kv-type",        "--kv-type-k",      "--kv-type-v",
        "--cache-type-k",  "--kv-check",       "--kv-poison",      "--kv-prealloc",
        "--kv-budget",     "--no-kv-rotation"}) {
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
