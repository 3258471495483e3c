#include "engine/graph/builder.h"

#include "base/result.h"
#include "engine/graph/observer.h"

namespace kvant::graph {
namespace {

using formats::GgufTensor;

std::string ShapeText(const GgufTensor& tensor) {
  std::string text;
  for (int i = 0; i < tensor.n_dims; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.dims[i]);
  return text;
}

}  // namespace

PlanBuilder::PlanBuilder(const formats::GgufFile& file, const cpu::KernelTable& kernels,
                         const cpu::FloatGemm& float_gemm, MatMulObserver* observer)
    : file_(file), kernels_(kernels), float_gemm_(float_gemm), observer_(observer) {}

const GgufTensor* PlanBuilder::Find(const std::string& name) const {
  return file_.FindTensor(name);
}

Result<const GgufTensor*> PlanBuilder::Matrix(const std::string& name, int64_t cols,
                                              int64_t rows) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr)
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", file_.path(), name);
  if (tensor->dims[0] != cols || tensor->dims[1] != rows || tensor->dims[2] != 1 ||
      tensor->dims[3] != 1) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected [{} x {}], found [{}]",
                     file_.path(), name, cols, rows, ShapeText(*tensor));
  }
  return tensor;
}

Result<WeightVector> PlanBuilder::Vector(const std::string& name, int64_t size) const {
  return Vectors(name, size, 1);
}

Result<WeightVector> PlanBuilder::Vectors(const std::string& name, int64_t size,
                                          int64_t count) const {
  KVANT_ASSIGN(const GgufTensor* tensor, Matrix(name, size, count));
  WeightVector values(static_cast<size_t>(size * count));
  tensor->format->decode(tensor->data, values.data(), size * count);
  return values;
}

Result<WeightVector> PlanBuilder::OptionalVector(const std::string& name, int64_t size) const {
  if (file_.FindTensor(name) == nullptr) return WeightVector();
  return Vector(name, size);
}

Status PlanBuilder::AddOperand(std::vector<MatMulOperand>& operands, const std::string& name,
                               int64_t cols, int64_t rows) const {
  MatMulOperand operand;
  KVANT_ASSIGN(operand.weight, Matrix(name + ".weight", cols, rows));
  KVANT_ASSIGN(operand.bias, OptionalVector(name + ".bias", rows));
  operand.out_col = operands.empty() ? 0 : operands.back().out_col + operands.back().weight->rows();
  operands.push_back(std::move(operand));
  return {};
}

ValueId PlanBuilder::NewFloats(std::string name, RowSpace rows, int64_t cols) {
  return plan_->AddValue(std::move(name), rows, cols, cpu::ActivationKind::kFloat32);
}

Activations PlanBuilder::NewActivations(const std::string& name, RowSpace rows, int64_t cols,
                                        const std::vector<MatMulOperand>& readers) {
  Activations activations;
  activations.cols = cols;
  std::vector<std::string> weights;
  for (const MatMulOperand& operand : readers) {
    weights.emplace_back(operand.weight->name);
    const auto& kernel =
        kernels_.matmul[static_cast<size_t>(quant::FormatIndex(*operand.weight->format))];
    const bool int8 = kernel.activation == cpu::ActivationKind::kInt8;
    ValueId& id = int8 ? activations.int8 : activations.floats;
    if (id != kNoValue) continue;
    id = plan_->AddValue(name + (int8 ? ".int8" : ""), rows, cols, kernel.activation);
  }
  if (observer_ != nullptr) activations.observed = observer_->Watch(weights, cols);
  if (activations.observed.has_value() && activations.floats == kNoValue) {
    activations.floats = NewFloats(name, rows, cols);
  }
  return activations;
}

void PlanBuilder::Add(RowSpace rows, std::unique_ptr<Node> node) {
  plan_->AddNode(InfoOf(rows).stage, std::move(node));
}

void PlanBuilder::AddMatMul(RowSpace rows, const std::string& name,
                            std::vector<MatMulOperand> operands, const Activations& in, ValueId out,
                            cpu::Store store) {
  AddObserver(rows, name, in);
  Add(rows, MakeMatMul(kernels_, float_gemm_, name, std::move(operands), in, out, store));
}

void PlanBuilder::AddObserver(RowSpace rows, const std::string& name, const Activations& in) {
  if (!in.observed.has_value()) return;
  Add(rows, MakeObserve(*observer_, name + ".observed", in));
}

std::unique_ptr<Plan> PlanBuilder::Finish() {
  plan_->Finish();
  return std::move(plan_);
}

}  // namespace kvant::graph
