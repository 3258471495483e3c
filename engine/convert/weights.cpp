#include "engine/convert/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/log.h"
#include "base/result.h"
#include "engine/convert/left_out.h"
#include "formats/quoted.h"
#include "quant/formats/mxfp4.h"

namespace kvant::convert {
namespace {

using arch::ExpertForm;
using arch::Extent;
using arch::HfDelta;
using arch::HfTensor;
using arch::kEmbeddingName;
using arch::kOutputName;
using arch::Presence;
using arch::RowFactor;
using arch::RowOrder;
using arch::RowPart;
using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

constexpr std::string_view kNumberMark = "{}";

// Routers of experts, which are never quantized.
constexpr std::string_view kRouterSuffix =
    arch::kRouterName.substr(arch::kRouterName.rfind('{') + 2);

// Numbers for distances, of which each head has a few.
constexpr std::string_view kDistancesSuffix = "attn_rel_b.weight";

// Positions, which other converters leave as they are, too: they are read a row at a time.
constexpr std::string_view kPositionsSuffix = "position_embd.weight";

// Suffixes and sizes of tensors in MXFP4.
constexpr std::string_view kBlocksSuffix = "_blocks";
constexpr std::string_view kScalesSuffix = "_scales";
constexpr std::string_view kByteType = "U8";
constexpr int64_t kCodeBytes = quant::MXFP4::kBlockValues / 2;

// The name of the text model in models that read more than text. Their tensors have it at the
// beginning of their names, or behind the inner model's beginning.
constexpr std::string_view kTextModel = "language_model.";

// Tensors of RWKV's time mixes that are not the large matrices.
bool IsSmallMix(std::string_view name) {
  constexpr std::string_view kLarge[] = {"time_mix_receptance", "time_mix_key", "time_mix_value",
                                         "time_mix_gate", "time_mix_output"};
  const auto contains = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return contains(".time_mix_") && std::ranges::none_of(kLarge, contains);
}

bool IsFloat(const formats::SafetensorsType& type) {
  return type.name == "F64" || type.name == "F32" || type.name == "F16" || type.name == "BF16";
}

// Puts the number of a layer into a name, or that of an expert into a name that has its layer
// already.
std::string WithNumber(std::string_view name, int64_t number) {
  const size_t mark = name.find(kNumberMark);
  if (mark == std::string_view::npos) return std::string(name);
  return fmt::format("{}{}{}", name.substr(0, mark), number,
                     name.substr(mark + kNumberMark.size()));
}

bool HaveSameBytes(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return a.type == b.type && a.shape == b.shape && std::memcmp(a.data, b.data, a.size_bytes) == 0;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

class Planner {
 public:
  Planner(const HfFamily& family, const HfShape& shape, const SafetensorsModel& model,
          const OutputType& type)
      : family_(family),
        all_layers_(shape),
        shape_(shape),
        model_(model),
        matrix_(Format(type.format_name)) {}

  Result<std::vector<OutputTensor>> Plan(const JsonObject& config,
                                         std::vector<ComputedTensor> computed) {
    of_more_than_text_ = config.Find("text_config") != nullptr;
    config_ = &config;
    KVANT_TRY(FindTying(config));
    for (ComputedTensor& tensor : computed) {
      const auto count = static_cast<int64_t>(tensor.values.size());
      OutputTensor& out = out_.emplace_back();
      out.name = std::move(tensor.name);
      out.format = Format("F32");
      out.dims = {count};
      if (tensor.columns > 0) out.dims = {tensor.columns, count / tensor.columns};
      out.values = std::move(tensor.values);
    }
    for (const HfTensor& row : family_.tensors) {
      if (row.gguf_name.find(kNumberMark) == std::string_view::npos) KVANT_TRY(Add(row, 0));
    }
    KVANT_TRY(AddLayers(all_layers_, StackOf::kOthers));
    KVANT_TRY(AddLayers(arch::ShapeOfDecoder(all_layers_), StackOf::kDecoder));
    shape_ = all_layers_;
    KVANT_TRY(CheckAllUsed());
    WarnOfFallbacks();
    return std::move(out_);
  }

 private:
  enum class StackOf : uint8_t { kOthers, kDecoder };  // behind an encoder

  Status AddLayers(const HfShape& stack, StackOf which) {
    for (int64_t layer = 0; layer < stack.layers; ++layer) {
      shape_ = ShapeOfLayer(stack, layer);
      for (const HfTensor& row : family_.tensors) {
        const bool of_decoder = row.gguf_name.starts_with(arch::kHfDecoderPrefix);
        if (of_decoder != (which == StackOf::kDecoder)) continue;
        if (row.gguf_name.find(kNumberMark) != std::string_view::npos) KVANT_TRY(Add(row, layer));
      }
    }
    return {};
  }

  static const quant::FormatTraits* Format(std::string_view name) {
    const quant::FormatTraits* format = quant::FindFormat(name);
    KVANT_CHECK(format != nullptr);
    return format;
  }

  const HfTensor* Row(std::string_view gguf_name) const {
    for (const HfTensor& row : family_.tensors) {
      if (row.gguf_name == gguf_name) return &row;
    }
    return nullptr;
  }

  // A tensor under its full name, or without the beginning that folders may leave out.
  const SafetensorsTensor* Find(std::string_view hf_name) const {
    const SafetensorsTensor* found = model_.Find(hf_name);
    if (found == nullptr && of_more_than_text_) found = FindInTextModel(hf_name);
    const std::string_view prefix = family_.optional_prefix;
    if (found != nullptr || prefix.empty() || !hf_name.starts_with(prefix)) return found;
    hf_name.remove_prefix(prefix.size());
    found = model_.Find(hf_name);
    if (found != nullptr || family_.other_prefix.empty()) return found;
    return model_.Find(fmt::format("{}{}", family_.other_prefix, hf_name));
  }

  // A tensor of a text model that is a part of another model.
  const SafetensorsTensor* FindInTextModel(std::string_view hf_name) const {
    const SafetensorsTensor* found = model_.Find(fmt::format("{}{}", kTextModel, hf_name));
    if (found != nullptr || !hf_name.starts_with(kInnerModel)) return found;
    return model_.Find(
        fmt::format("{}{}{}", kInnerModel, kTextModel, hf_name.substr(kInnerModel.size())));
  }

  // Whether the output's weights are the embedding's. A folder holds such weights under either
  // name, or under both.
  Status FindTying(const JsonObject& config) {
    const HfTensor* embedding = Row(kEmbeddingName);
    const HfTensor* output = Row(kOutputName);
    if (embedding != nullptr) KVANT_TRY(FindEmbedding(*embedding));
    if (embedding == nullptr || output == nullptr) return {};
    KVANT_ASSIGN(const auto tied, config.Bool("tie_word_embeddings"));
    tied_ = tied.value_or(family_.tied_unless_told || Find(output->hf_name) == nullptr);
    if (!tied_) return {};
    used_.emplace(output->hf_name);
    const bool found = Find(embedding->hf_name) != nullptr || !tied_embedding_.empty();
    if (!found) tied_embedding_ = output->hf_name;
    return {};
  }

  // The embedding under its other names, which must hold the same values.
  Status FindEmbedding(const HfTensor& embedding) {
    const SafetensorsTensor* first = Find(embedding.hf_name);
    for (const std::string_view name : family_.embedding_names) {
      const SafetensorsTensor* found = Find(name);
      if (found == nullptr) continue;
      used_.emplace(found->name);
      if (first == nullptr) {
        first = found;
        tied_embedding_ = name;
      } else if (!HaveSameBytes(*first, *found)) {
        return MakeError(ErrorCode::kNotSupported,
                         "{}: tensors {} and {} differ; expected one embedding for both stacks",
                         model_.FileOf(*found), Quoted(first->name), Quoted(found->name));
      }
    }
    return {};
  }

  bool HasExperts(int64_t layer) const {
    const HfTensor* router = Row(arch::kRouterName);
    return router != nullptr && Find(WithNumber(router->hf_name, layer)) != nullptr;
  }

  Result<std::vector<RowFactor>> FactorsOf(const HfTensor& row) const {
    if (family_.row_factors == nullptr) return std::vector<RowFactor>();
    return family_.row_factors(*config_, shape_, row.gguf_name);
  }

  // An output that is the embedding in the folder may differ from it in its factors.
  Result<bool> IsLeftOut(const HfTensor& row) const {
    if (!tied_ || row.presence != Presence::kUnlessTied) return false;
    KVANT_ASSIGN(const auto of_output, FactorsOf(row));
    KVANT_ASSIGN(const auto of_embedding, FactorsOf(*Row(kEmbeddingName)));
    return of_output == of_embedding;
  }

  // The folder's name of a tensor of a layer.
  std::string SourceName(const HfTensor& row, int64_t layer) const {
    const bool is_embedding = row.gguf_name == kEmbeddingName;
    if (is_embedding && !tied_embedding_.empty()) return tied_embedding_;
    const bool is_tied = tied_ && row.presence == Presence::kUnlessTied && tied_embedding_.empty();
    if (is_tied) return std::string(Row(kEmbeddingName)->hf_name);
    const bool of_stack = row.gguf_name.find(kNumberMark) == std::string_view::npos;
    return of_stack ? std::string(row.hf_name) : WithNumber(row.hf_name, layer);
  }

  Status Add(const HfTensor& row, int64_t layer) {
    KVANT_ASSIGN(const bool left_out, IsLeftOut(row));
    if (left_out) return {};
    if (!arch::HasTensorsOf(row.layers, shape_, {layer, HasExperts(layer)})) {
      SkipUnread(row, layer);
      return {};
    }
    if (ExtentSize(row.rows, shape_) == 0 || ExtentSize(row.columns, shape_) == 0) return {};
    if (row.experts == ExpertForm::kStackedOrMxfp4) {
      const std::string blocks = fmt::format("{}{}", WithNumber(row.hf_name, layer), kBlocksSuffix);
      if (Find(blocks) != nullptr) return AddMxfp4(row, layer, blocks);
    }
    const std::string layer_name = SourceName(row, layer);
    OutputTensor tensor;
    const int64_t count = arch::SourceCountOf(row, shape_);
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string hf_name = arch::SourceNameOf(row, layer_name, expert);
      const SafetensorsTensor* source = Find(hf_name);
      if (source == nullptr) {
        if (row.presence == Presence::kOptional && expert == 0) return {};
        return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing{}", Place(), hf_name,
                         row.presence == Presence::kUnlessTied
                             ? ", and config.json says \"tie_word_embeddings\": false"
                             : "");
      }
      used_.emplace(source->name);
      KVANT_TRY(CheckSource(*source, row));
      tensor.sources.push_back(source);
      KVANT_TRY(CheckSameType(*tensor.sources.front(), *source));
    }
    tensor.name = WithNumber(row.gguf_name, layer);
    tensor.of_convolution = row.columns == Extent::kConvTaps;
    SetShape(row, tensor);
    tensor.format = FormatFor(tensor);
    tensor.order = row.order;
    tensor.shape = shape_;
    tensor.change = row.values;
    KVANT_ASSIGN(tensor.factors, FactorsOf(row));
    if (row.values == Values::kRescaled) Rescale(layer, tensor);
    if (row.gguf_name == kOutputName && family_.has_unit_output_rows != nullptr &&
        family_.has_unit_output_rows(shape_)) {
      tensor.change = Values::kUnitRows;
    }
    out_.push_back(std::move(tensor));
    return {};
  }

  // Folders may hold keys and values of layers that read another layer's, and factors that the
  // model does not apply.
  void SkipUnread(const HfTensor& row, int64_t layer) {
    const bool of_keys =
        row.layers == arch::InLayers::kWithKeys || row.layers == arch::InLayers::kWithValues;
    const bool unread_keys = of_keys && !shape_.layer_sizes[static_cast<size_t>(layer)].own_keys;
    if (!unread_keys && row.layers != arch::InLayers::kWithCorrectScale) return;
    const SafetensorsTensor* unread = Find(WithNumber(row.hf_name, layer));
    if (unread != nullptr) used_.emplace(unread->name);
  }

  void Rescale(int64_t layer, OutputTensor& tensor) const {
    const int64_t every = shape_.rwkv.rescale_every;
    tensor.factor = every > 0 ? std::exp2(static_cast<float>(-(layer / every))) : 1.0f;
    if (tensor.factor == 1) tensor.change = Values::kSame;
  }

  // Weights in MXFP4 keep their values, whatever the type of the others.
  Status AddMxfp4(const HfTensor& row, int64_t layer, const std::string& blocks_name) {
    const std::string scales_name =
        fmt::format("{}{}", WithNumber(row.hf_name, layer), kScalesSuffix);
    const SafetensorsTensor* blocks = Find(blocks_name);
    const SafetensorsTensor* scales = Find(scales_name);
    if (scales == nullptr) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", Place(), scales_name);
    }
    const int64_t columns = ExtentSize(row.columns, shape_);
    if (columns % quant::MXFP4::kBlockValues != 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} holds blocks of {} values, but the sizes in config.json make "
                       "rows of {}",
                       model_.FileOf(*blocks), Quoted(blocks_name), quant::MXFP4::kBlockValues,
                       columns);
    }
    const int64_t row_blocks = columns / quant::MXFP4::kBlockValues;
    KVANT_TRY(CheckBytes(
        *blocks, {shape_.experts, arch::SourceRowsOf(row, shape_), row_blocks, kCodeBytes}));
    KVANT_TRY(CheckBytes(*scales, {shape_.experts, arch::SourceRowsOf(row, shape_), row_blocks}));
    used_.emplace(blocks->name);
    used_.emplace(scales->name);
    OutputTensor tensor;
    tensor.name = WithNumber(row.gguf_name, layer);
    SetShape(row, tensor);
    tensor.format = Format(quant::MXFP4::kName);
    tensor.sources = {blocks};
    tensor.scales = scales;
    tensor.shape = shape_;
    out_.push_back(std::move(tensor));
    return {};
  }

  Status CheckBytes(const SafetensorsTensor& source, const std::vector<int64_t>& expected) const {
    if (source.type->name != kByteType) {
      return MakeError(ErrorCode::kNotSupported, "{}: tensor {} holds {} values, expected {}",
                       model_.FileOf(source), Quoted(source.name), source.type->name, kByteType);
    }
    return CheckShape(source, expected);
  }

  void SetShape(const HfTensor& row, OutputTensor& tensor) const {
    const int64_t rows = ExtentSize(row.rows, shape_);
    const bool is_vector = row.columns == Extent::kNone;
    if (row.experts == ExpertForm::kFlattened) {
      tensor.dims = {rows * ExtentSize(row.columns, shape_)};
      return;
    }
    const bool by_letter = row.experts == ExpertForm::kEachLetter;
    const bool each_row = row.experts == ExpertForm::kEachRow || by_letter;
    const bool of_experts = row.experts != ExpertForm::kNone && !each_row;
    tensor.dims = {is_vector ? rows : ExtentSize(row.columns, shape_)};
    if (by_letter) tensor.dims.insert(tensor.dims.end(), {1, 1});
    if (!is_vector && row.rows != Extent::kOne) tensor.dims.push_back(rows);
    if (of_experts) tensor.dims.push_back(arch::StackedCountOf(row, shape_));
    if (arch::IsOfHeads(row.order)) {
      tensor.dims.push_back(shape_.heads);
      tensor.expert_rows = rows;
      tensor.source_rows = shape_.nope + shape_.v_dim;
      tensor.first_row = row.order == RowOrder::kLatentValues ? shape_.nope : 0;
      return;
    }
    tensor.split_values = is_vector && (row.order != RowOrder::kSame || row.part != RowPart::kAll);
    const bool one_row = (is_vector && !tensor.split_values) || each_row;
    tensor.expert_rows = one_row ? 1 : rows;
    tensor.source_rows = one_row ? 1 : arch::SourceRowsOf(row, shape_);
    tensor.first_row = FirstRow(row);
    const bool alternate = row.part == RowPart::kEvenRows || row.part == RowPart::kOddRows;
    tensor.row_step = alternate ? 2 : 1;
  }

  // The first row that is taken from the folder's matrix.
  int64_t FirstRow(const HfTensor& row) const {
    const int64_t q_rows = ExtentSize(Extent::kQRows, shape_);
    switch (row.part) {
      case RowPart::kSecondHalf: return ExtentSize(row.rows, shape_);
      case RowPart::kOddRows: return 1;
      case RowPart::kBehindTwo: return 2;
      case RowPart::kKeys: return q_rows;
      case RowPart::kValues: return q_rows + ExtentSize(Extent::kKvRows, shape_);
      default: return 0;
    }
  }

  Status CheckSameType(const SafetensorsTensor& first, const SafetensorsTensor& other) const {
    if (first.type == other.type) return {};
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tensor {} holds {} values, but {} holds {}; expected experts of a layer "
                     "to have one type",
                     model_.FileOf(other), Quoted(other.name), other.type->name, Quoted(first.name),
                     first.type->name);
  }

  Status CheckSource(const SafetensorsTensor& source, const HfTensor& row) const {
    if (!IsFloat(*source.type)) {
      return MakeError(
          ErrorCode::kNotSupported,
          "{}: tensor {} holds {} values; only F64, F32, F16 and BF16 can be converted",
          model_.FileOf(source), Quoted(source.name), source.type->name);
    }
    return CheckShape(source, arch::SourceShapeOf(row, shape_));
  }

  // Vectors may be matrices of one row.
  Status CheckShape(const SafetensorsTensor& source, const std::vector<int64_t>& expected) const {
    std::span<const int64_t> shape(source.shape);
    while (expected.size() == 1 && shape.size() > 1 && shape.front() == 1) shape = shape.subspan(1);
    if (std::ranges::equal(shape, expected)) return {};
    return MakeError(
        ErrorCode::kCorrupt, "{}: tensor {} has shape {}, but the sizes in config.json make {}",
        model_.FileOf(source), Quoted(source.name), ShapeText(source.shape), ShapeText(expected));
  }

  const quant::FormatTraits* FormatFor(const OutputTensor& tensor) {
    const bool is_matrix =
        tensor.dims.size() > 1 && !tensor.of_convolution && tensor.name.ends_with(".weight") &&
        !tensor.name.ends_with("_norm.weight") && !tensor.name.ends_with("_coef.weight") &&
        !tensor.name.ends_with(kDistancesSuffix) && !tensor.name.ends_with(kRouterSuffix) &&
        !tensor.name.ends_with(kPositionsSuffix) && !IsSmallMix(tensor.name);
    if (!is_matrix) return Format("F32");
    if (tensor.columns() % matrix_->block_values == 0) return matrix_;
    if (fallbacks_++ == 0) first_fallback_ = tensor.name;
    return Format("F16");
  }

  void WarnOfFallbacks() const {
    if (fallbacks_ == 0) return;
    Log(LogLevel::kWarning,
        fmt::format("{} matrices, the first {}, have rows that are no multiple of {} values: they "
                    "are stored as F16, not {}",
                    fallbacks_, first_fallback_, matrix_->block_values, matrix_->name));
  }

  // Whether a tensor belongs to a layer behind the others, or to a network of its own for it.
  bool PredictsFurtherTokens(std::string_view name) const {
    if (name.starts_with("mtp.")) return true;
    for (int64_t i = 0; i < shape_.prediction_layers; ++i) {
      if (name.starts_with(fmt::format("model.layers.{}.", shape_.layers + i))) return true;
    }
    return false;
  }

  Status CheckAllUsed() const {
    bool left_out = false;
    bool other_parts = false;
    for (const SafetensorsTensor& tensor : model_.tensors()) {
      if (used_.contains(tensor.name) || IsIgnored(tensor.name)) continue;
      if (PredictsFurtherTokens(tensor.name)) {
        left_out = true;
        continue;
      }
      if (of_more_than_text_ && IsOfAnotherPart(tensor.name)) {
        other_parts = true;
        continue;
      }
      return MakeError(ErrorCode::kNotSupported,
                       "{}: tensor {} has no place in a model of class {} with {} layers",
                       model_.FileOf(tensor), Quoted(tensor.name), family_.classes.front(),
                       shape_.layers);
    }
    if (left_out) Log(LogLevel::kWarning, "layers that predict further tokens are left out");
    if (other_parts) Log(LogLevel::kWarning, "parts that read images or sound are left out");
    return {};
  }

  const std::string& Place() const { return model_.files().front(); }

  const HfFamily& family_;
  const HfShape& all_layers_;
  HfShape shape_;  // of the layer whose tensors are added
  const JsonObject* config_ = nullptr;
  const SafetensorsModel& model_;
  const quant::FormatTraits* matrix_;
  bool tied_ = false;
  bool of_more_than_text_ = false;
  int fallbacks_ = 0;  // matrices whose rows are no whole blocks
  std::string first_fallback_;
  std::string tied_embedding_;  // where the embedding is found under the output's name
  std::set<std::string, std::less<>> used_;
  std::vector<OutputTensor> out_;
};

}  // namespace

Result<std::vector<OutputTensor>> PlanWeights(const HfFamily& family, const JsonObject& config,
                                              const HfShape& shape, const SafetensorsModel& model,
                                              const OutputType& type,
                                              std::vector<ComputedTensor> computed) {
  return Planner(family, shape, model, type).Plan(config, std::move(computed));
}

}  // namespace kvant::convert
