// The commands on models that read frames of sound, and on encoders alone, run as programs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/this_build.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

void WriteMatrix(const std::string& path, const std::vector<float>& values, int64_t rows) {
  auto file = formats::NpyWriter::Create(path, rows, std::ssize(values) / rows);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->WriteRows(values).ok());
  ASSERT_TRUE(file->Finish().ok());
}

void ExpectNearArrays(const std::string& found_path, const std::string& expected_path,
                      double limit) {
  const auto expected = formats::NpyRead(expected_path);
  const auto found = formats::NpyRead(found_path);
  ASSERT_TRUE(expected.ok() && found.ok());
  ASSERT_EQ(found->shape, expected->shape);
  for (size_t i = 0; i < found->values.size(); ++i) {
    ASSERT_NEAR(found->values[i], expected->values[i], limit) << i;
  }
}

std::string Commas(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += (text.empty() ? "" : ",") + std::to_string(token);
  return text;
}

std::string OutputOf(const std::vector<std::string>& arguments, const std::string& text = "") {
  const ProgramRun run = RunProgram(arguments, {.text = text});
  EXPECT_EQ(run.code, 0) << run.error;
  return run.out;
}

// The one line that a command fails with.
std::string ErrorOf(const std::vector<std::string>& arguments) {
  const ProgramRun run = RunProgram(arguments, {});
  EXPECT_NE(run.code, 0);
  EXPECT_EQ(run.out, "");
  return run.error;
}

class SpeechProgram : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    const auto path = seeded_.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    path_ = *path;
    frames_ = folder_ / "mel.npy";
    WriteMatrix(frames_, seeded_.Frames(), 20);
  }

  SeededModel seeded_{std::string(kSeededSpeech) + "whisper-stacks"};
  TemporaryFolder folder_;
  std::string path_;
  std::string frames_;
};

TEST_F(SpeechProgram, LogitsAndRowsAreThoseOfTransformers) {
  const std::string out = folder_ / "out.npy";
  OutputOf({"logits", path_, "--frames", frames_, "--tokens", Commas(seeded_.Tokens()), "-o", out});
  ExpectNearArrays(out, seeded_.LogitsPath(), 1e-4);
  OutputOf({"logits", path_, "--frames", frames_, "--encoded", "-o", out});
  ExpectNearArrays(out, seeded_.EncodedPath(), 4e-5);
}

// The options of a search with the settings of a line.
std::vector<std::string> OptionsOf(const json& settings) {
  std::vector<std::string> options = {"--beams", settings["num_beams"].dump()};
  const auto add = [&](const char* key, const char* option) {
    if (!settings.contains(key)) return;
    const json& value = settings[key];
    options.push_back(option);
    options.push_back(value.is_array() ? Commas(value.get<std::vector<TokenId>>()) : value.dump());
  };
  add("num_return_sequences", "--num-return");
  add("early_stopping", "--early-stopping");
  add("length_penalty", "--length-penalty");
  add("no_repeat_ngram_size", "--no-repeat-ngram");
  add("suppress_tokens", "--suppress-ids");
  add("begin_suppress_tokens", "--begin-suppress-ids");
  return options;
}

// By options with the general `generate`, and by the folder's settings with Whisper's own, which
// leaves out the end.
TEST_F(SpeechProgram, RunFindsTheTextsOfTransformers) {
  std::ifstream file(seeded_.SearchesPath());
  size_t count = 0;
  for (std::string text; std::getline(file, text); ++count) {
    const json line = json::parse(text);
    const bool own = line.contains("own");
    seeded_.config["eos_token_id"] = line["eos"];
    seeded_.generation = json::object();
    if (own) {
      seeded_.generation = line["settings"];
      seeded_.generation["max_length"] = line["max_length"];
    }
    const auto path = seeded_.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    std::vector<std::string> run = {"run", *path, "-q", "--json", "--frames", frames_};
    if (!own) {
      run.insert(run.end(), {"-n", "23"});
      for (const std::string& option : OptionsOf(line["settings"])) run.push_back(option);
    }
    const json found = json::parse(OutputOf(run));
    EXPECT_EQ(found["prompt_ids"], line["start"]) << text;
    ASSERT_EQ(found["beams"].size(), line["texts"].size()) << text;
    for (size_t i = 0; i < found["beams"].size(); ++i) {
      auto ids = found["beams"][i]["ids"].get<std::vector<TokenId>>();
      if (own && found["beams"][i]["ended"]) ids.pop_back();
      EXPECT_EQ(ids, line["texts"][i].get<std::vector<TokenId>>()) << text;
    }
  }
  EXPECT_EQ(count, 14u);
}

TEST_F(SpeechProgram, TextsBeginAsTheFolderOrAPrefixSays) {
  seeded_.generation = {{"forced_decoder_ids", {{1, 20}, {2, 21}}}, {"max_length", 9}};
  const auto path = seeded_.Convert();
  ASSERT_TRUE(path.ok());
  const std::vector<std::string> run = {"run", *path, "-q", "--json", "--frames", frames_};
  const json own = json::parse(OutputOf(run));
  EXPECT_EQ(own["prompt_ids"], json::array({2, 20, 21}));
  EXPECT_LE(own["beams"][0]["ids"].size(), 6u);
  std::vector<std::string> with_prefix = run;
  with_prefix.insert(with_prefix.end(), {"--prefix", "ab"});
  const json prefixed = json::parse(OutputOf(with_prefix));
  EXPECT_EQ(prefixed["prompt_ids"][0], 2);
  EXPECT_NE(prefixed["prompt_ids"], own["prompt_ids"]);
}

TEST_F(SpeechProgram, LanguagesMayBeNamed) {
  seeded_.generation = {{"lang_to_id", {{"<|en|>", 3}, {"<|de|>", 4}}},
                        {"forced_decoder_ids", {{1, nullptr}, {2, 21}}},
                        {"max_length", 9}};
  for (const auto& [id, text] : {std::pair(3, "<|en|>"), std::pair(4, "<|de|>")}) {
    seeded_.added_tokens.push_back({{"id", id}, {"content", text}, {"special", true}});
  }
  const auto path = seeded_.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const std::vector<std::string> run = {"run", *path, "-q", "--json", "--frames", frames_};
  const auto prompt = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    return json::parse(OutputOf(all))["prompt_ids"];
  };
  const json likeliest = prompt({});
  EXPECT_TRUE(likeliest == json({2, 3, 21}) || likeliest == json({2, 4, 21})) << likeliest;
  EXPECT_EQ(prompt({"--source-lang", "de"}), json({2, 4, 21}));
  EXPECT_EQ(prompt({"--source-lang", "<|en|>"}), json({2, 3, 21}));
  EXPECT_EQ(prompt({"--source-lang", "de", "--prefix", "<|en|>"}), json({2, 4}));
  EXPECT_EQ(prompt({"--source-lang", "de", "--no-model-defaults", "-n", "3"}), json({2, 4}));
  EXPECT_THAT(ErrorOf({"run", *path, "-q", "--frames", frames_, "--source-lang", "xx"}),
              HasSubstr("(en, de)"));
  EXPECT_THAT(ErrorOf({"run", *path, "-q", "--frames", frames_, "--target-lang", "de"}),
              HasSubstr("--target-lang"));
  seeded_.generation = json::object();
  ASSERT_TRUE(seeded_.Convert().ok());
  EXPECT_THAT(ErrorOf({"run", path_, "-q", "--frames", frames_, "--source-lang", "de"}),
              HasSubstr("it has none"));
}

TEST_F(SpeechProgram, WhatIsMissingOrWrongIsSaid) {
  const std::string need = "the model reads 66 frames of 20 numbers";
  EXPECT_THAT(ErrorOf({"run", path_, "-q"}), HasSubstr(need));
  EXPECT_THAT(ErrorOf({"run", path_, "-q"}), HasSubstr("expected --frames FILE.npy"));
  EXPECT_THAT(ErrorOf({"run", path_, "-q", "-p", "abc", "--frames", frames_}),
              HasSubstr("no prompt"));
  EXPECT_THAT(ErrorOf({"logits", path_, "--tokens", "2", "-o", folder_ / "x.npy"}),
              HasSubstr(need));
  EXPECT_THAT(ErrorOf({"logits", path_, "--source", "abc", "--tokens", "2", "-o", folder_ / "x"}),
              HasSubstr("by --frames alone"));
  const std::string wrong = folder_ / "wrong.npy";
  for (const auto& [rows, columns] : {std::pair{20, 67}, std::pair{19, 66}, std::pair{66, 20}}) {
    WriteMatrix(wrong, std::vector<float>(static_cast<size_t>(rows * columns)), rows);
    EXPECT_THAT(ErrorOf({"run", path_, "-q", "--frames", wrong}),
                HasSubstr(fmt::format("wrong.npy: expected an array of shape [20, 1 to 66], found "
                                      "[{}, {}]",
                                      rows, columns)));
  }
  std::vector<float> broken = seeded_.Frames();
  broken[100] = NAN;
  WriteMatrix(wrong, broken, 20);
  EXPECT_THAT(ErrorOf({"run", path_, "-q", "--frames", wrong}), HasSubstr("found nan"));
  const ProgramRun batch = RunProgram({"run", path_, "-q", "--prompts", "-"}, {.text = "{}"});
  EXPECT_THAT(batch.error, HasSubstr("and no --prompts"));
}

// Writes a file of NumPy of any type and shape.
template <class T>
void WriteArray(const std::string& path, const std::string& type, const std::string& shape,
                const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Features that transformers extracts end with frames of silence. They are left out here, and put
// back by the program.
TEST_F(SpeechProgram, SilenceFollowsFewerFrames) {
  for (const char* name : {"loud", "quiet"}) {
    const std::string whole =
        SourcePath(std::string("tests/reference/silent_frames/") + name + ".npy");
    const auto array = formats::NpyRead(whole);
    ASSERT_TRUE(array.ok()) << array.error().message;
    ASSERT_EQ(array->shape, (std::vector<int64_t>{1, 20, 66}));
    constexpr size_t kSound = 24;  // frames that are not silent
    std::vector<float> few;
    for (size_t i = 0; i < array->values.size(); ++i) {
      if (i % 66 < kSound) few.push_back(array->values[i]);
    }
    const auto rows = [&](const std::string& frames) {
      const std::string out = folder_ / "rows.npy";
      OutputOf({"logits", path_, "--frames", frames, "--encoded", "-o", out});
      return formats::NpyRead(out)->values;
    };
    const std::vector<float> expected = rows(whole);
    const std::string file = folder_ / "few.npy";
    WriteArray(file, "<f4", "20, 24", few);
    const std::vector<float> found = rows(file);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << name;
    WriteArray(file, "<f8", "1, 20, 24", std::vector<double>(few.begin(), few.end()));
    EXPECT_EQ(rows(file), found);
  }
}

TEST_F(SpeechProgram, FramesAreForModelsThatReadThem) {
  SeededModel bart(std::string(kSeededPairs) + "bart");
  const auto path = bart.Convert();
  ASSERT_TRUE(path.ok());
  EXPECT_THAT(ErrorOf({"run", *path, "-q", "-p", "a", "--frames", frames_}), HasSubstr("--frames"));
  EXPECT_THAT(ErrorOf({"logits", *path, "--frames", frames_, "--tokens", "2", "-o", "x.npy"}),
              HasSubstr("reads no frames"));
}

TEST_F(SpeechProgram, ProgramsOfSequencesHaveFrames) {
  const std::string program = "encode S frames " + frames_ +
                              "\nnew A S\nappend A 2 5\nencode T frames " + frames_ +
                              "\nnew B T\nappend B 2 5\nstats\ncheck\n";
  std::istringstream lines(OutputOf({"seq", path_, "-"}, program));
  std::vector<json> results;
  for (std::string line; std::getline(lines, line);) results.push_back(json::parse(line));
  ASSERT_EQ(results.size(), 8u);
  EXPECT_EQ(results[0]["frames"], 66);
  EXPECT_EQ(results[2]["state"][0]["logits_xxh64"], results[5]["state"][0]["logits_xxh64"]);
  EXPECT_EQ(results[6]["stats"]["encoder_passes"], 1);
  const ProgramRun wrong = RunProgram({"seq", path_, "-"}, {.text = "encode S 1 2\n"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_THAT(wrong.error, HasSubstr("encode S frames FILE.npy"));
}

TEST_F(SpeechProgram, InspectTellsWhatIsRead) {
  EXPECT_THAT(OutputOf({"inspect", path_}), HasSubstr("whisper.audio.mel_bins"));
  EXPECT_THAT(OutputOf({"inspect", path_, "--plan"}), HasSubstr("enc.conv1d.1.weight"));
  const json memory = json::parse(OutputOf({"inspect", path_, "--memory", "--json"}))["memory"];
  EXPECT_GT(memory["encoder"].get<int64_t>(), 66 * 60 * 4);
}

class EncoderProgram : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    const auto path = seeded_.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    path_ = *path;
  }

  SeededModel seeded_{std::string(kSeededEncoders) + "t5encoder-gated"};
  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(EncoderProgram, RowsAreThoseOfTransformers) {
  const std::string out = folder_ / "rows.npy";
  OutputOf({"logits", path_, "--source-tokens", Commas(seeded_.Source()), "-o", out});
  ExpectNearArrays(out, seeded_.EncodedPath(), 5e-5);
  OutputOf({"logits", path_, "--source", "abab", "-o", out});
  const auto rows = formats::NpyRead(out);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->shape.back(), 36);
  EXPECT_THAT(OutputOf({"inspect", path_, "--plan", "--memory"}), HasSubstr("encoder"));
}

TEST_F(EncoderProgram, CommandsThatWriteRefuseIt) {
  const std::string alone = "the model is an encoder alone (t5encoder)";
  EXPECT_THAT(ErrorOf({"run", path_, "-q", "-p", "a"}), HasSubstr(alone));
  EXPECT_THAT(ErrorOf({"chat", path_, "-p", "a", "--single-turn", "--chat-template", "chatml"}),
              HasSubstr(alone));
  EXPECT_THAT(ErrorOf({"score", path_, "-p", "a"}), HasSubstr(alone));
  EXPECT_THAT(ErrorOf({"bench", path_, "-p", "8", "-n", "2", "-r", "1"}), HasSubstr(alone));
  std::ofstream(folder_ / "text.txt") << std::string(64, 'a');
  EXPECT_THAT(ErrorOf({"perplexity", path_, folder_ / "text.txt", "-c", "4"}), HasSubstr(alone));
  EXPECT_THAT(ErrorOf({"imatrix", path_, folder_ / "text.txt", "-c", "16", "-o", folder_ / "i"}),
              HasSubstr(alone));
  EXPECT_THAT(ErrorOf({"logits", path_, "--source", "a", "--tokens", "1", "-o", folder_ / "x"}),
              HasSubstr("give neither"));
}

}  // namespace
}  // namespace kvant::test
