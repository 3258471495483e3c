// Unigram tokenizers against SentencePiece itself, from its own files through the conversion (see
// tests/reference/make_unigram_cases.py), and what files may say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/convert/unigram_vocabulary.h"
#include "formats/gguf_writer.h"
#include "formats/sentencepiece.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::GgufType;
using formats::SentencePieceModel;
using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

std::string CasePath(const std::string& name) {
  return SourcePath("tests/reference/unigram/" + name);
}

json ReadCases(const std::string& name) {
  std::ifstream stream(CasePath(name));
  return json::parse(stream);
}

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

SentencePieceModel ReadModel(const std::string& name) {
  auto model = formats::ReadSentencePiece(CasePath(name + ".model"));
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : SentencePieceModel();
}

// The tokenizer of a converted vocabulary, from a file that is gone when it is used.
class Converted {
 public:
  Converted(const std::string& name, convert::UnigramOptions options) {
    const SentencePieceModel model = ReadModel(name);
    if (options.vocab_size == 0) options.vocab_size = static_cast<int64_t>(model.pieces.size());
    auto vocabulary = convert::UnigramVocabulary(model, name, options);
    EXPECT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    formats::GgufWriter writer;
    vocabulary->AddTo(writer);
    if (vocabulary->unk) {
      writer.AddU32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*vocabulary->unk));
    }
    EXPECT_TRUE(writer.Begin(folder_ / "v.gguf").ok() && writer.Finish().ok());
    auto file = formats::GgufFile::Open(folder_ / "v.gguf");
    EXPECT_TRUE(file.ok()) << file.error().message;
    file_.emplace(std::move(file).value());
    auto tokenizer = Tokenizer::Create(*file_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = std::move(tokenizer).value();
  }
  Ids Encode(std::string_view text) const { return *tokenizer_->Encode(text, {}); }
  const Tokenizer* operator->() const { return tokenizer_.get(); }

 private:
  TemporaryFolder folder_;
  std::optional<formats::GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

class UnigramCases : public testing::TestWithParam<const char*> {};

TEST_P(UnigramCases, EncodesAndDecodesAsSentencePieceDoes) {
  const Converted tokenizer(GetParam(), {});
  const json texts = ReadCases("texts.json");
  const json cases = ReadCases(std::string(GetParam()) + ".json");
  ASSERT_GT(texts["texts"].size(), 200u);
  ASSERT_EQ(cases["ids"].size(), texts["texts"].size());
  for (size_t i = 0; i < texts["texts"].size(); ++i) {
    const auto text = texts["texts"][i].get<std::string>();
    const auto expected = cases["ids"][i].get<Ids>();
    EXPECT_EQ(tokenizer.Encode(text), expected) << "text " << i << ": " << texts["texts"][i];
    EXPECT_EQ(tokenizer->Decode(expected, {}), cases["decoded"][i].get<std::string>())
        << "text " << i << ": " << texts["texts"][i];
  }
  ASSERT_EQ(cases["bytes"].size(), texts["bytes"].size());
  for (size_t i = 0; i < texts["bytes"].size(); ++i) {
    const auto digits = texts["bytes"][i].get<std::string>();
    EXPECT_EQ(tokenizer.Encode(FromHex(digits)), cases["bytes"][i].get<Ids>()) << digits;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnigramCases,
                         testing::Values("nfkc", "nfkc_cf", "identity", "spaces", "bytes", "ties"),
                         [](const auto& name) { return std::string(name.param); });

TEST(UnigramOrder, IsThatOfMBart) {
  std::vector<std::string> names;
  const json cases = ReadCases("order.json");
  // The last of all are the languages and <mask>.
  for (size_t i = 2; i + 1 < cases["last"].size(); ++i) names.push_back(cases["last"][i]);
  const std::vector<std::string_view> languages(names.begin(), names.end());
  const auto size = static_cast<int64_t>(ReadModel("nfkc").pieces.size() + names.size() + 2);
  const Converted tokenizer(
      "nfkc", {.vocab_size = size, .order = convert::PieceOrder::kFairseq, .languages = languages});
  for (size_t id = 0; id < cases["tokens"].size(); ++id) {
    EXPECT_EQ(tokenizer->piece(static_cast<TokenId>(id)), cases["tokens"][id].get<std::string>());
  }
  const auto first = static_cast<size_t>(size) - cases["last"].size();
  for (size_t i = 0; i < cases["last"].size(); ++i) {
    EXPECT_EQ(tokenizer->piece(static_cast<TokenId>(first + i)),
              cases["last"][i].get<std::string>());
  }
  EXPECT_TRUE(tokenizer->is_control(static_cast<TokenId>(size - 1)));
  for (size_t i = 0; i < cases["texts"].size(); ++i) {
    EXPECT_EQ(tokenizer.Encode(cases["texts"][i].get<std::string>()), cases["ids"][i].get<Ids>())
        << "text " << i << ": " << cases["texts"][i];
  }
}

TEST(UnigramOrder, ExtraIdsLieBackwards) {
  const auto pieces = static_cast<TokenId>(ReadModel("bytes").pieces.size());
  const Converted tokenizer("bytes", {.vocab_size = pieces + 5, .extra_ids = 3});
  EXPECT_EQ(tokenizer->piece(pieces), "<extra_id_2>");
  EXPECT_EQ(tokenizer->piece(pieces + 2), "<extra_id_0>");
  EXPECT_EQ(tokenizer->piece(pieces + 3), "[PAD" + std::to_string(pieces + 3) + "]");
  const Ids ids =
      *tokenizer->Encode("a<extra_id_0> a", {.add_special = true, .parse_special = true});
  const Ids a = tokenizer.Encode("a");
  Ids expected = a;
  expected.push_back(pieces + 2);
  expected.insert(expected.end(), a.begin(), a.end());
  expected.push_back(1);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(tokenizer->Decode(ids, {.special = true}), "a<extra_id_0>a</s>");
}

TEST(UnigramVocabulary, RefusesWhatGgufCannotSay) {
  const auto message = [](void (*change)(SentencePieceModel&), convert::UnigramOptions options) {
    SentencePieceModel model = ReadModel("identity");
    change(model);
    const auto vocabulary = convert::UnigramVocabulary(model, "t.model", options);
    return vocabulary.ok() ? "accepted" : vocabulary.error().message;
  };
  const convert::UnigramOptions own{.vocab_size = 1000};
  EXPECT_EQ(message([](SentencePieceModel&) {}, own), "accepted");
  EXPECT_THAT(message([](SentencePieceModel& m) { m.escape_whitespaces = false; }, own),
              HasSubstr("t.model: escape_whitespaces is not set"));
  EXPECT_THAT(message([](SentencePieceModel& m) { m.whitespace_behind_words = true; }, own),
              HasSubstr("treat_whitespace_as_suffix is set"));
  EXPECT_THAT(message([](SentencePieceModel& m) { m.kind = SentencePieceModel::Kind::kBpe; }, own),
              HasSubstr("type 2 is no unigram vocabulary"));
  EXPECT_THAT(message([](SentencePieceModel& m) { m.charsmap = "abc"; }, own),
              HasSubstr("t.model: precompiled_charsmap has 3 bytes"));
  EXPECT_THAT(message([](SentencePieceModel&) {}, {.vocab_size = 500, .extra_ids = 1}),
              HasSubstr("500 pieces and 1 tokens beside them"));
  EXPECT_THAT(message([](SentencePieceModel& m) { m.pieces[1].type = m.pieces[9].type; },
                      {.vocab_size = 1000, .order = convert::PieceOrder::kFairseq}),
              HasSubstr("piece 1 is not one of"));
}

// ---- Tables by hand -----------------------------------------------------------------------------

// A trie of one block with the rule "a" -> `replacements`, up to its first NUL.
struct SmallTable {
  std::vector<uint32_t> units = std::vector<uint32_t>(256, uint32_t{1} << 31);
  std::string replacements = std::string("xy", 3);
  std::optional<uint32_t> size;  // what the table says of the trie's

  SmallTable() {
    units[0] = 1u << 10;                      // the children of the root are at 1 ^ byte
    units[1 ^ 'a'] = 'a' | 0x100 | 2u << 10;  // its value is beside it
    units[1 ^ 'a' ^ 2] = uint32_t{1} << 31 | 0;
  }
  std::vector<uint8_t> Build() const {
    const auto bytes = static_cast<uint32_t>(units.size() * 4);
    const uint32_t said = size.value_or(bytes);
    std::vector<uint8_t> out(4 + bytes);
    std::memcpy(out.data(), &said, 4);
    std::memcpy(out.data() + 4, units.data(), bytes);
    out.insert(out.end(), replacements.begin(), replacements.end());
    return out;
  }
};

TestTokenizer WithTable(const std::vector<uint8_t>& table, GgufType type = GgufType::kUint8) {
  VocabularyFile file("t5");
  file.Tokens({"<pad>", "</s>", "<unk>", "x", "xy", "a"})
      .Types({kControl, kControl, kUnknown, kNormal, kNormal, kNormal})
      .Scores({0, 0, 0, -1, -1, -1})
      .Numbers<uint8_t>("tokenizer.ggml.precompiled_charsmap", type, table);
  return MakeTokenizer(file);
}

std::string TableMessage(const SmallTable& table) {
  const TestTokenizer tokenizer = WithTable(table.Build());
  return tokenizer.result.ok() ? "accepted" : tokenizer.result.error().message;
}

TEST(Charsmap, ReplacesWhatItsKeysSay) {
  for (const GgufType type : {GgufType::kUint8, GgufType::kInt8}) {
    const TestTokenizer tokenizer = WithTable(SmallTable().Build(), type);
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    EXPECT_EQ(tokenizer.Encode("axa"), (Ids{4, 3, 4}));
  }
  EXPECT_EQ(WithTable({}).Encode("a"), Ids{5});  // no table
  const TestTokenizer wrong = MakeTokenizer(
      VocabularyFile("t5").Tokens({"a"}).Scores({0}).U32("tokenizer.ggml.precompiled_charsmap", 1));
  ASSERT_FALSE(wrong.result.ok());
  EXPECT_THAT(wrong.result.error().message, HasSubstr("precompiled_charsmap\" is uint32"));
}

TEST(Charsmap, NulInATextIsNoEndOfAKey) {
  const TestTokenizer tokenizer = WithTable(SmallTable().Build());
  EXPECT_EQ(tokenizer.Encode(std::string_view("a\0a", 3)), (Ids{4, 2, 4}));
}

TEST(Charsmap, RefusesBrokenTables) {
  const auto message = [](void (*change)(SmallTable&)) {
    SmallTable table;
    change(table);
    return TableMessage(table);
  };
  EXPECT_EQ(message([](SmallTable&) {}), "accepted");
  EXPECT_EQ(message([](SmallTable& t) { t.size = 1028; }),
            "test.gguf: tokenizer.ggml.precompiled_charsmap says that its trie has 1028 bytes, "
            "expected a multiple of 4 up to the 1027 that follow");
  EXPECT_THAT(message([](SmallTable& t) { t.size = 0; }), HasSubstr("trie has 0 bytes"));
  EXPECT_THAT(message([](SmallTable& t) { t.size = 1023; }), HasSubstr("trie has 1023 bytes"));
  EXPECT_THAT(message([](SmallTable& t) { t.size = ~0u; }), HasSubstr("has 4294967295 bytes"));
  EXPECT_THAT(message([](SmallTable& t) { t.units.resize(255); }),
              HasSubstr("unit 0 of its trie has children at 1, but there are 255 units"));
  EXPECT_THAT(message([](SmallTable& t) { t.units[1 ^ 'a'] |= 1u << 30; }), HasSubstr("but there"));
  EXPECT_THAT(message([](SmallTable& t) { t.units[1 ^ 'a' ^ 2] = 3; }),
              HasSubstr("has a replacement at 3, but there are 3 bytes"));
  EXPECT_THAT(message([](SmallTable& t) { t.replacements.clear(); }), HasSubstr("are 0 bytes"));
  EXPECT_THAT(message([](SmallTable& t) { t.replacements = "xy"; }),
              HasSubstr("ends with byte 121, expected the NUL"));
  EXPECT_THAT(message([](SmallTable& t) { t.replacements.insert(0, 1025, 'x'); }),
              HasSubstr("replacement at 0 is longer than the 1024 bytes"));
  // "b" leads back to the place from which "a" and "b" can be read.
  EXPECT_THAT(message([](SmallTable& t) { t.units[1 ^ 'b'] = 'b' | uint32_t{'b'} << 10; }),
              HasSubstr("has a trie that leads back into itself"));
  for (size_t size = 0; size <= 4; ++size) {
    std::vector<uint8_t> bytes = SmallTable().Build();
    bytes.resize(size);
    EXPECT_EQ(WithTable(bytes).result.ok(), size == 0) << size;
  }
}

TEST(Charsmap, RefusesKeysWithoutMeasure) {
  SmallTable table;
  table.units.assign(256 * 2048, uint32_t{1} << 31);
  table.units[0] = 256u << 10;
  // Each unit has one child, which is the first of the next block.
  for (uint32_t block = 1; block < 2047; ++block) {
    table.units[256 * block] = (256 * block ^ 256 * (block + 1)) << 10;
  }
  EXPECT_THAT(TableMessage(table), HasSubstr("has a key of more than 1024 bytes"));
}

// Nothing that a changed byte makes of a table is read outside it, or takes long.
TEST(Charsmap, AnyByteMayBeWrong) {
  SentencePieceModel model = ReadModel("nfkc");
  const std::string text = ReadCases("texts.json")["texts"].dump();
  for (size_t i = 0; i < model.charsmap.size(); i += 97) {
    std::vector<uint8_t> table(model.charsmap.begin(), model.charsmap.end());
    table[i] ^= static_cast<uint8_t>(1u << (i % 8));
    const TestTokenizer tokenizer = WithTable(table);
    if (!tokenizer.result.ok()) {
      EXPECT_THAT(tokenizer.result.error().message, HasSubstr("test.gguf: tokenizer.ggml.pre"));
    } else if (i % 5 == 0) {
      EXPECT_FALSE(tokenizer.Encode(text).empty());
    }
  }
}

}  // namespace
}  // namespace kvant::test
