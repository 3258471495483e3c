// The commands on encoder-decoders, run as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/temporary_folder.h"
#include "tests/this_build.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string JoinedIds(const std::vector<TokenId>& tokens, char separator) {
  std::string text;
  for (const TokenId token : tokens)
    text += (text.empty() ? "" : std::string(1, separator)) + std::to_string(token);
  return text;
}

class SourceProgram : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    seeded_.config["num_beams"] = 3;
    seeded_.config["max_length"] = 20;
    seeded_.config["bad_words_ids"] = {{7}, {9}};
    seeded_.config["length_penalty"] = 0.5;
    const auto path = seeded_.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    path_ = *path;
  }

  static std::string Output(const std::vector<std::string>& arguments,
                            const std::string& text = "") {
    const ProgramRun run = RunProgram(arguments, {.text = text});
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  }

  SeededModel seeded_{std::string(kSeededPairs) + "bart"};
  std::string path_;
};

TEST_F(SourceProgram, LogitsAreThoseOfTransformers) {
  const TemporaryFolder folder;
  const std::string out = folder / "logits.npy";
  Output({"logits", path_, "--source-tokens", JoinedIds(seeded_.Source(), ','), "--tokens",
          JoinedIds(seeded_.Tokens(), ','), "-o", out});
  const auto expected = formats::NpyRead(seeded_.LogitsPath());
  const auto found = formats::NpyRead(out);
  ASSERT_TRUE(expected.ok() && found.ok());
  ASSERT_EQ(found->values.size(), expected->values.size());
  for (size_t i = 0; i < found->values.size(); ++i) {
    ASSERT_NEAR(found->values[i], expected->values[i], 1e-4) << i;
  }
}

// The search is that of the folder's configuration, and the text begins with the decoder's token.
TEST_F(SourceProgram, RunSearchesAsTheFileAsks) {
  const json found = json::parse(Output({"run", path_, "-q", "--json", "-p", "abc"}));
  EXPECT_EQ(found["prompt_ids"], json::array({2}));
  ASSERT_EQ(found["beams"].size(), 1u);
  const auto ids = found["beams"][0]["ids"].get<std::vector<TokenId>>();
  EXPECT_LE(ids.size(), 19u);
  for (const TokenId banned : {7, 9}) EXPECT_EQ(std::ranges::count(ids, banned), 0);
  const json same = json::parse(
      Output({"run", path_, "-q", "--json", "-p", "abc", "--no-model-defaults", "--beams", "3",
              "--length-penalty", "0.5", "--suppress-ids", "7,9", "-n", "19"}));
  EXPECT_EQ(same["beams"], found["beams"]);
  const json plain =
      json::parse(Output({"run", path_, "-q", "--json", "-p", "abc", "--no-model-defaults"}));
  EXPECT_NE(plain["beams"], found["beams"]);
  EXPECT_EQ(plain["source_ids"], found["source_ids"]);
}

TEST_F(SourceProgram, WithoutACacheTextsAreTheSame) {
  const std::vector<std::string> run = {"run", path_, "-q", "--json", "--kv-type", "f32"};
  for (const std::vector<std::string>& mode : {std::vector<std::string>{"-p", "abc"},
                                               {"-p", "cab", "--beams", "2"},
                                               {"-p", "bc", "--temp", "1", "-s", "5"}}) {
    std::vector<std::string> cached = run;
    cached.insert(cached.end(), mode.begin(), mode.end());
    std::vector<std::string> uncached = cached;
    uncached.emplace_back("--no-kv-cache");
    std::vector<json> found;
    for (const auto& arguments : {cached, uncached}) {
      json one = json::parse(Output(arguments));
      found.push_back(one.contains("beams") ? one["beams"][0]["ids"] : one["ids"]);
    }
    EXPECT_FALSE(found[0].empty());
    EXPECT_EQ(found[0], found[1]);
  }
}

TEST_F(SourceProgram, BatchesGiveEachSourceItsText) {
  std::string prompts;
  for (const char* text : {"abc", "a", "abc", "cccbbb"}) {
    prompts += json({{"prompt", text}}).dump() + "\n";
  }
  std::istringstream lines(Output({"run", path_, "-q", "--prompts", "-"}, prompts));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json found = json::parse(line);
    const char* const texts[] = {"abc", "a", "abc", "cccbbb"};
    const json alone = json::parse(
        Output({"run", path_, "-q", "--json", "-p", texts[found["prompt"].get<size_t>()]}));
    EXPECT_EQ(found["beams"][0]["ids"], alone["beams"][0]["ids"]) << line;
  }
  EXPECT_EQ(count, 4u);
}

TEST_F(SourceProgram, ProgramsOfSequencesHaveSources) {
  const std::string program = "encode S " + JoinedIds(seeded_.Source(), ' ') +
                              "\nnew A S\nappend A 5 6\nnew B S\nforget S\nappend B 5 6\n"
                              "encode T " +
                              JoinedIds(seeded_.Source(), ' ') + "\nstats\ncheck\n";
  std::istringstream lines(Output({"seq", path_, "-"}, program));
  std::vector<json> results;
  for (std::string line; std::getline(lines, line);) results.push_back(json::parse(line));
  ASSERT_EQ(results.size(), 9u);
  EXPECT_EQ(results[2]["state"][0]["logits_xxh64"], results[5]["state"][0]["logits_xxh64"]);
  EXPECT_EQ(results[7]["stats"]["encoder_passes"], 1);
  const ProgramRun exported =
      RunProgram({"seq", path_, "-"}, {.text = "new A\nexport /nonexistent/x bhsd A\n"});
  EXPECT_THAT(exported.error, HasSubstr("expected a model without an encoder, found bart"));
  const ProgramRun wrong = RunProgram({"seq", path_, "-"}, {.text = "new A S\n"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.error, HasSubstr("line 1: expected a source, found 'S'"));
}

// A text that is kept in a file is the greedy search's, cut anywhere, and belongs to its source.
TEST_F(SourceProgram, SessionsGoOnBehindTheirSource) {
  const TemporaryFolder folder;
  const std::string file = folder / "session.kvs";
  const auto run = [&](std::vector<std::string> arguments) {
    std::vector<std::string> all = {"run", path_, "-q", "--json", "--session", file};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return json::parse(Output(all));
  };
  const json whole =
      json::parse(Output({"run", path_, "-q", "--json", "-p", "abc", "--beams", "1", "-n", "12"}));
  auto expected = whole["beams"][0]["ids"].get<std::vector<TokenId>>();
  if (whole["beams"][0]["ended"].get<bool>()) expected.pop_back();
  ASSERT_GT(expected.size(), 6u);
  const json first = run({"-p", "abc", "-n", "5"});
  EXPECT_EQ(first["source_ids"], whole["source_ids"]);
  const json second = run({"-n", "1"});
  const json third = run({"-p", "abc", "-n", "6"});
  auto ids = first["ids"].get<std::vector<TokenId>>();
  for (const json& more : {second, third}) {
    const auto next = more["ids"].get<std::vector<TokenId>>();
    ids.insert(ids.end(), next.begin(), next.end());
  }
  EXPECT_EQ(ids, expected);
  const ProgramRun other = RunProgram({"run", path_, "-q", "--session", file, "-p", "b"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.error, HasSubstr("session.kvs: the saved text answers another source"));
  const ProgramRun prefix =
      RunProgram({"run", path_, "-q", "--session", file, "--prefix", "ccc", "-n", "1"});
  EXPECT_EQ(prefix.code, 2);
  EXPECT_THAT(prefix.error, HasSubstr("does not begin with --prefix"));
  const json dropped = run({"--prefix", "ccc", "--session-rewind", "-n", "3"});
  const json fresh = json::parse(Output(
      {"run", path_, "-q", "--json", "-p", "abc", "--prefix", "ccc", "--temp", "0", "-n", "3"}));
  EXPECT_EQ(dropped["ids"], fresh["ids"]);
  EXPECT_EQ(dropped["prompt_ids"], fresh["prompt_ids"]);
}

TEST_F(SourceProgram, SamplesAreThoseOfSeparateRuns) {
  const std::string prompts = "{\"prompt\": \"abc\"}\n{\"prompt\": \"ccba\"}\n";
  const auto batch = [&](int samples, int seed) {
    std::istringstream lines(
        Output({"run", path_, "-q", "--prompts", "-", "--samples", std::to_string(samples),
                "--seed", std::to_string(seed), "--temp", "1.5", "-n", "9", "--ignore-eos"},
               prompts));
    std::vector<json> found;
    for (std::string line; std::getline(lines, line);) found.push_back(json::parse(line));
    return found;
  };
  const std::vector<json> together = batch(3, 5);
  ASSERT_EQ(together.size(), 6u);
  for (const json& text : together) {
    EXPECT_EQ(text["ids"].size(), 9u);
    for (const TokenId banned : {7, 9}) {
      EXPECT_EQ(std::ranges::count(text["ids"].get<std::vector<TokenId>>(), banned), 0);
    }
    const int seed = 5 + text["sample"].get<int>();
    for (const json& alone : batch(1, seed)) {
      if (alone["prompt"] != text["prompt"]) continue;
      EXPECT_EQ(alone["ids"], text["ids"]) << text;
    }
    if (text["prompt"] != 0) continue;
    const json one =
        json::parse(Output({"run", path_, "-q", "--json", "-p", "abc", "--temp", "1.5", "--seed",
                            std::to_string(seed), "-n", "9", "--ignore-eos"}));
    EXPECT_EQ(one["ids"], text["ids"]);
  }
}

// The type of a source's keys and values is chosen apart from that of the text's.
TEST_F(SourceProgram, SourcesHaveATypeOfTheirOwn) {
  const auto bytes = [&](const std::vector<std::string>& types) {
    std::vector<std::string> arguments = {"inspect", path_, "--memory", "--json"};
    arguments.insert(arguments.end(), types.begin(), types.end());
    return json::parse(Output(arguments))["memory"]["kv"].get<uint64_t>();
  };
  const uint64_t f32 = bytes({"--kv-type", "f32"});
  const uint64_t of_source = bytes({"--kv-type", "f32", "--source-kv-type", "q8"});
  EXPECT_LT(of_source, f32);
  EXPECT_LT(bytes({"--kv-type", "q8"}), of_source);
  const json found =
      json::parse(Output({"run", path_, "-q", "--json", "-p", "abc", "--source-kv-type", "q8"}));
  EXPECT_EQ(found["beams"].size(), 1u);
  const ProgramRun none =
      RunProgram({"run", "shakespeare", "-p", "a", "-n", "1", "--source-kv-type", "q8"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.error, HasSubstr("--source-kv-type: expected a model with an encoder"));
}

TEST_F(SourceProgram, ProgramsOfSequencesSaveSources) {
  const TemporaryFolder folder;
  const std::string file = folder / "two.kvs";
  const std::string source = JoinedIds(seeded_.Source(), ' ');
  Output({"seq", path_, "-"}, "encode S " + source + "\nnew A S\nappend A 5 6\nfork A B\n" +
                                  "append B 7\nsave " + file + " A B\n");
  std::istringstream lines(
      Output({"seq", path_, "-"}, "load " + file + " A B\nappend B 8\n" + "stats\ncheck\n"));
  std::vector<json> results;
  for (std::string line; std::getline(lines, line);) results.push_back(json::parse(line));
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[2]["stats"]["encoder_passes"], 0);
  const std::string again =
      Output({"seq", path_, "-"}, "encode S " + source + "\nnew B S\nappend B 5 6 7 8\n");
  EXPECT_THAT(again, HasSubstr(results[1]["state"][0]["logits_xxh64"].dump()));
}

// mBART has the languages behind the source and in place of the first token, mBART-50, which has
// another number of them, before the source and forced.
TEST_F(SourceProgram, LanguagesHaveTheirPlaces) {
  const std::vector<std::string> names = {
      "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN",
      "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP",
      "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN"};
  constexpr int kFirst = 30;  // tokens in front of them
  for (const size_t count : {size_t{25}, size_t{5}}) {
    SeededModel seeded(std::string(kSeededPairs) + "mbart");
    for (size_t i = 0; i < count; ++i) {
      seeded.added_tokens.push_back(
          {{"id", kFirst + static_cast<int>(i)}, {"content", names[i]}, {"special", true}});
    }
    const auto path = seeded.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    const json plain = json::parse(Output({"run", *path, "-q", "--json", "-p", "abc"}));
    auto source = plain["source_ids"].get<std::vector<TokenId>>();
    const json found = json::parse(Output({"run", *path, "-q", "--json", "-p", "abc",
                                           "--source-lang", "en_XX", "--target-lang", "de"}));
    const bool behind = count == 25;
    source.insert(behind ? source.end() : source.begin(), kFirst + 3);
    EXPECT_EQ(found["source_ids"].get<std::vector<TokenId>>(), source);
    const auto first = found["prompt_ids"][0].get<TokenId>();
    EXPECT_EQ(first, behind ? kFirst + 2 : 2);
    if (!behind) {
      EXPECT_EQ(found["beams"][0]["ids"][0], kFirst + 2);
    }
    const ProgramRun wrong = RunProgram({"run", *path, "-p", "a", "--target-lang", "xx"});
    EXPECT_NE(wrong.code, 0);
    EXPECT_THAT(wrong.error, HasSubstr("expected a language of the model (ar_AR, cs_CZ, "));
  }
  const ProgramRun none = RunProgram({"run", path_, "-p", "a", "--source-lang", "de"});
  EXPECT_THAT(none.error, HasSubstr("expected a language of the model (it has none), found"));
}

// The mean of what the logits say of each token of the targets.
TEST_F(SourceProgram, PerplexityScoresPairs) {
  const TemporaryFolder folder;
  const std::string pairs = folder / "pairs.jsonl";
  const std::string texts[][2] = {{"abc", "cab"}, {"a", "bbcacb"}, {"ccc", "a"}};
  std::ofstream file(pairs);
  for (const auto& pair : texts) {
    file << json({{"source", pair[0]}, {"target", pair[1]}}).dump() << "\n\n";
  }
  file.close();
  const json report =
      json::parse(Output({"perplexity", path_, "--pairs", pairs, "--json", "--kv-type", "f32"}));
  double nll = 0;
  int64_t count = 0;
  for (const auto& pair : texts) {
    const json tokens = json::parse(Output({"tokenize", path_, "-p", pair[1], "--json"}));
    std::vector<TokenId> ids = {2};
    for (const json& id : tokens["ids"]) ids.push_back(id.get<TokenId>());
    const std::string out = folder / "logits.npy";
    Output({"logits", path_, "--source", pair[0], "--tokens", JoinedIds(ids, ','), "-o", out});
    const auto logits = formats::NpyRead(out);
    ASSERT_TRUE(logits.ok());
    const size_t vocab = logits->values.size() / ids.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i, ++count) {
      double sum = 0;
      for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{logits->values[i * vocab + v]});
      const auto next = static_cast<size_t>(ids[i + 1]);
      nll += std::log(sum) - double{logits->values[i * vocab + next]};
    }
  }
  EXPECT_EQ(report["pairs"], 3);
  EXPECT_EQ(report["tokens"], count);
  EXPECT_NEAR(report["nll"].get<double>(), nll / static_cast<double>(count), 1e-5);
  std::ofstream(pairs) << "{\"source\": \"a\"}\n[1]\n";
  const ProgramRun wrong = RunProgram({"perplexity", path_, "--pairs", pairs});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.error, HasSubstr("pairs.jsonl:1: \"target\" is no text"));
  EXPECT_THAT(wrong.error, HasSubstr("pairs.jsonl:2: expected a JSON object, found [1]"));
}

TEST_F(SourceProgram, MemoryTellsOfTheEncoder) {
  const json memory = json::parse(Output({"inspect", path_, "--memory", "--json"}))["memory"];
  EXPECT_GT(memory["encoder"].get<uint64_t>(), 0u);
  uint64_t total = 0;
  for (const char* part : {"weights", "kv", "activations", "encoder", "logits"}) {
    total += memory[part].get<uint64_t>();
  }
  EXPECT_EQ(memory["total"], total);
  EXPECT_THAT(Output({"inspect", path_, "--memory"}), HasSubstr("\n  encoder "));
}

TEST_F(SourceProgram, WrongUsageIsToldInALine) {
  const auto fails = [](const std::vector<std::string>& arguments, const char* message) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_NE(run.code, 0);
    EXPECT_THAT(run.error, HasSubstr(message));
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_EQ(run.out, "");
  };
  fails({"logits", path_, "--tokens", "1", "-o", "x.npy"}, "the model reads a source");
  fails({"logits", "shakespeare", "--tokens", "1", "--source", "a", "-o", "x.npy"},
        "the model reads no source, found --source");
  fails({"run", "shakespeare", "-p", "a", "--prefix", "b"},
        "--prefix: expected a model that has an encoder");
  fails({"run", path_, "-p", "a", "--chat"}, "--chat: not possible together with");
  fails({"run", path_, "-p", "a", "--draft", "ngram"},
        "--draft: not possible together with a model that has an encoder");
  fails({"run", path_, "-p", "a", "--temp", "1", "--length-penalty", "1"},
        "--length-penalty: expected --beams");
}

}  // namespace
}  // namespace kvant::test
