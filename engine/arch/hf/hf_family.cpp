// Finds the family of a config.json, and reads its sizes and the metadata that all families share.
#include "engine/arch/hf/hf_family.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_classes.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch {
namespace {

using formats::Json;

// Rows of an embedding; the other limits are in engine/limits.h.

Status CheckExperts(const HfFamily& family, const JsonObject& config) {
  if (!family.experts.count.empty() || family.experts.may_be_none) return {};
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    KVANT_ASSIGN(const auto experts, config.Integer(key, kDimMax));
    if (experts.value_or(0) > 1) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: mixture of experts ({} experts) is not supported for this class",
                       config.where(), *experts);
    }
  }
  return {};
}

Status CheckActivation(const HfActivation& expected, const JsonObject& config) {
  KVANT_ASSIGN(const auto activation, config.String(expected.key));
  if (!activation || std::ranges::find(expected.names, *activation) != expected.names.end()) {
    return {};
  }
  return MakeError(ErrorCode::kNotSupported, "{}: {} \"{}\" is not supported, expected \"{}\"",
                   config.where(), expected.key, *activation, expected.names.front());
}

}  // namespace

Result<const HfFamily*> FindHfFamily(const JsonObject& config) {
  const Json* classes = config.Find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty() ||
      !classes->front().is_string()) {
    return config.Wrong("architectures", "the name of the model's class");
  }
  const auto& name = classes->front().get_ref<const std::string&>();
  for (const Family* family : AllFamilies()) {
    for (const HfFamily& row : family->hf) {
      if (std::ranges::find(row.classes, name) == row.classes.end()) continue;
      if (row.is_of != nullptr && !row.is_of(config)) continue;
      KVANT_TRY(CheckExperts(row, config));
      KVANT_TRY(CheckActivation(row.activation, config));
      return &row;
    }
  }
  const std::string reason = WhyHfClassIsUnknown(name);
  return MakeError(ErrorCode::kNotSupported,
                   "{}: models of class {} cannot be converted{}{}; 'kvant convert --list-classes' "
                   "lists the classes that can",
                   config.where(), formats::Shown(classes->front()), reason.empty() ? "" : ": ",
                   reason);
}

namespace {

// A number, or an array that has the same number for each layer.
Result<int64_t> CountInEachLayer(const JsonObject& config, std::string_view key, int64_t max) {
  const Json* value = config.Find(key);
  if (value == nullptr || !value->is_array()) return config.Count(key, max);
  const Json* first = value->empty() ? nullptr : &value->front();
  const bool same = first != nullptr && first->is_number_unsigned() &&
                    std::all_of(value->begin(), value->end(),
                                [first](const Json& number) { return number == *first; });
  if (!same || first->get<uint64_t>() < 1 || first->get<uint64_t>() > static_cast<uint64_t>(max)) {
    return config.Wrong(key, fmt::format("one number from 1 to {} for all layers", max));
  }
  return first->get<int64_t>();
}

// The key of the number of experts. Versions of transformers write one of two for a class.
Result<std::string_view> ExpertCountKey(const JsonObject& config, std::string_view usual) {
  constexpr std::string_view kKeys[] = {"num_experts", "num_local_experts"};
  if (usual != kKeys[0] && usual != kKeys[1]) return usual;
  const std::string_view other = kKeys[usual == kKeys[0] ? 1 : 0];
  const Json* given = config.Find(usual);
  const Json* otherwise = config.Find(other);
  if (otherwise == nullptr) return usual;
  if (given == nullptr) return other;
  if (*given == *otherwise) return usual;
  return config.Wrong(usual, fmt::format("{}, as in {}", formats::Shown(*otherwise), other));
}

Status ReadExperts(const JsonObject& config, HfExperts keys, HfShape& shape) {
  if (keys.count.empty()) return {};
  KVANT_ASSIGN(keys.count, ExpertCountKey(config, keys.count));
  const Json* number = config.Find(keys.count);
  if (number != nullptr && *number == 0) return {};  // a model of the class without experts
  if (keys.may_be_none) {
    KVANT_ASSIGN(const auto experts, config.Integer(keys.count, kExpertsMax));
    if (experts.value_or(0) <= keys.none) return {};
  }
  KVANT_ASSIGN(shape.experts, CountInEachLayer(config, keys.count, kExpertsMax));
  KVANT_ASSIGN(
      shape.experts_used,
      CountInEachLayer(config, keys.used, std::min<int64_t>(shape.experts, kExpertsUsedMax)));
  KVANT_ASSIGN(shape.expert_ffn, config.Count(keys.ffn, kDimMax));
  if (!keys.shared_ffn.empty()) {
    KVANT_ASSIGN(const auto width, config.Integer(keys.shared_ffn, kDimMax));
    shape.shared_ffn = width.value_or(0);
  }
  if (!keys.shared_count.empty()) {
    KVANT_ASSIGN(const auto count, config.Integer(keys.shared_count, kExpertsMax));
    shape.shared_ffn = shape.expert_ffn * count.value_or(0);
  }
  KVANT_ASSIGN(const auto predicting, config.Integer("num_nextn_predict_layers", kLayersMax));
  shape.prediction_layers = predicting.value_or(0);
  return {};
}

}  // namespace

Result<HfShape> ReadHfShape(const HfFamily& family, const JsonObject& config) {
  const HfKeys& keys = family.keys;
  HfShape shape;
  const auto count = [&config](std::string_view key, int64_t max) -> Result<int64_t> {
    return key.empty() ? Result<int64_t>(0) : config.Count(key, max);
  };
  KVANT_ASSIGN(shape.layers, count(keys.layers, kLayersMax));
  KVANT_ASSIGN(shape.dim, config.Count(keys.dim, kDimMax));
  KVANT_ASSIGN(shape.ffn, count(keys.ffn, kDimMax));
  KVANT_ASSIGN(shape.vocab, config.Count("vocab_size", kHfVocabMax));
  KVANT_ASSIGN(shape.heads, count(keys.heads, kHeadsMax));
  KVANT_ASSIGN(shape.context, count(keys.context, kContextMax));
  shape.kv_heads = shape.heads;
  if (!keys.kv_heads.empty() && config.Find(keys.kv_heads) != nullptr) {
    KVANT_ASSIGN(shape.kv_heads, config.Count(keys.kv_heads, kHeadsMax));
  }
  if (family.finish_shape != nullptr) KVANT_TRY(family.finish_shape(config, shape));
  if (keys.heads.empty()) return shape;  // a class without attention
  if (shape.heads % shape.kv_heads != 0) {
    return config.Wrong(keys.kv_heads, fmt::format("a divisor of {}", shape.heads));
  }
  if (shape.latent > 0) {
    shape.head_dim = shape.nope + shape.rope;
  } else if (config.Find("head_dim") != nullptr) {
    KVANT_ASSIGN(shape.head_dim, config.Count("head_dim", kHeadDimMax));
  } else if (shape.head_dim == 0 &&
             (shape.dim % shape.heads != 0 || shape.dim / shape.heads > kHeadDimMax)) {
    return config.Wrong(keys.dim, fmt::format("a multiple of {} heads", shape.heads));
  } else if (shape.head_dim == 0) {
    shape.head_dim = shape.dim / shape.heads;
  }
  if (shape.head_dim % 2 != 0) {
    return MakeError(ErrorCode::kCorrupt, "{}: the head size is {}, expected an even number",
                     config.where(), shape.head_dim);
  }
  KVANT_TRY(ReadExperts(config, family.experts, shape));
  return shape;
}

HfShape ShapeWithPredictors(const HfShape& shape) {
  HfShape all = shape;
  const auto kept = static_cast<size_t>(shape.kept_predictors);
  all.layers += shape.kept_predictors;
  if (!all.attention_layers.empty())
    all.attention_layers.insert(all.attention_layers.end(), kept, true);
  if (!all.ffn_widths.empty()) all.ffn_widths.insert(all.ffn_widths.end(), kept, 0);
  return all;
}

HfShape ShapeOfLayer(const HfShape& shape, int64_t layer) {
  HfShape one = shape;
  if (shape.layer_sizes.empty()) return one;
  const HfLayerSizes& sizes = shape.layer_sizes[static_cast<size_t>(layer)];
  one.head_dim = sizes.head_dim;
  one.kv_heads = sizes.kv_heads;
  one.ffn = sizes.ffn;
  if (sizes.heads > 0) one.heads = sizes.heads;
  return one;
}

HfShape ShapeOfDecoder(const HfShape& shape) {
  HfShape decoder = shape;
  decoder.layers = shape.decoder.layers;
  decoder.ffn = shape.decoder.ffn;
  const bool none = shape.decoder.layers == 0;
  if (none || shape.decoder.heads == shape.heads) return decoder;
  decoder.heads = decoder.kv_heads = shape.decoder.heads;
  decoder.head_dim = shape.dim / shape.decoder.heads;
  return decoder;
}

bool HasTensorsOf(InLayers layers, const HfShape& shape, const HfLayer& layer) {
  const bool attention =
      shape.attention_layers.empty() || shape.attention_layers[static_cast<size_t>(layer.number)];
  const bool ffn =
      !shape.ffn_widths.empty() && shape.ffn_widths[static_cast<size_t>(layer.number)] > 0;
  const HfLayerSizes own = shape.layer_sizes.empty()
                               ? HfLayerSizes()
                               : shape.layer_sizes[static_cast<size_t>(layer.number)];
  switch (layers) {
    case InLayers::kAll: return true;
    case InLayers::kWithExperts: return layer.has_experts;
    case InLayers::kWithoutExperts: return !layer.has_experts;
    case InLayers::kWithAttention: return attention;
    case InLayers::kWithoutAttention: return !attention && !ffn;
    case InLayers::kFfnWithoutExperts: return ffn && !layer.has_experts;
    case InLayers::kWithKeys: return own.own_keys;
    case InLayers::kWithValues: return own.own_values;
    case InLayers::kWithLayerInputs: return shape.layer_inputs > 0;
    case InLayers::kFirst: return layer.number == 0;
    case InLayers::kAllButFirst: return layer.number > 0;
    case InLayers::kWithCorrectScale: return shape.correct_scale;
    case InLayers::kWithIndexer:
      return shape.index_layers.empty() || shape.index_layers[static_cast<size_t>(layer.number)];
    case InLayers::kWithNgrams: return shape.ngrams.layer == layer.number;
  }
  return false;
}

int64_t SourceCountOf(const HfTensor& tensor, const HfShape& shape) {
  switch (tensor.experts) {
    case ExpertForm::kEach: return shape.experts;
    case ExpertForm::kEachStream: return shape.streams - 1;
    case ExpertForm::kShards: return shape.ngrams.shards;
    case ExpertForm::kEachRow:
    case ExpertForm::kEachLetter: return ExtentSize(tensor.rows, shape);
    default: return 1;
  }
}

std::string SourceNameOf(const HfTensor& tensor, std::string layer_name, int64_t number) {
  constexpr std::string_view kMark = "{}";
  const size_t mark = layer_name.find(kMark);
  if (mark == std::string::npos) return layer_name;
  const bool by_letter = tensor.experts == ExpertForm::kEachLetter;
  return layer_name.replace(mark, kMark.size(),
                            by_letter ? std::string(1, tensor.letters[static_cast<size_t>(number)])
                                      : std::to_string(number));
}

int64_t StackedCountOf(const HfTensor& tensor, const HfShape& shape) {
  if (tensor.experts == ExpertForm::kEachStream) return shape.streams - 1;
  return tensor.experts == ExpertForm::kOfMixes ? shape.rwkv.mixes : shape.experts;
}

bool IsOfHeads(RowOrder order) {
  return order == RowOrder::kLatentKeys || order == RowOrder::kLatentValues;
}

int64_t SourceRowsOf(const HfTensor& tensor, const HfShape& shape) {
  if (tensor.order == RowOrder::kDeltaQkv || tensor.order == RowOrder::kDeltaGates) {
    return 2 * (shape.delta.keys() + shape.delta.values());
  }
  if (tensor.order == RowOrder::kFirstBeyond) return shape.layer_input_vocab;
  switch (tensor.part) {
    case RowPart::kAll: return ExtentSize(tensor.rows, shape);
    case RowPart::kFirstHalf:
    case RowPart::kSecondHalf:
    case RowPart::kEvenRows:
    case RowPart::kOddRows: return 2 * ExtentSize(tensor.rows, shape);
    case RowPart::kBehindTwo: return 2 + ExtentSize(tensor.rows, shape);
    case RowPart::kBehindUnread: return shape.unread_positions + ExtentSize(tensor.rows, shape);
    case RowPart::kIndexQueries:
    case RowPart::kIndexKey: return (shape.index_heads + 1) * shape.index_dim;
    default: return ExtentSize(Extent::kQkvRows, shape);
  }
}

std::vector<int64_t> SourceShapeOf(const HfTensor& tensor, const HfShape& shape) {
  if (IsOfHeads(tensor.order)) return {ExtentSize(Extent::kLatentKvRows, shape), shape.latent};
  const int64_t rows = SourceRowsOf(tensor, shape);
  const int64_t columns = ExtentSize(tensor.columns, shape);
  // Vectors there, which the GGUF architecture has as matrices.
  if (tensor.columns == Extent::kOne || tensor.columns == Extent::kMambaGroupCols) {
    return {rows * columns};
  }
  if (IsConvTaps(tensor.columns)) return {rows, 1, columns};
  if (tensor.columns == Extent::kThreeFrames || tensor.columns == Extent::kThreeRows) {
    return {rows, columns / 3, 3};
  }
  std::vector<int64_t> sizes;
  const bool joined = tensor.experts == ExpertForm::kJoined;
  const bool stacked = joined || tensor.experts == ExpertForm::kStacked ||
                       tensor.experts == ExpertForm::kStackedOrMxfp4 ||
                       tensor.experts == ExpertForm::kOfMixes;
  const bool each_row =
      tensor.experts == ExpertForm::kEachRow || tensor.experts == ExpertForm::kEachLetter;
  if (stacked) sizes.push_back(StackedCountOf(tensor, shape));
  if (!each_row) sizes.push_back(rows);
  if (tensor.columns != Extent::kNone) sizes.push_back(columns);
  if (tensor.order == RowOrder::kTransposed) std::swap(sizes.back(), *(sizes.end() - 2));
  if (joined) sizes = {sizes[0] * sizes[1], sizes[2]};
  return sizes;
}

namespace {

int64_t RwkvExtentSize(Extent extent, const HfRwkv& rwkv) {
  switch (extent) {
    case Extent::kWkvHeads: return rwkv.heads;
    case Extent::kWkvHeadDim: return rwkv.head_dim;
    case Extent::kMixes: return rwkv.mixes;
    case Extent::kMixRank: return rwkv.mix_rank;
    case Extent::kMixRanks: return rwkv.mixes * rwkv.mix_rank;
    case Extent::kDecayRank: return rwkv.decay_rank;
    case Extent::kRateRank: return rwkv.rate_rank;
    case Extent::kValueRank: return rwkv.value_rank;
    case Extent::kGateRank: return rwkv.gate_rank;
    default: return 1;  // kNone and kOne
  }
}

int64_t HyperExtentSize(Extent extent, const HfShape& shape) {
  const HfNgrams& ngrams = shape.ngrams;
  switch (extent) {
    case Extent::kAllStreams: return shape.streams * shape.dim;
    case Extent::kHyperRank: return shape.hyper_rank;
    case Extent::kNgramColumns: return ngrams.dim;
    case Extent::kNgramRowDim: return ngrams.layer < 0 ? 0 : ngrams.dim / ngrams.token_rows();
    case Extent::kNgramRows: return ngrams.rows;
    case Extent::kNgramTaps: return ngrams.taps;
    default: return RwkvExtentSize(extent, shape.rwkv);
  }
}

}  // namespace

int64_t ExtentSize(Extent extent, const HfShape& shape) {
  switch (extent) {
    case Extent::kDim: return shape.dim;
    case Extent::kVocab: return shape.vocab;
    case Extent::kSourceVocab: return shape.source_vocab;
    case Extent::kFfn: return shape.ffn;
    case Extent::kTwoFfn: return 2 * shape.ffn;
    case Extent::kHalfFfn: return shape.ffn / 2;
    case Extent::kQRows: return shape.q_rows();
    case Extent::kKvRows: return shape.kv_heads * shape.head_dim;
    case Extent::kValueRows: return shape.kv_heads * shape.v_dim;
    case Extent::kHeadDim: return shape.head_dim;
    case Extent::kQkvRows: return shape.q_rows() + 2 * shape.kv_heads * shape.head_dim;
    case Extent::kExperts: return shape.experts;
    case Extent::kExpertFfn: return shape.expert_ffn;
    case Extent::kTwoExpertFfn: return 2 * shape.expert_ffn;
    case Extent::kSharedFfn: return shape.shared_ffn;
    case Extent::kTwoSharedFfn: return 2 * shape.shared_ffn;
    case Extent::kHeads: return shape.heads;
    case Extent::kKvHeads: return shape.kv_heads;
    case Extent::kContext: return shape.context;
    case Extent::kQRank: return shape.q_rank;
    case Extent::kOneStepQRows: return shape.q_rank > 0 ? 0 : shape.q_rows();
    case Extent::kLatentQRows: return shape.q_rows();
    case Extent::kLatent: return shape.latent;
    case Extent::kLatentRow: return shape.latent + shape.rope;
    case Extent::kIndexHeads: return shape.index_heads;
    case Extent::kIndexHeadDim: return shape.index_dim;
    case Extent::kIndexQRows: return shape.index_heads * shape.index_dim;
    case Extent::kLatentKvRows: return shape.heads * (shape.nope + shape.v_dim);
    case Extent::kLatentORows: return shape.heads * shape.v_dim;
    case Extent::kNope: return shape.nope;
    case Extent::kVDim: return shape.v_dim;
    case Extent::kGateRows: return shape.gate_per_head ? shape.heads : shape.q_rows();
    case Extent::kThreeDims: return 3 * shape.dim;
    case Extent::kTwoDims: return 2 * shape.dim;
    case Extent::kConvTaps:
    case Extent::kConvTapsApart: return shape.conv_taps;
    case Extent::kTwoQRows: return 2 * shape.q_rows();
    case Extent::kLayerInput: return shape.layer_inputs;
    case Extent::kAllLayerInputs: return shape.layers * shape.layer_inputs;
    case Extent::kStreams: return shape.streams;
    case Extent::kStreamPairs: return shape.streams * shape.streams;
    case Extent::kLaurel: return shape.laurel;
    case Extent::kDeltaQkv: return 2 * shape.delta.keys() + shape.delta.values();
    case Extent::kDeltaValues: return shape.delta.values();
    case Extent::kDeltaHeads: return shape.delta.value_heads;
    case Extent::kTwoDeltaHeads: return 2 * shape.delta.value_heads;
    case Extent::kDeltaHeadDim: return shape.delta.value_dim;
    case Extent::kMambaIn: return shape.mamba.in_columns();
    case Extent::kMambaConv: return shape.mamba.conv_columns();
    case Extent::kMambaInner: return shape.mamba.inner();
    case Extent::kMambaHeads: return shape.mamba.heads;
    case Extent::kMambaGroups: return shape.mamba.groups;
    case Extent::kMambaGroupCols: return shape.mamba.inner() / shape.mamba.groups;
    case Extent::kTwoMambaInner: return 2 * shape.mamba.inner();
    case Extent::kMambaParameters: return shape.mamba.rank + 2 * shape.mamba.state_dim;
    case Extent::kMambaRank: return shape.mamba.rank;
    case Extent::kMambaState: return shape.mamba.state_dim;
    case Extent::kExpertDim: return shape.expert_latent > 0 ? shape.expert_latent : shape.dim;
    case Extent::kExpertLatent: return shape.expert_latent;
    case Extent::kBuckets: return shape.buckets;
    case Extent::kSource: return shape.source;
    case Extent::kThreeFrames: return 3 * shape.bins;
    case Extent::kThreeRows: return 3 * shape.dim;
    case Extent::kSegments: return shape.segments;
    case Extent::kLabels: return shape.labels;
    default: return HyperExtentSize(extent, shape);
  }
}

namespace {

// One number, or one for each layer where they differ.
void AddCounts(std::string_view name, const std::vector<int32_t>& counts, Parameters& out) {
  const bool same = std::ranges::all_of(counts, [&](int32_t count) { return count == counts[0]; });
  if (same) return out.writer->AddU32(out.Key(name), static_cast<uint32_t>(counts[0]));
  out.writer->AddI32s(out.Key(name), counts);
}

// Writes widths of feed-forwards and sizes of heads. Where sizes of heads differ, the family writes
// them.
void AddLayerSizes(const JsonObject& config, const HfShape& shape, Parameters& out) {
  std::vector<int32_t> widths;
  std::vector<int32_t> heads;
  std::vector<int32_t> kv_heads;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const HfShape one = ShapeOfLayer(shape, layer);
    widths.push_back(static_cast<int32_t>(one.ffn));
    heads.push_back(static_cast<int32_t>(one.heads));
    const bool recurrent =
        !shape.attention_layers.empty() && !shape.attention_layers[static_cast<size_t>(layer)];
    // Another key says which layers have delta nets.
    const bool none = recurrent && shape.delta.key_heads == 0;
    kv_heads.push_back(none ? 0 : static_cast<int32_t>(one.kv_heads));
  }
  if (!shape.ffn_widths.empty()) widths.assign(shape.ffn_widths.begin(), shape.ffn_widths.end());
  const auto kept = static_cast<size_t>(shape.kept_predictors);
  widths.insert(widths.end(), kept, static_cast<int32_t>(shape.ffn));
  heads.insert(heads.end(), kept, static_cast<int32_t>(shape.heads));
  kv_heads.insert(kv_heads.end(), kept, static_cast<int32_t>(shape.kv_heads));
  AddCounts("attention.head_count", heads, out);
  AddCounts("feed_forward_length", widths, out);
  const bool some = !shape.attention_layers.empty() && shape.delta.key_heads == 0;
  if (some) {
    out.writer->AddI32s(out.Key("attention.head_count_kv"), kv_heads);
  } else {
    AddCounts("attention.head_count_kv", kv_heads, out);
  }
  const bool given = config.Find("head_dim") != nullptr;
  if (shape.latent > 0 || shape.head_dim == 0 || !given || !shape.layer_sizes.empty()) return;
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    out.writer->AddU32(out.Key(key), static_cast<uint32_t>(shape.head_dim));
  }
}

}  // namespace

Status AddParameters(const HfFamily& family, const JsonObject& config, const HfShape& shape,
                     Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("block_count", shape.layers + shape.kept_predictors);
  if (shape.kept_predictors > 0) add("nextn_predict_layers", shape.kept_predictors);
  add("context_length", shape.context);
  add("embedding_length", shape.dim);
  AddLayerSizes(config, shape, out);
  add("vocab_size", shape.vocab);
  if (shape.experts > 0) {
    add("expert_count", shape.experts);
    add("expert_used_count", shape.experts_used);
    add("expert_feed_forward_length", shape.expert_ffn);
  }
  if (shape.shared_ffn > 0) {
    add("expert_shared_feed_forward_length", shape.shared_ffn);
    if (!family.experts.shared_count.empty()) {
      add("expert_shared_count", shape.shared_ffn / shape.expert_ffn);
    }
  }

  KVANT_ASSIGN(const auto given, config.Number(family.epsilon.key));
  const double epsilon = given.value_or(family.epsilon.otherwise);
  if (!(epsilon > 0) || epsilon > 1) {
    return config.Wrong(family.epsilon.key, "a positive number");
  }
  out.writer->AddF32(out.Key(family.epsilon.gguf_key), static_cast<float>(epsilon));
  if (family.rope_base > 0) KVANT_TRY(AddRope(family, config, out));
  return family.add_parameters(config, shape, out);
}

}  // namespace kvant::arch
