// Windows that are run in pieces, and with another matrix from the middle on, beside sessions that
// run everything.
#include "engine/run/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/arch/build_plan.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "quant/format.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using run::PlanReplay;
using run::WindowValues;

using LogitTable = std::vector<std::vector<float>>;

constexpr int64_t kWindowRows = 70;  // as many as a prompt, in three runs of the head

std::string BuiltInPath(const char* name) {
  return std::string(KVANT_SOURCE_DIR) + "/models/" + name;
}

std::vector<TokenId> WindowTokens(const Model& model) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < kWindowRows; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i + 3 * i + 5) % model.vocab_size()));
  }
  return tokens;
}

LogitTable SessionRows(const std::shared_ptr<const Model>& model) {
  SessionOptions options;
  // Attention inside a text has the bits of attention over a cache of floats.
  options.k_type = KvType::kF32;
  options.v_type = KvType::kF32;
  options.threads = 2;
  options.context = kWindowRows;
  const auto session = Session::Create(model, options);
  EXPECT_TRUE(session.ok());
  LogitTable rows(static_cast<size_t>(kWindowRows));
  EXPECT_TRUE((*session)
                  ->AppendScoring(WindowTokens(*model), 0,
                                  [&](int64_t row, std::span<const float> logits) {
                                    rows[static_cast<size_t>(row)].assign(logits.begin(),
                                                                          logits.end());
                                  })
                  .ok());
  return rows;
}

LogitTable HeadRows(PlanReplay& replay) {
  LogitTable rows(static_cast<size_t>(kWindowRows));
  EXPECT_TRUE(replay
                  .RunHead(0,
                           [&](int64_t row, std::span<const float> logits) {
                             rows[static_cast<size_t>(row)].assign(logits.begin(), logits.end());
                           })
                  .ok());
  return rows;
}

class Replays : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = Model::Open(BuiltInPath(GetParam()));
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    tokens_ = WindowTokens(*model_);
  }

  std::unique_ptr<PlanReplay> Create(const graph::Plan& plan) {
    auto replay = PlanReplay::Create(plan, team_, {.rows = kWindowRows});
    EXPECT_TRUE(replay.ok());
    return std::move(*replay);
  }

  ThreadPool team_{2};
  std::shared_ptr<const Model> model_;
  std::vector<TokenId> tokens_;
};

TEST_P(Replays, GiveTheRowsOfASessionInAnyPieces) {
  const LogitTable expected = SessionRows(model_);
  const auto first = Create(model_->plan());
  const auto second = Create(model_->plan());
  const size_t nodes = first->nodes();
  for (const size_t cut : {size_t{0}, size_t{1}, nodes / 3, nodes / 2, nodes - 1, nodes}) {
    WindowValues values;
    ASSERT_TRUE(first->Run(tokens_, cut, values).ok());
    EXPECT_EQ(values.node, cut);
    EXPECT_TRUE(second->Knows(values));
    ASSERT_TRUE(second->Run(tokens_, nodes, values).ok());
    EXPECT_EQ(HeadRows(*second), expected) << "cut before node " << cut;
  }
}

// From the first node on that multiplies with the other matrix.
TEST_P(Replays, OfAnotherMatrixGiveTheRowsOfTheWholeChangedModel) {
  const auto& body = model_->plan().nodes(graph::Stage::kBody);
  const auto unchanged = Create(model_->plan());
  for (const size_t begin : {size_t{0}, body.size() / 2, 3 * body.size() / 4}) {
    const auto node = std::find_if(body.begin() + static_cast<ptrdiff_t>(begin), body.end(),
                                   [](const auto& found) { return !found->Matrices().empty(); });
    ASSERT_NE(node, body.end());
    const std::string name((*node)->Matrices().front()->name);
    GgufFile changed = model_->file().Share();
    const formats::GgufTensor* tensor = changed.FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    auto bytes = AlignedBuffer::Allocate(tensor->size_bytes, "a test");
    ASSERT_TRUE(bytes.ok());
    // Rows in another order.
    const auto row_bytes = static_cast<size_t>(tensor->row_bytes());
    for (int64_t row = 0; row < tensor->rows(); ++row) {
      std::memcpy(bytes->data() + static_cast<size_t>(tensor->rows() - 1 - row) * row_bytes,
                  tensor->data + static_cast<size_t>(row) * row_bytes, row_bytes);
    }
    changed.ReplaceTensor(name, *tensor->format, std::move(*bytes));
    const auto plan =
        arch::BuildPlan(changed, model_->kernels(), model_->float_gemm(), model_->spec());
    ASSERT_TRUE(plan.ok());
    const auto replay = Create(**plan);
    WindowValues values;
    ASSERT_TRUE(unchanged->Run(tokens_, static_cast<size_t>(node - body.begin()), values).ok());
    ASSERT_TRUE(replay->Knows(values));
    ASSERT_TRUE(replay->Run(tokens_, replay->nodes(), values).ok());
    const LogitTable rows = HeadRows(*replay);
    const auto model = Model::Create(std::move(changed));
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(rows, SessionRows(*model)) << name;
    EXPECT_NE(rows, SessionRows(model_)) << name;
  }
}

// A matrix in another format may read its input in another form, which the values do not have.
TEST_P(Replays, KnowWhichValuesAreMissing) {
  const auto& body = model_->plan().nodes(graph::Stage::kBody);
  const auto node = std::find_if(body.begin(), body.end(), [](const auto& found) {
    return !found->Matrices().empty() && found->Matrices().front()->dims[0] % 32 == 0;
  });
  ASSERT_NE(node, body.end());
  const formats::GgufTensor& tensor = *(*node)->Matrices().front();
  const quant::FormatTraits& format = *quant::FindFormat("Q8_0");
  GgufFile changed = model_->file().Share();
  auto bytes = AlignedBuffer::Allocate(
      static_cast<size_t>(format.row_bytes(tensor.dims[0]) * tensor.rows()), "a test");
  ASSERT_TRUE(bytes.ok());
  changed.ReplaceTensor(tensor.name, format, std::move(*bytes));
  const auto plan =
      arch::BuildPlan(changed, model_->kernels(), model_->float_gemm(), model_->spec());
  ASSERT_TRUE(plan.ok());
  WindowValues values;
  ASSERT_TRUE(
      Create(model_->plan())->Run(tokens_, static_cast<size_t>(node - body.begin()), values).ok());
  const auto replay = Create(**plan);
  EXPECT_FALSE(replay->Knows(values));
  EXPECT_TRUE(replay->Knows({}));
}

INSTANTIATE_TEST_SUITE_P(Models, Replays,
                         testing::Values("shakespeare/shakespeare-bf16.gguf",
                                         "lfm2-tiny/lfm2-tiny-bf16.gguf",
                                         "qwen35-tiny/qwen35-tiny-bf16.gguf"),
                         [](const auto& tested) { return std::to_string(tested.index); });

}  // namespace
}  // namespace kvant::test
