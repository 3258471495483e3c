// Session files with row blocks: what continues in another runner has the bits of what was never
// interrupted, and files that an enemy wrote are refused without a trace.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/kv/sealed_sections.h"
#include "tests/engine/run/row_texts.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

constexpr size_t kVersionPlace = 8;

class RowFile : public testing::Test {
 protected:
  // Three sequences, two of which have rows of one block, and one of them has a second block.
  void SetUp() override {
    TinyShape shape;
    shape.dim = shape.ffn = 32;
    shape.heads = 2, shape.kv_heads = 1, shape.head_dim = 4, shape.layers = 1;
    model_ = OpenTiny(shape, OwnGemm());
    saver_ = OpenRunner(model_, FileOptions());
    plain_ = RandomTokens(60, 1);
    mixed_ = plain_;
    AddRowsOf(*saver_, RandomTokens(5, 9));  // so that ids in the file are others
    ReplaceByRows(*saver_, mixed_, 30, 20);
    ReplaceByRows(*saver_, mixed_, 3, 2);
    const std::vector<TokenId> shared = {mixed_[31], mixed_[49], 7};
    for (int i = 0; i < 3; ++i) ids_.push_back(NewSequence(*saver_));
    ExpectOk(saver_->Append(ids_[0], shared));
    ExpectOk(saver_->Append(ids_[1], mixed_));
    ExpectOk(saver_->Append(ids_[2], plain_));
    ExpectOk(saver_->Save(folder_ / "session", ids_));
    file_ = ReadFile(folder_ / "session");
    sections_ = Sections(file_);
    ASSERT_EQ(Join(sections_), file_);
    loader_ = OpenRunner(model_, FileOptions());
  }

  static SessionOptions FileOptions() {
    SessionOptions options = Options(KvType::kF16, 3);
    options.threads = 1;
    options.context = 100;
    return options;
  }

  // The error of a file with another section, or nothing.
  std::string Refusal(size_t section, const SectionBytes& content) {
    std::vector<SectionBytes> sections = sections_;
    sections[section] = content;
    WriteFile(folder_ / "hostile", Join(sections));
    const auto ids = loader_->Load(folder_ / "hostile");
    ExpectOk(loader_->Check());
    if (ids.ok()) {
      for (const SequenceId id : *ids) {
        static_cast<void>(loader_->Append(id, RandomTokens(2, 5)));
        static_cast<void>(loader_->Rewind(id, loader_->length(id) / 2));
        static_cast<void>(loader_->ComputeLogits(id));
        ExpectOk(loader_->Check());
        ExpectOk(loader_->FreeSequence(id));
      }
    }
    // Nothing is left, not even a row.
    EXPECT_EQ(loader_->stats().sequences, 0);
    EXPECT_EQ(loader_->stats().kv_bytes_used, 0u);
    const SequenceId probe = NewSequence(*loader_);
    const TokenId row = kTinyVocab;
    EXPECT_EQ(loader_->Append(probe, {&row, 1}).error().message,
              "token 0: expected an id from 0 to 258, found 259");
    ExpectOk(loader_->FreeSequence(probe));
    return ids.ok() ? "" : ids.error().message;
  }
  // The error of a file in which a number is another.
  template <class T>
  std::string RefusalOf(size_t section, size_t place, T value) {
    SectionBytes content = sections_[section];
    std::memcpy(content.data() + place, &value, sizeof value);
    return Refusal(section, content);
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> saver_;
  std::unique_ptr<Runner> loader_;
  std::vector<TokenId> plain_;
  std::vector<TokenId> mixed_;
  std::vector<SequenceId> ids_;
  SectionBytes file_;
  std::vector<SectionBytes> sections_;  // the header, two row blocks, three sequences, blocks
};

TEST_F(RowFile, ContinuesElsewhereWithTheSameBits) {
  EXPECT_EQ(Get<uint32_t>(file_, kVersionPlace), 3u);
  AddRowsOf(*loader_, RandomTokens(3, 4));
  const auto held = AddRowsOf(*loader_, std::span(plain_).subspan(30, 20));  // here already
  const auto ids = loader_->Load(folder_ / "session");
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  ASSERT_EQ(ids->size(), 3u);
  EXPECT_EQ(loader_->tokens((*ids)[0])[0], held.first + 1);
  EXPECT_EQ(loader_->tokens((*ids)[1])[30], held.first);
  EXPECT_EQ(loader_->tokens((*ids)[1])[4], held.first + 21);
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::vector<TokenId> more = RandomTokens(3, 8);
    ExpectOk(loader_->Append((*ids)[i], more));
    ExpectOk(saver_->Append(ids_[i], more));
    EXPECT_EQ(MaxDifference(loader_->logits((*ids)[i]), saver_->logits(ids_[i])), 0.0);
    // Rows that were loaded can be computed again.
    ExpectOk(loader_->Rewind((*ids)[i], 0));
  }
  ExpectOk(loader_->FreeRows(held.first));
  for (const SequenceId id : *ids) ExpectOk(loader_->FreeSequence(id));
  const auto other = AddRowsOf(*loader_, std::span(plain_).subspan(30, 20));
  EXPECT_EQ(other.first, held.first + 22);  // the loaded ones have gone
}

TEST_F(RowFile, IsTheSameFromEveryRunner) {
  AddRowsOf(*loader_, RandomTokens(3, 4));
  const auto ids = loader_->Load(folder_ / "session");
  ASSERT_TRUE(ids.ok());
  ExpectOk(loader_->Save(folder_ / "again", *ids));
  EXPECT_EQ(ReadFile(folder_ / "again"), file_);
  // Sequences without rows are saved as ever.
  ExpectOk(loader_->Save(folder_ / "plain", std::span(*ids).last(1)));
  EXPECT_EQ(Get<uint32_t>(ReadFile(folder_ / "plain"), kVersionPlace), 1u);
}

TEST_F(RowFile, RefusesWhatNoRunnerWrites) {
  const std::string name = (folder_ / "hostile") + ": session file: ";
  const size_t header = sections_[0].size();
  EXPECT_EQ(Refusal(0, sections_[0]), "");
  EXPECT_EQ(RefusalOf<uint32_t>(0, header - 4, 0),
            name + "row blocks: expected 1 or more, found 0");
  EXPECT_EQ(RefusalOf<int64_t>(1, 0, 0).substr(0, name.size() + 21),
            name + "row block: expected 1");
  EXPECT_NE(RefusalOf<int64_t>(1, 0, -1), "");
  EXPECT_NE(RefusalOf<int64_t>(1, 0, 21), "");
  EXPECT_NE(RefusalOf<int64_t>(1, 0, int64_t{1} << 40), "");
  EXPECT_NE(RefusalOf<int64_t>(1, 0, std::numeric_limits<int64_t>::max()), "");
  EXPECT_EQ(RefusalOf(2, 8 + 33 * sizeof(float), std::nanf("")),
            name + "row block: row 1: expected finite numbers, found nan");
  // The first token of the first sequence, behind length, flags and pruned ranges.
  const size_t token = 8 + 1 + 4;
  ASSERT_EQ(Get<int32_t>(sections_[3], token), kTinyVocab + 1);
  EXPECT_EQ(RefusalOf<int32_t>(3, token, kTinyVocab + 22),
            name + "token: expected an id from 0 to 280, found 281");
  EXPECT_EQ(RefusalOf<int32_t>(3, token, kTinyVocab + 21), "");
  EXPECT_EQ(RefusalOf<uint32_t>(0, kVersionPlace, 4), name + "expected version 1 to 3, found 4");
  EXPECT_EQ(RefusalOf<uint32_t>(0, kVersionPlace, 2),
            name + "version: expected 1 or 3 for this model, found 2");
}

// Two blocks of a file with one content become one.
TEST_F(RowFile, EqualBlocksBecomeOne) {
  std::vector<SectionBytes> sections = sections_;
  sections[2] = sections[1];
  WriteFile(folder_ / "twice", Join(sections));
  const auto ids = loader_->Load(folder_ / "twice");
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(loader_->tokens((*ids)[1])[3], loader_->tokens((*ids)[1])[30]);
  ExpectOk(loader_->Check());
}

// Every place of the header, the row blocks and the sequences, as a number of four and of eight
// bytes.
TEST_F(RowFile, AnyNumberMayBeAnything) {
  int refused = 0;
  for (size_t s = 0; s < 6; ++s) {
    for (size_t at = 0; at + 8 <= sections_[s].size(); ++at) {
      if (at > 80 && at % 61 != 0) continue;
      for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{33}, int64_t{1} << 31,
                                  std::numeric_limits<int64_t>::max()}) {
        refused += RefusalOf(s, at, value).empty() ? 0 : 1;
        refused += RefusalOf(s, at, static_cast<int32_t>(value)).empty() ? 0 : 1;
        if (HasFailure()) FAIL() << "section " << s << ", place " << at << ": " << value;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

// Decoders that read a source take rows, too, and their files have both.
TEST(RowFiles, HaveSourcesAndRows) {
  for (const char* name : {"t5", "bart"}) {
    const auto model = SeededModel(std::string(kSeededPairs) + name).Open(OwnGemm());
    ASSERT_NE(model, nullptr);
    const TemporaryFolder folder;
    SessionOptions options = Options(KvType::kF16, 2);
    options.context = 96;
    const auto runner = OpenRunner(model, options);
    const auto source = RandomTokens(20, 1, model->source_vocab_size());
    const std::vector<TokenId> plain = RandomTokens(40, 2, model->vocab_size());
    std::vector<TokenId> mixed = plain;
    const TokenId first = ReplaceByRows(*runner, mixed, 7, 20).first;
    const SequenceId ids[] = {*runner->NewSequenceOf(source), *runner->NewSequenceOf(source)};
    ExpectOk(runner->Append(ids[0], plain));
    ExpectOk(runner->Append(ids[1], mixed));
    EXPECT_EQ(MaxDifference(runner->logits(ids[0]), runner->logits(ids[1])), 0.0);
    ExpectOk(runner->Save(folder / "session", ids));
    EXPECT_EQ(Get<uint32_t>(ReadFile(folder / "session"), kVersionPlace), 3u);
    for (const SequenceId id : ids) ExpectOk(runner->FreeSequence(id));
    ExpectOk(runner->FreeRows(first));
    const auto loaded = runner->Load(folder / "session");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ExpectOk(runner->Rewind(loaded->at(1), 30));
    ExpectOk(runner->Append(loaded->at(1), std::span(plain).subspan(30)));
    EXPECT_EQ(MaxDifference(runner->logits(loaded->at(0)), runner->logits(loaded->at(1))), 0.0);
  }
}

// A file with rows is none of a model that takes no rows.
TEST(RowFiles, AreRefusedByModelsThatTakeNoRows) {
  const auto model = SeededModel("gemma3n").Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  const TemporaryFolder folder;
  const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(4, 1, model->vocab_size())));
  ExpectOk(runner->Save(folder / "session", {&id, 1}));
  auto sections = Sections(ReadFile(folder / "session"));
  const uint32_t version = 3;
  std::memcpy(sections[0].data() + kVersionPlace, &version, sizeof version);
  WriteFile(folder / "session", Join(sections));
  EXPECT_EQ(runner->Load(folder / "session").error().message,
            (folder / "session") + ": session file: version: expected 1 for this model, found 3");
}

}  // namespace
}  // namespace kvant::test
