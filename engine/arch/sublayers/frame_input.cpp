#include "engine/arch/sublayers/frame_input.h"

#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::PlanBuilder;
using graph::RowSpace;
using graph::ValueId;

constexpr int64_t kTaps = 3;

// The product of a matrix with gathered rows of 3 * cols columns, behind a GELU.
class Convolution {
 public:
  Convolution(PlanBuilder& builder, std::string name, int64_t cols, int64_t dim)
      : builder_(builder), name_(std::move(name)), cols_(cols), dim_(dim) {}

  // The value that is to be gathered.
  Result<ValueId> Begin(RowSpace rows) {
    KVANT_TRY(builder_.AddOperand(operands_, name_, kTaps * cols_, dim_));
    gathered_ = builder_.NewActivations(name_ + ".gathered", rows, kTaps * cols_, operands_);
    if (gathered_.floats == graph::kNoValue) {
      gathered_.floats = builder_.NewFloats(name_ + ".gathered", rows, kTaps * cols_);
    }
    return gathered_.floats;
  }

  void Finish(RowSpace rows, ValueId out) {
    if (gathered_.int8 != graph::kNoValue) {
      builder_.Add(rows, graph::MakeQuantize(builder_.kernels(), name_ + ".int8", gathered_));
    }
    builder_.AddMatMul(rows, name_, std::move(operands_), gathered_, out, cpu::Store::kSet);
    builder_.Add(rows, graph::MakeActivate(builder_.kernels(), name_ + ".gelu",
                                           cpu::Activation::kGeluErf, out, {.cols = dim_}));
  }

 private:
  PlanBuilder& builder_;
  std::string name_;
  int64_t cols_;
  int64_t dim_;
  std::vector<MatMulOperand> operands_;
  Activations gathered_;
};

}  // namespace

Result<ValueId> FrameInput::AddNodes(int64_t dim, PlanBuilder& builder) const {
  Convolution first(builder, "enc.conv1d.0", bins, dim);
  Convolution second(builder, "enc.conv1d.1", dim, dim);
  KVANT_ASSIGN(const ValueId frames, first.Begin(RowSpace::kFrames));
  builder.Add(RowSpace::kFrames, graph::MakeGatherFrames("frames", bins, frames));
  const ValueId read = builder.NewFloats("enc.conv1d.0", RowSpace::kFrames, dim);
  first.Finish(RowSpace::kFrames, read);
  KVANT_ASSIGN(const ValueId pairs, second.Begin(RowSpace::kPass));
  builder.Add(RowSpace::kPass, graph::MakeGatherTaps("enc.conv1d.1.taps", read, dim,
                                                     graph::kFramesPerPosition, pairs));
  const ValueId stream = builder.NewFloats("x", RowSpace::kPass, dim);
  second.Finish(RowSpace::kPass, stream);
  return stream;
}

}  // namespace kvant::arch
