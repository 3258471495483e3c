#include "engine/arch/embedding_head.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/rowwise/pool_node.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/limits.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

constexpr std::string_view kClassifier = "cls";
constexpr std::string_view kClassifierNorm = "cls.norm";
constexpr std::string_view kClassifierOutput = "cls.output";
// The dense layers of sentence-transformers' modules, in the order in which they are computed.
constexpr std::string_view kDense[] = {"dense_2", "dense_3"};
static_assert(std::size(kDense) == kDenseLayers);

Result<std::optional<Pooling>> ReadPooling(const Metadata& metadata, const char* name) {
  KVANT_ASSIGN(const auto number, metadata.file().GetU32(metadata.Key(name)));
  if (!number.has_value()) return std::optional<Pooling>();
  if (*number > static_cast<uint32_t>(Pooling::kRank)) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: key {}: expected 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank), "
                     "found {}",
                     metadata.file().path(), metadata.Key(name), *number);
  }
  return std::optional(static_cast<Pooling>(*number));
}

// Lets every position of a text see all of them, or those of its window on both sides.
Status SeeBothSides(const Metadata& metadata, Stack& stack) {
  for (LayerSpec& layer : stack.layers) {
    for (Sublayer& sublayer : layer.sublayers) {
      const bool is_ffn = std::holds_alternative<GatedFfn>(sublayer.block) ||
                          std::holds_alternative<PlainFfn>(sublayer.block) ||
                          std::holds_alternative<Experts>(sublayer.block) ||
                          std::holds_alternative<FfnAndExperts>(sublayer.block);
      auto* attention = std::get_if<Attention>(&sublayer.block);
      if (auto* conv = std::get_if<ShortConv>(&sublayer.block)) {
        conv->reach = Reach::kBothSides;
        continue;
      }
      if (attention != nullptr && attention->mask.kind != MaskKind::kSections) {
        attention->mask.kind = MaskKind::kAll;
      } else if (!is_ffn) {
        return MakeError(ErrorCode::kNotSupported,
                         "{}: key {}: only plain attention and short convolutions can see both "
                         "sides",
                         metadata.file().path(), metadata.Key("attention.causal"));
      }
    }
  }
  return {};
}

// The activation of a dense layer; its sizes must be those of its matrix.
Result<std::optional<cpu::Activation>> ReadDense(const Metadata& metadata, std::string_view name) {
  const auto* matrix = metadata.file().FindTensor(fmt::format("{}.weight", name));
  constexpr std::string_view kEnds[] = {"_feat_in", "_feat_out"};
  for (size_t i = 0; i < std::size(kEnds); ++i) {
    const std::string key = fmt::format("{}{}", name, kEnds[i]);
    KVANT_ASSIGN(const int64_t features, metadata.CountOr(key, kDimMax, 0));
    const int64_t found = matrix == nullptr ? 0 : matrix->dims[i];
    if (features == 0 || features == found) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: key {} is {}, but {}.weight has {}",
                     metadata.file().path(), metadata.Key(key), features, name, found);
  }
  const std::string key = fmt::format("{}_activation", name);
  KVANT_ASSIGN(const auto activation, metadata.file().GetString(metadata.Key(key)));
  if (!activation.has_value() || *activation == "identity") {
    return std::optional<cpu::Activation>();
  }
  if (*activation == "tanh") return std::optional(cpu::Activation::kTanh);
  return MakeError(ErrorCode::kNotSupported, "{}: key {}: expected identity or tanh, found \"{}\"",
                   metadata.file().path(), metadata.Key(key), *activation);
}

Status CheckCanEmbed(const Metadata& metadata, const Stack& stack) {
  if (!stack.streams.has_value() && !stack.layer_inputs.has_value()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "{}: key {}: layers with several streams, or with inputs of their own, cannot "
                   "make embeddings",
                   metadata.file().path(), metadata.Key("pooling_type"));
}

}  // namespace

Status ReadEmbedding(const Metadata& metadata, ModelSpec& spec) {
  Embedding& embedding = spec.embedding;
  KVANT_ASSIGN(embedding.pooling, ReadPooling(metadata, "pooling_type"));
  KVANT_ASSIGN(const auto of_classifier, ReadPooling(metadata, "classifier.pooling_type"));
  KVANT_ASSIGN(const auto causal, metadata.file().GetBool(metadata.Key("attention.causal")));
  const bool is_decoder = spec.stacks.size() == 1 && !spec.encoder.has_value();
  if (is_decoder && causal.value_or(true)) embedding.classifier_pooling = Pooling::kLast;
  embedding.classifier_pooling = of_classifier.value_or(embedding.classifier_pooling);
  KVANT_ASSIGN(
      embedding.classifier_activation,
      ReadHiddenActivation(metadata, embedding.classifier_activation, "classifier.hidden_act"));
  KVANT_ASSIGN(const auto of_rows, metadata.file().GetBool(metadata.Key("classifier.reads_rows")));
  embedding.classifies_rows = of_rows.value_or(false);
  for (size_t i = 0; i < kDenseLayers; ++i) {
    KVANT_ASSIGN(embedding.dense_activations[i], ReadDense(metadata, kDense[i]));
  }
  KVANT_ASSIGN(const int64_t longest,
               metadata.CountOr("max_sequence_length", kContextMax, spec.context_train));
  spec.context_train = std::min(spec.context_train, longest);
  const bool pools = embedding.pooling.value_or(Pooling::kNone) != Pooling::kNone;
  if (!is_decoder || (!pools && causal.value_or(true))) return {};
  KVANT_TRY(CheckCanEmbed(metadata, spec.stacks.front()));
  if (!causal.value_or(true)) KVANT_TRY(SeeBothSides(metadata, spec.stacks.front()));
  spec.embedder = std::move(spec.stacks.front());
  spec.stacks.clear();
  return {};
}

bool HasClassifier(const formats::GgufFile& file) {
  return file.FindTensor(fmt::format("{}.weight", kClassifier)) != nullptr ||
         file.FindTensor(fmt::format("{}.weight", kClassifierOutput)) != nullptr;
}

namespace {

// Rows, of texts or of pooled vectors, and the products that they go through one after the other.
class HeadBuilder {
 public:
  HeadBuilder(RowSpace space, ValueId rows, int64_t dim, graph::PlanBuilder& builder)
      : builder_(builder), space_(space), value_(rows), dim_(dim) {}

  bool Has(std::string_view name) const {
    return builder_.Find(fmt::format("{}.weight", name)) != nullptr;
  }

  // Multiplies by a matrix of as many rows as it has.
  Status Multiply(std::string_view name) {
    const formats::GgufTensor& matrix = *builder_.Find(fmt::format("{}.weight", name));
    const int64_t rows = matrix.dims[1];
    if (rows > kDimMax) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected at most {} rows, found {}",
                       builder_.path(), matrix.name, int64_t{kDimMax}, rows);
    }
    std::vector<MatMulOperand> operands;
    KVANT_TRY(builder_.AddOperand(operands, std::string(name), dim_, rows));
    const Activations in =
        builder_.NewActivations(fmt::format("{}.in", name), space_, dim_, operands);
    builder_.Add(space_, graph::MakeNorm(builder_.kernels(), fmt::format("{}.in", name),
                                         {.kind = NormKind::kNone}, value_, in));
    value_ = builder_.NewFloats(std::string(name), space_, rows);
    dim_ = rows;
    builder_.AddMatMul(space_, std::string(name), std::move(operands), in, value_,
                       cpu::Store::kSet);
    return {};
  }

  void Activate(std::string_view name, cpu::Activation activation) {
    const ValueId out = builder_.NewFloats(fmt::format("{}.activated", name), space_, dim_);
    builder_.Add(space_, graph::MakeActivate(builder_.kernels(), fmt::format("{}.activated", name),
                                             activation, value_, {.floats = out, .cols = dim_}));
    value_ = out;
  }

  Status ApplyNorm(std::string_view name, float epsilon) {
    KVANT_ASSIGN(auto norm, ReadNorm(builder_, {NormKind::kLayer, name, epsilon}, "", dim_));
    builder_.Add(space_, graph::MakeNorm(builder_.kernels(), std::string(name), std::move(norm),
                                         value_, {.floats = value_, .cols = dim_}));
    return {};
  }

  // Makes one row of the rows of each text.
  void Pool(Pooling pooling) {
    const ValueId pooled = builder_.NewFloats("pooled", RowSpace::kHead, dim_);
    builder_.Add(RowSpace::kHead, graph::MakePool(pooling, value_, pooled, dim_));
    space_ = RowSpace::kHead;
    value_ = pooled;
  }

  ValueId value() const { return value_; }

 private:
  graph::PlanBuilder& builder_;
  RowSpace space_;
  ValueId value_;
  int64_t dim_;
};

Status AddClassifier(const ModelSpec& spec, HeadBuilder& head) {
  const Embedding& embedding = spec.embedding;
  const bool has_hidden = head.Has(kClassifier) && head.Has(kClassifierOutput);
  const bool pools_hidden = has_hidden && embedding.classifies_rows;
  if (!pools_hidden) head.Pool(embedding.classifier_pooling);
  if (!has_hidden) return head.Multiply(head.Has(kClassifier) ? kClassifier : kClassifierOutput);
  KVANT_TRY(head.Multiply(kClassifier));
  head.Activate(kClassifier, embedding.classifier_activation);
  if (pools_hidden) head.Pool(embedding.classifier_pooling);
  if (head.Has(kClassifierNorm)) {
    KVANT_TRY(head.ApplyNorm(kClassifierNorm, FirstStack(spec).final_norm.epsilon));
  }
  return head.Multiply(kClassifierOutput);
}

}  // namespace

Status AddEmbeddingHead(const ModelSpec& spec, Pooling pooling, ValueId rows, int64_t dim,
                        graph::PlanBuilder& builder) {
  HeadBuilder head(RowSpace::kPass, rows, dim, builder);
  if (pooling == Pooling::kRank) {
    KVANT_TRY(AddClassifier(spec, head));
  } else {
    head.Pool(pooling);
    for (size_t i = 0; i < kDenseLayers; ++i) {
      if (!head.Has(kDense[i])) continue;
      KVANT_TRY(head.Multiply(kDense[i]));
      const auto& activation = spec.embedding.dense_activations[i];
      if (activation.has_value()) head.Activate(kDense[i], *activation);
    }
  }
  builder.plan().SetLogits(head.value());
  return {};
}

}  // namespace kvant::arch
