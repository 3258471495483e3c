// Vocabularies whose pieces spell a space U+2581, of kinds that GGUF has no plain word for, from
// folders: ids of texts as the fast tokenizers of Hugging Face make them
// (tests/reference/make_marked_tokenizers.py), and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/convert/special_tokens.h"
#include "engine/convert/vocabulary.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json ReadMarkedCases(const std::string& name) {
  const char* const folder = std::getenv("KVANT_MARKED_TOKENIZERS");
  const std::string in =
      folder != nullptr ? folder : SourcePath("tests/reference/marked_tokenizers");
  return json::parse(std::ifstream(in + "/" + name + ".json"));
}

Result<convert::Vocabulary> ReadMarked(const HfFolder& folder, const json& cases) {
  for (const auto& [name, content] : cases["files"].items()) folder.WriteJson(name, content);
  const auto config =
      formats::JsonObject::Parse(cases["files"]["tokenizer_config.json"].dump(), "t.json");
  return convert::ReadVocabulary(folder.Path(), *config, cases["vocab_size"]);
}

class MarkedTokenizers : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Reference, MarkedTokenizers,
                         testing::Values("merges-words", "merges-whole", "merges-plain",
                                         "merges-table", "unigram-bytes", "unigram-llama",
                                         "unigram-table"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST_P(MarkedTokenizers, TextsBecomeTheirIds) {
  const json cases = ReadMarkedCases(GetParam());
  ASSERT_GT(cases["cases"].size(), 60u);
  const HfFolder folder;
  folder.Write();
  const auto vocabulary = ReadMarked(folder, cases);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  const auto config = convert::FolderConfig::Read(folder.Path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  formats::GgufWriter writer;
  vocabulary->AddTo(writer);
  ASSERT_TRUE(convert::AddSpecialTokens(*config, *vocabulary, writer).ok());
  ASSERT_TRUE(writer.Begin(folder / "v.gguf").ok() && writer.Finish().ok());
  const auto file = formats::GgufFile::Open(folder / "v.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::Create(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const auto& entry : cases["cases"]) {
    const auto ids =
        (*tokenizer)
            ->Encode(entry[0].get<std::string>(), {.add_special = false, .parse_special = true});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, entry[1].get<std::vector<TokenId>>()) << entry[0].dump(-1, ' ', true);
  }
}

struct MarkedChange {
  const char* name;
  const char* pointer;  // into tokenizer.json
  json value;
  const char* expected;
};

void PrintTo(const MarkedChange& change, std::ostream* out) {
  *out << change.name << change.pointer;
}

class MarkedTokenizerSteps : public testing::TestWithParam<MarkedChange> {};

TEST_P(MarkedTokenizerSteps, AreNamedWhereTheyCannotBeConverted) {
  json cases = ReadMarkedCases(GetParam().name);
  cases["files"]["tokenizer.json"][json::json_pointer(GetParam().pointer)] = GetParam().value;
  const HfFolder folder;
  folder.Write();
  const auto vocabulary = ReadMarked(folder, cases);
  ASSERT_FALSE(vocabulary.ok());
  EXPECT_THAT(vocabulary.error().message, HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Unknown, MarkedTokenizerSteps,
    testing::Values(
        MarkedChange{"merges-words", "/model/unk_token", nullptr,
                     "unk_token: none cannot be converted"},
        MarkedChange{"merges-words", "/model/ignore_merges", true, "ignore_merges: true cannot be"},
        MarkedChange{
            "merges-words", "/normalizer", {{"type", "NFKC"}}, "normalizer cannot be converted"},
        MarkedChange{"merges-words", "/pre_tokenizer",
                     json::parse(R"({"type": "Sequence", "pretokenizers": [
                         {"type": "WhitespaceSplit"},
                         {"type": "Metaspace", "replacement": "\u2581"}]})"),
                     "pre_tokenizer cannot be"},
        MarkedChange{"merges-words",
                     "/normalizer",
                     {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}},
                     "\"Strip\" cannot be converted"},
        MarkedChange{"merges-words", "/pre_tokenizer/replacement", "_", "pre_tokenizer cannot be"},
        MarkedChange{"unigram-bytes", "/model/vocab/5/0", "x",
                     "expected a piece for each byte, found 255"},
        MarkedChange{"unigram-bytes", "/pre_tokenizer", nullptr,
                     "expected spaces to become U+2581"}));

}  // namespace
}  // namespace kvant::test
