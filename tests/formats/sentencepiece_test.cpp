// The reader of SentencePiece vocabularies, against messages encoded by hand.
#include "formats/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace kvant::test {
namespace {

using formats::SentencePiece;
using formats::SentencePieceModel;
using testing::HasSubstr;

// Protobuf fields; numbers and lengths below 128 are one byte, field numbers below 16 too.
std::string Varint(int field, int value) {
  const int tag = field << 3;
  std::string out;
  if (tag >= 128) out += static_cast<char>(0x80 | (tag & 0x7f));
  out += static_cast<char>(tag >= 128 ? tag >> 7 : tag);
  return out + static_cast<char>(value);
}
std::string Chunk(int field, const std::string& bytes) {
  return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string Float(int field, float value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return std::string{static_cast<char>(field << 3 | 5)} + bytes;
}
std::string Piece(const std::string& text, float score, int type) {
  return Chunk(1, Chunk(1, text) + Float(2, score) + Varint(3, type));
}

std::string SmallModel() {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("<0x0A>", 0, 6) +
         Chunk(1, Chunk(1, "\xE2\x96\x81the") + Float(2, -3.5f)) +
         Chunk(2, Varint(3, 2) + Varint(40, 0) + Varint(41, 1) + Varint(42, 3)) +
         Chunk(3, Chunk(1, "identity") + Varint(3, 1) + Varint(4, 0)) + Chunk(4, "test data");
}

Result<SentencePieceModel> Parse(const std::string& bytes) {
  return formats::ParseSentencePiece(std::as_bytes(std::span(bytes)), "t.model");
}
std::string SentencePieceMessage(const std::string& bytes) {
  const auto model = Parse(bytes);
  return model.ok() ? "accepted" : model.error().message;
}

TEST(SentencePieceFile, ReadsPiecesAndSettings) {
  const auto model = Parse(SmallModel());
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->pieces.size(), 4u);
  EXPECT_EQ(model->pieces[2].text, "<0x0A>");
  EXPECT_EQ(model->pieces[2].type, SentencePiece::Type::kByte);
  EXPECT_EQ(model->pieces[3].score, -3.5f);
  EXPECT_EQ(model->pieces[3].type, SentencePiece::Type::kNormal);
  EXPECT_EQ(model->kind, SentencePieceModel::Kind::kBpe);
  EXPECT_EQ(model->eos_id, 3);
  EXPECT_EQ(model->pad_id, -1);
  EXPECT_EQ(model->normalizer, "identity");
  EXPECT_TRUE(model->charsmap.empty());
  EXPECT_TRUE(model->add_dummy_prefix);
  EXPECT_FALSE(model->remove_extra_whitespaces);
}

TEST(SentencePieceFile, ReadsTheNormalizer) {
  const auto plain = Parse(SmallModel());
  EXPECT_TRUE(plain->escape_whitespaces);
  EXPECT_FALSE(plain->whitespace_behind_words || plain->denormalizes);
  const std::string table("\x04\0\xff", 3);
  const auto model = Parse(Piece("a", 0, 1) + Chunk(2, Varint(24, 1)) +
                           Chunk(3, Chunk(2, table) + Varint(5, 0)) + Chunk(5, Chunk(2, table)));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->charsmap, table);
  EXPECT_FALSE(model->escape_whitespaces);
  EXPECT_TRUE(model->whitespace_behind_words);
  EXPECT_TRUE(model->denormalizes);
}

TEST(SentencePieceFile, EveryTruncationGivesPiecesOrAnError) {
  const std::string file = SmallModel();
  for (size_t size = 0; size < file.size(); ++size) {
    const auto model = Parse(file.substr(0, size));
    EXPECT_TRUE(!model.ok() || !model->pieces.empty()) << size;
  }
}

TEST(SentencePieceFile, RefusesWhatIsNone) {
  EXPECT_THAT(SentencePieceMessage(""), HasSubstr("no pieces"));
  EXPECT_THAT(SentencePieceMessage("IQ== 0\nIg== 1\n"),
              HasSubstr("not a SentencePiece vocabulary"));
  EXPECT_THAT(SentencePieceMessage(SmallModel() + "\x0b"), HasSubstr("unknown field type"));
  EXPECT_THAT(SentencePieceMessage(SmallModel() + std::string(11, '\xff')),
              HasSubstr("breaks off"));
  EXPECT_THAT(SentencePieceMessage(Piece("a", 0, 7)), HasSubstr("piece 0 has type 7"));
  EXPECT_THAT(SentencePieceMessage(Piece("", 0, 1)), HasSubstr("piece 0 is empty"));
  EXPECT_THAT(SentencePieceMessage(Piece("a", std::nanf(""), 1)), HasSubstr("has the score nan"));
  EXPECT_THAT(SentencePieceMessage(Piece("a", 0, 1) + Chunk(2, Varint(3, 9))),
              HasSubstr("model type 9"));
}

}  // namespace
}  // namespace kvant::test
