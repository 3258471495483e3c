// Compares what a folder says about its model beside the weights with llama.cpp's converter (see
// tests/reference/make_card_cases.py), and reads cards that are no good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/convert/authorship.h"
#include "engine/convert/front_matter.h"
#include "formats/gguf.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using convert::FrontMatter;
using convert::ParseFrontMatter;
using formats::GgufFile;
using nlohmann::json;
using testing::ElementsAre;

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// All metadata that a folder gives, as JSON.
json MetadataOf(const std::string& folder, const std::string& output,
                const std::string& name = "") {
  const auto config = convert::FolderConfig::Read(folder);
  EXPECT_TRUE(config.ok());
  formats::GgufWriter writer;
  const Status status = convert::AddAuthorship(*config, name, writer);
  EXPECT_TRUE(status.ok());
  convert::AddSampling(config->generation, writer);
  EXPECT_TRUE(writer.Begin(output).ok() && writer.Finish().ok());
  const auto file = GgufFile::Open(output);
  json out = json::object();
  for (const auto& [key, value] : file->metadata()) {
    json& entry = out[std::string(key)];
    if (const auto* array = std::get_if<formats::GgufArray>(&value.value)) {
      for (const std::string_view text : array->strings) entry.push_back(std::string(text));
    } else if (const auto* text = std::get_if<std::string_view>(&value.value)) {
      entry = std::string(*text);
    } else if (const auto* number = std::get_if<double>(&value.value)) {
      entry = *number;
    } else if (const auto* whole = std::get_if<int64_t>(&value.value)) {
      entry = *whole;
    } else {
      entry = std::get<uint64_t>(value.value);
    }
  }
  return out;
}

TEST(Authorship, IsWhatLlamaCppKeeps) {
  std::ifstream stream(SourcePath("tests/reference/card_cases.json"));
  const json cases = json::parse(stream);
  ASSERT_GE(cases.size(), 7u);
  for (const json& entry : cases) {
    TemporaryFolder parent;
    const std::string folder = parent / entry["folder"].get<std::string>();
    std::filesystem::create_directory(folder);
    WriteText(folder + "/config.json", entry["config"].dump());
    if (entry["card"].is_string()) WriteText(folder + "/README.md", entry["card"]);
    if (entry["generation"].is_object()) {
      WriteText(folder + "/generation_config.json", entry["generation"].dump());
    }
    json expected = entry["metadata"];
    for (json& value : expected) {
      if (value.is_number_float()) value = static_cast<double>(value.get<float>());
    }
    EXPECT_EQ(MetadataOf(folder, parent / "out.gguf"), expected) << entry["folder"];
  }
}

TEST(Authorship, TakesTheGivenName) {
  TemporaryFolder parent;
  WriteText(parent / "config.json", "{}");
  WriteText(parent / "README.md", "---\nname: Another\n---\n");
  const json found = MetadataOf(parent.path().string(), parent / "out.gguf", "mine-7b");
  EXPECT_EQ(found["general.name"], "mine-7b");
}

// A setting that cannot be used is left out, and the rest is kept.
TEST(Authorship, ChecksSettingsForSampling) {
  TemporaryFolder parent;
  WriteText(parent / "config.json", "{}");
  WriteText(parent / "generation_config.json",
            R"({"top_k": 1.5, "top_p": 2, "min_p": "0.1", "temperature": 1e300, "mirostat": null,
                "penalty_repeat": -1, "penalty_last_n": 3000000000, "sequence": 7,
                "xtc_threshold": 0.25})");
  const json found = MetadataOf(parent.path().string(), parent / "out.gguf", "n");
  EXPECT_EQ(found, (json{{"general.name", "n"}, {"general.sampling.xtc_threshold", 0.25}}));
}

TEST(FrontMatter, ReadsTextsAndLists) {
  FrontMatter card = ParseFrontMatter(
      "---\n# comment\na: b # c\nd: 'it''s: x'\ne: \"q\\\"r\"\nf: [g, \"h, i\", 'j']\nk:\n- l\n"
      "- 'm # n'\n\n- o:p\nq: r#s\nt: https://u.v/w\n---\nx: y\n");
  EXPECT_THAT(card["a"], ElementsAre("b"));
  EXPECT_THAT(card["d"], ElementsAre("it's: x"));
  EXPECT_THAT(card["e"], ElementsAre("q\"r"));
  EXPECT_THAT(card["f"], ElementsAre("g", "h, i", "j"));
  EXPECT_THAT(card["k"], ElementsAre("l", "m # n", "o:p"));
  EXPECT_THAT(card["q"], ElementsAre("r#s"));
  EXPECT_THAT(card["t"], ElementsAre("https://u.v/w"));
  EXPECT_FALSE(card.contains("x"));
}

TEST(FrontMatter, PassesOverWhatGoesDeeper) {
  FrontMatter card = ParseFrontMatter(
      "---\na:\n- b: c\n  d: e\n- f\ng: |\n  h: i\n  j\nk: {l: m}\nn: &o p\nq: [r,\n  s]\nt: null\n"
      "u: \"v\nw: ~\nx: \xFF\nyes: \n---\n");
  EXPECT_THAT(card["a"], ElementsAre("f"));
  for (const char* key : {"g", "k", "n", "q", "t", "u", "w", "x", "yes"}) {
    EXPECT_TRUE(card[key].empty()) << key;
  }
}

TEST(FrontMatter, NeedsBothFences) {
  for (const char* text :
       {"", "a: b", "\n---\na: b\n---\n", "---\na: b\n", "---", "--- \na: b\n---"}) {
    EXPECT_TRUE(ParseFrontMatter(text).empty()) << text;
  }
}

}  // namespace
}  // namespace kvant::test
