// embed -> per layer { norm, qkv, rope + store, attention, output += ; norm, gate/up with gated
// unit, down += } -> norm -> logits. Some families also normalize queries and keys, or what a half
// of a layer adds to the stream.
#include "engine/arch/walker.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/graph/nodes.h"
#include "engine/graph/observer.h"

namespace kvant::arch {
namespace {

using formats::GgufTensor;
using graph::Activations;
using graph::MatMulPart;
using graph::RowKind;
using graph::ValueId;

// Finds tensors and checks their shapes.
class Weights {
 public:
  explicit Weights(const formats::GgufFile& file) : file_(file) {}

  // A matrix of `rows` rows with `cols` columns each.
  Result<const GgufTensor*> Matrix(const std::string& name, int64_t cols, int64_t rows) const {
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

  Result<graph::WeightVector> Vector(const std::string& name, int64_t size) const {
    KVANT_ASSIGN(const GgufTensor* tensor, Matrix(name, size, 1));
    graph::WeightVector values(static_cast<size_t>(size));
    tensor->format->decode(tensor->data, values.data(), size);
    return values;
  }

  Result<graph::WeightVector> OptionalVector(const std::string& name, int64_t size) const {
    if (file_.FindTensor(name) == nullptr) return graph::WeightVector();
    return Vector(name, size);
  }

  const GgufTensor* Find(const std::string& name) const { return file_.FindTensor(name); }
  const std::string& path() const { return file_.path(); }

 private:
  static std::string ShapeText(const GgufTensor& tensor) {
    std::string text;
    for (int i = 0; i < tensor.n_dims; ++i)
      text += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.dims[i]);
    return text;
  }

  const formats::GgufFile& file_;
};

class Walker {
 public:
  Walker(const formats::GgufFile& file, const cpu::KernelTable& kernels,
         const cpu::FloatGemm& float_gemm, ArchSpec& spec, graph::MatMulObserver* observer)
      : weights_(file),
        kernels_(kernels),
        float_gemm_(float_gemm),
        spec_(spec),
        observer_(observer) {}

  Result<std::unique_ptr<graph::Plan>> Build() {
    const GgufTensor* embedding = weights_.Find("token_embd.weight");
    const int64_t vocab = embedding != nullptr ? embedding->dims[1] : 0;
    KVANT_TRY(weights_.Matrix("token_embd.weight", spec_.dim, vocab));
    spec_.vocab = vocab;

    stream_ = plan_->AddValue("x", RowKind::kStep, spec_.dim, cpu::ActivationKind::kFloat32);
    plan_->AddBodyNode(graph::MakeEmbed(*embedding, spec_.embedding_scale, stream_));
    for (size_t i = 0; i < spec_.ropes.size(); ++i) {
      const int64_t n_rot = spec_.ropes[i].n_rot;
      cos_sin_.push_back(plan_->AddValue(fmt::format("cos_sin.{}", i), RowKind::kStep, n_rot,
                                         cpu::ActivationKind::kFloat32));
      plan_->AddBodyNode(graph::MakeRopeTable(i, n_rot, cos_sin_.back()));
      plan_->AddRope(spec_.ropes[i]);
    }
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      KVANT_TRY(AddAttention(static_cast<int>(i), spec_.layers[i]));
      KVANT_TRY(AddFeedForward(static_cast<int>(i), spec_.layers[i]));
    }
    KVANT_TRY(AddHead(*embedding));
    plan_->Finish();
    return std::move(plan_);
  }

 private:
  // One matrix of a product, with its optional bias, at the next free column.
  Status AddPart(std::vector<MatMulPart>& parts, const std::string& name, int64_t cols,
                 int64_t rows) {
    MatMulPart part;
    KVANT_ASSIGN(part.weight, weights_.Matrix(name + ".weight", cols, rows));
    KVANT_ASSIGN(part.bias, weights_.OptionalVector(name + ".bias", rows));
    part.out_col = parts.empty() ? 0 : parts.back().out_col + parts.back().weight->rows();
    parts.push_back(std::move(part));
    return {};
  }

  // A value in the forms that these matrices read.
  Activations NewActivations(const std::string& name, int64_t cols, RowKind rows,
                             const std::vector<MatMulPart>& readers) {
    Activations activations;
    activations.cols = cols;
    for (const MatMulPart& part : readers) {
      const auto& kernel =
          kernels_.matmul[static_cast<size_t>(quant::FormatIndex(*part.weight->format))];
      ValueId& id =
          kernel.activation == cpu::ActivationKind::kInt8 ? activations.int8 : activations.floats;
      if (id != graph::kNoValue) continue;
      const char* suffix = kernel.activation == cpu::ActivationKind::kInt8 ? ".int8" : "";
      id = plan_->AddValue(name + suffix, rows, cols, kernel.activation);
    }
    if (observer_ != nullptr) activations.observed = observer_->Watch(WeightNames(readers), cols);
    if (activations.observed.has_value() && activations.floats == graph::kNoValue) {
      activations.floats = plan_->AddValue(name, rows, cols, cpu::ActivationKind::kFloat32);
    }
    return activations;
  }

  static std::vector<std::string> WeightNames(const std::vector<MatMulPart>& parts) {
    std::vector<std::string> names;
    for (const MatMulPart& part : parts) names.emplace_back(part.weight->name);
    return names;
  }

  Status AddNorm(const std::string& name, ValueId in, const Activations& out, bool in_head) {
    KVANT_ASSIGN(auto weight, weights_.Vector(name + ".weight", out.cols));
    auto node = graph::MakeRmsNorm(kernels_, name, std::move(weight), spec_.norm_epsilon, in, out);
    in_head ? plan_->AddHeadNode(std::move(node)) : plan_->AddBodyNode(std::move(node));
    return {};
  }

  // The product of what one half of a layer computed, added to the stream: at once, or after a
  // norm.
  Status AddToStream(const std::string& name, std::vector<MatMulPart> parts, const Activations& in,
                     const std::string& norm_name) {
    if (!spec_.family->post_norms) {
      AddMatMul(name, std::move(parts), in, stream_, cpu::Store::kAdd);
      return {};
    }
    const ValueId product =
        plan_->AddValue(name, RowKind::kStep, spec_.dim, cpu::ActivationKind::kFloat32);
    AddMatMul(name, std::move(parts), in, product, cpu::Store::kSet);
    KVANT_ASSIGN(auto weight, weights_.Vector(norm_name + ".weight", spec_.dim));
    plan_->AddBodyNode(graph::MakeAddRmsNorm(kernels_, norm_name, std::move(weight),
                                             spec_.norm_epsilon, product, stream_));
    return {};
  }

  Result<graph::QkNorms> ReadQkNorms(const std::string& prefix, int64_t k_dim) {
    graph::QkNorms norms;
    if (!spec_.family->qk_norms) return norms;
    KVANT_ASSIGN(norms.query, weights_.Vector(prefix + "attn_q_norm.weight", k_dim));
    KVANT_ASSIGN(norms.key, weights_.Vector(prefix + "attn_k_norm.weight", k_dim));
    norms.epsilon = spec_.norm_epsilon;
    return norms;
  }

  Status AddAttention(int layer, const LayerSpec& shape) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    const int64_t q_rows = shape.heads * shape.k_dim;
    const int64_t k_rows = shape.kv_heads * shape.k_dim;
    const int64_t v_rows = shape.kv_heads * shape.v_dim;
    std::vector<MatMulPart> qkv_parts;
    if (spec_.family->qkv == Packing::kFused) {
      KVANT_TRY(AddPart(qkv_parts, prefix + "attn_qkv", spec_.dim, q_rows + k_rows + v_rows));
    } else {
      KVANT_TRY(AddPart(qkv_parts, prefix + "attn_q", spec_.dim, q_rows));
      KVANT_TRY(AddPart(qkv_parts, prefix + "attn_k", spec_.dim, k_rows));
      KVANT_TRY(AddPart(qkv_parts, prefix + "attn_v", spec_.dim, v_rows));
    }
    std::vector<MatMulPart> out_parts;
    KVANT_TRY(AddPart(out_parts, prefix + "attn_output", shape.heads * shape.v_dim, spec_.dim));

    const Activations normed =
        NewActivations(prefix + "normed", spec_.dim, RowKind::kStep, qkv_parts);
    KVANT_TRY(AddNorm(prefix + "attn_norm", stream_, normed, false));
    const ValueId qkv = plan_->AddValue(prefix + "qkv", RowKind::kStep, q_rows + k_rows + v_rows,
                                        cpu::ActivationKind::kFloat32);
    AddMatMul(prefix + "qkv", std::move(qkv_parts), normed, qkv, cpu::Store::kSet);
    KVANT_ASSIGN(graph::QkNorms norms, ReadQkNorms(prefix, shape.k_dim));
    const int cache_id = plan_->AddCacheLayer(
        {shape.window, shape.kv_heads, shape.k_dim, shape.v_dim, static_cast<int>(shape.rope)});
    const graph::AttentionShape heads = {shape.heads, shape.kv_heads, shape.k_dim, shape.v_dim,
                                         shape.window};
    plan_->AddBodyNode(graph::MakeRopeAndStore(kernels_, cache_id, heads, spec_.ropes[shape.rope],
                                               std::move(norms), qkv, cos_sin_[shape.rope]));

    Activations mixed =
        NewActivations(prefix + "attended", shape.heads * shape.v_dim, RowKind::kStep, out_parts);
    if (mixed.floats == graph::kNoValue) {
      mixed.floats = plan_->AddValue(prefix + "attended", RowKind::kStep, mixed.cols,
                                     cpu::ActivationKind::kFloat32);
    }
    const float scale = spec_.attention_scale > 0
                            ? spec_.attention_scale
                            : 1.0f / std::sqrt(static_cast<float>(shape.k_dim));
    const bool quantize = mixed.int8 != graph::kNoValue && !graph::QuantizesAttention(heads);
    Activations attended = mixed;
    if (quantize) attended.int8 = graph::kNoValue;
    plan_->AddBodyNode(graph::MakeAttention(kernels_, cache_id, heads, scale, qkv, attended));
    if (quantize) {
      plan_->AddBodyNode(graph::MakeQuantize(kernels_, prefix + "attended.int8", mixed));
    }
    return AddToStream(prefix + "attn_output", std::move(out_parts), mixed,
                       prefix + "post_attention_norm");
  }

  Status AddFeedForward(int layer, const LayerSpec& shape) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    std::vector<MatMulPart> gate_up_parts;
    if (spec_.family->gate_up == Packing::kFused) {
      KVANT_TRY(AddPart(gate_up_parts, prefix + "ffn_up", spec_.dim, 2 * shape.ffn));
    } else {
      KVANT_TRY(AddPart(gate_up_parts, prefix + "ffn_gate", spec_.dim, shape.ffn));
      KVANT_TRY(AddPart(gate_up_parts, prefix + "ffn_up", spec_.dim, shape.ffn));
    }
    std::vector<MatMulPart> down_parts;
    KVANT_TRY(AddPart(down_parts, prefix + "ffn_down", shape.ffn, spec_.dim));

    const Activations normed =
        NewActivations(prefix + "ffn_normed", spec_.dim, RowKind::kStep, gate_up_parts);
    KVANT_TRY(AddNorm(prefix + "ffn_norm", stream_, normed, false));
    const ValueId gate_up = plan_->AddValue(prefix + "gate_up", RowKind::kStep, 2 * shape.ffn,
                                            cpu::ActivationKind::kFloat32);
    const Activations product =
        NewActivations(prefix + "gated", shape.ffn, RowKind::kStep, down_parts);
    AddObserver(prefix + "gate_up", normed);
    plan_->AddBodyNode(graph::MakeGatedUnit(kernels_, float_gemm_, prefix + "gate_up",
                                            std::move(gate_up_parts), normed, spec_.family->gate,
                                            gate_up, product));
    return AddToStream(prefix + "ffn_down", std::move(down_parts), product,
                       prefix + "post_ffw_norm");
  }

  // The output matrix is the embedding where the file has none of its own.
  Status AddHead(const GgufTensor& embedding) {
    std::vector<MatMulPart> parts;
    if (weights_.Find("output.weight") != nullptr) {
      KVANT_TRY(AddPart(parts, "output", spec_.dim, spec_.vocab));
    } else {
      parts.push_back({&embedding, {}, 0});
    }
    const ValueId selected =
        plan_->AddValue("selected", RowKind::kHead, spec_.dim, cpu::ActivationKind::kFloat32);
    plan_->AddHeadNode(graph::MakeSelectRows(stream_, selected, spec_.dim));
    const Activations normed = NewActivations("output_normed", spec_.dim, RowKind::kHead, parts);
    KVANT_TRY(AddNorm("output_norm", selected, normed, true));
    const ValueId logits =
        plan_->AddValue("logits", RowKind::kHead, spec_.vocab, cpu::ActivationKind::kFloat32);
    if (normed.observed.has_value()) {
      plan_->AddHeadNode(graph::MakeObserve(*observer_, "output.observed", normed));
    }
    plan_->AddHeadNode(graph::MakeMatMul(kernels_, float_gemm_, "output", std::move(parts), normed,
                                         logits, cpu::Store::kSet));
    plan_->SetLogits(logits);
    return {};
  }

  void AddObserver(const std::string& name, const Activations& in) {
    if (!in.observed.has_value()) return;
    plan_->AddBodyNode(graph::MakeObserve(*observer_, name + ".observed", in));
  }

  void AddMatMul(const std::string& name, std::vector<MatMulPart> parts, const Activations& in,
                 ValueId out, cpu::Store store) {
    AddObserver(name, in);
    plan_->AddBodyNode(
        graph::MakeMatMul(kernels_, float_gemm_, name, std::move(parts), in, out, store));
  }

  Weights weights_;
  const cpu::KernelTable& kernels_;
  const cpu::FloatGemm& float_gemm_;
  ArchSpec& spec_;
  graph::MatMulObserver* observer_;
  std::unique_ptr<graph::Plan> plan_ = std::make_unique<graph::Plan>();
  ValueId stream_ = graph::kNoValue;  // the residual stream
  std::vector<ValueId> cos_sin_;      // by index into ArchSpec::ropes
};

}  // namespace

Result<std::unique_ptr<graph::Plan>> BuildPlan(const formats::GgufFile& file,
                                               const cpu::KernelTable& kernels,
                                               const cpu::FloatGemm& float_gemm, ArchSpec& spec,
                                               graph::MatMulObserver* observer) {
  return Walker(file, kernels, float_gemm, spec, observer).Build();
}

}  // namespace kvant::arch
