#include "engine/graph/builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "cpu/kernels/table.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/observer.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "quant/formats/f16.h"
#include "quant/formats/f32.h"

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
                         const cpu::FloatGemm& float_gemm, MatMulObserver* observer,
                         std::string_view name, AdapterSet* adapters)
    : file_(file),
      kernels_(kernels),
      float_gemm_(float_gemm),
      observer_(observer),
      adapters_(adapters),
      plan_(std::make_unique<Plan>(name)) {}

const GgufTensor* PlanBuilder::Find(const std::string& name) const {
  return file_.FindTensor(name);
}

Result<const GgufTensor*> PlanBuilder::Matrix(const std::string& name, int64_t cols, int64_t rows,
                                              int64_t experts) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr)
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", file_.path(), name);
  if (tensor->dims[0] != cols || tensor->dims[1] != rows || tensor->dims[2] != experts ||
      tensor->dims[3] != 1) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected [{} x {}{}], found [{}]",
                     file_.path(), name, cols, rows,
                     experts == 1 ? "" : fmt::format(" x {}", experts), ShapeText(*tensor));
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
  quant::DecodeRows(*tensor->format, tensor->data, count, size, values.data());
  return values;
}

Result<WeightVector> PlanBuilder::VectorsApart(const std::string& name, int64_t size,
                                               int64_t count) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr || tensor->dims[1] != 1 || count == 1) return Vectors(name, size, count);
  KVANT_ASSIGN(tensor, Matrix(name, size, 1, count));
  WeightVector values(static_cast<size_t>(size * count));
  quant::DecodeRows(*tensor->format, tensor->data, count, size, values.data());
  return values;
}

Result<WeightVector> PlanBuilder::OptionalVector(const std::string& name, int64_t size) const {
  if (file_.FindTensor(name) == nullptr) return WeightVector();
  return Vector(name, size);
}

// Second scales of matrices, beside the scales of their blocks.
Result<WeightVector> PlanBuilder::Scales(const std::string& name, int64_t count) const {
  KVANT_ASSIGN(WeightVector scales, OptionalVector(name, count));
  for (const float scale : scales) {
    if (std::isfinite(scale)) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected numbers, found {}", file_.path(),
                     name, scale);
  }
  return scales;
}

Status PlanBuilder::AddOperand(std::vector<MatMulOperand>& operands, const std::string& name,
                               int64_t cols, int64_t rows) const {
  MatMulOperand operand;
  KVANT_ASSIGN(operand.weight, Matrix(name + ".weight", cols, rows));
  KVANT_ASSIGN(operand.bias, OptionalVector(name + ".bias", rows));
  KVANT_ASSIGN(const WeightVector scale, Scales(name + ".scale", 1));
  if (!scale.empty()) operand.scale = scale.front();
  operand.out_col = operands.empty() ? 0 : operands.back().out_col + operands.back().weight->rows();
  KVANT_TRY(AttachAdapters(operand, name + ".weight"));
  operands.push_back(std::move(operand));
  return {};
}

Status PlanBuilder::AttachAdapters(MatMulOperand& operand, const std::string& tensor) const {
  if (adapters_ == nullptr) return {};
  const GgufTensor& weight = *operand.weight;
  KVANT_ASSIGN(operand.adapters, adapters_->Find(tensor, weight.dims[0], weight.rows()));
  return {};
}

Status PlanBuilder::AddExpertOperand(std::vector<ExpertOperand>& operands, const std::string& name,
                                     int64_t cols, int64_t rows, int64_t experts) const {
  ExpertOperand operand;
  KVANT_ASSIGN(operand.weight, Matrix(name + ".weight", cols, rows, experts));
  if (file_.FindTensor(name + ".bias") != nullptr) {
    KVANT_ASSIGN(const GgufTensor* bias, Matrix(name + ".bias", rows, experts));
    operand.bias.resize(static_cast<size_t>(rows * experts));
    bias->format->decode(bias->data, operand.bias.data(), rows * experts);
  }
  KVANT_ASSIGN(operand.scales, Scales(name + ".scale", experts));
  operand.out_col =
      operands.empty() ? 0 : operands.back().out_col + operands.back().weight->dims[1];
  operands.push_back(std::move(operand));
  return {};
}

Result<const GgufTensor*> PlanBuilder::Transposed(const std::string& name, const GgufTensor& tensor,
                                                  int64_t first, int64_t stride, int64_t rows,
                                                  int64_t heads) {
  const int64_t cols = tensor.dims[0];
  const auto count = static_cast<size_t>(rows * cols);
  const auto decode = [&](int64_t head, std::vector<float>& values) {
    quant::DecodeRows(*tensor.format, tensor.data + (first + head * stride) * tensor.row_bytes(),
                      rows, cols, values.data());
  };
  std::vector<float> values(count);
  const quant::FormatTraits* format = tensor.format;
  if (format->quantized()) {
    constexpr float kF16Max = 65504.0f;
    bool fits = true;
    for (int64_t head = 0; head < heads; ++head) {
      decode(head, values);
      fits &= std::ranges::all_of(values, [](float v) { return std::abs(v) <= kF16Max; });
    }
    format = quant::FindFormat(fits ? quant::F16::kName : quant::F32::kName);
  }
  DerivedMatrix derived;
  derived.name = name;
  derived.tensor.type = format->type;
  derived.tensor.format = format;
  derived.tensor.n_dims = 3;
  const int64_t dims[] = {rows, cols, heads};
  std::copy_n(dims, 3, derived.tensor.dims);
  const auto head_bytes = static_cast<size_t>(format->row_bytes(rows * cols));
  KVANT_ASSIGN(derived.bytes,
               AlignedBuffer::Allocate(head_bytes * static_cast<size_t>(heads), name.c_str()));
  std::vector<float> turned(count);
  for (int64_t head = 0; head < heads; ++head) {
    decode(head, values);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        turned[static_cast<size_t>(col * rows + row)] =
            values[static_cast<size_t>(row * cols + col)];
      }
    }
    format->encode(turned.data(), nullptr,
                   derived.bytes.data() + static_cast<size_t>(head) * head_bytes, rows * cols);
  }
  return plan_->AddMatrix(std::move(derived));
}

ValueId PlanBuilder::NewHeadRecords(const std::string& name, int64_t heads,
                                    const GgufTensor& reader) {
  if (KindFor(reader) != cpu::ActivationKind::kInt8) return kNoValue;
  return plan_->AddValue(name, RowSpace::kPass, reader.dims[0], cpu::ActivationKind::kInt8, heads);
}

ValueId PlanBuilder::NewFloats(std::string name, RowSpace rows, int64_t cols) {
  return plan_->AddValue(std::move(name), rows, cols, cpu::ActivationKind::kFloat32);
}

Activations PlanBuilder::NewActivations(const std::string& name, RowSpace rows, int64_t cols,
                                        const std::vector<MatMulOperand>& readers,
                                        const std::vector<ExpertOperand>& experts, ValueId floats) {
  Activations activations;
  activations.floats = floats;
  activations.cols = cols;
  const auto add = [&](const GgufTensor& matrix) {
    const cpu::ActivationKind kind = KindFor(matrix);
    const bool int8 = kind == cpu::ActivationKind::kInt8;
    ValueId& id = int8 ? activations.int8 : activations.floats;
    if (id == kNoValue) id = plan_->AddValue(name + (int8 ? ".int8" : ""), rows, cols, kind);
  };
  std::vector<std::string> weights;
  for (const MatMulOperand& operand : readers) {
    weights.emplace_back(operand.weight->name);
    add(*operand.weight);
  }
  for (const ExpertOperand& operand : experts) add(*operand.weight);
  if (observer_ != nullptr) activations.observed = observer_->Watch(weights, cols);
  const bool adapted = std::ranges::any_of(
      readers, [](const MatMulOperand& operand) { return !operand.adapters.empty(); });
  if ((activations.observed.has_value() || adapted) && activations.floats == kNoValue) {
    activations.floats = NewFloats(name, rows, cols);
  }
  return activations;
}

Activations PlanBuilder::NewRoutedActivations(const std::string& name, const RoutedRows& rows,
                                              int64_t cols,
                                              const std::vector<ExpertOperand>& readers) {
  Activations activations;
  activations.cols = cols;
  std::vector<std::string> weights;
  for (const ExpertOperand& operand : readers) {
    weights.emplace_back(operand.weight->name);
    const cpu::ActivationKind kind = KindFor(*operand.weight);
    const bool int8 = kind == cpu::ActivationKind::kInt8;
    ValueId& id = int8 ? activations.int8 : activations.floats;
    if (id != kNoValue) continue;
    id = plan_->AddValue(name + (int8 ? ".int8" : ""), RowSpace::kPass, cols, kind, rows.used);
  }
  if (observer_ != nullptr) {
    activations.observed = observer_->WatchExperts(weights, cols, rows.experts);
  }
  if (activations.observed.has_value() && activations.floats == kNoValue) {
    activations.floats = NewRoutedFloats(name, rows, cols);
  }
  return activations;
}

ValueId PlanBuilder::NewRoutedFloats(std::string name, const RoutedRows& rows, int64_t cols) {
  return plan_->AddValue(std::move(name), RowSpace::kPass, cols, cpu::ActivationKind::kFloat32,
                         rows.used);
}

void PlanBuilder::Add(RowSpace rows, std::unique_ptr<Node> node) {
  plan_->AddNode(InfoOf(rows).stage, std::move(node));
}

void PlanBuilder::AddMatMul(RowSpace rows, const std::string& name,
                            std::vector<MatMulOperand> operands, const Activations& in, ValueId out,
                            cpu::Store store) {
  AddObserver(rows, name, in);
  AddLowRankInput(rows, name, operands, in);
  Add(rows, MakeMatMul(kernels_, float_gemm_, name, std::move(operands), in, out, store));
}

void PlanBuilder::AddActivatedMatMul(const std::string& name, std::vector<MatMulOperand> operand,
                                     const Activations& in, cpu::Activation activation,
                                     ValueId product, const Activations& out) {
  AddObserver(RowSpace::kPass, name, in);
  AddLowRankInput(RowSpace::kPass, name, operand, in);
  Add(RowSpace::kPass, MakeActivatedMatMul(kernels_, float_gemm_, name, std::move(operand.front()),
                                           in, activation, product, out));
}

void PlanBuilder::AddGatedUnit(const std::string& name, std::vector<MatMulOperand> operands,
                               const Activations& in, const cpu::GateActivation& activation,
                               ValueId gate_up, const Activations& out) {
  AddLowRankInput(RowSpace::kPass, name, operands, in);
  Add(RowSpace::kPass, MakeGatedUnit(kernels_, float_gemm_, name, std::move(operands), in,
                                     activation, gate_up, out));
}

// Appends what computes A x for the adapters of all operands of a product.
void PlanBuilder::AddLowRankInput(RowSpace rows, const std::string& name,
                                  std::vector<MatMulOperand>& operands, const Activations& in) {
  std::vector<LowRankPart> parts;
  int64_t ranks = 0;
  for (MatMulOperand& operand : operands) {
    if (in.floats == kNoValue) operand.adapters.clear();  // AdapterSet::CheckConfirmed refuses them
    for (LowRankPart& part : operand.adapters) {
      part.low_col = std::exchange(ranks, ranks + part.rank);
      parts.push_back(part);
    }
  }
  if (parts.empty()) return;
  adapters_->Confirm(parts);
  const ValueId low = NewFloats(name + ".low", rows, ranks);
  for (MatMulOperand& operand : operands) operand.low = low;
  Add(rows, MakeLowRankInput(name + ".low", std::move(parts), in, low));
}

void PlanBuilder::AddObserver(RowSpace rows, const std::string& name, const Activations& in) {
  if (!in.observed.has_value()) return;
  Add(rows, MakeObserve(*observer_, name + ".observed", in));
}

void PlanBuilder::AddExpertObserver(const std::string& name, const RoutedRows& rows,
                                    const Activations& in) {
  if (!in.observed.has_value()) return;
  Add(RowSpace::kPass, MakeObserveExperts(*observer_, name + ".observed", rows, in));
}

void PlanBuilder::AddHeadObserver(const GgufTensor& weight, const HeadColumns& in, int64_t heads) {
  if (observer_ == nullptr) return;
  const std::string name(weight.name);
  const int64_t cols = weight.dims[0];
  const auto observed = observer_->WatchExperts({&name, 1}, cols, heads);
  if (!observed.has_value()) return;
  Add(RowSpace::kPass,
      MakeObserveHeads(*observer_, name + ".observed", in, heads, cols, *observed));
}

cpu::ActivationKind PlanBuilder::KindFor(const GgufTensor& matrix) const {
  return kernels_.matmul[static_cast<size_t>(quant::FormatIndex(*matrix.format))].activation;
}

std::unique_ptr<Plan> PlanBuilder::Finish() {
  plan_->Finish();
  return std::move(plan_);
}

}  // namespace kvant::graph
