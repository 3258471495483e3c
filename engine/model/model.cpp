// Opening a model: map, read the architecture, check the tokenizer, build the plan.
#include "kvant/model.h"
#include "base/counted.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "engine/arch/build_plan.h"
#include "engine/arch/embedding_head.h"
#include "engine/arch/family.h"
#include "engine/arch/predictors.h"
#include "engine/graph/matmul/low_rank.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant {

using formats::GgufFile;

namespace {

void WarnOfUnpacked(const GgufFile& file) {
  const formats::UnpackedTensors& unpacked = file.unpacked();
  if (unpacked.tensors == 0) return;
  constexpr uint64_t kMib = uint64_t{1} << 20;
  Log(LogLevel::kWarning,
      fmt::format(
          "{}: {} with interleaved rows ({}) {} unpacked into {} of memory; `kvant quantize "
          "IN OUT COPY` makes a file that needs none",
          file.path(), Counted(unpacked.tensors, "tensor"), unpacked.types,
          unpacked.tensors == 1 ? "was" : "were",
          unpacked.bytes < kMib ? fmt::format("{} KiB", (unpacked.bytes + 1023) >> 10)
                                : fmt::format("{} MiB", unpacked.bytes >> 20)));
}

}  // namespace

Model::Model(std::unique_ptr<formats::GgufFile> file) : file_(std::move(file)) {}

Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Open(const std::string& path,
                                                 const ModelOptions& options) {
  KVANT_ASSIGN(auto file, GgufFile::Open(path, options.access, formats::UnreadableTensors::kRefused,
                                         options.progress));
  WarnOfUnpacked(file);
  return Create(std::move(file), options);
}

Result<std::shared_ptr<const Model>> Model::Create(GgufFile&& file, const ModelOptions& options) {
  std::shared_ptr<Model> model(new Model(std::make_unique<GgufFile>(std::move(file))));
  if (options.isa.empty()) {
    KVANT_ASSIGN(model->kernels_, cpu::ChooseKernelsFromEnvironment());
  } else {
    KVANT_ASSIGN(model->kernels_, cpu::ChooseKernels(options.isa));
  }
  if (options.float_gemm.empty()) {
    KVANT_ASSIGN(model->float_gemm_, cpu::ChooseFloatGemmFromEnvironment());
  } else {
    KVANT_ASSIGN(model->float_gemm_, cpu::ChooseFloatGemm(options.float_gemm));
  }
  KVANT_ASSIGN(auto spec, arch::ReadSpec(*model->file_, options.ignored_keys,
                                         options.predictors ? arch::PredictingLayers::kRead
                                                            : arch::PredictingLayers::kLeftOut));
  model->spec_ = std::make_unique<arch::ModelSpec>(std::move(spec));
  KVANT_ASSIGN(model->tokenizer_, Tokenizer::Create(*model->file_, options.tokenizer));
  if (model->has_encoder()) {
    KVANT_ASSIGN(auto target, Tokenizer::CreateTarget(*model->file_));
    if (target != nullptr) {
      model->source_tokenizer_ = std::exchange(model->tokenizer_, std::move(target));
    }
  }
  if (!options.adapters.empty()) {
    KVANT_ASSIGN(auto adapters, graph::AdapterSet::Create(options.adapters));
    model->adapters_ = std::make_unique<graph::AdapterSet>(std::move(adapters));
  }
  KVANT_TRY(model->MakePlans(options.observer));
  KVANT_TRY(model->CheckVocabulary());
  model->ReadDefaults();
  if (options.lock_memory) {
    for (const MappedFile& mapping : model->file_->mappings()) {
      KVANT_TRY(mapping.Lock());
    }
  }
  return std::shared_ptr<const Model>(std::move(model));
}

Status Model::MakePlans(graph::MatMulObserver* observer) {
  KVANT_ASSIGN(auto plan,
               arch::BuildPlan(*file_, *kernels_, *float_gemm_, *spec_, observer, adapters_.get()));
  plans_.push_back(std::move(plan));
  if (adapters_ != nullptr) KVANT_TRY(adapters_->CheckConfirmed(file_->path()));
  if (is_embedder()) {
    Pooling pooling = spec_->embedding.pooling.value_or(Pooling::kNone);
    if (pooling == Pooling::kRank && !arch::HasClassifier(*file_)) pooling = Pooling::kNone;
    KVANT_ASSIGN(auto embed,
                 arch::BuildEmbedPlan(*file_, *kernels_, *float_gemm_, *spec_, pooling, observer));
    plans_.push_back(std::move(embed));
  }
  for (int64_t i = 0; i < predictors(); ++i) {
    KVANT_ASSIGN(auto draft, arch::BuildDraftPlan(*file_, *kernels_, *float_gemm_, *spec_,
                                                  *plans_.front(), static_cast<size_t>(i)));
    plans_.push_back(std::move(draft));
  }
  if (!has_encoder()) return {};
  KVANT_ASSIGN(auto encode, arch::BuildEncodePlan(*file_, *kernels_, *float_gemm_, *spec_,
                                                  *plans_.front(), observer));
  plans_.push_back(std::move(encode));
  return {};
}

Status Model::CheckVocabulary() const {
  if (tokenizer_->vocab_size() > spec_->vocab) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor token_embd.weight: expected {} rows for the vocabulary, found {}",
                     file_->path(), tokenizer_->vocab_size(), spec_->vocab);
  }
  if (!has_encoder()) return {};
  const auto& encoder = *spec_->encoder;
  if (!encoder.frames.has_value() && source_tokenizer().vocab_size() > encoder.vocab) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: tensor {}.weight: expected {} rows for the vocabulary, found {}",
        file_->path(), encoder.stack.input.tensor, source_tokenizer().vocab_size(), encoder.vocab);
  }
  const int64_t first = encoder.first_token.value_or(0);
  if (first >= spec_->vocab) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}.decoder_start_token_id: expected a token below {}, found {}",
                     file_->path(), architecture(), spec_->vocab, first);
  }
  return {};
}

int64_t Model::predictors() const {
  return spec_->stacks.empty() ? 0 : std::ssize(spec_->stacks.front().predictors.layers);
}

int64_t Model::hidden_dim() const { return has_decoder() ? spec_->stacks.front().dim : 0; }

int Model::adapters() const { return adapters_ == nullptr ? 0 : adapters_->count(); }

std::string_view Model::architecture() const { return spec_->family; }

int64_t Model::context_length() const { return spec_->context_train; }

int32_t Model::vocab_size() const { return static_cast<int32_t>(spec_->vocab); }

int64_t Model::row_dim() const {
  if (!has_decoder()) return 0;
  const arch::Stack& decoder = spec_->stacks.front();
  const auto has_ngrams = [](const arch::LayerSpec& layer) {
    return std::ranges::any_of(layer.sublayers, [](const arch::Sublayer& sublayer) {
      return std::holds_alternative<arch::NgramInput>(sublayer.block);
    });
  };
  const bool reads_ids =
      decoder.layer_inputs.has_value() || std::ranges::any_of(decoder.layers, has_ngrams);
  return reads_ids ? 0 : decoder.dim;
}

uint64_t Model::Fingerprint() const {
  constexpr int64_t kSample = 4096;
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(),
                                                                         XXH64_freeState);
  XXH64_reset(state.get(), 0);
  // The bytes before the first shard's data are its metadata and its list of tensors.
  const std::span<const std::byte> shard = file_->mappings().front().bytes();
  size_t header = shard.size();
  for (const formats::GgufTensor& tensor : file_->tensors()) {
    if (tensor.data < shard.data() || tensor.data >= shard.data() + shard.size()) continue;
    header = std::min(header, static_cast<size_t>(tensor.data - shard.data()));
  }
  XXH64_update(state.get(), shard.data(), header);
  for (const formats::GgufTensor& tensor : file_->tensors()) {
    const int64_t size = static_cast<int64_t>(tensor.size_bytes);
    const size_t sample = static_cast<size_t>(std::min(size, kSample));
    XXH64_update(state.get(), tensor.name.data(), tensor.name.size());
    XXH64_update(state.get(), tensor.data, sample);
    XXH64_update(state.get(), tensor.data + size - static_cast<int64_t>(sample), sample);
  }
  return XXH64_digest(state.get());
}

const graph::Plan& Model::plan(std::string_view name) const {
  const auto plan = std::find_if(plans_.begin(), plans_.end(), [name](const auto& candidate) {
    return candidate->name() == name;
  });
  KVANT_CHECK(plan != plans_.end());
  return **plan;
}

bool Model::has_encoder() const { return spec_->encoder.has_value(); }

std::optional<TokenId> Model::decoder_start() const {
  if (!has_encoder()) return std::nullopt;
  const std::optional<int64_t> first = spec_->encoder->first_token;
  return first.has_value() ? static_cast<TokenId>(*first) : tokenizer_->special().bos;
}

std::optional<FrameShape> Model::frame_shape() const {
  if (!has_encoder() || !spec_->encoder->frames.has_value()) return std::nullopt;
  return FrameShape{spec_->encoder->frames->bins, graph::kFramesPerPosition * source_length()};
}

bool Model::has_decoder() const { return !spec_->stacks.empty(); }

bool Model::is_embedder() const { return spec_->embedder.has_value(); }

Status Model::CheckDecoder() const {
  if (has_decoder()) return {};
  if (is_embedder()) {
    const bool ranks = spec_->embedding.pooling == Pooling::kRank;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: the model ({}) {}, which 'kvant {}' gives, and writes no text",
                     file_->path(), architecture(),
                     ranks ? "ranks texts by scores" : "turns texts into vectors",
                     ranks ? "rerank" : "embed");
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: the model is an encoder alone ({}), which writes no text ('kvant logits "
                   "--source' gives its rows)",
                   file_->path(), architecture());
}

int32_t Model::source_vocab_size() const {
  return has_encoder() ? static_cast<int32_t>(spec_->encoder->vocab) : 0;
}

int64_t Model::source_length() const { return has_encoder() ? spec_->encoder->source_max : 0; }

std::span<const graph::CacheLayer> Model::cache_layers() const {
  return plans_.back()->cache_layers();
}

const graph::Plan& Model::plan() const { return plan(graph::kDecodePlan); }

std::string Model::DescribePlan() const {
  std::string text;
  for (const auto& plan : plans_) {
    if (!plan->values().empty()) text += plan->Describe();
  }
  return text;
}

std::vector<KnownArchitecture> KnownArchitectures() {
  std::vector<KnownArchitecture> known;
  for (const arch::Family* family : arch::AllFamilies()) {
    known.push_back({family->name, family->models});
  }
  return known;
}

}  // namespace kvant
