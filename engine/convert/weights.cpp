#include "engine/convert/weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/convert/folder_tensors.h"
#include "engine/convert/weight_shapes.h"
#include "formats/quoted.h"
#include "quant/formats/mxfp4.h"

namespace kvant::convert {
namespace {

using arch::ExpertForm;
using arch::Extent;
using arch::HfTensor;
using arch::kEmbeddingName;
using arch::kOutputName;
using arch::Presence;
using arch::RowFactor;
using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

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
constexpr int64_t kCodeBytes = quant::MXFP4::kBlockValues / 2;

// Tensors of RWKV's time mixes that are not the large matrices.
bool IsSmallMix(std::string_view name) {
  constexpr std::string_view kLarge[] = {"time_mix_receptance", "time_mix_key", "time_mix_value",
                                         "time_mix_gate", "time_mix_output"};
  const auto contains = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return contains(".time_mix_") && std::ranges::none_of(kLarge, contains);
}

class Planner {
 public:
  Planner(const HfFamily& family, const HfShape& shape, const JsonObject& config,
          const SafetensorsModel& model, FolderTensors folder, const OutputType& type)
      : family_(family),
        all_layers_(shape),
        shape_(shape),
        config_(config),
        model_(model),
        matrix_(Format(type.format_name)),
        folder_(std::move(folder)) {}

  Result<std::vector<OutputTensor>> Plan(std::vector<ComputedTensor> computed) {
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
      if (!HasNumberMark(row.gguf_name)) KVANT_TRY(Add(row, 0));
    }
    KVANT_TRY(AddLayers(all_layers_, StackOf::kOthers));
    KVANT_TRY(AddLayers(arch::ShapeOfDecoder(all_layers_), StackOf::kDecoder));
    shape_ = all_layers_;
    KVANT_TRY(folder_.CheckAllUsed(shape_));
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
        if (HasNumberMark(row.gguf_name)) KVANT_TRY(Add(row, layer));
      }
    }
    return {};
  }

  static const quant::FormatTraits* Format(std::string_view name) {
    const quant::FormatTraits* format = quant::FindFormat(name);
    KVANT_CHECK(format != nullptr);
    return format;
  }

  Result<std::vector<RowFactor>> FactorsOf(const HfTensor& row) const {
    if (family_.row_factors == nullptr) return std::vector<RowFactor>();
    return family_.row_factors(config_, shape_, row.gguf_name);
  }

  // An output that is the embedding in the folder may differ from it in its factors.
  Result<bool> IsLeftOut(const HfTensor& row) const {
    if (!folder_.tied() || row.presence != Presence::kUnlessTied) return false;
    KVANT_ASSIGN(const auto of_output, FactorsOf(row));
    KVANT_ASSIGN(const auto of_embedding, FactorsOf(*folder_.Row(kEmbeddingName)));
    return of_output == of_embedding;
  }

  Status Add(const HfTensor& row, int64_t layer) {
    KVANT_ASSIGN(const bool left_out, IsLeftOut(row));
    if (left_out) return {};
    if (!arch::HasTensorsOf(row.layers, shape_, {layer, folder_.HasExperts(layer)})) {
      SkipUnread(row, layer);
      return {};
    }
    if (ExtentSize(row.rows, shape_) == 0 || ExtentSize(row.columns, shape_) == 0) return {};
    if (row.experts == ExpertForm::kStackedOrMxfp4) {
      const std::string blocks = fmt::format("{}{}", WithNumber(row.hf_name, layer), kBlocksSuffix);
      if (folder_.Find(blocks) != nullptr) return AddMxfp4(row, layer, blocks);
    }
    const std::string layer_name = folder_.SourceName(row, layer);
    OutputTensor tensor;
    const int64_t count = arch::SourceCountOf(row, shape_);
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string hf_name = arch::SourceNameOf(row, layer_name, expert);
      const SafetensorsTensor* source = folder_.Find(hf_name);
      if (source == nullptr) {
        if (row.presence == Presence::kOptional && expert == 0) return {};
        return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing{}", Place(), hf_name,
                         row.presence == Presence::kUnlessTied
                             ? ", and config.json says \"tie_word_embeddings\": false"
                             : "");
      }
      folder_.Use(*source);
      KVANT_TRY(CheckSource(model_, *source, row, shape_));
      tensor.sources.push_back(source);
      KVANT_TRY(CheckSameType(model_, *tensor.sources.front(), *source));
    }
    tensor.name = WithNumber(row.gguf_name, layer);
    tensor.of_convolution = row.columns == Extent::kConvTaps;
    SetShape(row, shape_, tensor);
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
    const SafetensorsTensor* unread = folder_.Find(WithNumber(row.hf_name, layer));
    if (unread != nullptr) folder_.Use(*unread);
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
    const SafetensorsTensor* blocks = folder_.Find(blocks_name);
    const SafetensorsTensor* scales = folder_.Find(scales_name);
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
    KVANT_TRY(
        CheckBytes(model_, *blocks,
                   {shape_.experts, arch::SourceRowsOf(row, shape_), row_blocks, kCodeBytes}));
    KVANT_TRY(
        CheckBytes(model_, *scales, {shape_.experts, arch::SourceRowsOf(row, shape_), row_blocks}));
    folder_.Use(*blocks);
    folder_.Use(*scales);
    OutputTensor tensor;
    tensor.name = WithNumber(row.gguf_name, layer);
    SetShape(row, shape_, tensor);
    tensor.format = Format(quant::MXFP4::kName);
    tensor.sources = {blocks};
    tensor.scales = scales;
    tensor.shape = shape_;
    out_.push_back(std::move(tensor));
    return {};
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
        fmt::format(
            "stored as F16, not {}: {} with rows that are no multiple of {} values, the first "
            "{}",
            matrix_->name, Counted(fallbacks_, "matrix", "matrices"), matrix_->block_values,
            first_fallback_));
  }

  const std::string& Place() const { return model_.files().front(); }

  const HfFamily& family_;
  const HfShape& all_layers_;
  HfShape shape_;  // of the layer whose tensors are added
  const JsonObject& config_;
  const SafetensorsModel& model_;
  const quant::FormatTraits* matrix_;
  int fallbacks_ = 0;  // matrices whose rows are no whole blocks
  std::string first_fallback_;
  FolderTensors folder_;
  std::vector<OutputTensor> out_;
};

}  // namespace

Result<std::vector<OutputTensor>> PlanWeights(const HfFamily& family, const JsonObject& config,
                                              const HfShape& shape, const SafetensorsModel& model,
                                              const OutputType& type,
                                              std::vector<ComputedTensor> computed) {
  KVANT_ASSIGN(FolderTensors folder, FolderTensors::Create(family, model, config));
  return Planner(family, shape, config, model, std::move(folder), type).Plan(std::move(computed));
}

}  // namespace kvant::convert
