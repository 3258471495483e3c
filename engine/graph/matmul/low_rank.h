// Low-rank additions to the matrices of a plan (include/kvant/adapter.h).
//
// PlanBuilder::AddOperand attaches the additions of all adapters to the operand whose tensor they
// name. A node in front of the product computes A x, for the rows that use an adapter; the product
// adds scale * B (A x) to its own results. Rows without an adapter keep their bits, and a row's
// addition does not depend on the other rows.
//
// Thread-safety: const after the plan is built.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "kvant/adapter.h"

namespace kvant::graph {

// The addition of one adapter to one operand.
struct LowRankPart {
  int adapter = 0;
  float scale = 1;  // Adapter::scale
  int64_t rank = 0;
  const float* a = nullptr;  // [rank][cols]
  const float* b = nullptr;  // [rows][rank]
  int64_t low_col = 0;       // where A x lies in the value of all additions to a product
};

// The adapters of a model while its plan is built, and as long as the plan lives.
class AdapterSet {
 public:
  // kInvalid, naming adapter and tensor, for matrices whose sizes contradict their rank, for values
  // that are not finite, and for a tensor that is named twice.
  static Result<AdapterSet> Create(std::vector<std::shared_ptr<const Adapter>> adapters);

  // The additions to a matrix [rows x cols] of this tensor. kInvalid where their shapes differ.
  Result<std::vector<LowRankPart>> Find(const std::string& tensor, int64_t cols,
                                        int64_t rows) const;
  // A product computes these additions.
  void Confirm(std::span<const LowRankPart> parts);
  // kNotSupported, naming adapter and tensor, where no product computes an addition. `path`: of the
  // model.
  Status CheckConfirmed(const std::string& path) const;

  int count() const { return static_cast<int>(adapters_.size()); }

 private:
  struct Entry {
    const LowRankMatrices* matrices;
    bool confirmed = false;
  };

  std::vector<std::shared_ptr<const Adapter>> adapters_;
  std::vector<std::vector<Entry>> entries_;  // by adapter
};

// The sum of products a[i] * b[i], in an order that depends on `count` alone.
float LowRankDot(const float* a, const float* b, int64_t count);

// low = A x of all parts, for the rows that use their adapters.
std::unique_ptr<Node> MakeLowRankInput(std::string name, std::vector<LowRankPart> parts,
                                       const Activations& in, ValueId low);

}  // namespace kvant::graph
