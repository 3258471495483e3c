// Sequences with low-rank additions to the model's matrices: they compute what a model with the
// sums for matrices computes, and change nothing for the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>

#include "engine/graph/matmul/low_rank.h"
#include "formats/gguf.h"
#include "kvant/adapter.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using Adapters = std::vector<std::shared_ptr<const Adapter>>;

ModelOptions With(Adapters adapters) {
  ModelOptions options = OwnGemm();
  options.adapters = std::move(adapters);
  return options;
}

// Whether the file at `path` is a model that can be opened with this adapter.
bool CanBeAdded(const std::string& path, const LowRankMatrices& matrices) {
  auto adapter = std::make_shared<Adapter>();
  adapter->name = "probe";
  adapter->matrices = {matrices};
  const auto model = Model::Open(path, With({adapter}));
  if (model.ok()) return true;
  EXPECT_EQ(model.error().code, ErrorCode::kNotSupported) << model.error().message;
  return false;
}

// An addition of about a third of the matrix in size.
LowRankMatrices RandomAddition(const formats::GgufTensor& tensor, int64_t rank,
                               std::mt19937& random) {
  const int64_t cols = tensor.dims[0];
  const float deviation = 0.5f / std::sqrt(static_cast<float>(cols));
  return {.tensor = std::string(tensor.name),
          .rank = rank,
          .a = RandomValues(rank * cols, 1, random),
          .b = RandomValues(tensor.rows() * rank, deviation, random)};
}

// A random addition to every matrix of the model that can have one. The first matrices of `names`
// must be among them.
std::shared_ptr<const Adapter> AdapterFor(const std::string& path, uint32_t seed,
                                          const std::vector<std::string>& names) {
  std::mt19937 random(seed);
  auto adapter = std::make_shared<Adapter>();
  adapter->name = "random " + std::to_string(seed);
  adapter->scale = 0.75f;
  const auto file = formats::GgufFile::Open(path);
  EXPECT_TRUE(file.ok());
  for (const formats::GgufTensor& tensor : file->tensors()) {
    if (tensor.n_dims < 2 || tensor.dims[2] > 1) continue;
    const LowRankMatrices matrices =
        RandomAddition(tensor, 1 + static_cast<int64_t>(random() % 5), random);
    if (CanBeAdded(path, matrices)) adapter->matrices.push_back(matrices);
  }
  for (const std::string& name : names) {
    EXPECT_TRUE(std::ranges::any_of(adapter->matrices, [&](const LowRankMatrices& matrices) {
      return matrices.tensor == name;
    })) << name;
  }
  return adapter;
}

// The model with matrices of F32 as they are with the adapters, in double precision.
std::shared_ptr<const Model> OpenMerged(const std::string& path, const Adapters& adapters,
                                        const std::vector<AdapterUse>& uses) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto file = formats::GgufFile::Open(path);
  EXPECT_TRUE(file.ok());
  const std::byte* const begin = file->mappings().front().bytes().data();
  for (const AdapterUse& use : uses) {
    const Adapter& adapter = *adapters[static_cast<size_t>(use.adapter)];
    for (const LowRankMatrices& matrices : adapter.matrices) {
      const formats::GgufTensor& tensor = *file->FindTensor(matrices.tensor);
      auto* const values = reinterpret_cast<float*>(bytes.data() + (tensor.data - begin));
      for (int64_t row = 0; row < tensor.rows(); ++row) {
        for (int64_t col = 0; col < tensor.dims[0]; ++col) {
          double sum = 0;
          for (int64_t k = 0; k < matrices.rank; ++k) {
            sum += double{matrices.b[static_cast<size_t>(row * matrices.rank + k)]} *
                   double{matrices.a[static_cast<size_t>(k * tensor.dims[0] + col)]};
          }
          float& value = values[row * tensor.dims[0] + col];
          value =
              static_cast<float>(double{value} + double{use.scale} * double{adapter.scale} * sum);
        }
      }
    }
  }
  const std::string merged = TempPath("merged.gguf");
  std::ofstream(merged, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  auto model = Model::Open(merged, OwnGemm());
  std::filesystem::remove(merged);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

SequenceId NewWith(Runner& runner, const std::vector<AdapterUse>& uses) {
  const SequenceId id = NewSequence(runner);
  ExpectOk(runner.SetAdapters(id, uses));
  return id;
}

std::vector<float> LogitsOf(const Runner& runner, SequenceId id) {
  return {runner.logits(id).begin(), runner.logits(id).end()};
}

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// Logits after a prompt of many rows and after some single tokens.
std::vector<float> LogitsAlongTheWay(Runner& runner, SequenceId id,
                                     const std::vector<TokenId>& tokens) {
  std::vector<float> all;
  const size_t prompt = tokens.size() - 3;
  ExpectOk(runner.Append(id, std::span(tokens).first(prompt)));
  for (size_t i = prompt;; ++i) {
    const std::vector<float> logits = LogitsOf(runner, id);
    all.insert(all.end(), logits.begin(), logits.end());
    if (i == tokens.size()) return all;
    ExpectOk(runner.Append(id, std::span(tokens).subspan(i, 1)));
  }
}

// A sequence with adapters has the logits of the merged model, within the rounding of floats.
void ExpectMerged(const std::string& path, const std::vector<std::string>& names, KvType type) {
  const Adapters adapters = {AdapterFor(path, 1, names), AdapterFor(path, 2, names)};
  const auto model = Model::Open(path, With(adapters));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<TokenId> tokens = RandomTokens(90, 3, (*model)->vocab_size());
  const std::vector<std::vector<AdapterUse>> every = {{{0, 1}}, {{1, -0.5f}}, {{1, 0.25f}, {0, 1}}};
  const auto plain = Model::Open(path, OwnGemm());
  auto plain_runner = OpenRunner(*plain, Options(type, 1));
  const auto without = LogitsAlongTheWay(*plain_runner, NewSequence(*plain_runner), tokens);
  for (const std::vector<AdapterUse>& uses : every) {
    auto merged = OpenRunner(OpenMerged(path, adapters, uses), Options(type, 1));
    auto runner = OpenRunner(*model, Options(type, 1));
    const auto expected = LogitsAlongTheWay(*merged, NewSequence(*merged), tokens);
    const auto found = LogitsAlongTheWay(*runner, NewWith(*runner, uses), tokens);
    EXPECT_GT(MaxDifference(expected, without), 0.05 * Largest(expected));
    EXPECT_LT(MaxDifference(found, expected), 2e-4 * Largest(expected)) << uses.size();
  }
}

// ---- Values -------------------------------------------------------------------------------------

TEST_P(RunnerKinds, AdaptersGiveTheLogitsOfMergedMatrices) {
  if (GetParam().type != KvType::kF32) GTEST_SKIP() << "other types round keys and values";
  const std::string path = TempPath("base.gguf");
  TinyModelWriter(Shape()).Write(path);
  ExpectMerged(path, {"blk.0.attn_output.weight", "blk.1.ffn_down.weight", "output.weight"},
               GetParam().type);
  std::filesystem::remove(path);
}

TEST(Adapters, GiveTheLogitsOfMergedMatricesWithExperts) {
  TinyShape shape;
  shape.arch = "llama";
  shape.experts = {.count = 4};
  const std::string path = TempPath("experts.gguf");
  TinyModelWriter(shape).Write(path);
  ExpectMerged(path, {"blk.0.attn_output.weight", "blk.0.ffn_gate_inp.weight"}, KvType::kF32);
  std::filesystem::remove(path);
}

TEST(Adapters, GiveTheLogitsOfMergedMatricesWithStates) {
  for (const char* name : {"falcon-h1", "qwen3next", "rwkv7", "lfm2"}) {
    SeededModel seeded(name);
    const auto path = seeded.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    ExpectMerged(*path, {}, KvType::kF32);
  }
}

TEST(Adapters, AreOnlyAddedToWhatTheModelHas) {
  const std::string path = TempPath("base.gguf");
  TinyShape shape;
  shape.tied = true;
  TinyModelWriter(shape).Write(path);
  std::mt19937 random(1);
  LowRankMatrices good = {.tensor = "blk.1.attn_q.weight",
                          .rank = 2,
                          .a = RandomValues(2 * 64, 1, random),
                          .b = RandomValues(2 * 64, 1, random)};
  const auto open = [&](const std::vector<LowRankMatrices>& matrices) {
    auto adapter = std::make_shared<Adapter>();
    adapter->name = "mine";
    adapter->matrices = matrices;
    const auto model = Model::Open(path, With({adapter}));
    return model.ok() ? Error{ErrorCode::kCancelled, "ok"} : model.error();
  };
  const auto changed = [&](auto change) {
    LowRankMatrices one = good;
    change(one);
    return open({one});
  };
  EXPECT_EQ(open({good}).message, "ok");
  // A tied output has the name of an output.
  const Error output = changed([](LowRankMatrices& one) {
    one.tensor = "output.weight";
    one.b.resize(static_cast<size_t>(2 * kTinyVocab));
  });
  EXPECT_EQ(output.message, "ok");
  const Error unknown = changed([](LowRankMatrices& one) { one.tensor = "blk.9.attn_q.weight"; });
  EXPECT_EQ(unknown.code, ErrorCode::kNotSupported);
  EXPECT_EQ(unknown.message, "adapter mine: tensor blk.9.attn_q.weight: " + path +
                                 " has no matrix of this name that can be added to");
  EXPECT_EQ(changed([](LowRankMatrices& one) { one.tensor = "token_embd.weight"; }).code,
            ErrorCode::kNotSupported);
  EXPECT_EQ(open({good, good}).message,
            "adapter mine: tensor blk.1.attn_q.weight: expected once, found twice");
  EXPECT_EQ(changed([](LowRankMatrices& one) { one.rank = 0; }).message,
            "adapter mine: tensor blk.1.attn_q.weight: expected a rank of at least 1, found 0");
  EXPECT_EQ(changed([](LowRankMatrices& one) { one.a.resize(126); }).message,
            "adapter mine: tensor blk.1.attn_q.weight: expected [64 x 2] and [2 x 64] as the model "
            "has it, found 126 and 128 values");
  EXPECT_EQ(changed([](LowRankMatrices& one) { one.b.pop_back(); }).code, ErrorCode::kInvalid);
  EXPECT_EQ(changed([](LowRankMatrices& one) { one.a[5] = NAN; }).code, ErrorCode::kInvalid);
  std::filesystem::remove(path);
}

TEST(Adapters, LowRankDotsAddUpInOneOrder) {
  std::mt19937 random(4);
  for (const int64_t count : {1, 3, 15, 16, 17, 64, 999}) {
    const std::vector<float> a = RandomValues(count, 1, random);
    const std::vector<float> b = RandomValues(count, 1, random);
    double sum = 0;
    double size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum += double{a[i]} * double{b[i]};
      size += std::abs(double{a[i]} * double{b[i]});
    }
    EXPECT_NEAR(double{graph::LowRankDot(a.data(), b.data(), count)}, sum, size * 1e-6);
  }
}

// ---- Company ------------------------------------------------------------------------------------

class AdaptersInCompany : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    shape_.type = GetParam();
    shape_.context = 900;
    shape_.ffn = 128;
    shape_.window = 40;
    const std::string path = TempPath("base.gguf");
    TinyModelWriter(shape_).Write(path);
    adapters_ = {AdapterFor(path, 1, {"blk.0.ffn_up.weight"}), AdapterFor(path, 2, {})};
    model_ = *Model::Open(path, With(adapters_));
    plain_ = *Model::Open(path, OwnGemm());
    std::filesystem::remove(path);
  }

  std::vector<float> Alone(const std::vector<AdapterUse>& uses,
                           const std::vector<TokenId>& tokens) const {
    auto runner = OpenRunner(model_, Options(KvType::kF16, 1));
    return LogitsAlongTheWay(*runner, NewWith(*runner, uses), tokens);
  }

  TinyShape shape_;
  Adapters adapters_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Model> plain_;
  const std::vector<std::vector<AdapterUse>> uses_ = {{}, {{0, 1}}, {{1, 0.5f}}, {{0, 2}, {1, -1}}};
};

TEST_P(AdaptersInCompany, ChangeNoBitOfOthers) {
  const std::vector<TokenId> tokens = RandomTokens(100, 7);
  auto plain = OpenRunner(plain_, Options(KvType::kF16, 1));
  EXPECT_EQ(Alone({}, tokens), LogitsAlongTheWay(*plain, NewSequence(*plain), tokens));
  auto runner = OpenRunner(model_, Options(KvType::kF16, 8));
  std::vector<SequenceId> ids;
  std::vector<std::vector<float>> found(uses_.size());
  for (const auto& uses : uses_) ids.push_back(NewWith(*runner, uses));
  const auto step = [&](size_t begin, size_t count) {
    std::vector<StepInput> inputs;
    for (const SequenceId id : ids) inputs.push_back({id, std::span(tokens).subspan(begin, count)});
    ExpectOk(runner->Step(inputs));
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<float> logits = LogitsOf(*runner, ids[i]);
      found[i].insert(found[i].end(), logits.begin(), logits.end());
    }
  };
  step(0, 97);
  for (size_t i = 97; i < 100; ++i) step(i, 1);
  for (size_t i = 0; i < uses_.size(); ++i) EXPECT_EQ(found[i], Alone(uses_[i], tokens)) << i;
}

// Short prompts share a pass with the tokens of other sequences.
TEST_P(AdaptersInCompany, ShortPromptsShareAPass) {
  auto runner = OpenRunner(model_, Options(KvType::kF16, 8));
  std::vector<SequenceId> ids;
  std::vector<std::vector<TokenId>> texts;
  std::vector<StepInput> inputs;
  for (size_t i = 0; i < uses_.size(); ++i) {
    ids.push_back(NewWith(*runner, uses_[i]));
    texts.push_back(RandomTokens(1 + 5 * i, static_cast<uint32_t>(i)));
  }
  for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], texts[i]});
  ExpectOk(runner->Step(inputs));
  for (size_t i = 0; i < ids.size(); ++i) {
    auto alone = OpenRunner(model_, Options(KvType::kF16, 1));
    const SequenceId id = NewWith(*alone, uses_[i]);
    ExpectOk(alone->Append(id, texts[i]));
    EXPECT_EQ(LogitsOf(*runner, ids[i]), LogitsOf(*alone, id)) << i;
  }
}

// Forks, snapshots, rewinds with a replay, and logits that are computed again.
TEST_P(AdaptersInCompany, GoWithASequenceWhereverItGoes) {
  const std::vector<TokenId> tokens = RandomTokens(700, 5);
  const std::span<const TokenId> all(tokens);
  auto runner = OpenRunner(model_, Options(KvType::kF16, 4));
  const SequenceId id = NewWith(*runner, uses_[3]);
  ExpectOk(runner->Append(id, all));
  const auto fork = runner->Fork(id);
  ASSERT_TRUE(fork.ok());
  const auto snapshot = runner->TakeSnapshot(id);
  ASSERT_TRUE(snapshot.ok());
  ExpectOk(runner->Rewind(*fork, 90));
  EXPECT_GT(runner->stats().replays, 0u);
  ExpectOk(runner->ComputeLogits(*fork));
  const auto expected = [&](size_t length) {
    auto alone = OpenRunner(model_, Options(KvType::kF16, 1));
    const SequenceId other = NewWith(*alone, uses_[3]);
    ExpectOk(alone->Append(other, all.first(length)));
    ExpectOk(alone->Rewind(other, static_cast<int64_t>(length) - 1));
    ExpectOk(alone->Append(other, all.subspan(length - 1, 1)));
    return LogitsOf(*alone, other);
  };
  EXPECT_LT(MaxDifference(LogitsOf(*runner, *fork), expected(90)), 1e-2);
  const SequenceId empty = NewSequence(*runner);
  ExpectOk(runner->Restore(empty, *snapshot));
  ExpectOk(runner->Append(empty, all.first(1)));
  ExpectOk(runner->Append(id, all.first(1)));
  EXPECT_EQ(LogitsOf(*runner, empty), LogitsOf(*runner, id));
  ExpectOk(runner->Reset(empty));
  ExpectOk(runner->Append(empty, all.first(80)));
  auto plain = OpenRunner(plain_, Options(KvType::kF16, 1));
  const SequenceId other = NewSequence(*plain);
  ExpectOk(plain->Append(other, all.first(80)));
  EXPECT_EQ(LogitsOf(*runner, empty), LogitsOf(*plain, other));  // it uses none any more
}

// A known beginning is found by those with the same adapters alone.
TEST_P(AdaptersInCompany, PrefixesBelongToAdapters) {
  const std::vector<TokenId> tokens = RandomTokens(200, 6);
  SessionOptions options = Options(KvType::kF16, 4);
  options.prefix_cache = true;
  auto runner = OpenRunner(model_, options);
  for (const auto& uses : uses_) {
    const uint64_t before = runner->stats().tokens_reused;
    const SequenceId first = NewWith(*runner, uses);
    ExpectOk(runner->Append(first, tokens));
    EXPECT_EQ(runner->stats().tokens_reused, before);
    const SequenceId second = NewWith(*runner, uses);
    ExpectOk(runner->Append(second, tokens));
    EXPECT_EQ(runner->stats().tokens_reused, before + 199);
    ExpectOk(runner->FreeSequence(first));
    ExpectOk(runner->FreeSequence(second));
  }
}

// Texts in a batch, where memory is short and some wait and are computed again.
TEST_P(AdaptersInCompany, TextsAreThoseOfSingleOnes) {
  const auto setup = [&](size_t i) {
    GenerateOptions options;
    options.max_tokens = 60;
    options.ignore_eos = true;
    SamplingOptions sampling;
    sampling.seed = i;
    TextInput input = {RandomTokens(20 + 30 * (i % 4), static_cast<uint32_t>(i))};
    input.adapters = uses_[i % uses_.size()];
    return TextRequest::Setup{.tokenizer = SharedTokenizer(model_),
                              .input = std::make_shared<TextInput>(std::move(input)),
                              .options = options,
                              .sampling = sampling,
                              .vocab_size = model_->vocab_size()};
  };
  SessionOptions session = Options(KvType::kF16, 6);
  session.kv_bytes_max = PlanMemory(*model_, Options(KvType::kF16, 1))->kv;
  auto tight = OpenRunner(model_, session);
  std::deque<TextRequest> texts;
  Scheduler scheduler(*tight, {.prompt_slice = 64});
  for (size_t i = 0; i < 12; ++i) scheduler.Submit(texts.emplace_back(setup(i)));
  ExpectOk(scheduler.Drain());
  for (size_t i = 0; i < texts.size(); ++i) {
    auto runner = OpenRunner(model_, Options(KvType::kF16, 1));
    TextRequest alone(setup(i));
    Scheduler single(*runner, {});
    single.Submit(alone);
    ExpectOk(single.Drain());
    EXPECT_EQ(texts[i].generation().ids, alone.generation().ids) << i;
  }
}

TEST_P(AdaptersInCompany, WrongUsesAreRefused) {
  auto runner = OpenRunner(model_, Options(KvType::kF16, 2));
  const SequenceId id = NewSequence(*runner);
  TextInput input = {{1, 2, 3}};
  input.adapters = {{0, 1}};
  TextRequest text({.tokenizer = SharedTokenizer(model_),
                    .input = std::make_shared<TextInput>(std::move(input)),
                    .vocab_size = model_->vocab_size()});
  Scheduler scheduler(*runner, {});
  scheduler.Submit(text, {.sequence = id});
  EXPECT_EQ(scheduler.Drain().error().message, "adapters: expected none of a request in sequence " +
                                                   std::to_string(id) + ", which has its own");
  const auto message = [&](const std::vector<AdapterUse>& uses) {
    const Status status = runner->SetAdapters(id, uses);
    return status.ok() ? "ok" : status.error().message;
  };
  EXPECT_EQ(message({{2, 1}}), "adapters: there is no adapter 2");
  EXPECT_EQ(message({{-1, 1}}), "adapters: there is no adapter -1");
  EXPECT_EQ(message({{0, 1}, {0, 2}}), "adapters: adapter 0 is there twice");
  EXPECT_EQ(message({{0, INFINITY}}), "adapters: the scale of adapter 0 is inf");
  EXPECT_EQ(message({{0, 1}}), "ok");
  ExpectOk(runner->Append(id, RandomTokens(5, 1)));
  EXPECT_EQ(message({}), "adapters: expected an empty sequence, found 5 tokens");
  const Status saved = runner->Save(TempPath("session"), {&id, 1});
  EXPECT_TRUE(saved.Is(ErrorCode::kNotSupported));
  EXPECT_EQ(runner->Export({&id, 1}, KvLayout::kBhsd).error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(runner->SetAdapters(9, {}).error().message, "sequence 9 does not exist");
}

INSTANTIATE_TEST_SUITE_P(Types, AdaptersInCompany, testing::Values("F32", "F16", "Q8_0", "Q4_0"),
                         [](const auto& type) { return std::string(type.param); });

}  // namespace
}  // namespace kvant::test
