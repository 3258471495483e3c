// Texts in groups that fill passes, and what becomes of their rows.
#include "kvant/embed.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <utility>

#include "base/cpu_topology.h"
#include "base/result.h"
#include "engine/arch/build_plan.h"
#include "engine/arch/embedding_head.h"
#include "engine/arch/spec.h"
#include "engine/embed/normalize.h"
#include "engine/embed/prompts.h"
#include "engine/embed/text_pass.h"
#include "engine/embed/text_tokens.h"
#include "engine/graph/plan.h"
#include "engine/limits.h"
#include "formats/gguf.h"

namespace kvant {

using formats::GgufFile;

struct Embedder::Parts {
  Parts(std::shared_ptr<const Model> model_in, embed::TextTokens tokens_in)
      : model(std::move(model_in)), tokens(std::move(tokens_in)) {}

  static Result<std::unique_ptr<Parts>> Make(std::shared_ptr<const Model> model,
                                             const EmbedOptions& options);

  using Flags = std::array<const std::atomic<bool>*, 2>;

  // Runs passes over all texts; calls take(number of the text, values) for each text's vector or
  // logits, or for each of its rows where they are not pooled.
  using Take = std::function<void(int64_t text, std::span<const float> values)>;
  Status Run(std::span<const EmbedTokens> texts, const std::atomic<bool>* cancel, const Take& take);
  Status Check(const EmbedTokens& text, size_t number) const;

  std::shared_ptr<const Model> model;
  EmbedOptions options;  // with defaults filled in
  Pooling pooling = Pooling::kNone;
  std::unique_ptr<graph::Plan> own_plan;  // null: the model's serves
  const graph::Plan* plan = nullptr;
  bool alone = false;  // a pass has one text
  int64_t vocab = 0;
  int64_t segments = 0;
  int64_t dim = 0;  // of what becomes of a text
  std::vector<std::string> label_names;
  embed::TextTokens tokens;
  embed::Prompts prompts;
  embed::TextPass::Limits limits;
  EmbedMemory memory;
  std::unique_ptr<embed::TextPass> pass;
};

// ---- Creation -----------------------------------------------------------------------------------

namespace {

constexpr int64_t kBatchTokensMax = 1 << 20;

Result<Pooling> ChoosePooling(const Model& model, std::optional<Pooling> asked) {
  const auto of_file = model.spec().embedding.pooling;
  const std::string& path = model.file().path();
  const bool has_classifier = arch::HasClassifier(model.file());
  if (!asked.has_value() && !of_file.has_value()) {
    return MakeError(
        ErrorCode::kInvalid,
        "{}: key {}.pooling_type is missing: expected a pooling (--pooling none, mean, "
        "cls or last), found none",
        path, model.architecture());
  }
  const Pooling pooling = asked.value_or(of_file.value_or(Pooling::kNone));
  if (pooling == Pooling::kRank && !has_classifier) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: pooling rank: expected a classifier (tensor cls.weight or "
                     "cls.output.weight), found none",
                     path);
  }
  return pooling;
}

Result<EmbedOptions> ResolveEmbedOptions(const Model& model, EmbedOptions options) {
  const arch::ModelSpec& spec = model.spec();
  const bool is_encoder = spec.encoder.has_value();
  const int64_t learned = is_encoder ? spec.encoder->source_max : spec.context_max;
  if (options.context == 0) {
    options.context = is_encoder ? spec.encoder->source_max : model.context_length();
    if (learned > 0) options.context = std::min(options.context, learned);
  }
  if (options.context < 1 || options.context > int64_t{kContextMax}) {
    return MakeError(ErrorCode::kInvalid, "context: expected 1 to {} tokens, found {}",
                     int64_t{kContextMax}, options.context);
  }
  const bool has_learned = !arch::FirstStack(spec).input.positions.empty();
  if (has_learned && options.context > learned) {
    return MakeError(ErrorCode::kInvalid,
                     "context: the model has learned {} positions and can have no more, found {}",
                     learned, options.context);
  }
  if (options.batch_tokens < 1 || options.batch_tokens > kBatchTokensMax) {
    return MakeError(ErrorCode::kInvalid, "batch: expected 1 to {} tokens, found {}",
                     kBatchTokensMax, options.batch_tokens);
  }
  if (options.threads == 0) {
    KVANT_ASSIGN(const int useful, DefaultThreadCount(options.placement));
    options.threads = static_cast<int>(std::min<int64_t>(useful, kThreadsMax));
  }
  if (options.threads < 1 || options.threads > int64_t{kThreadsMax}) {
    return MakeError(ErrorCode::kInvalid, "threads: expected 1 to {}, found {}",
                     int64_t{kThreadsMax}, options.threads);
  }
  return options;
}

// Layers that have a state, keys for all heads in one, or an indexer take the rows of a pass as one
// text.
bool TakesTextsAlone(const graph::Plan& plan) {
  return std::ranges::any_of(plan.cache_layers(), [](const graph::CacheLayer& layer) {
    return layer.state_floats > 0 || layer.latent || layer.chosen;
  });
}

Status CheckReadsTokens(const Model& model) {
  if (model.frame_shape().has_value()) {
    return MakeError(ErrorCode::kNotSupported, "{}: the model reads frames of sound, not texts",
                     model.file().path());
  }
  return {};
}

Result<std::vector<std::string>> ReadLabelNames(const GgufFile& file, std::string_view arch) {
  KVANT_ASSIGN(const auto* names, file.GetArray(fmt::format("{}.classifier.output_labels", arch),
                                                formats::GgufType::kString));
  if (names == nullptr) return std::vector<std::string>();
  return std::vector<std::string>(names->strings.begin(), names->strings.end());
}

int64_t CountSegments(const Model& model) {
  const auto* table = model.file().FindTensor(
      fmt::format("{}.weight", arch::FirstStack(model.spec()).input.token_types));
  return table == nullptr ? 0 : table->dims[1];
}

}  // namespace

Embedder::Embedder(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Embedder::~Embedder() = default;

// All but the memory of passes.
Result<std::unique_ptr<Embedder::Parts>> Embedder::Parts::Make(std::shared_ptr<const Model> model,
                                                               const EmbedOptions& options) {
  const GgufFile& file = model->file();
  const arch::ModelSpec& spec = model->spec();
  KVANT_TRY(CheckReadsTokens(*model));
  KVANT_ASSIGN(const EmbedOptions resolved, ResolveEmbedOptions(*model, options));
  KVANT_ASSIGN(const Pooling pooling, ChoosePooling(*model, options.pooling));
  const int64_t segments = CountSegments(*model);
  KVANT_ASSIGN(embed::TextTokens tokens, embed::TextTokens::Create(file, model->source_tokenizer(),
                                                                   segments, resolved.context));
  auto parts = std::make_unique<Parts>(model, std::move(tokens));
  parts->options = resolved;
  parts->pooling = pooling;
  parts->segments = segments;
  parts->vocab = spec.encoder.has_value() ? spec.encoder->vocab : spec.vocab;
  if (model->is_embedder() && spec.embedding.pooling.value_or(Pooling::kNone) == pooling) {
    parts->plan = &model->plan(graph::kEmbedPlan);
  } else {
    KVANT_ASSIGN(parts->own_plan,
                 arch::BuildEmbedPlan(file, model->kernels(), model->float_gemm(), spec, pooling));
    parts->plan = parts->own_plan.get();
  }
  const graph::ValueId result =
      pooling == Pooling::kNone ? parts->plan->encoded() : parts->plan->logits();
  parts->dim = parts->plan->values()[static_cast<size_t>(result)].cols;
  parts->alone = TakesTextsAlone(*parts->plan);
  KVANT_ASSIGN(parts->prompts, embed::ReadPrompts(file));
  if (pooling == Pooling::kRank) {
    KVANT_ASSIGN(parts->label_names, ReadLabelNames(file, model->architecture()));
  }
  parts->limits = {std::max(resolved.batch_tokens, resolved.context), resolved.context};
  for (const formats::GgufTensor& tensor : file.tensors()) {
    parts->memory.weights += tensor.size_bytes;
  }
  parts->memory.activations = embed::TextPass::Bytes(*parts->plan, parts->limits, resolved.threads);
  return parts;
}

Result<EmbedMemory> Embedder::PlanMemory(std::shared_ptr<const Model> model,
                                         const EmbedOptions& options) {
  KVANT_ASSIGN(const auto parts, Parts::Make(std::move(model), options));
  return parts->memory;
}

Result<std::unique_ptr<Embedder>> Embedder::Create(std::shared_ptr<const Model> model,
                                                   const EmbedOptions& options) {
  KVANT_ASSIGN(auto parts, Parts::Make(std::move(model), options));
  const EmbedOptions& resolved = parts->options;
  const CpuTopology topology = ThisCpuTopology();
  KVANT_ASSIGN(const ThreadPlaces places,
               PlaceThreads(topology, resolved.placement, resolved.threads, CurrentNode(topology)));
  parts->pass =
      std::make_unique<embed::TextPass>(*parts->plan, parts->limits, resolved.threads, places);
  KVANT_TRY(parts->pass->Prepare());
  return std::unique_ptr<Embedder>(new Embedder(std::move(parts)));
}

// ---- Calls --------------------------------------------------------------------------------------

Status Embedder::Parts::Check(const EmbedTokens& text, size_t number) const {
  const auto count = std::ssize(text.ids);
  if (count == 0) {
    return MakeError(ErrorCode::kInvalid, "text {}: expected at least one token, found none",
                     number);
  }
  if (count > options.context) {
    return MakeError(ErrorCode::kContextFull, "text {} has {} tokens, but the context has {}",
                     number, count, options.context);
  }
  for (const TokenId id : text.ids) {
    if (id >= 0 && id < vocab) continue;
    return MakeError(ErrorCode::kInvalid, "text {}: expected ids from 0 to {}, found {}", number,
                     vocab - 1, id);
  }
  if (!text.types.empty() && std::ssize(text.types) != count) {
    return MakeError(ErrorCode::kInvalid, "text {}: expected {} segments, one a token, found {}",
                     number, count, text.types.size());
  }
  for (const int32_t type : text.types) {
    if (type == 0 || (type > 0 && type < segments)) continue;
    return MakeError(ErrorCode::kInvalid, "text {}: expected segments from 0 to {}, found {}",
                     number, std::max<int64_t>(segments - 1, 0), type);
  }
  return {};
}

Status Embedder::Parts::Run(std::span<const EmbedTokens> texts, const std::atomic<bool>* cancel,
                            const Take& take) {
  for (size_t i = 0; i < texts.size(); ++i) KVANT_TRY(Check(texts[i], i));
  const Flags flags = {options.cancel, cancel};
  for (size_t first = 0; first < texts.size();) {
    size_t end = first + 1;
    int64_t rows = std::ssize(texts[first].ids);
    while (!alone && end < texts.size() &&
           rows + std::ssize(texts[end].ids) <= options.batch_tokens) {
      rows += std::ssize(texts[end++].ids);
    }
    const auto group = texts.subspan(first, end - first);
    KVANT_TRY(pass->Run(group, flags));
    auto number = static_cast<int64_t>(first);
    if (pooling == Pooling::kNone) {
      for (int64_t text = 0; text < std::ssize(group); ++text, ++number) {
        const int64_t count = std::ssize(group[static_cast<size_t>(text)].ids);
        for (int64_t row = 0; row < count; ++row) take(number, pass->RowOf(text, row));
      }
    } else {
      KVANT_TRY(
          pass->RunHead(flags, [&](std::span<const float> values) { take(number++, values); }));
    }
    first = end;
  }
  return {};
}

namespace {

Status CheckFinite(const Model& model, std::span<const float> values, int64_t text) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return {};
  return MakeError(ErrorCode::kCorrupt,
                   "{}: text {}: expected finite numbers, found NaN or infinity in its result",
                   model.file().path(), text);
}

}  // namespace

Result<Embeddings> Embedder::Embed(std::span<const EmbedTokens> texts, const VectorOptions& options,
                                   const std::atomic<bool>* cancel) {
  if (parts_->pooling == Pooling::kRank) {
    return MakeError(ErrorCode::kInvalid, "{}: the model ranks pairs of texts, and has no vectors",
                     model().file().path());
  }
  KVANT_TRY(embed::CheckNormalize(options.normalize));
  const bool pools = parts_->pooling != Pooling::kNone;
  if (options.dimensions < 0 || options.dimensions > dim() || (options.dimensions > 0 && !pools)) {
    return MakeError(
        ErrorCode::kInvalid, "dimensions: expected {}, found {}",
        pools ? fmt::format("1 to {}, or 0 for all", dim()) : "0 for rows that are not pooled",
        options.dimensions);
  }
  Embeddings result;
  result.dim = options.dimensions == 0 ? dim() : options.dimensions;
  result.first_rows.push_back(0);
  Status status;
  const auto take = [&](int64_t text, std::span<const float> values) {
    if (std::ssize(result.first_rows) <= text + 1)
      result.first_rows.push_back(result.first_rows.back());
    const auto count = static_cast<size_t>(result.dim);
    result.values.insert(result.values.end(), values.begin(), values.begin() + result.dim);
    const std::span<float> kept = std::span(result.values).last(count);
    if (status.ok()) status = CheckFinite(model(), kept, text);
    if (pools) embed::Normalize(options.normalize, kept);
    ++result.first_rows.back();
  };
  KVANT_TRY(parts_->Run(texts, cancel, take));
  KVANT_TRY(std::move(status));
  return result;
}

Result<Ranking> Embedder::Rank(std::span<const EmbedTokens> texts,
                               const std::atomic<bool>* cancel) {
  if (parts_->pooling != Pooling::kRank) {
    return MakeError(ErrorCode::kInvalid, "{}: expected a model that ranks, found pooling {}",
                     model().file().path(), PoolingName(parts_->pooling));
  }
  Ranking result;
  result.labels = parts_->dim;
  Status status;
  KVANT_TRY(parts_->Run(texts, cancel, [&](int64_t text, std::span<const float> values) {
    result.logits.insert(result.logits.end(), values.begin(), values.end());
    if (status.ok()) status = CheckFinite(model(), values, text);
  }));
  KVANT_TRY(std::move(status));
  return result;
}

float Ranking::Score(int64_t text, ScoreKind kind) const {
  const std::span<const float> of_text = LogitsOf(text);
  const double raw = labels == 2 ? static_cast<double>(of_text[0]) - static_cast<double>(of_text[1])
                                 : static_cast<double>(of_text[0]);
  return static_cast<float>(kind == ScoreKind::kRaw ? raw : 1 / (1 + std::exp(-raw)));
}

// ---- What it is ---------------------------------------------------------------------------------

Result<EmbedTokens> Embedder::Tokens(std::string_view text, const TextOptions& options) const {
  return parts_->tokens.Of(text, options);
}

Result<EmbedTokens> Embedder::PairTokens(std::string_view query, std::string_view document,
                                         TooLong too_long) const {
  return parts_->tokens.OfPair(query, document, too_long);
}

const Model& Embedder::model() const { return *parts_->model; }
Pooling Embedder::pooling() const { return parts_->pooling; }
int64_t Embedder::dim() const { return parts_->dim; }
int64_t Embedder::context() const { return parts_->options.context; }
int Embedder::threads() const { return parts_->options.threads; }
int64_t Embedder::labels() const { return parts_->pooling == Pooling::kRank ? parts_->dim : 0; }
std::span<const std::string> Embedder::label_names() const { return parts_->label_names; }
const EmbedMemory& Embedder::memory() const { return parts_->memory; }
std::span<const EmbedPrompt> Embedder::prompts() const { return parts_->prompts.list; }
std::string_view Embedder::default_prompt() const { return parts_->prompts.default_name; }
Result<std::string_view> Embedder::PromptText(std::string_view name) const {
  return parts_->prompts.TextOf(name);
}

}  // namespace kvant
