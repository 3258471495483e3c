// The nodes of a mixture of experts. A router chooses a few of many experts for each token, and the
// token's row is multiplied with the matrices of the chosen experts. The rows of all tokens are
// brought into the order of the experts, so that an expert's weights are read once in a pass for
// all its rows:
//
//   logits -> choose -> sort -> gather -> gated unit and down product of each expert -> sum
//
// A routed value has `used` rows for each token of the pass (Value::per_row). Rows of one expert
// follow each other in the order of the tokens; expert e has rows [offsets[e], offsets[e + 1]).
//
// The result of the experts for a token depends on that token alone, bit for bit. The kernels give
// a row the same bits whatever rows are multiplied with it. The tokens of the pass (RowCounts)
// decide which of two arithmetics the kernels use, for few tokens or for many, as in products
// without experts; the number of rows that an expert happens to have never does. No library is
// called, whose result might depend on the number of rows. Results are summed in the order of rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/float_gemm.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class MatMulObserver;

// How the router's logits become weights.
enum class Gating : uint8_t {
  kSoftmax,          // over all experts
  kSoftmaxOfChosen,  // over the experts that are chosen, which have the largest logits
  kSigmoid,
  kSqrtSoftplus,  // sqrt(log(1 + exp(logit)))
  // Chooses the experts one by one, the best of the experts that are left. Its weight is its share
  // of a softmax over the experts that are left, without the ones that are further below it than
  // the jitter allows (Liu et al. 2024, arXiv 2409.12136, without sampling).
  kSparseMixer,
};

// The score that a group of experts is chosen by.
enum class GroupScore : uint8_t { kMax, kSumOfTopTwo };

struct ExpertGroups {
  int64_t count = 1;  // groups of as many experts each
  int64_t used = 1;   // the best groups, from which all experts of a token come
  GroupScore score = GroupScore::kMax;
};

// The vector that an expert's weight multiplies.
enum class Weighs : uint8_t {
  kResult,
  kInput,  // the token's row, as the expert sees it
};

// The choice of a token's experts: the experts with the largest weight + selection bias. Their
// weights, without that bias, are normalized and scaled.
struct Routing {
  int64_t experts = 0;
  int64_t used = 0;  // experts of a token
  Gating gating = Gating::kSoftmax;
  ExpertGroups groups;
  bool normalize = false;  // weights are divided by their sum
  float scale = 1;         // of the weights
  bool by_logits = false;  // experts are chosen by their logits, not by the weights
  Weighs weighs = Weighs::kResult;
  // kSparseMixer: expert i takes part if (best - logit) / max(|logit|, best) <= 2 * jitter.
  float jitter = 0;
};

// The experts of a pass's tokens, and the order in which their rows lie.
struct RoutedRows {
  int64_t experts = 0;
  int64_t used = 0;
  ValueId chosen = kNoValue;   // int32 [used] for each token: its experts, the best first
  ValueId weights = kNoValue;  // float [used] for each token
  ValueId places = kNoValue;   // int32 [used] for each token: the routed row of each of its experts
  ValueId order = kNoValue;    // int32 [tokens * used] without gaps: the token of each routed row
  ValueId offsets = kNoValue;  // int32 [experts + 1], once a pass
  Weighs weighs = Weighs::kResult;
};

// A matrix of every expert, [cols x rows x experts].
struct ExpertOperand {
  const formats::GgufTensor* weight = nullptr;
  WeightVector bias;         // [experts][rows] or empty
  int64_t out_col = 0;       // where the rows' results begin in a row of the output
  WeightVector scales = {};  // [experts] of the products, before the bias; empty = 1
};

// Adds the values.
RoutedRows NewRoutedRows(Plan& plan, const std::string& name, int64_t experts, int64_t used);

// rows.chosen and rows.weights by logits [experts] of each token. The bias is [experts] or empty.
std::unique_ptr<Node> MakeChooseExperts(std::string name, const Routing& routing,
                                        WeightVector selection_bias, ValueId logits,
                                        const RoutedRows& rows);

// rows.places, rows.order and rows.offsets by rows.chosen.
std::unique_ptr<Node> MakeSortByExpert(std::string name, const RoutedRows& rows);

// out, routed = the rows of `in`, in each of the forms that `out` has; multiplied by the weights of
// their experts where the weights weigh the input.
std::unique_ptr<Node> MakeGatherRows(const cpu::KernelTable& kernels, std::string name,
                                     const RoutedRows& rows, const Activations& in,
                                     const Activations& out);

// Makes a gated unit like MakeGatedUnit, with the matrices of each row's expert; in, gate_up and
// out are routed.
std::unique_ptr<Node> MakeExpertUnit(const cpu::KernelTable& kernels,
                                     const cpu::FloatGemm& float_gemm, std::string name,
                                     std::vector<ExpertOperand> operands, const RoutedRows& rows,
                                     const Activations& in, const cpu::GateActivation& activation,
                                     ValueId gate_up, const Activations& out);

// out = the products of rows of `in` with the matrix of each row's expert; both are routed.
std::unique_ptr<Node> MakeExpertMatMul(const cpu::KernelTable& kernels,
                                       const cpu::FloatGemm& float_gemm, std::string name,
                                       ExpertOperand operand, const RoutedRows& rows,
                                       const Activations& in, ValueId out);

// The shared expert's part of the sum, which all tokens have.
struct SharedProduct {
  ValueId product = kNoValue;  // kNoValue: there is none
  ValueId gate = kNoValue;     // its product is multiplied by the sigmoid of this value's
  int64_t gate_col = 0;        // column; kNoValue: by 1
};

// out = (or +=) for each token the sum of its experts' rows of `products`, each times its weight
// where that weighs the result, and of the shared product; rows of `cols` floats.
std::unique_ptr<Node> MakeSumExperts(std::string name, const RoutedRows& rows, ValueId products,
                                     const SharedProduct& shared, int64_t cols, ValueId out,
                                     cpu::Store store);

// Hands in.floats, which is routed, to the observer, which must outlive the node.
std::unique_ptr<Node> MakeObserveExperts(MatMulObserver& observer, std::string name,
                                         const RoutedRows& rows, const Activations& in);

// How many experts `tokens` tokens use together on average, if each chooses `used` of them evenly
// and independently of the others.
double ExpectedExperts(int64_t experts, int64_t used, int64_t tokens);

}  // namespace kvant::graph
