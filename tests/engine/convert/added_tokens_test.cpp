// Added tokens with lstrip, rstrip, single_word and normalized: every kind of tokenizer gives the
// ids of the tokenizers library (tests/reference/make_added_token_cases.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/log.h"
#include "engine/convert/convert.h"
#include "engine/tokenizer/token_flags.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Reference(const std::string& kind) {
  return json::parse(std::ifstream(SourcePath("tests/reference/added_tokens/" + kind + ".json")));
}

void ExpectIds(const Tokenizer& tokenizer, const json& cases) {
  ASSERT_GT(cases.size(), 100U);
  for (const json& row : cases) {
    const auto ids = tokenizer.Encode(row[0].get<std::string>(), {.parse_special = true});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, row[1].get<std::vector<TokenId>>()) << row[0];
  }
}

// A folder with a tokenizer.json, and a model for as many tokens.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(json tokenizer) {
    int64_t tokens = std::ssize(tokenizer["model"]["vocab"]);
    for (const json& token : tokenizer["added_tokens"]) {
      tokens = std::max(tokens, token["id"].get<int64_t>() + 1);
    }
    folder.config["vocab_size"] = tokens;
    folder.Add("model.embed_tokens.weight", {tokens, HfFolder::kDim});
    folder.Add("lm_head.weight", {tokens, HfFolder::kDim});
    folder.tokenizer = std::move(tokenizer);
  }

  Result<GgufFile> Convert() {
    folder.Write();
    const std::string output = folder / "out.gguf";
    KVANT_TRY(convert::ConvertFolder(folder.Path(), output, {.type = "f32"}));
    return GgufFile::Open(output);
  }

  HfFolder folder;
};

TEST(AddedTokens, FoldersGiveTheIdsOfTheirTokenizers) {
  for (const char* kind : {"bpe", "nfc", "spm"}) {
    SCOPED_TRACE(kind);
    const json reference = Reference(kind);
    TokenizerFolder folder(reference["tokenizer"]);
    const auto file = folder.Convert();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto tokenizer = Tokenizer::Create(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    ExpectIds(**tokenizer, reference["cases"]);
  }
}

// Adds the types and flags of added tokens.
void AddTokens(const json& added, std::vector<std::string>& tokens, std::vector<int32_t>& types,
               VocabularyFile& file) {
  constexpr const char* kFlags[] = {"lstrip", "rstrip", "single_word", "normalized", "cut_out"};
  std::map<std::string, std::vector<int32_t>> ids;
  for (const json& token : added) {
    const auto id = token["id"].get<size_t>();
    tokens.resize(std::max(tokens.size(), id + 1));
    types.resize(tokens.size(), kNormal);
    tokens[id] = token["content"];
    types[id] = token["special"] ? kControl : kUserDefined;
    if (types[id] == kUserDefined) ids["cut_out"].push_back(static_cast<int32_t>(id));
    for (const char* flag : kFlags) {
      if (token.value(flag, false)) ids[flag].push_back(static_cast<int32_t>(id));
    }
  }
  for (size_t i = 0; i < kTokenFlagKeys.size(); ++i) {
    file.Numbers(kTokenFlagKeys[i], formats::GgufType::kInt32, ids[kFlags[i]]);
  }
}

TEST(AddedTokens, WordPieceGivesTheIdsOfTokenizers) {
  const json reference = Reference("wordpiece");
  const json& model = reference["tokenizer"]["model"];
  std::vector<std::string> tokens(model["vocab"].size());
  std::vector<int32_t> types(tokens.size(), kNormal);
  for (const auto& [text, id] : model["vocab"].items()) {
    const bool is_special = text.starts_with("[") && text.size() > 1;
    const bool is_rest = text.starts_with("##");
    tokens[id] = is_special ? text : is_rest ? text.substr(2) : "\u2581" + text;
    if (is_special) types[id] = kControl;
  }
  VocabularyFile file("bert");
  AddTokens(reference["tokenizer"]["added_tokens"], tokens, types, file);
  file.Tokens(tokens).Types(types);
  file.U32("tokenizer.ggml.unknown_token_id", model["vocab"]["[UNK]"]);
  ExpectIds(*MakeTokenizer(file), reference["cases"]);
}

TEST(AddedTokens, UnigramGivesTheIdsOfTokenizers) {
  const json reference = Reference("unigram");
  std::vector<std::string> tokens;
  std::vector<float> scores;
  for (const json& piece : reference["tokenizer"]["model"]["vocab"]) {
    tokens.push_back(piece[0]);
    scores.push_back(piece[1]);
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  types[0] = types[1] = kControl;
  types[2] = kUnknown;
  VocabularyFile file("t5");
  AddTokens(reference["tokenizer"]["added_tokens"], tokens, types, file);
  scores.resize(tokens.size());
  file.Tokens(tokens).Types(types).Scores(scores);
  file.Bool("tokenizer.ggml.add_space_prefix", true);
  file.Bool("tokenizer.ggml.remove_extra_whitespaces", true);
  file.U32("tokenizer.ggml.unknown_token_id", 2);
  ExpectIds(*MakeTokenizer(file), reference["cases"]);
}

// Phi-3's tokens take the line behind them along, whatever the model is called.
TEST(AddedTokens, WhiteSpaceGoesWithTheTokensOfAnyModel) {
  TokenizerFolder folder(HfFolder().tokenizer);
  const json plain = {{"lstrip", false}, {"single_word", false}, {"normalized", false}};
  for (const auto& [id, text] :
       {std::pair(9, "<|user|>"), {10, "<|end|>"}, {11, "<|assistant|>"}}) {
    json token = plain;
    token.update({{"id", id}, {"content", text}, {"special", true}, {"rstrip", true}});
    folder.folder.tokenizer["added_tokens"].push_back(token);
  }
  TokenizerFolder grown(folder.folder.tokenizer);
  const auto file = grown.Convert();
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::Create(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto encode = [&] {
    return (*tokenizer)->Encode("<|user|>\nab<|end|>\n<|assistant|>\n", {.parse_special = true});
  };
  EXPECT_THAT(*encode(), ElementsAre(9, 8, 10, 11));
}

// tokenizer_config.json has the last word, as in transformers.
TEST(AddedTokens, TheDecoderOfTheSettingsCounts) {
  json tokenizer = HfFolder().tokenizer;
  tokenizer["added_tokens"].push_back({{"id", 9}, {"content", "<x>"}, {"special", true}});
  for (const bool strips : {false, true}) {
    TokenizerFolder folder(tokenizer);
    folder.folder.WriteJson(
        "tokenizer_config.json",
        {{"added_tokens_decoder",
          {{"9", {{"content", "<x>"}, {"special", true}, {"rstrip", strips}}}}}});
    const auto file = folder.Convert();
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->Find(kTokenFlagKeys[1]) != nullptr, strips);
  }
}

// No control token comes of foreign text, before and after normalization.
TEST(AddedTokens, ForeignTextStaysText) {
  json tokenizer = HfFolder().tokenizer;
  tokenizer["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  tokenizer["pre_tokenizer"] = nullptr;
  tokenizer["added_tokens"].push_back(
      {{"id", 9}, {"content", "a"}, {"special", true}, {"normalized", true}});
  TokenizerFolder folder(tokenizer);
  const auto file = folder.Convert();
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto made = Tokenizer::Create(*file);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_THAT(*(*made)->Encode("b a", {.parse_special = true}), ElementsAre(6, 5, 9));
  EXPECT_THAT(*(*made)->Encode("b a", {}), ElementsAre(6, 5, 6, 4));
  const TextRange foreign[] = {{2, 3}};
  const auto& vocabulary = dynamic_cast<const VocabularyTokenizer&>(**made);
  EXPECT_THAT(vocabulary.EncodeAround("b a a", foreign)->ids, ElementsAre(6, 5, 6, 4, 9));
}

TEST(AddedTokens, FlagsOfOtherIdsAreRefused) {
  VocabularyFile file("llama");
  file.Tokens({"<unk>", "<s>", "</s>"}).Types({2, 3, 3});
  file.Numbers<int32_t>(kTokenFlagKeys[0], formats::GgufType::kInt32, {1, 3});
  const TestTokenizer tokenizer = MakeTokenizer(file);
  ASSERT_FALSE(tokenizer.result.ok());
  EXPECT_THAT(tokenizer.result.error().message,
              HasSubstr("tokenizer.kvant.lstrip_ids[1] is 3, but the vocabulary has 3 tokens"));
}

}  // namespace
}  // namespace kvant::test
