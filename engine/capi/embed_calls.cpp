// The calls of kvant/kvant_embed.h: vectors of texts, scores of documents.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/capi/handles.h"
#include "kvant/embed.h"

namespace kvant::capi {

// An embedder and who is in a call on it. The flags outlive the embedder, which reads one of them.
struct EmbedderState {
  std::atomic<bool> cancel = false;
  std::atomic<bool> busy = false;
  std::unique_ptr<Embedder> embedder;
  std::vector<std::string> prompt_names;
  std::vector<std::string> prompt_texts;
  std::vector<std::string> labels;
  std::string default_prompt;
};

}  // namespace kvant::capi

struct kvant_embedder {
  std::shared_ptr<kvant::capi::EmbedderState> state;
};

namespace kvant::capi {
namespace {

constexpr kvant_embed_options kEmbedDefaults = {.struct_size = sizeof(kvant_embed_options),
                                                .threads = 0,
                                                .pooling = KVANT_POOLING_OF_FILE,
                                                .context = 0,
                                                .batch_tokens = kDefaultEmbedRows,
                                                .pin = KVANT_PIN_NONE,
                                                .numa = KVANT_NUMA_NONE,
                                                .cpus = nullptr,
                                                .cpu_count = 0};

constexpr kvant_vector_options kVectorDefaults = {.struct_size = sizeof(kvant_vector_options),
                                                  .normalize = 2,
                                                  .dimensions = 0,
                                                  .truncate = 0,
                                                  .prompt_name = nullptr,
                                                  .prefix = nullptr};

static_assert(static_cast<int>(Pooling::kNone) == KVANT_POOLING_NONE);
static_assert(static_cast<int>(Pooling::kRank) == KVANT_POOLING_RANK);

Result<EmbedOptions> ReadEmbed(const kvant_embed_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, kEmbedDefaults, "embed options"));
  EmbedOptions out;
  out.threads = in.threads;
  out.context = in.context;
  out.batch_tokens = in.batch_tokens;
  if (in.pooling != KVANT_POOLING_OF_FILE) {
    KVANT_TRY(CheckChoice(in.pooling, KVANT_POOLING_RANK, "pooling"));
    out.pooling = static_cast<Pooling>(in.pooling);
  }
  KVANT_TRY(CheckChoice(in.pin, KVANT_PIN_LIST, "pin"));
  KVANT_TRY(CheckChoice(in.numa, KVANT_NUMA_ISOLATE, "numa"));
  out.placement.pin = static_cast<Pin>(in.pin);
  out.placement.numa = static_cast<Numa>(in.numa);
  KVANT_ASSIGN(const auto cpus, Array(in.cpus, in.cpu_count, "cpus"));
  out.placement.cpus.assign(cpus.begin(), cpus.end());
  return out;
}

Result<TooLong> ReadTruncate(int32_t truncate) {
  KVANT_TRY(CheckChoice(truncate, 1, "truncate"));
  return truncate == 1 ? TooLong::kCut : TooLong::kRefused;
}

// The options of a call, with the prefix that texts get.
struct TextPlan {
  VectorOptions vectors;
  std::string prefix;
  TooLong too_long = TooLong::kRefused;
};

Result<TextPlan> ReadVectors(const Embedder& embedder, const kvant_vector_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, kVectorDefaults, "vector options"));
  TextPlan out;
  out.vectors.normalize = in.normalize;
  out.vectors.dimensions = in.dimensions;
  KVANT_ASSIGN(out.too_long, ReadTruncate(in.truncate));
  if (in.prefix != nullptr) {
    if (in.prompt_name != nullptr) {
      return MakeError(ErrorCode::kInvalid,
                       "prompt_name and prefix: expected one of them, found "
                       "both");
    }
    out.prefix = in.prefix;
    return out;
  }
  KVANT_ASSIGN(const std::string_view prompt, embedder.PromptText(TextOrNone(in.prompt_name)));
  out.prefix = std::string(prompt);
  return out;
}

Error AtText(size_t number, const Error& error) {
  return {error.code, fmt::format("text {}: {}", number, error.message)};
}

Result<EmbedTokens> TokensOf(const Embedder& embedder, const TextPlan& plan,
                             const kvant_embed_text& given) {
  if (given.text != nullptr || given.tokens == nullptr) {
    if (given.tokens != nullptr) {
      return MakeError(ErrorCode::kInvalid, "expected a text or tokens, found both");
    }
    KVANT_ASSIGN(const auto text, Text(given.text, given.size, "text"));
    return embedder.Tokens(text, {plan.prefix, plan.too_long});
  }
  KVANT_ASSIGN(const auto ids, Array(given.tokens, given.count, "tokens"));
  EmbedTokens tokens;
  tokens.ids.assign(ids.begin(), ids.end());
  if (given.types != nullptr) tokens.types.assign(given.types, given.types + given.count);
  return tokens;
}

Result<std::vector<EmbedTokens>> AllTokens(const Embedder& embedder, const TextPlan& plan,
                                           const kvant_embed_text* texts, size_t count) {
  KVANT_ASSIGN(const auto all, Array(texts, count, "texts"));
  std::vector<EmbedTokens> out;
  for (const kvant_embed_text& text : all) {
    auto tokens = TokensOf(embedder, plan, text);
    if (!tokens.ok()) return AtText(out.size(), tokens.error());
    out.push_back(std::move(*tokens));
  }
  return out;
}

// Runs a call that computes, a function of Embedder& that returns Status.
template <class Body>
kvant_status CallEmbedder(const kvant_embedder* embedder, Body&& body) noexcept {
  return Call(embedder, [&]() -> Status {
    KVANT_TRY(Need(embedder, "embedder"));
    const std::shared_ptr<EmbedderState> state = embedder->state;
    return AloneOn(state, "embedder", [&] { return body(*state->embedder); });
  });
}

const char* NameAt(const std::vector<std::string>* names, size_t index) {
  return names == nullptr || index >= names->size() ? nullptr : (*names)[index].c_str();
}

Result<std::vector<float>> ScoresOf(Embedder& embedder, std::span<const EmbedTokens> pairs,
                                    ScoreKind kind) {
  if (embedder.labels() > 2) {
    return MakeError(ErrorCode::kInvalid,
                     "expected a classifier of one score, or of two (yes and no), found {} labels",
                     embedder.labels());
  }
  KVANT_ASSIGN(const Ranking ranking, embedder.Rank(pairs));
  std::vector<float> scores;
  for (int64_t i = 0; i < std::ssize(pairs); ++i) scores.push_back(ranking.Score(i, kind));
  return scores;
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_embed_options_default(kvant_embed_options* options, size_t size) {
  return FillDefault(options, size, kEmbedDefaults);
}

kvant_status kvant_vector_options_default(kvant_vector_options* options, size_t size) {
  return FillDefault(options, size, kVectorDefaults);
}

kvant_status kvant_embedder_new(const kvant_model* model, const kvant_embed_options* options,
                                kvant_embedder** embedder) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(embedder, "embedder"));
    *embedder = nullptr;
    KVANT_ASSIGN(EmbedOptions wanted, ReadEmbed(options));
    auto state = std::make_shared<EmbedderState>();
    wanted.cancel = &state->cancel;
    KVANT_ASSIGN(state->embedder, Embedder::Create(model->model, wanted));
    for (const EmbedPrompt& prompt : state->embedder->prompts()) {
      state->prompt_names.push_back(prompt.name);
      state->prompt_texts.push_back(prompt.text);
    }
    const auto labels = state->embedder->label_names();
    state->labels.assign(labels.begin(), labels.end());
    state->default_prompt = std::string(state->embedder->default_prompt());
    return Give(embedder, std::make_unique<kvant_embedder>(kvant_embedder{std::move(state)}));
  });
}

void kvant_embedder_free(kvant_embedder* embedder) { Free(embedder); }

kvant_status kvant_embedder_get_info(const kvant_embedder* embedder, kvant_embedder_info* info) {
  return Call(embedder, [&]() -> Status {
    KVANT_TRY(Need(embedder, "embedder"));
    const EmbedderState& state = *embedder->state;
    const Embedder& of = *state.embedder;
    kvant_embedder_info out = {};
    out.pooling = static_cast<int32_t>(of.pooling());
    out.threads = of.threads();
    out.dim = of.labels() > 0 ? 0 : of.dim();
    out.context = of.context();
    out.labels = of.labels();
    out.weight_bytes = of.memory().weights;
    out.activation_bytes = of.memory().activations;
    out.default_prompt = state.default_prompt.c_str();
    return WriteStruct(info, out, "info");
  });
}

const char* kvant_embedder_prompt_name(const kvant_embedder* embedder, size_t index) {
  return NameAt(embedder == nullptr ? nullptr : &embedder->state->prompt_names, index);
}

const char* kvant_embedder_prompt_text(const kvant_embedder* embedder, size_t index) {
  return NameAt(embedder == nullptr ? nullptr : &embedder->state->prompt_texts, index);
}

const char* kvant_embedder_label(const kvant_embedder* embedder, size_t index) {
  return NameAt(embedder == nullptr ? nullptr : &embedder->state->labels, index);
}

kvant_status kvant_embedder_tokens(const kvant_embedder* embedder, const char* text, size_t size,
                                   const kvant_vector_options* options, kvant_token** tokens,
                                   size_t* count) {
  return Call(embedder, [&]() -> Status {
    KVANT_TRY(Need(embedder, "embedder"));
    KVANT_TRY(Need(tokens, "tokens"));
    KVANT_TRY(Need(count, "count"));
    const Embedder& of = *embedder->state->embedder;
    KVANT_ASSIGN(const auto given, Text(text, size, "text"));
    KVANT_ASSIGN(const TextPlan plan, ReadVectors(of, options));
    KVANT_ASSIGN(const EmbedTokens made, of.Tokens(given, {plan.prefix, plan.too_long}));
    *tokens = Copy(std::span<const TokenId>(made.ids));
    *count = made.ids.size();
    return {};
  });
}

kvant_status kvant_embedder_pair_tokens(const kvant_embedder* embedder, const char* query,
                                        size_t query_size, const char* document,
                                        size_t document_size, int32_t truncate, int32_t** types,
                                        kvant_token** tokens, size_t* count) {
  return Call(embedder, [&]() -> Status {
    KVANT_TRY(Need(embedder, "embedder"));
    KVANT_TRY(Need(tokens, "tokens"));
    KVANT_TRY(Need(count, "count"));
    const Embedder& of = *embedder->state->embedder;
    KVANT_ASSIGN(const auto first, Text(query, query_size, "query"));
    KVANT_ASSIGN(const auto second, Text(document, document_size, "document"));
    KVANT_ASSIGN(const TooLong too_long, ReadTruncate(truncate));
    KVANT_ASSIGN(EmbedTokens made, of.PairTokens(first, second, too_long));
    made.types.resize(made.ids.size());
    *tokens = Copy(std::span<const TokenId>(made.ids));
    if (types != nullptr) *types = Copy(std::span<const int32_t>(made.types));
    *count = made.ids.size();
    return {};
  });
}

kvant_status kvant_embedder_embed(kvant_embedder* embedder, const kvant_embed_text* texts,
                                  size_t text_count, const kvant_vector_options* options,
                                  int64_t* rows, float** vectors, size_t* count) {
  return CallEmbedder(embedder, [&](Embedder& of) -> Status {
    KVANT_TRY(Need(vectors, "vectors"));
    KVANT_TRY(Need(count, "count"));
    KVANT_ASSIGN(const TextPlan plan, ReadVectors(of, options));
    KVANT_ASSIGN(const auto tokens, AllTokens(of, plan, texts, text_count));
    KVANT_ASSIGN(const Embeddings made, of.Embed(tokens, plan.vectors));
    *vectors = Copy(std::span<const float>(made.values));
    *count = made.values.size();
    for (size_t i = 0; rows != nullptr && i < text_count; ++i) {
      rows[i] = made.first_rows[i + 1] - made.first_rows[i];
    }
    return {};
  });
}

kvant_status kvant_embedder_rank(kvant_embedder* embedder, const char* query, size_t size,
                                 const kvant_embed_text* documents, size_t document_count,
                                 int32_t truncate, int32_t raw, float* scores) {
  return CallEmbedder(embedder, [&](Embedder& of) -> Status {
    KVANT_ASSIGN(const auto given, Text(query, size, "query"));
    KVANT_ASSIGN(const auto all, Array(documents, document_count, "documents"));
    KVANT_ASSIGN(const auto out, Array(scores, document_count, "scores"));
    KVANT_ASSIGN(const TooLong too_long, ReadTruncate(truncate));
    KVANT_TRY(CheckChoice(raw, 1, "raw"));
    std::vector<EmbedTokens> pairs;
    for (const kvant_embed_text& document : all) {
      KVANT_ASSIGN(const auto text, Text(document.text, document.size, "document"));
      auto pair = of.PairTokens(given, text, too_long);
      if (!pair.ok()) return AtText(pairs.size(), pair.error());
      pairs.push_back(std::move(*pair));
    }
    KVANT_ASSIGN(const auto made,
                 ScoresOf(of, pairs, raw == 1 ? ScoreKind::kRaw : ScoreKind::kProbability));
    std::ranges::copy(made, out.begin());
    return {};
  });
}

kvant_status kvant_embedder_logits(kvant_embedder* embedder, const kvant_embed_text* texts,
                                   size_t text_count, int32_t truncate, float** logits,
                                   size_t* count) {
  return CallEmbedder(embedder, [&](Embedder& of) -> Status {
    KVANT_TRY(Need(logits, "logits"));
    KVANT_TRY(Need(count, "count"));
    TextPlan plan;
    KVANT_ASSIGN(plan.too_long, ReadTruncate(truncate));
    KVANT_ASSIGN(const auto tokens, AllTokens(of, plan, texts, text_count));
    KVANT_ASSIGN(const Ranking made, of.Rank(tokens));
    *logits = Copy(std::span<const float>(made.logits));
    *count = made.logits.size();
    return {};
  });
}

void kvant_embedder_cancel(kvant_embedder* embedder) {
  if (embedder != nullptr) embedder->state->cancel = true;
}
