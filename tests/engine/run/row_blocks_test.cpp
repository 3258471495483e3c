// Row blocks beside tokens: rows that hold the embeddings of tokens give the bits of these tokens,
// whatever happens to their sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <random>

#include "kvant/scheduler.h"
#include "kvant/text_request.h"
#include "tests/engine/run/recurrent_kinds.h"
#include "tests/engine/run/row_texts.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

std::vector<float> BitsOf(const Runner& runner, SequenceId id) {
  return {runner.logits(id).begin(), runner.logits(id).end()};
}

// ---- Two runners that do the same ---------------------------------------------------------------

// Random programs on two runners: the sequences of one are tokens, and the other has rows in place
// of some of them. After each operation both have the same state and bits.
class RowPrograms {
 public:
  RowPrograms(const std::shared_ptr<const Model>& model, const SessionOptions& options)
      : plain_(OpenRunner(model, options)), mixed_(OpenRunner(model, options)) {
    for (size_t i = 0; i < kCount; ++i) {
      ids_.push_back(NewSequence(*plain_));
      EXPECT_EQ(NewSequence(*mixed_), ids_.back());
    }
  }

  void Run(uint32_t seed, int operations) {
    random_.seed(seed);
    for (int operation = 0; operation < operations && !testing::Test::HasFailure(); ++operation) {
      SCOPED_TRACE(fmt::format("seed {}, operation {}", seed, operation));
      const SequenceId id = ids_[Below(kCount)];
      switch (Below(11)) {
        case 0: Rewind(id); break;
        case 1: Fork(id); break;
        case 2: Reorder(); break;
        case 3: Snapshot(id); break;
        case 4: Prune(id); break;
        case 5: SaveAndLoad(id); break;
        case 6: Both([&](Runner& runner) { return runner.Reset(id); }); break;
        default: Append(id); break;
      }
      for (const SequenceId each : ids_) Compare(each);
    }
    for (const SequenceId id : std::exchange(ids_, {})) {
      Both([&](Runner& runner) { return runner.FreeSequence(id); });
    }
    EXPECT_EQ(plain_->stats().tokens_reused, mixed_->stats().tokens_reused);
    ExpectOk(mixed_->Check());
  }

  const Runner& mixed() const { return *mixed_; }

 private:
  static constexpr size_t kCount = 3;

  size_t Below(size_t bound) { return random_() % bound; }
  int64_t Length(SequenceId id) {
    return static_cast<int64_t>(Below(static_cast<size_t>(plain_->length(id)) + 1));
  }
  // Both succeed, or both fail in the same way.
  template <class Do>
  bool Both(const Do& operation) {
    const Status one = operation(*plain_);
    const Status other = operation(*mixed_);
    EXPECT_EQ(one.ok(), other.ok()) << (one.ok() ? other : one).error().message;
    if (!one.ok() && !other.ok()) {
      EXPECT_EQ(one.error().code, other.error().code);
    }
    return one.ok();
  }

  // The beginning of one of three texts, so that prefixes come again. Two of them have a stretch
  // that is given as rows, of which a beginning may be all that is used.
  void Append(SequenceId id) {
    const size_t count = 1 + (Below(2) == 0 ? Below(150) : Below(12));
    if (plain_->length(id) + static_cast<int64_t>(count) > plain_->context()) return;
    const size_t text = Below(3);
    const auto tokens =
        RandomTokens(200, static_cast<uint32_t>(text), plain_->model().vocab_size());
    std::vector<TokenId> mixed = tokens;
    TokenId first = -1;
    if (text > 0) first = ReplaceByRows(*mixed_, mixed, 3 * text, 60 * text).first;
    ExpectOk(plain_->Append(id, std::span(tokens).first(count)));
    ExpectOk(mixed_->Append(id, std::span(mixed).first(count)));
    if (text > 0) ExpectOk(mixed_->FreeRows(first));
  }

  void Rewind(SequenceId id) {
    const int64_t length = Length(id);
    Both([&](Runner& runner) { return runner.Rewind(id, length); });
  }

  void Fork(SequenceId id) {
    SequenceId& target = ids_[Below(kCount)];
    if (target == id) return;
    Both([&](Runner& runner) { return runner.FreeSequence(target); });
    const auto one = plain_->Fork(id);
    const auto other = mixed_->Fork(id);
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_EQ(*one, *other);
    target = *one;
  }

  void Reorder() {
    std::vector<int> parents;
    for (size_t i = 0; i < kCount; ++i) parents.push_back(static_cast<int>(Below(kCount)));
    Both([&](Runner& runner) { return runner.Reorder(ids_, parents); });
  }

  void Snapshot(SequenceId id) {
    if (snapshot_ < 0) {
      snapshot_ = *plain_->TakeSnapshot(id);
      EXPECT_EQ(*mixed_->TakeSnapshot(id), snapshot_);
      return;
    }
    Both([&](Runner& runner) { return runner.Restore(id, snapshot_); });
    Both([&](Runner& runner) { return runner.DropSnapshot(snapshot_); });
    snapshot_ = -1;
  }

  void Prune(SequenceId id) {
    const int64_t first = Length(id) / 2;
    const int64_t last = Length(id) / 2;
    const auto positions = Below(2) == 0 ? PrunePositions::kKept : PrunePositions::kMoved;
    Both([&](Runner& runner) { return runner.Prune(id, first, last, positions); });
  }

  // The loaded sequence takes the number of the freed one.
  void SaveAndLoad(SequenceId id) {
    const std::string path = folder_ / "session";
    const auto again = [&](Runner& runner) -> Status {
      KVANT_TRY(runner.Save(path, {&id, 1}));
      KVANT_TRY(runner.FreeSequence(id));
      KVANT_ASSIGN(const auto loaded, runner.Load(path));
      EXPECT_EQ(loaded, std::vector<SequenceId>{id});
      return {};
    };
    Both(again);
  }

  void Compare(SequenceId id) {
    ASSERT_EQ(plain_->length(id), mixed_->length(id));
    ASSERT_EQ(plain_->tokens(id).size(), mixed_->tokens(id).size());
    Both([&](Runner& runner) { return runner.ComputeLogits(id); });
    ASSERT_EQ(BitsOf(*plain_, id), BitsOf(*mixed_, id)) << "sequence " << id;
  }

  std::unique_ptr<Runner> plain_;
  std::unique_ptr<Runner> mixed_;
  std::vector<SequenceId> ids_;
  SnapshotId snapshot_ = -1;
  TemporaryFolder folder_;
  std::mt19937 random_;
};

class RowTexts : public RunnerKinds {};

INSTANTIATE_TEST_SUITE_P(Kinds, RowTexts, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(RowTexts, ProgramsGiveTheBitsOfTokens) {
  SessionOptions options = Options(GetParam().type, 4);
  options.threads = 1;
  const auto model = OpenModel();
  for (const bool prefix_cache : {false, true}) {
    options.prefix_cache = prefix_cache;
    RowPrograms programs(model, options);
    programs.Run(prefix_cache ? 1 : 2, 80);
    EXPECT_EQ(programs.mixed().stats().tokens_reused > 0, prefix_cache);
  }
}

// Prompts in pieces of any size, and in a batch with others.
TEST_P(RowTexts, PromptsInPiecesGiveTheBitsOfTokens) {
  const auto model = OpenModel();
  const std::vector<TokenId> tokens = RandomTokens(200, 1);
  for (const bool kv_cache : {true, false}) {
    SessionOptions options = Options(GetParam().type, 2);
    options.kv_cache = kv_cache;
    const auto runner = OpenRunner(model, options);
    std::vector<TokenId> mixed = tokens;
    ReplaceByRows(*runner, mixed, 0, 3);
    ReplaceByRows(*runner, mixed, 40, 100);
    ReplaceByRows(*runner, mixed, 199, 1);
    for (const size_t piece : {size_t{1}, size_t{33}, size_t{200}}) {
      if (!kv_cache && piece == 1) continue;  // quadratic
      const SequenceId one = NewSequence(*runner);
      const SequenceId other = NewSequence(*runner);
      const auto expected = LogitsOfAll(*runner, one, tokens, piece);
      EXPECT_EQ(LogitsOfAll(*runner, other, mixed, piece), expected) << piece;
      ExpectOk(runner->FreeSequence(one));
      ExpectOk(runner->FreeSequence(other));
    }
    if (!kv_cache) continue;
    const std::vector<SequenceId> ids = {NewSequence(*runner), NewSequence(*runner)};
    const auto few = std::span(mixed).first(45);
    const std::vector<StepInput> inputs = {{ids[0], few}, {ids[1], std::span(tokens).first(7)}};
    ExpectOk(runner->Step(inputs));
    EXPECT_EQ(BitsOf(*runner, ids[0]),
              LogitsAlone(model, GetParam().type, std::span(tokens).first(45)));
  }
}

// A rewind beyond a window computes rows again, though the caller freed them.
TEST_P(RowTexts, RewindsReplayRows) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 1));
  const std::vector<TokenId> tokens = RandomTokens(700, 1);
  std::vector<TokenId> mixed = tokens;
  const TokenId first = ReplaceByRows(*runner, mixed, 20, 60).first;
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, mixed));
  ExpectOk(runner->FreeRows(first));
  ExpectOk(runner->Rewind(id, 70));
  ExpectOk(runner->ComputeLogits(id));
  EXPECT_EQ(BitsOf(*runner, id), LogitsAlone(model, GetParam().type, std::span(tokens).first(70)));
  EXPECT_EQ(runner->stats().replays > 0, GetParam().window > 0);
  // With the last row's position the block goes.
  ExpectOk(runner->Rewind(id, 20));
  EXPECT_EQ(AddRowsOf(*runner, std::span(tokens).subspan(20, 60)).first, first + 60);
}

// Requests of a scheduler that wait for memory and begin anew.
TEST_P(RowTexts, PreemptedTextsAreThoseOfTokens) {
  const auto model = OpenModel();
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t i = 0; i < 5; ++i) prompts.push_back(RandomTokens(20 + 9 * i, i));
  uint64_t bytes = 0;
  const auto texts = [&](bool rows) {
    SessionOptions session = Options(GetParam().type, 6);
    session.threads = 1;
    session.kv_bytes_max = bytes;
    const auto runner = OpenRunner(model, session);
    std::deque<TextRequest> requests;
    Scheduler scheduler(*runner, {});
    std::vector<TokenId> firsts;
    for (std::vector<TokenId> prompt : prompts) {
      if (rows) firsts.push_back(ReplaceByRows(*runner, prompt, 3, 15).first);
      GenerateOptions options;
      options.max_tokens = 90;
      options.ignore_eos = true;
      SamplingOptions sampling;
      sampling.temperature = 1.2f;
      sampling.seed = 40;
      requests.emplace_back(
          TextRequest::Setup{.tokenizer = SharedTokenizer(model),
                             .input = std::make_shared<TextInput>(TextInput{prompt}),
                             .options = options,
                             .sampling = sampling,
                             .vocab_size = model->vocab_size()});
      scheduler.Submit(requests.back());
    }
    ExpectOk(scheduler.Drain());
    EXPECT_EQ(scheduler.counters().preemptions > 0, bytes > 0);
    for (const TokenId first : firsts) ExpectOk(runner->FreeRows(first));
    ExpectOk(runner->Check());
    bytes = runner->stats().kv_bytes_peak / 2;
    std::vector<std::vector<TokenId>> out;
    for (const TextRequest& request : requests) out.push_back(request.generation().ids);
    return out;
  };
  const auto expected = texts(false);
  EXPECT_EQ(texts(true), expected);
}

// ---- Models with states -------------------------------------------------------------------------

class RowTextsOfStates : public RecurrentModel {};

INSTANTIATE_TEST_SUITE_P(Seeded, RowTextsOfStates, testing::ValuesIn(RecurrentKinds()),
                         RecurrentKindName);

TEST_P(RowTextsOfStates, ProgramsGiveTheBitsOfTokens) {
  if (model()->row_dim() == 0) {  // n-grams are made of ids
    const auto added = OpenRunner(model(), Strict(1))->AddRows(std::vector<float>(64));
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, ErrorCode::kNotSupported);
    EXPECT_EQ(std::string_view(GetParam().model).substr(0, 8), "qwen4exp");
    return;
  }
  SessionOptions options = Strict(4);
  options.threads = 1;
  options.prefix_cache = true;
  options.state_checkpoints = 3;
  options.state_log = 40;
  RowPrograms(model(), options).Run(1, 50);
}

// ---- Ids ----------------------------------------------------------------------------------------

TEST(RowIds, AreGivenAgainToEqualRowsOnly) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
  const std::vector<TokenId> tokens = RandomTokens(10, 1);
  const RowIds ids = AddRowsOf(*runner, tokens);
  EXPECT_EQ(ids.first, kTinyVocab);
  EXPECT_EQ(ids.count, 10);
  EXPECT_EQ(AddRowsOf(*runner, tokens).first, ids.first);
  EXPECT_EQ(AddRowsOf(*runner, std::span(tokens).first(9)).first, ids.first + 10);
  ExpectOk(runner->FreeRows(ids.first));
  EXPECT_EQ(AddRowsOf(*runner, tokens).first, ids.first);  // held once all the time
  ExpectOk(runner->FreeRows(ids.first));
  ExpectOk(runner->FreeRows(ids.first));
  EXPECT_EQ(AddRowsOf(*runner, tokens).first, ids.first + 19);
}

// Sequences, forks and snapshots hold rows; the last of them lets go.
TEST(RowIds, LiveAsLongAsAnythingHoldsThem) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 3));
  std::vector<TokenId> text = RandomTokens(30, 1);
  const TokenId first = ReplaceByRows(*runner, text, 5, 10).first;
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, text));
  ExpectOk(runner->FreeRows(first));
  const auto refused = runner->FreeRows(first);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  const SnapshotId snapshot = *runner->TakeSnapshot(id);
  const SequenceId copy = *runner->Fork(id);
  ExpectOk(runner->Reset(id));
  ExpectOk(runner->Append(id, text));  // the ids exist
  ExpectOk(runner->FreeSequence(id));
  ExpectOk(runner->FreeSequence(copy));
  const SequenceId again = NewSequence(*runner);
  ExpectOk(runner->Restore(again, snapshot));
  ExpectOk(runner->DropSnapshot(snapshot));
  ExpectOk(runner->Append(again, std::span(text).subspan(14, 1)));
  ExpectOk(runner->Prune(again, 5, 1, PrunePositions::kMoved));  // one row is left
  ExpectOk(runner->Append(again, std::span(text).subspan(5, 1)));
  ExpectOk(runner->Rewind(again, 5));
  const auto gone = runner->Append(again, std::span(text).subspan(5, 1));
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().message,
            fmt::format("token 0: expected an id from 0 to {}, found {}", kTinyVocab - 1, first));
}

// Known prefixes keep rows: an image that comes again has its ids again, and is not computed again.
// Where memory ends a prefix goes, and its rows with it, also in a step that needs them.
TEST(RowIds, AreKeptByKnownPrefixes) {
  const auto model = OpenTiny({}, OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(300, 1);
  const auto expected = LogitsAlone(model, KvType::kF32, tokens);
  const auto bytes = [&] {
    const auto runner = OpenKnowing(model, 1);
    ExpectOk(runner->Append(NewSequence(*runner), RandomTokens(330, 2)));
    return runner->stats().kv_bytes_peak;
  }();
  const auto runner = OpenKnowing(model, 1, bytes);
  TokenId first = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<TokenId> mixed = tokens;
    const RowIds ids = ReplaceByRows(*runner, mixed, 10, 100);
    if (round == 0) first = ids.first;
    EXPECT_EQ(ids.first, first);
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, mixed));
    EXPECT_EQ(BitsOf(*runner, id), expected);
    ExpectOk(runner->FreeRows(first));
    ExpectOk(runner->FreeSequence(id));
  }
  EXPECT_EQ(runner->stats().tokens_reused, 288u);
  // Nobody but the index holds the rows now, and the step gives up what the index knows.
  const SequenceId id = NewSequence(*runner);
  std::vector<TokenId> mixed = RandomTokens(330, 3);
  const auto rows = std::span(tokens).subspan(10, 100);
  std::ranges::copy(rows, mixed.begin() + 200);
  auto text = mixed;
  for (size_t i = 0; i < rows.size(); ++i) text[200 + i] = first + static_cast<TokenId>(i);
  ExpectOk(runner->Append(id, text));
  EXPECT_EQ(BitsOf(*runner, id), LogitsAlone(model, KvType::kF32, mixed));
  ExpectOk(runner->FreeSequence(id));
  // Another text pushes the rows out.
  const SequenceId other = NewSequence(*runner);
  ExpectOk(runner->Append(other, RandomTokens(330, 4)));
  EXPECT_EQ(AddRowsOf(*runner, rows).first, first + 100);
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(RowRefusals, NameWhatIsWrong) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
  const auto refusal = [&](const std::vector<float>& rows) {
    const auto ids = runner->AddRows(rows);
    EXPECT_FALSE(ids.ok());
    return ids.ok() ? "" : ids.error().message;
  };
  EXPECT_EQ(model->row_dim(), 64);
  EXPECT_EQ(refusal({}), "rows: expected 64 numbers for each row, found 0");
  EXPECT_EQ(refusal(std::vector<float>(65)), "rows: expected 64 numbers for each row, found 65");
  std::vector<float> rows(128);
  rows[70] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal(rows), "rows: number 6 of row 1: expected a finite number, found inf");
  rows[70] = std::nanf("");
  EXPECT_EQ(refusal(rows), "rows: number 6 of row 1: expected a finite number, found nan");
  std::vector<TokenId> text = RandomTokens(5, 1);
  const RowIds ids = ReplaceByRows(*runner, text, 1, 2);
  const SequenceId id = NewSequence(*runner);
  const std::vector<TokenId> none = {1, ids.first + 2};
  EXPECT_EQ(runner->Append(id, none).error().message,
            fmt::format("token 1: expected an id from 0 to {} or the id of a row, found {}",
                        kTinyVocab - 1, ids.first + 2));
  EXPECT_EQ(runner->FreeRows(ids.first + 1).error().message,
            fmt::format("rows: no block that is held begins with the id {}", ids.first + 1));
  EXPECT_FALSE(runner->FreeRows(-1).ok());
  EXPECT_FALSE(runner->FreeRows(5).ok());
  ExpectOk(runner->Append(id, text));
  EXPECT_EQ(runner->Export({&id, 1}, KvLayout::kBhsd).error().message,
            fmt::format("export: token 1: expected an id from 0 to {}, found {}, the id of a row",
                        kTinyVocab - 1, ids.first));
  KvTensors tensors;
  tensors.tokens = {text};
  EXPECT_EQ(runner->Import(tensors, KvLayout::kBhsd).error().code, ErrorCode::kNotSupported);
}

// Its layers look tokens up by their ids.
TEST(RowRefusals, ModelsWhoseLayersReadIdsTakeNoRows) {
  for (const char* name : {"gemma3n", "gemma4-inputs"}) {
    const auto model = SeededModel(name).Open(OwnGemm());
    const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
    EXPECT_EQ(model->row_dim(), 0);
    const auto ids = runner->AddRows(std::vector<float>(64));
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, ErrorCode::kNotSupported);
  }
}

}  // namespace
}  // namespace kvant::test
