// Chooses the experts of each token. The loops over the experts of one token run once per token and
// have no kernel.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "engine/graph/matmul/expert_nodes.h"
#include "engine/graph/matmul/route_values.h"

namespace kvant::graph {
namespace {

// Added to a sum of weights before dividing by it, as DeepSeek V3 does.
constexpr float kWeightSumMin = 1e-20f;

// Choosing takes as long, for each expert, as norming this many values.
constexpr int64_t kValuesPerExpert = 16;

void Softmax(float* values, int64_t count) {
  const float largest = *std::max_element(values, values + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::exp(values[i] - largest);
    sum += values[i];
  }
  for (int64_t i = 0; i < count; ++i) values[i] /= sum;
}

// The open entry with the largest score, the first of equals; it is closed. There must be one. An
// entry whose score is NaN is chosen only where it comes first.
int64_t TakeBest(const float* scores, int32_t* open, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (open[i] != 0 && (best < 0 || scores[i] > scores[best])) best = i;
  }
  open[best] = 0;
  return best;
}

class ChooseExpertsNode final : public Node {
 public:
  ChooseExpertsNode(std::string name, const Routing& routing, WeightVector selection_bias,
                    ValueId logits, const RoutedRows& rows)
      : Node(std::move(name), {logits}, {rows.chosen, rows.weights}),
        routing_(routing),
        bias_(std::move(selection_bias)),
        logits_(logits),
        routed_(rows) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(logits_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      Choose(pass.FloatRow(logits_, row), pass.Scratch(member),
             IntegerRow(pass, routed_.chosen, row), pass.FloatRow(routed_.weights, row));
    }
  }

  // Weights, scores and scores of groups, and which of the experts and groups may be chosen.
  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(routing_.experts) * (3 * sizeof(float) + 2 * sizeof(int32_t));
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerExpert * routing_.experts);
  }

  std::string Describe() const override {
    constexpr const char* kGatings[] = {"softmax", "softmax of chosen", "sigmoid", "sqrt softplus",
                                        "sparse mixer"};
    std::string text = fmt::format("the best {} of {} experts, {}", routing_.used, routing_.experts,
                                   kGatings[static_cast<size_t>(routing_.gating)]);
    if (routing_.groups.count > 1) {
      text += fmt::format(", out of {} of {} groups", routing_.groups.used, routing_.groups.count);
    }
    if (!bias_.empty()) text += ", + bias";
    if (routing_.weighs == Weighs::kInput) text += ", of their input";
    if (routing_.normalize) text += ", normalized";
    if (routing_.scale != 1.0f) text += fmt::format(" * {}", routing_.scale);
    return text;
  }

 private:
  void Choose(const float* logits, std::span<std::byte> scratch, int32_t* chosen,
              float* weights) const {
    const int64_t count = routing_.experts;
    float* gates = reinterpret_cast<float*>(scratch.data());
    float* scores = gates + count;
    int32_t* open = reinterpret_cast<int32_t*>(scores + 2 * count);
    std::copy(logits, logits + count, gates);
    Gate(gates);
    const float* best_by = routing_.by_logits ? logits : gates;
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = bias_.empty() ? best_by[i] : best_by[i] + bias_[static_cast<size_t>(i)];
    }
    std::fill(open, open + count, 1);
    if (routing_.groups.count > 1) CloseGroups(scores, open);
    for (int64_t rank = 0; rank < routing_.used; ++rank) {
      const int64_t best = TakeBest(scores, open, count);
      chosen[rank] = static_cast<int32_t>(best);
      weights[rank] = gates[best];
      if (routing_.gating == Gating::kSparseMixer) {
        weights[rank] = MixerWeight(logits, static_cast<size_t>(best), open);
      }
    }
    Weigh(weights);
  }

  void Gate(float* gates) const {
    const int64_t count = routing_.experts;
    switch (routing_.gating) {
      case Gating::kSoftmax: Softmax(gates, count); break;
      case Gating::kSoftmaxOfChosen:
      case Gating::kSparseMixer: break;
      case Gating::kSigmoid:
        for (int64_t i = 0; i < count; ++i) gates[i] = Sigmoid(gates[i]);
        break;
      case Gating::kSqrtSoftplus:
        for (int64_t i = 0; i < count; ++i) {
          gates[i] =
              std::sqrt(std::max(gates[i], 0.0f) + std::log1p(std::exp(-std::abs(gates[i]))));
        }
        break;
    }
  }

  // The share of the best expert, which has just been taken, among the open ones that are close.
  float MixerWeight(const float* logits, size_t best, const int32_t* open) const {
    const float top = logits[best];
    float sum = 1;
    for (int64_t i = 0; i < routing_.experts; ++i) {
      const float below = (top - logits[i]) / std::max(std::abs(logits[i]), top);
      if (open[i] == 0 || below > 2 * routing_.jitter) continue;
      sum += std::exp(logits[i] - top);
    }
    return 1 / sum;
  }

  // Closes the experts of all groups but the best.
  void CloseGroups(float* scores, int32_t* open) const {
    const int64_t groups = routing_.groups.count;
    const int64_t size = routing_.experts / groups;
    float* group_scores = scores + routing_.experts;
    int32_t* group_open = open + routing_.experts;
    for (int64_t group = 0; group < groups; ++group) {
      group_scores[group] = ScoreOfGroup(scores + group * size, size);
      group_open[group] = 1;
    }
    for (int64_t i = 0; i < routing_.groups.used; ++i) TakeBest(group_scores, group_open, groups);
    for (int64_t i = 0; i < routing_.experts; ++i) open[i] = 1 - group_open[i / size];
  }

  float ScoreOfGroup(const float* scores, int64_t size) const {
    const float* best = std::max_element(scores, scores + size);
    if (routing_.groups.score == GroupScore::kMax || size == 1) return *best;
    float second = -std::numeric_limits<float>::infinity();
    for (const float* score = scores; score != scores + size; ++score) {
      if (score != best) second = std::max(second, *score);
    }
    return *best + second;
  }

  void Weigh(float* weights) const {
    if (routing_.gating == Gating::kSoftmaxOfChosen) Softmax(weights, routing_.used);
    float factor = routing_.scale;
    float sum = kWeightSumMin;
    for (int64_t rank = 0; rank < routing_.used; ++rank) sum += weights[rank];
    for (int64_t rank = 0; rank < routing_.used; ++rank) {
      weights[rank] = (routing_.normalize ? weights[rank] / sum : weights[rank]) * factor;
    }
  }

  Routing routing_;
  WeightVector bias_;
  ValueId logits_;
  RoutedRows routed_;
};

}  // namespace

std::unique_ptr<Node> MakeChooseExperts(std::string name, const Routing& routing,
                                        WeightVector selection_bias, ValueId logits,
                                        const RoutedRows& rows) {
  return std::make_unique<ChooseExpertsNode>(std::move(name), routing, std::move(selection_bias),
                                             logits, rows);
}

}  // namespace kvant::graph
