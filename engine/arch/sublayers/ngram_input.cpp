#include "engine/arch/sublayers/ngram_input.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/arch/sublayers/conv_weights.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/limits.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using formats::GgufArray;
using formats::GgufType;
using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

constexpr const char* kTable = "per_layer_token_embd.weight";

// A hash mixes a few tokens, and a token has a few rows of each n-gram.
constexpr uint32_t kNgramSizeMax = 64;
constexpr uint32_t kNgramHeadsMax = 4096;

// An array of `count` numbers from 0 on, or of more; those behind are of no use.
Result<std::vector<uint64_t>> ReadNumbers(const Metadata& metadata, const char* name,
                                          size_t count) {
  const std::string key = metadata.Key(name);
  const formats::GgufValue* value = metadata.file().Find(key);
  if (value == nullptr) return metadata.Missing(name);
  const auto* array = std::get_if<GgufArray>(&value->value);
  const bool narrow =
      array != nullptr && (array->type == GgufType::kInt32 || array->type == GgufType::kUint32);
  const bool wide =
      array != nullptr && (array->type == GgufType::kInt64 || array->type == GgufType::kUint64);
  if ((!narrow && !wide) || array->count < count) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} integers, found {}",
                     metadata.file().path(), key, count,
                     array == nullptr ? std::string(formats::GgufTypeName(value->type))
                                      : fmt::format("{} of {}", array->count,
                                                    formats::GgufTypeName(array->type)));
  }
  const size_t bytes = narrow ? sizeof(uint32_t) : sizeof(uint64_t);
  const bool is_signed = array->type == GgufType::kInt32 || array->type == GgufType::kInt64;
  std::vector<uint64_t> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&numbers[i], array->data + i * bytes, bytes);
    if (!is_signed || (numbers[i] >> (8 * bytes - 1)) == 0) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected numbers from 0 on, found another",
                     metadata.file().path(), key);
  }
  return numbers;
}

// The rows of the table that heads may ask for.
Status CheckRanges(const Metadata& metadata, const graph::NgramHash& hash) {
  for (size_t i = 0; i < hash.counts.size(); ++i) {
    constexpr uint64_t kRowsMax = uint64_t{1} << 40;
    if (hash.counts[i] > 0 && hash.counts[i] < kRowsMax && hash.offsets[i] < kRowsMax) continue;
    return MakeError(
        ErrorCode::kCorrupt, "{}: key {}: expected 1 to {} rows for each head, found {}",
        metadata.file().path(), metadata.Key("ple.head_vocab_sizes"), kRowsMax, hash.counts[i]);
  }
  return {};
}

Result<uint32_t> ReadToken(const Metadata& metadata, const char* name, uint32_t otherwise) {
  KVANT_ASSIGN(const auto token, metadata.file().GetU32(metadata.Key(name)));
  const uint32_t id = token.value_or(otherwise);
  if (id < graph::kNgramTokensMax) return id;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a token, found {}",
                   metadata.file().path(), metadata.Key(name), id);
}

Result<graph::NgramHash> ReadHash(const Metadata& metadata) {
  constexpr const char* kSize = "ple.ngram_size";
  constexpr const char* kEos = "ple.eos_token_id";
  graph::NgramHash hash;
  KVANT_ASSIGN(hash.size, metadata.Count(kSize, kNgramSizeMax));
  if (hash.size < 2) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 2, found 1",
                     metadata.file().path(), metadata.Key(kSize));
  }
  KVANT_ASSIGN(hash.heads, metadata.Count("ple.heads_per_ngram", kNgramHeadsMax));
  const auto rows = static_cast<size_t>(hash.rows());
  KVANT_ASSIGN(hash.multipliers,
               ReadNumbers(metadata, "ple.layer_multipliers", static_cast<size_t>(hash.size)));
  KVANT_ASSIGN(hash.offsets, ReadNumbers(metadata, "ple.head_offsets", rows));
  KVANT_ASSIGN(hash.counts, ReadNumbers(metadata, "ple.head_vocab_sizes", rows));
  KVANT_TRY(CheckRanges(metadata, hash));
  if (!metadata.Has(kEos)) return metadata.Missing(kEos);
  KVANT_ASSIGN(const uint32_t eos, ReadToken(metadata, kEos, 0));
  KVANT_ASSIGN(const uint32_t other, ReadToken(metadata, "ple.image_token_id", eos));
  hash.eos = static_cast<int32_t>(eos);
  hash.other = static_cast<int32_t>(other);
  return hash;
}

Result<graph::Norm> StreamNorms(const NgramInput& input, const char* tensor, int64_t columns,
                                SublayerBuilder& builder) {
  return ReadNorm(builder.plan(), {graph::NormKind::kRms, tensor, input.epsilon}, builder.Name(""),
                  columns);
}

// The hash, with the number of the model's tokens.
Result<graph::NgramHash> HashOfModel(const NgramInput& input, const graph::PlanBuilder& plan) {
  graph::NgramHash hash = input.hash;
  const formats::GgufTensor* embedding = plan.Find("token_embd.weight");
  hash.vocab = embedding == nullptr ? 0 : embedding->dims[1];
  if (hash.vocab <= graph::kNgramTokensMax) return hash;
  return MakeError(ErrorCode::kNotSupported,
                   "{}: n-grams of {} different tokens are not supported, expected at most {}",
                   plan.path(), hash.vocab, graph::kNgramTokensMax);
}

// The table, with a row for everything that the hash may give.
Result<const formats::GgufTensor*> FindTable(const NgramInput& input,
                                             const graph::PlanBuilder& plan) {
  uint64_t rows = 0;
  for (size_t i = 0; i < input.hash.counts.size(); ++i) {
    rows = std::max(rows, input.hash.offsets[i] + input.hash.counts[i]);
  }
  const formats::GgufTensor* found = plan.Find(kTable);
  // Files have some rows more.
  const bool larger = found != nullptr && found->dims[1] > static_cast<int64_t>(rows);
  return plan.Matrix(kTable, input.row_dim, larger ? found->dims[1] : static_cast<int64_t>(rows));
}

}  // namespace

Status NgramInput::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackValues& shared = builder.shared();
  const int64_t wide = shared.stream_shape.columns();
  const StackedMatrix matrices[] = {{"ple_key", wide}, {"ple_value", builder.dim()}};
  KVANT_ASSIGN(graph::NgramHash tokens, HashOfModel(*this, plan));
  KVANT_ASSIGN(const formats::GgufTensor* table, FindTable(*this, plan));
  KVANT_ASSIGN(std::vector<MatMulOperand> operands, builder.Separate(columns(), matrices));
  graph::NgramGate gate = {.shape = shared.stream_shape, .streams = shared.streams};
  KVANT_ASSIGN(gate.key_norm, StreamNorms(*this, "ple_norm_key", wide, builder));
  KVANT_ASSIGN(gate.query_norm, StreamNorms(*this, "ple_norm_query", wide, builder));
  KVANT_ASSIGN(gate.out_norm, StreamNorms(*this, "ple_norm_conv", wide, builder));
  KVANT_ASSIGN(graph::CausalConv conv,
               ReadConvWeights(plan, builder.Name("ple_conv1d"), taps, wide));
  conv.dilation = hash.size;
  conv.activation = cpu::Activation::kSilu;
  const int64_t conv_floats = conv.state_floats();
  const int cache_id =
      plan.plan().AddCacheLayer({.state_floats = conv_floats + hash.state_floats()});

  const Activations rows =
      plan.NewActivations(builder.Name("ple"), RowSpace::kPass, columns(), operands);
  plan.Add(RowSpace::kPass,
           graph::MakeNgramRows(plan.kernels(), builder.Name("ple"), std::move(tokens), *table,
                                {cache_id, conv_floats}, rows));
  gate.in = plan.NewFloats(builder.Name("ple_key"), RowSpace::kPass, wide + builder.dim());
  plan.AddMatMul(RowSpace::kPass, builder.Name("ple_key"), std::move(operands), rows, gate.in,
                 cpu::Store::kSet);
  gate.gated = plan.NewFloats(builder.Name("ple_gated"), RowSpace::kPass, wide);
  gate.normed = plan.NewFloats(builder.Name("ple_normed"), RowSpace::kPass, wide);
  const ValueId gated = gate.gated;
  const ValueId normed = gate.normed;
  plan.Add(RowSpace::kPass,
           graph::MakeNgramGate(plan.kernels(), builder.Name("ple_gate"), std::move(gate)));
  const ValueId around = plan.NewFloats(builder.Name("ple_conv1d"), RowSpace::kPass, wide);
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), builder.Name("ple_conv1d"), std::move(conv),
                                 {.cache_id = cache_id}, normed, {.floats = around, .cols = wide}));
  for (const auto& [name, value] :
       {std::pair("ple_conv1d.add", around), {"ple_gated.add", gated}}) {
    plan.Add(RowSpace::kPass, graph::MakeAddNorm(plan.kernels(), builder.Name(name),
                                                 {.kind = graph::NormKind::kNone}, wide, 1.0f,
                                                 value, shared.streams));
  }
  return {};
}

Result<std::optional<PlacedNgrams>> ReadNgrams(const Metadata& metadata, size_t layers,
                                               float epsilon) {
  constexpr const char* kLayers = "ple.layers";
  const formats::GgufValue* list = metadata.file().Find(metadata.Key(kLayers));
  const auto* array = list == nullptr ? nullptr : std::get_if<GgufArray>(&list->value);
  if (list == nullptr || (array != nullptr && array->count == 0)) {
    return std::optional<PlacedNgrams>();
  }
  if (array != nullptr && array->count > 1) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: key {}: n-grams of {} layers are not supported, expected one layer",
                     metadata.file().path(), metadata.Key(kLayers), array->count);
  }
  KVANT_ASSIGN(const auto numbers, ReadNumbers(metadata, kLayers, 1));
  if (numbers.front() >= layers) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a layer below {}, found {}",
                     metadata.file().path(), metadata.Key(kLayers), layers, numbers.front());
  }
  PlacedNgrams placed;
  placed.layer = static_cast<size_t>(numbers.front());
  NgramInput& input = placed.input;
  input.epsilon = epsilon;
  KVANT_ASSIGN(input.hash, ReadHash(metadata));
  KVANT_ASSIGN(input.taps, ReadConvTaps(metadata, "ple.conv_kernel"));
  KVANT_ASSIGN(input.row_dim, metadata.Count("embedding_length_per_layer_input", kDimMax));
  if (input.columns() <= kDimMax) return std::optional(std::move(placed));
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at most {} for {} rows, found {}",
                   metadata.file().path(), metadata.Key("embedding_length_per_layer_input"),
                   kDimMax / input.hash.rows(), input.hash.rows(), input.row_dim);
}

}  // namespace kvant::arch
