// Vocabularies: pre-tokenizers recognised from tokenizer.json as models publish them, both kinds of
// vocabulary, special tokens and chat templates from all the files that may hold them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/log.h"
#include "engine/convert/pre_tokenizer_name.h"
#include "engine/convert/special_tokens.h"
#include "engine/convert/vocabulary.h"
#include "formats/gguf_writer.h"
#include "kvant/tokenizer.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using convert::TokenizerJson;
using convert::Vocabulary;
using formats::SentencePiece;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Type = Vocabulary::Type;

json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}
json Split(const char* regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}
json Sequence(const json& steps) { return {{"type", "Sequence"}, {"pretokenizers", steps}}; }
json Digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }
const json kNfc = {{"type", "NFC"}};

json ByteLevelTokenizer(const json& pre_tokenizer, const json& normalizer, bool ignore_merges) {
  return {{"added_tokens",
           {{{"id", 4}, {"content", "<|end|>"}, {"special", false}},
            {{"id", 5}, {"content", "x▁y"}, {"special", false}}}},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", ignore_merges},
            {"vocab", {{"a", 0}, {"b", 1}, {"Ġ", 2}, {"ab", 3}}},
            {"merges", json::array({json::array({"a", "b"}), json::array({" ", "ab"})})}}}};
}

Result<TokenizerJson> Parse(const json& tokenizer, int64_t ids_max = 8) {
  return TokenizerJson::Parse(tokenizer.dump(), "tokenizer.json", ids_max);
}

std::string Name(const json& pre_tokenizer, const json& normalizer = nullptr,
                 bool ignore_merges = false) {
  const auto tokenizer = Parse(ByteLevelTokenizer(pre_tokenizer, normalizer, ignore_merges));
  if (!tokenizer.ok()) return tokenizer.error().message;
  const auto name = convert::PreTokenizerName(*tokenizer);
  return name.ok() ? *name : name.error().message;
}

// The published expressions: Llama 3 and Qwen 2 differ in how many digits make a word.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(PreTokenizerName, PublishedModels) {
  EXPECT_EQ(Name(ByteLevel(true)), "gpt-2");
  EXPECT_EQ(Name({{"type", "ByteLevel"}, {"add_prefix_space", false}}), "gpt-2");
  EXPECT_EQ(Name(ByteLevel(true), kNfc), "mpt");
  EXPECT_EQ(Name(Sequence({Digits(true), ByteLevel(true)})), "starcoder");
  EXPECT_EQ(Name(Sequence({Digits(true), ByteLevel(true)}), kNfc), "command-r");
  EXPECT_EQ(Name(Sequence({Split(kLlama3), ByteLevel(false)}), nullptr, true), "llama-bpe");
  EXPECT_EQ(Name(Sequence({Split(kLlama3), ByteLevel(false)})), "dbrx");
  EXPECT_EQ(Name(Sequence({Split(kQwen2), ByteLevel(false)}), kNfc), "qwen2");
  EXPECT_EQ(Name(Sequence({Split(kQwen2), ByteLevel(false)}),
                 {{"type", "Sequence"}, {"normalizers", json::array()}}),
            "qwen2");
  EXPECT_EQ(Name(Sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                           ByteLevel(true),
                           Digits(false),
                           Split("[0-9][0-9][0-9]")})),
            "falcon");
  // DeepSeek writes its characters out, line ends included.
  EXPECT_EQ(Name(Sequence({Split("[\r\n]"), Split(R"(\s?\p{L}+)"), Split(R"(\s?\p{P}+)"),
                           Split("[一-龥ࠀ-一가-퟿]+"), Digits(true), ByteLevel(false)})),
            "deepseek-coder");
  EXPECT_EQ(
      Name(Sequence({Split(R"(\p{N}{1,3})"), Split("[一-龥぀-ゟ゠-ヿ]+"),
                     Split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}"
                           "\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]"
                           "+|\\s+(?!\\S)|\\s+"),
                     ByteLevel(false)})),
      "deepseek-v3");
}

TEST(PreTokenizerName, RefusesOthersWithWhatTheyAre) {
  EXPECT_THAT(Name(Sequence({Split("[a-z]+"), ByteLevel(false)})),
              AllOf(HasSubstr("pre_tokenizer is none that kvant knows"), HasSubstr("[a-z]+")));
  EXPECT_THAT(Name(nullptr), HasSubstr("none that kvant knows: null"));
  EXPECT_THAT(Name({{"type", "Whitespace"}}), HasSubstr("Whitespace"));
  EXPECT_THAT(Name({{"type", "ByteLevel"}, {"add_prefix_space", true}}), HasSubstr("none that"));
  EXPECT_THAT(Name(ByteLevel(true), {{"type", "NFKC"}}), HasSubstr("expected none or NFC"));
  json removed = Split(kLlama3);
  removed["behavior"] = "Removed";
  EXPECT_THAT(Name(Sequence({removed, ByteLevel(false)})), HasSubstr("none that kvant knows"));
}

TEST(TokenizerJson, RefusesContradictions) {
  const auto message = [](const std::function<void(json&)>& change) {
    json tokenizer = ByteLevelTokenizer(ByteLevel(true), nullptr, false);
    change(tokenizer);
    const auto parsed = Parse(tokenizer);
    return parsed.ok() ? "accepted" : parsed.error().message;
  };
  EXPECT_EQ(message([](json&) {}), "accepted");
  EXPECT_THAT(message([](json& t) { t.erase("model"); }), HasSubstr("model is missing"));
  EXPECT_THAT(message([](json& t) { t["model"]["type"] = "Unigram"; }),
              HasSubstr("type \"Unigram\" cannot be converted"));
  EXPECT_THAT(message([](json& t) { t["model"]["type"] = 3; }), HasSubstr("expected a string"));
  EXPECT_THAT(message([](json& t) { t["model"]["vocab"]["c"] = 8; }), HasSubstr("\"c\" has id 8"));
  EXPECT_THAT(message([](json& t) { t["model"]["vocab"]["c"] = -1; }), HasSubstr("has id -1"));
  EXPECT_THAT(message([](json& t) { t["model"]["vocab"]["c"] = 0; }), HasSubstr("the same id 0"));
  EXPECT_THAT(message([](json& t) { t["model"]["vocab"] = json::array(); }), HasSubstr("vocab is"));
  EXPECT_THAT(message([](json& t) { t["model"]["merges"] = {"ab"}; }), HasSubstr("merges[0] is"));
  EXPECT_THAT(message([](json& t) { t["model"]["merges"] = {"a b c"}; }),
              HasSubstr("merges[0] is"));
  EXPECT_THAT(message([](json& t) {
                t["model"]["merges"] = json::array({json::array({"a", 1})});
              }),
              HasSubstr("merges[0]"));
  EXPECT_THAT(message([](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("expected none"));
  EXPECT_THAT(message([](json& t) {
                t["added_tokens"] = json::array({{{"id", 1}}});
              }),
              HasSubstr("expected objects with id and content"));
}

TEST(ByteLevelVocabulary, TokensTypesAndMerges) {
  json tokenizer = ByteLevelTokenizer(ByteLevel(true), nullptr, false);
  const auto parsed = Parse(tokenizer);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto vocabulary = convert::ByteLevelVocabulary(*parsed, 8);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->model, "gpt2");
  EXPECT_THAT(vocabulary->tokens,
              ElementsAre("a", "b", "Ġ", "ab", "<|end|>", "x y", "[PAD6]", "[PAD7]"));
  EXPECT_THAT(vocabulary->types,
              ElementsAre(Type::kNormal, Type::kNormal, Type::kNormal, Type::kNormal,
                          Type::kControl, Type::kUserDefined, Type::kUnused, Type::kUnused));
  EXPECT_THAT(vocabulary->merges, ElementsAre("a b", "Ġ ab"));
  EXPECT_EQ(vocabulary->add_bos, false);
  tokenizer["model"]["merges"] = {"a b", "Ġ ab"};
  EXPECT_EQ(convert::ByteLevelVocabulary(*Parse(tokenizer), 8)->merges, vocabulary->merges);
}

TEST(SentencePieceVocabulary, ScoresAreRanks) {
  const HfFolder folder;
  const auto parsed = Parse(folder.tokenizer, 10);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto vocabulary = convert::SentencePieceVocabulary(*parsed, 10);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->model, "llama");
  EXPECT_THAT(
      vocabulary->types,
      ElementsAre(Type::kUnknown, Type::kControl, Type::kControl, Type::kByte, Type::kNormal,
                  Type::kNormal, Type::kNormal, Type::kNormal, Type::kNormal, Type::kUnused));
  EXPECT_THAT(vocabulary->scores, ElementsAre(0, 0, 0, 0, -6, -7, -8, 0, -1, -10000));
  EXPECT_EQ(vocabulary->add_space_prefix, true);
}

TEST(SentencePieceVocabulary, SpacesMustBecomeTheirSign) {
  const auto spaces = [](const json& normalizer, const json& pre_tokenizer) {
    HfFolder folder;
    folder.tokenizer["normalizer"] = normalizer;
    folder.tokenizer["pre_tokenizer"] = pre_tokenizer;
    const auto vocabulary = convert::SentencePieceVocabulary(*Parse(folder.tokenizer, 10), 10);
    if (!vocabulary.ok()) return vocabulary.error().message;
    return std::string(*vocabulary->add_space_prefix ? "prefix" : "no prefix");
  };
  const json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const auto sequence = [](const json& steps) {
    return json{{"type", "Sequence"}, {"normalizers", steps}};
  };
  const auto metaspace = [](const char* scheme) {
    return json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
  };
  EXPECT_EQ(spaces(sequence({prepend, replace}), nullptr), "prefix");
  EXPECT_EQ(spaces(replace, nullptr), "no prefix");
  EXPECT_EQ(spaces(nullptr, metaspace("first")), "prefix");
  EXPECT_EQ(spaces(nullptr, metaspace("never")), "no prefix");
  EXPECT_THAT(spaces(nullptr, nullptr), HasSubstr("spaces are expected to become U+2581"));
  EXPECT_THAT(spaces(sequence({{{"type", "Lowercase"}}, replace}), nullptr),
              HasSubstr("normalizer cannot be converted"));
  EXPECT_THAT(spaces(replace, {{"type", "Digits"}}),
              HasSubstr("pre_tokenizer cannot be converted"));
}

TEST(SentencePieceVocabulary, FromItsOwnFile) {
  formats::SentencePieceModel model;
  model.kind = formats::SentencePieceModel::Kind::kBpe;
  model.remove_extra_whitespaces = false;
  model.pieces = {{"<unk>", 0, SentencePiece::Type::kUnknown}, {"a", -1.5f, Type::kNormal}};
  const auto vocabulary = convert::SentencePieceVocabulary(model, "t.model", 3);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_THAT(vocabulary->tokens, ElementsAre("<unk>", "a", "[PAD2]"));
  EXPECT_THAT(vocabulary->scores, ElementsAre(0, -1.5f, -10000));
  EXPECT_EQ(vocabulary->bos, 1);
  EXPECT_EQ(vocabulary->eos, std::nullopt);  // 2, but there is no such piece
  EXPECT_FALSE(convert::SentencePieceVocabulary(model, "t.model", 1).ok());
  model.kind = formats::SentencePieceModel::Kind::kUnigram;
  EXPECT_FALSE(convert::SentencePieceVocabulary(model, "t.model", 3).ok());
}

class UnigramFolder : public testing::Test {
 protected:
  static constexpr int64_t kPieces = 500;

  UnigramFolder() {
    folder_.tokenizer["model"] = {{"type", "Unigram"}, {"vocab", json::array()}};
    folder_.tokenizer["added_tokens"] = {
        {{"id", kPieces + 2}, {"content", "<extra_id_0>"}, {"special", true}},
        {{"id", kPieces + 4}, {"content", "<new>"}, {"special", true}}};
    folder_.WriteJson("tokenizer.json", folder_.tokenizer);
  }
  void AddPieces(const std::string& name) {
    std::filesystem::copy_file(SourcePath("tests/reference/unigram/nfkc.model"), folder_ / name);
  }
  Result<Vocabulary> Read(const json& tokenizer_config,
                          const convert::VocabularyOptions& options = {}) {
    const auto config = formats::JsonObject::Parse(tokenizer_config.dump(), "t.json");
    return convert::ReadVocabulary(folder_.Path(), *config, kPieces + 5, options);
  }
  HfFolder folder_;
};

TEST_F(UnigramFolder, IsReadFromSentencePiecesFile) {
  AddPieces("spiece.model");
  const auto vocabulary = Read({{"extra_ids", 3}, {"add_prefix_space", false}});
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->model, "t5");
  EXPECT_EQ(vocabulary->pre, "default");
  EXPECT_EQ(vocabulary->add_bos, false);
  EXPECT_EQ(vocabulary->add_eos, true);
  EXPECT_EQ(vocabulary->add_space_prefix, true);
  EXPECT_EQ(vocabulary->remove_extra_whitespaces, true);
  EXPECT_GT(vocabulary->charsmap.size(), 1028u);
  EXPECT_EQ(vocabulary->unk, 0);
  EXPECT_EQ(vocabulary->eos, 2);
  EXPECT_EQ(vocabulary->pad, std::nullopt);
  const std::vector<std::string> behind(vocabulary->tokens.begin() + kPieces,
                                        vocabulary->tokens.end());
  EXPECT_THAT(behind,
              ElementsAre("<extra_id_2>", "<extra_id_1>", "<extra_id_0>", "[PAD503]", "<new>"));
  const std::vector<Type> types(vocabulary->types.begin() + kPieces, vocabulary->types.end());
  EXPECT_THAT(types, ElementsAre(Type::kControl, Type::kControl, Type::kControl, Type::kUnused,
                                 Type::kControl));
  // A hundred such tokens, which T5 has unless its settings say otherwise, do not fit here.
  EXPECT_EQ(Read({{"tokenizer_class", "T5Tokenizer"}})->tokens[kPieces], "[PAD500]");
}

// SentencePiece does not know tokens that were added to its pieces: they are cut out of texts, and
// out of texts as they are.
TEST_F(UnigramFolder, AddedTokensAreCutOut) {
  AddPieces("spiece.model");
  folder_.tokenizer["added_tokens"].push_back(
      {{"id", kPieces + 3}, {"content", "new one"}, {"special", false}, {"lstrip", true}});
  folder_.WriteJson("tokenizer.json", folder_.tokenizer);
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto vocabulary = Read({{"extra_ids", 3}});
  SetLogSink(nullptr);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  const convert::AddedTokenFlags& flags = vocabulary->flags.at(kPieces + 3);
  EXPECT_TRUE(flags.cut_out && flags.strip_left);
  EXPECT_FALSE(flags.normalized || flags.strip_right || flags.single_word);
  EXPECT_FALSE(vocabulary->flags.at(kPieces + 4).cut_out);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("looked for in texts before they are normalized")));
}

TEST_F(UnigramFolder, MayHaveTheOrderOfFairseq) {
  AddPieces("sentencepiece.bpe.model");
  constexpr std::string_view kLanguages[] = {"en_XX", "de_DE"};
  const auto vocabulary =
      Read(json::object(), {.order = convert::PieceOrder::kFairseq, .languages = kLanguages});
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->Find("en_XX"), kPieces + 1);
  EXPECT_EQ(vocabulary->Find("<mask>"), kPieces + 3);
  EXPECT_EQ(vocabulary->Find("<unk>"), 3);
}

TEST_F(UnigramFolder, WithoutThatFileIsReadFromTokenizerJson) {
  const auto vocabulary = Read(json::object());
  ASSERT_FALSE(vocabulary.ok());
  EXPECT_THAT(vocabulary.error().message,
              HasSubstr("tokenizer.json: model: vocab is [], expected an array of pieces"));
}

// Special tokens and templates, as the tokenizer and the metadata of the written file show them.
class SpecialTokensOfFolder : public testing::Test {
 protected:
  formats::GgufFile Written() {
    folder_.Write();
    const auto config = convert::FolderConfig::Read(folder_.Path());
    EXPECT_TRUE(config.ok()) << config.error().message;
    const auto vocabulary = convert::ReadVocabulary(folder_.Path(), config->tokenizer, 10);
    EXPECT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    formats::GgufWriter writer;
    vocabulary->AddTo(writer);
    const Status status = convert::AddSpecialTokens(*config, *vocabulary, writer);
    EXPECT_TRUE(status.ok()) << status.error().message;
    const Status templates = convert::AddChatTemplates(*config, writer);
    EXPECT_TRUE(templates.ok()) << templates.error().message;
    EXPECT_TRUE(writer.Begin(folder_ / "v.gguf").ok() && writer.Finish().ok());
    auto file = formats::GgufFile::Open(folder_ / "v.gguf");
    EXPECT_TRUE(file.ok()) << file.error().message;
    return std::move(file).value();
  }
  std::optional<uint32_t> Id(const formats::GgufFile& file, const char* name) {
    return *file.GetU32(std::string("tokenizer.ggml.") + name);
  }
  HfFolder folder_;
};

TEST_F(SpecialTokensOfFolder, TheTokenizersSettingsWin) {
  folder_.WriteJson("tokenizer_config.json", {{"bos_token", {{"content", "</s>"}}},
                                              {"pad_token", "no such token"},
                                              {"add_bos_token", false},
                                              {"add_eos_token", true}});
  folder_.WriteJson("special_tokens_map.json", {{"bos_token", "<s>"}, {"pad_token", "<unk>"}});
  const auto file = Written();
  EXPECT_EQ(Id(file, "bos_token_id"), 2u);
  EXPECT_EQ(Id(file, "eos_token_id"), 2u);
  EXPECT_EQ(Id(file, "padding_token_id"), 0u);
  EXPECT_EQ(Id(file, "unknown_token_id"), 0u);
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_eos_token"), true);
  const auto tokenizer = Tokenizer::Create(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT(*(*tokenizer)->Encode("abA", {}), ElementsAre(8, 3));
}

TEST_F(SpecialTokensOfFolder, AVocabularyOfBytesNeedsNoMerges) {
  folder_.tokenizer = ByteLevelTokenizer(ByteLevel(true), nullptr, false);
  folder_.tokenizer["model"]["merges"] = json::array();
  const auto file = Written();
  const auto tokenizer = Tokenizer::Create(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT(*(*tokenizer)->Encode("abba", {}), ElementsAre(0, 1, 1, 0));
}

TEST_F(SpecialTokensOfFolder, TemplatesSayWhatIsAdded) {
  folder_.tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}}}};
  const auto file = Written();
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_eos_token"), false);
}

TEST_F(SpecialTokensOfFolder, TokensOfBartsTokenizerAreAdded) {
  folder_.tokenizer["post_processor"] = {
      {"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}};
  const auto file = Written();
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(*file.GetBool("tokenizer.ggml.add_eos_token"), true);
  EXPECT_EQ(Id(file, "bos_token_id"), 1u);
  EXPECT_EQ(Id(file, "eos_token_id"), 2u);
}

TEST_F(SpecialTokensOfFolder, AllEndTokensHaveAKey) {
  folder_.config["pad_token_id"] = -1;
  folder_.config["eos_token_id"] = {2, 4};
  folder_.WriteJson("generation_config.json", {{"eos_token_id", {4, 9, 2}}});
  folder_.WriteJson("tokenizer_config.json",
                    {{"added_tokens_decoder",
                      {{"9", {{"content", "<|eom_id|>"}}}, {"77", {{"content", "beyond"}}}}}});
  const auto file = Written();
  EXPECT_EQ(Id(file, "eos_token_id"), 2u);
  EXPECT_EQ(Id(file, "eom_token_id"), 9u);
  EXPECT_EQ(Id(file, "eot_token_id"), 4u);
  EXPECT_EQ(Id(file, "padding_token_id"), std::nullopt);
}

TEST_F(SpecialTokensOfFolder, ChatTemplates) {
  EXPECT_EQ(Written().Find("tokenizer.chat_template"), nullptr);
  folder_.WriteJson("tokenizer_config.json", {{"chat_template", "plain"}});
  EXPECT_EQ(*Written().GetString("tokenizer.chat_template"), "plain");
  folder_.WriteJson(
      "tokenizer_config.json",
      {{"chat_template",
        {{{"name", "default"}, {"template", "D"}}, {{"name", "tool-use"}, {"template", "T"}}}}});
  const auto named = Written();
  EXPECT_EQ(*named.GetString("tokenizer.chat_template"), "D");
  EXPECT_EQ(*named.GetString("tokenizer.chat_template.tool_use"), "T");
  folder_.WriteText("chat_template.jinja", "J");
  EXPECT_EQ(*Written().GetString("tokenizer.chat_template"), "J");
}

}  // namespace
}  // namespace kvant::test
