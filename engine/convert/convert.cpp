#include "engine/convert/convert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/arch/hf/hf_classes.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/authorship.h"
#include "engine/convert/ctranslate2/folder.h"
#include "engine/convert/folder_tensors.h"
#include "engine/convert/layer_numbers.h"
#include "engine/convert/quantization.h"
#include "engine/convert/search_settings.h"
#include "engine/convert/special_tokens.h"
#include "engine/convert/speech_settings.h"
#include "engine/convert/task_adapters.h"
#include "engine/convert/translator_vocabulary.h"
#include "engine/convert/vocabulary.h"
#include "engine/convert/weights.h"
#include "engine/convert/yes_no_scores.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

namespace kvant::convert {
namespace {

namespace fs = std::filesystem;
using arch::FindHfFamily;
using arch::Parameters;
using arch::ReadHfShape;

// The version of the block formats' layout, which all readers of 2023 and later expect.
constexpr uint32_t kQuantizationVersion = 2;

// An existing output must not be one of the files that the conversion reads.
Status CheckOutput(const std::string& folder, const std::string& output) {
  std::error_code error;
  const fs::path parent = fs::path(output).has_parent_path() ? fs::path(output).parent_path() : ".";
  if (!fs::exists(output, error) || !fs::equivalent(parent, folder, error)) return {};
  const std::string extension = fs::path(output).extension().string();
  const bool is_input = extension == ".safetensors" || extension == ".json" ||
                        extension == ".model" || extension == ".spm" || extension == ".jinja" ||
                        extension == ".bin" || extension == ".txt";
  if (!is_input) return {};
  return MakeError(ErrorCode::kInvalid, "{}: the output is a file of the folder to be converted",
                   output);
}

// "656K", "1.1B": two digits or more.
std::string SizeLabel(int64_t parameters) {
  struct Scale {
    double unit;
    char letter;
  };
  constexpr Scale kScales[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
  const auto count = static_cast<double>(parameters);
  Scale scale = kScales[3];
  for (const Scale& candidate : kScales) {
    if (count <= candidate.unit) continue;
    scale = candidate;
    break;
  }
  const double scaled = count / scale.unit;
  return fmt::format("{:.{}f}{}", scaled, scaled < 9.5 ? 1 : 0, scale.letter);
}

int64_t ParameterCount(const std::vector<OutputTensor>& tensors) {
  int64_t count = 0;
  for (const OutputTensor& tensor : tensors) count += tensor.rows() * tensor.columns();
  return count;
}

PieceOrder OrderOf(const HfFamily& family) {
  const bool fairseq = family.fairseq_ids || !family.languages.names.empty();
  return fairseq ? PieceOrder::kFairseq : PieceOrder::kOwn;
}

// Writes which tokens are languages, and where they stand (engine/text/languages.h).
void AddLanguages(const arch::HfLanguages& languages, const Vocabulary& vocabulary,
                  Parameters& out) {
  std::vector<int32_t> ids;
  for (const std::string_view name : languages.names) {
    if (const auto id = vocabulary.Find(name)) ids.push_back(*id);
  }
  if (ids.empty()) return;
  const bool behind = ids.size() == languages.behind;
  out.writer->AddI32s(out.Key("languages"), ids);
  out.writer->AddString(out.Key("source_language"), behind ? "behind" : "before");
  out.writer->AddString(out.Key("target_language"), behind ? "first" : "forced");
}

// The settings of the model with the token that texts begin with; the settings of generation have
// precedence for that token.
Result<JsonObject> WithDecoderStart(const FolderConfig& config) {
  constexpr const char* kKey = "decoder_start_token_id";
  const formats::Json* start = config.generation.Find(kKey);
  if (start == nullptr) return config.model;
  const formats::Json one = {{kKey, *start}};
  KVANT_ASSIGN(const JsonObject object, JsonObject::Parse(one.dump(), config.generation.where()));
  return config.model.With(object);
}

// A vocabulary as most families have it, or a translator's.
struct Vocabularies {
  Vocabulary own;
  std::optional<TranslatorVocabulary> translator;

  const Vocabulary& model() const { return translator ? translator->list : own; }
  // The target's, where it has one of its own; null where it has none.
  const Vocabulary* target() const {
    return translator && translator->target_list ? &*translator->target_list : nullptr;
  }
};

Result<Vocabularies> ReadVocabularies(const FolderConfig& config, const HfFamily& family,
                                      const HfShape& shape) {
  Vocabularies out;
  KVANT_ASSIGN(out.translator, ReadTranslatorVocabulary(config, family.translator, shape));
  if (out.translator) return out;
  const auto tokenizer = config.stand_ins.find("tokenizer.json");
  const bool has_stand_in = tokenizer != config.stand_ins.end();
  KVANT_ASSIGN(out.own, ReadVocabulary(config.folder, config.tokenizer, shape.vocab,
                                       {.kind = family.tokenizer,
                                        .order = OrderOf(family),
                                        .languages = family.languages.names,
                                        .has_speech_tokens = family.has_speech_tokens,
                                        .unigram_of_json = family.is_encoder,
                                        .tokenizer = has_stand_in ? tokenizer->second : nullptr}));
  return out;
}

Status AddMetadata(const FolderConfig& config, const HfFamily& family, const HfShape& shape,
                   const Vocabularies& vocabularies, Parameters& parameters) {
  const Vocabulary& vocabulary = vocabularies.model();
  vocabulary.AddTo(*parameters.writer);
  KVANT_TRY(AddSpecialTokens(config, vocabulary, *parameters.writer));
  KVANT_TRY(AddChatTemplates(config, *parameters.writer));
  AddLanguages(family.languages, vocabulary, parameters);
  if (vocabularies.translator) vocabularies.translator->AddTo(parameters);
  KVANT_ASSIGN(const JsonObject model, WithDecoderStart(config));
  KVANT_TRY(AddParameters(family, model, shape, parameters));
  if (family.has_speech_tokens) KVANT_TRY(AddSpeechSettings(config, shape.vocab, parameters));
  const bool has_encoder = shape.decoder.layers > 0;
  return has_encoder ? AddSearchSettings(config, shape.vocab, parameters) : Status();
}

// Adds what makes vectors or scores of a model's rows. Whoever writes texts has nothing of it.
Status AddEmbedding(const FolderConfig& config, const HfFamily& family, const HfShape& shape,
                    const Vocabulary& vocabulary, const formats::SafetensorsModel& model,
                    Parameters& parameters) {
  if (shape.labels == 0 && AsksYesOrNo(config.named_folder, family)) {
    return AddYesNoScores(config.named_folder, vocabulary, model, shape, parameters);
  }
  KVANT_ASSIGN(const auto causal, config.model.Bool("is_causal"));
  if (!config.modules && family.is_inner && causal.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: models of class {} cannot be converted without modules.json: it is the "
                     "inner part of another class, without the output that makes texts",
                     config.model.where(), family.classes.front());
  }
  if (!config.modules) return {};
  const bool keeps_capitals = !vocabulary.lower_case.value_or(false);
  if (config.modules->lower_case && keeps_capitals) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: sentence_bert_config.json: do_lower_case: true is not supported for a "
                     "tokenizer that keeps capitals",
                     config.folder);
  }
  return config.modules->AddTo(shape, config.named_folder, parameters);
}

Status WriteTensors(const std::vector<OutputTensor>& tensors, const ConvertOptions& options,
                    uint64_t data_bytes, formats::GgufWriter& writer) {
  int64_t row_bytes_max = 0;
  for (const OutputTensor& tensor : tensors) {
    row_bytes_max = std::max(row_bytes_max, tensor.format->row_bytes(tensor.columns()));
  }
  KVANT_ASSIGN(WeightEncoder encoder, WeightEncoder::Create(row_bytes_max, options.threads));
  uint64_t done = 0;
  for (const OutputTensor& tensor : tensors) {
    if (options.on_progress) KVANT_TRY(options.on_progress({tensor.name, done, data_bytes}));
    KVANT_TRY(encoder.Write(tensor, writer));
    done += static_cast<uint64_t>(tensor.size_bytes());
  }
  return {};
}

}  // namespace

Result<ConvertSummary> ConvertFolder(const std::string& folder, const std::string& output,
                                     const ConvertOptions& options) {
  const OutputType* wanted_type = FindOutputType(options.type);
  if (wanted_type == nullptr && !options.type.empty()) {
    return MakeError(ErrorCode::kInvalid, "unknown type \"{}\", expected f32, f16, bf16 or q8_0",
                     options.type);
  }
  KVANT_TRY(CheckOutput(folder, output));
  std::optional<CTranslate2Folder> other;
  if (IsCTranslate2Folder(folder)) {
    KVANT_ASSIGN(other, CTranslate2Folder::Open(folder));
  }
  KVANT_ASSIGN(FolderConfig config,
               other ? Result<FolderConfig>(other->config()) : FolderConfig::Read(folder));
  KVANT_TRY(CheckOutput(config.folder, output));
  KVANT_ASSIGN(const HfFamily* family, FindHfFamily(config.model));
  KVANT_ASSIGN(const Quantization quantization,
               ReadQuantization(config.folder, config.model, *family));
  KVANT_ASSIGN(HfShape shape, ReadHfShape(*family, config.model));
  KVANT_ASSIGN(const auto weights,
               other ? other->Tensors() : formats::SafetensorsModel::OpenFolder(config.folder));
  // Weights without adapters are used where they lie.
  std::optional<TaskWeights> of_task;
  if (!options.task.empty() || HasTaskAdapters(weights)) {
    KVANT_ASSIGN(of_task, TaskWeights::Merge(weights, config.model, options.task));
    if (config.modules) config.modules->NameDefault(options.task);
  }
  const formats::SafetensorsModel& model = of_task ? of_task->model() : weights;
  shape.kept_predictors = FolderTensors::CountPredictors(*family, model, shape.layers);
  config.makes_vectors = family->is_encoder || shape.labels > 0 || config.modules.has_value();
  const OutputType* type =
      options.type.empty() ? NaturalOutputType(model, quantization) : wanted_type;

  formats::GgufWriter writer;
  writer.AddString("general.architecture", family->arch);
  writer.AddString("general.type", "model");
  KVANT_TRY(AddAuthorship(config, options.name, writer));
  AddSampling(config.generation, writer);
  Parameters parameters{.writer = &writer,
                        .arch = family->arch,
                        .rope_base = family->rope_base,
                        .rope_share = family->rope_share,
                        .tensors = {},
                        .integers = {}};
  KVANT_ASSIGN(const Vocabularies vocabularies, ReadVocabularies(config, *family, shape));
  KVANT_TRY(AddMetadata(config, *family, shape, vocabularies, parameters));
  KVANT_TRY(AddLayerNumbers(*family, shape.layers, model, writer));
  KVANT_TRY(AddEmbedding(config, *family, shape, vocabularies.model(), model, parameters));
  if (other) {
    KVANT_TRY(other->CheckTokens(vocabularies.model(), vocabularies.target()));
    KVANT_TRY(other->PlacePositions(parameters.tensors));
  }
  KVANT_ASSIGN(const std::vector<OutputTensor> tensors,
               PlanWeights(*family, config.model, shape, model, quantization, *type,
                           std::move(parameters.tensors), parameters.integers));
  ConvertSummary summary{.arch = std::string(family->arch),
                         .type = std::string(type->name),
                         .tensors = static_cast<int64_t>(tensors.size()),
                         .parameters = ParameterCount(tensors)};
  writer.AddString("general.size_label", SizeLabel(summary.parameters));
  writer.AddU32("general.file_type", type->file_type);
  writer.AddU32("general.quantization_version", kQuantizationVersion);
  for (const OutputTensor& tensor : tensors) {
    KVANT_TRY(writer.AddTensor(tensor.name, *tensor.format, tensor.dims));
    summary.data_bytes += static_cast<uint64_t>(tensor.size_bytes());
  }
  KVANT_TRY(writer.Begin(output));
  KVANT_TRY(WriteTensors(tensors, options, summary.data_bytes, writer));
  KVANT_TRY(writer.Finish());
  return summary;
}

std::vector<ConvertibleClass> ConvertibleClasses() {
  std::vector<ConvertibleClass> classes;
  for (const arch::HfClassName& known : arch::KnownHfClasses()) {
    classes.push_back({known.name, known.arch});
  }
  return classes;
}

}  // namespace kvant::convert
