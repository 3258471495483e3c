#include "engine/convert/weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/arch/hf/hf_predictor.h"
#include "engine/convert/folder_tensors.h"
#include "engine/convert/weight_shapes.h"
#include "formats/quoted.h"
#include "quant/formats/mxfp4.h"
#include "quant/formats/nvfp4.h"

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
constexpr std::string_view kSegmentsName = "token_types.weight";  // likewise

// Suffixes and sizes of tensors in MXFP4.
constexpr std::string_view kBlocksSuffix = "_blocks";
constexpr std::string_view kScalesSuffix = "_scales";
constexpr int64_t kCodeBytes = quant::MXFP4::kBlockValues / 2;

// Matrices whose readers look for a second scale, by the part of a name before ".weight".
constexpr std::string_view kMatricesWithSeconds[] = {
    "output",         "attn_q",       "attn_k",        "attn_v",        "attn_qkv",
    "attn_output",    "attn_q_a",     "attn_q_b",      "attn_kv_a_mqa", "ffn_gate",
    "ffn_up",         "ffn_down",     "ffn_gate_exps", "ffn_up_exps",   "ffn_down_exps",
    "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};

constexpr std::string_view kWeightSuffix = ".weight";

bool MayHaveSecondScale(std::string_view name) {
  if (!name.ends_with(kWeightSuffix)) return false;
  name.remove_suffix(kWeightSuffix.size());
  return std::ranges::find(kMatricesWithSeconds, name.substr(name.rfind('.') + 1)) !=
         std::end(kMatricesWithSeconds);
}

// Whether the rows of a matrix are whole rows of its sources, unchanged.
bool KeepsRows(const OutputTensor& tensor) {
  switch (tensor.order) {
    case arch::RowOrder::kTransposed:
    case arch::RowOrder::kLatentKeys:
    case arch::RowOrder::kTiledColumns: return false;
    default: break;
  }
  return tensor.change == Values::kSame && tensor.factors.empty() && !tensor.split_values;
}

// Whether the scales of 16 values are numbers without a sign, as those of a block in GGUF.
bool AreUnsigned(const SafetensorsTensor& scales) {
  return std::all_of(scales.data, scales.data + scales.size_bytes,
                     [](std::byte scale) { return std::to_integer<int>(scale) < 127; });
}

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
          const SafetensorsModel& model, const Quantization& quantization, FolderTensors folder,
          const OutputType& type)
      : family_(family),
        all_layers_(shape),
        shape_(shape),
        config_(config),
        model_(model),
        quantization_(quantization),
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
      // The table of n-grams is a layer's in the folder.
      const bool of_ngrams = row.layers == arch::InLayers::kWithNgrams && shape_.ngrams.layer >= 0;
      if (!HasNumberMark(row.gguf_name)) KVANT_TRY(Add(row, of_ngrams ? shape_.ngrams.layer : 0));
    }
    KVANT_TRY(AddLayers(all_layers_, StackOf::kOthers));
    KVANT_TRY(AddPredictors());
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

  // The layers that predict further tokens, each with its own tensors behind those of a layer.
  Status AddPredictors() {
    shape_ = arch::ShapeWithPredictors(all_layers_);
    const HfTensor* final_norm = folder_.Row("output_norm.weight");
    for (int64_t layer = all_layers_.layers; layer < shape_.layers; ++layer) {
      for (const HfTensor& row : family_.tensors) {
        if (HasNumberMark(row.gguf_name)) KVANT_TRY(Add(row, layer));
      }
      for (HfTensor row : arch::kHfPredictor) {
        if (row.columns == Extent::kNone) row.values = final_norm->values;
        KVANT_TRY(Add(row, layer));
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
    const auto output = folder_.tied() ? arch::HfOutputIs::kEmbedding : arch::HfOutputIs::kOwn;
    return family_.row_factors(config_, shape_, row.gguf_name, output);
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
      KVANT_ASSIGN(const bool found, AddSource(row, hf_name, tensor));
      if (!found) {
        if (row.presence == Presence::kOptional && expert == 0) return {};
        return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing{}", Place(),
                         folder_.ShownName(hf_name),
                         row.presence == Presence::kUnlessTied
                             ? ", and config.json says \"tie_word_embeddings\": false"
                             : "");
      }
      KVANT_TRY(CheckSameType(model_, *tensor.sources.front(), *tensor.sources.back()));
    }
    tensor.name = WithNumber(row.gguf_name, layer);
    tensor.of_convolution = arch::IsConvTaps(row.columns);
    SetShape(row, shape_, tensor);
    if (row.experts == ExpertForm::kShards) KVANT_TRY(PlaceShards(model_, tensor));
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
    KeepCodes(tensor);
    const bool has_seconds = tensor.keeps_codes && tensor.scaled.front().seconds.tensor != nullptr;
    OutputTensor seconds = has_seconds ? SecondScalesOf(tensor) : OutputTensor();
    out_.push_back(std::move(tensor));
    if (has_seconds) out_.push_back(std::move(seconds));
    return {};
  }

  // Adds a tensor of the folder to those that a tensor is made of; false if there is none.
  Result<bool> AddSource(const HfTensor& row, const std::string& hf_name, OutputTensor& tensor) {
    KVANT_ASSIGN(const auto scaled, FindScaledSource(model_, quantization_, hf_name,
                                                     arch::SourceShapeOf(row, shape_), folder_));
    if (scaled) {
      tensor.sources.push_back(scaled->values);
      tensor.scaled.push_back(*scaled);
      return true;
    }
    const SafetensorsTensor* source = folder_.Find(hf_name);
    if (source == nullptr) return false;
    folder_.Use(*source);
    KVANT_TRY(CheckSource(model_, *source, row, shape_));
    tensor.sources.push_back(source);
    return true;
  }

  // Gives a matrix of FP4 the format that has the codes and scales of its sources, if there is one.
  void KeepCodes(OutputTensor& tensor) const {
    if (tensor.scaled.empty() || tensor.format != matrix_ || !KeepsRows(tensor)) return;
    const ScaledSource& first = tensor.scaled.front();
    if (first.codes != SmallFloat::kE2M1Pairs) return;
    const bool has_exponents = first.block.columns == quant::MXFP4::kBlockValues;
    const quant::FormatTraits* format =
        Format(has_exponents ? quant::MXFP4::kName : quant::NVFP4::kName);
    if (tensor.columns() % format->block_values != 0) return;
    for (const ScaledSource& source : tensor.scaled) {
      if (source.block.columns != first.block.columns || source.shared_scales) return;
      if (source.seconds.tensor != nullptr && !MayHaveSecondScale(tensor.name)) return;
      if (!has_exponents && !AreUnsigned(*source.scales.tensor)) return;
    }
    tensor.format = format;
    tensor.keeps_codes = true;
  }

  // The second scales of a matrix, or of its experts.
  static OutputTensor SecondScalesOf(const OutputTensor& tensor) {
    OutputTensor seconds;
    seconds.name = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size()) + ".scale";
    seconds.format = Format("F32");
    seconds.dims = {tensor.dims.size() > 2 ? tensor.dims[2] : 1};
    const bool stacked = tensor.scaled.size() == 1;
    for (int64_t i = 0; i < seconds.dims[0]; ++i) {
      const ScaledSource& source = tensor.scaled[stacked ? 0 : static_cast<size_t>(i)];
      seconds.values.push_back(source.SecondFactor(stacked ? i : 0));
    }
    return seconds;
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
    tensor.scaled = {MxFp4Source(*blocks, *scales, arch::SourceRowsOf(row, shape_), columns)};
    tensor.keeps_codes = true;
    tensor.shape = shape_;
    out_.push_back(std::move(tensor));
    return {};
  }

  const quant::FormatTraits* FormatFor(const OutputTensor& tensor) {
    const bool is_matrix =
        tensor.dims.size() > 1 && !tensor.of_convolution && tensor.name.ends_with(".weight") &&
        !tensor.name.ends_with("_norm.weight") && !tensor.name.ends_with("_coef.weight") &&
        !tensor.name.ends_with(kDistancesSuffix) && !tensor.name.ends_with(kRouterSuffix) &&
        !tensor.name.ends_with(kPositionsSuffix) && tensor.name != kSegmentsName &&
        !IsSmallMix(tensor.name);
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
  const Quantization& quantization_;
  const quant::FormatTraits* matrix_;
  int fallbacks_ = 0;  // matrices whose rows are no whole blocks
  std::string first_fallback_;
  FolderTensors folder_;
  std::vector<OutputTensor> out_;
};

}  // namespace

Result<std::vector<OutputTensor>> PlanWeights(const HfFamily& family, const JsonObject& config,
                                              const HfShape& shape, const SafetensorsModel& model,
                                              const Quantization& quantization,
                                              const OutputType& type,
                                              std::vector<ComputedTensor> computed,
                                              const std::vector<arch::KnownIntegers>& integers) {
  KVANT_ASSIGN(FolderTensors folder, FolderTensors::Create(family, model, config, quantization));
  if (shape.kept_predictors > 0) folder.TakePredictorsFrom(shape.layers);
  for (const arch::KnownIntegers& known : integers) {
    const SafetensorsTensor* source = folder.Find(known.hf_name);
    if (source == nullptr) continue;
    KVANT_TRY(CheckIntegers(model, *source, known.values));
    folder.Use(*source);
  }
  return Planner(family, shape, config, model, quantization, std::move(folder), type)
      .Plan(std::move(computed));
}

}  // namespace kvant::convert
