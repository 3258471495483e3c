// Endpoints that turn texts into vectors, and that rank documents.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvant/embed.h"
#include "tools/serve/answer/vector_format.h"
#include "tools/serve/endpoints.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {
namespace {

constexpr std::string_view kEmbeddingFields[] = {"model",           "input",    "content",
                                                 "dimensions",      "user",     "prompt_name",
                                                 "encoding_format", "truncate", "embd_normalize"};
constexpr std::string_view kRerankFields[] = {
    "model", "query",       "documents",        "texts",     "top_n", "truncate",
    "user",  "return_text", "return_documents", "raw_scores"};

void CountUnknown(EndpointContext& context, const RequestJson& body,
                  std::span<const std::string_view> known) {
  int64_t unknown = 0;
  for (const auto& [name, value] : body.items()) {
    if (std::ranges::find(known, name) == known.end()) ++unknown;
  }
  context.served.metrics().CountUnknownFields(unknown);
}

Refusal ReadWhole(const RequestJson& body, const std::string& name, int64_t least, int64_t most,
                  int64_t* out) {
  const RequestJson* const given = Member(body, name);
  if (given == nullptr) return {};
  if (!given->is_number_integer() || *given < least || *given > most) {
    return WrongType(name, fmt::format("a whole number from {} to {}", least, most), *given);
  }
  *out = given->get<int64_t>();
  return {};
}

// An error of a text. `number`: which of several; -1: there is one.
ApiError TextError(const ServedModel& served, const Error& error, const std::string& field,
                   int64_t number) {
  ApiError out = ApiErrorOf(error, field);
  const std::string place = number < 0 ? field : fmt::format("{}[{}]", field, number);
  out.message = fmt::format("{}: {}", place, error.message);
  if (error.code == ErrorCode::kContextFull) {
    out.type = "exceed_context_size_error";
    out.message += "; truncate: true cuts it";
    out.further = {{"n_ctx", served.context()}};
  } else if (error.code == ErrorCode::kInvalid) {
    out.code = "invalid_value";
  }
  return out;
}

Refusal ReadTruncate(const RequestJson& body, TooLong* out) {
  bool truncate = false;
  KVANT_REFUSE(ReadFlag(body, "truncate", &truncate));
  *out = truncate ? TooLong::kCut : TooLong::kRefused;
  return {};
}

int64_t CountTokens(std::span<const EmbedTokens> texts) {
  int64_t tokens = 0;
  for (const EmbedTokens& text : texts) tokens += std::ssize(text.ids);
  return tokens;
}

// Hands the texts to the model's queue. `finish` makes the body of the answer.
using FinishVectors =
    std::function<std::string(std::vector<float> values, const std::vector<int64_t>& rows)>;
void StartJob(EndpointContext& context, Exchange exchange, std::vector<EmbedTokens> texts,
              const VectorOptions& options, FinishVectors finish) {
  EmbedQueue& queue = *context.served.embed_queue();
  ServeMetrics* const metrics = &context.metrics;
  const int64_t tokens = CountTokens(texts);
  const auto held = std::make_shared<Exchange>(std::move(exchange));
  const auto job = std::make_shared<EmbedJob>();
  job->texts = std::move(texts);
  job->options = options;
  job->done = [held, metrics, tokens, finish = std::move(finish)](
                  const Status& status, std::vector<float> values, std::vector<int64_t> rows) {
    if (!status.ok()) return held->Refuse(ApiErrorOf(status.error()));
    metrics->CountTokens({.prompt = tokens});
    held->Send(TextAnswer(finish(std::move(values), rows), "application/json"));
  };
  if (const Status status = queue.Submit(job); !status.ok()) {
    return held->Refuse(ApiErrorOf(status.error()));
  }
  held->stream->OnClosed([&queue, metrics, job] {
    metrics->CountClosed();
    queue.Cancel(*job);
  });
}

// ---- Vectors ------------------------------------------------------------------------------------

struct EmbeddingFields {
  VectorOptions vectors;
  VectorEncoding encoding = VectorEncoding::kNumbers;
  bool wants_rows = false;  // llama-server's own form
  std::string input = "input";
  std::string prompt;
  TooLong too_long = TooLong::kRefused;
};

Refusal ReadEncoding(const RequestJson& body, VectorEncoding* out) {
  const RequestJson* const given = Member(body, "encoding_format");
  if (given == nullptr || *given == "float") return {};
  if (*given != "base64") return WrongType("encoding_format", "\"float\" or \"base64\"", *given);
  *out = VectorEncoding::kBase64;
  return {};
}

// Without /v1, and with `content`, the form of the answer may be llama-server's own.
Refusal ChooseForm(const Exchange& exchange, const RequestJson& body, const Embedder& embedder,
                   EmbeddingFields* fields) {
  const std::string_view path = exchange.request.path;
  const bool has_content = Member(body, "content") != nullptr;
  if (has_content && Member(body, "input") == nullptr) fields->input = "content";
  const bool is_rows = embedder.pooling() == Pooling::kNone;
  if (is_rows && path.starts_with("/v1/")) {
    ApiError error = WrongValue(
        "model", "it gives a vector for each token (pooling none), which /embeddings answers");
    return error;
  }
  fields->wants_rows = is_rows || path.ends_with("/embedding") || fields->input == "content";
  return {};
}

Refusal ReadEmbeddingFields(const Exchange& exchange, const RequestJson& body,
                            const Embedder& embedder, EmbeddingFields* fields) {
  KVANT_REFUSE(ChooseForm(exchange, body, embedder, fields));
  KVANT_REFUSE(ReadEncoding(body, &fields->encoding));
  KVANT_REFUSE(ReadTruncate(body, &fields->too_long));
  KVANT_REFUSE(ReadWhole(body, "dimensions", 1, embedder.dim(), &fields->vectors.dimensions));
  if (fields->vectors.dimensions > 0 && embedder.pooling() == Pooling::kNone) {
    return WrongValue("dimensions", "not possible where each token has a vector (pooling none)");
  }
  int64_t normalize = 2;
  KVANT_REFUSE(ReadWhole(body, "embd_normalize", -1, 1 << 10, &normalize));
  fields->vectors.normalize = static_cast<double>(normalize);
  std::string name;
  if (Member(body, "prompt_name") != nullptr) KVANT_REFUSE(ReadText(body, "prompt_name", &name));
  const auto prompt = embedder.PromptText(name);
  if (!prompt.ok()) return WrongValue("prompt_name", prompt.error().message);
  fields->prompt = std::string(*prompt);
  return {};
}

Refusal ReadInput(EndpointContext& context, const RequestJson& body, const EmbeddingFields& fields,
                  std::vector<EmbedTokens>* out) {
  const ServedModel& served = context.served;
  const Embedder& embedder = *served.embedder();
  std::vector<PromptField> given;
  const int32_t vocab = served.model().has_encoder() ? served.model().source_vocab_size()
                                                     : served.model().vocab_size();
  KVANT_REFUSE(ReadPrompts(body, fields.input, vocab, &given));
  for (PromptField& one : given) {
    const int64_t number = given.size() == 1 ? -1 : std::ssize(*out);
    if (one.is_text) {
      auto tokens = embedder.Tokens(one.text, {fields.prompt, fields.too_long});
      if (!tokens.ok()) return TextError(served, tokens.error(), fields.input, number);
      out->push_back(std::move(*tokens));
      continue;
    }
    const int64_t count = std::ssize(one.ids);
    if (count > embedder.context()) {
      const Error error = {
          ErrorCode::kContextFull,
          fmt::format("the text has {} tokens, but the context has {}", count, embedder.context())};
      if (fields.too_long == TooLong::kRefused) {
        return TextError(served, error, fields.input, number);
      }
      one.ids.resize(static_cast<size_t>(embedder.context()));
    }
    out->push_back({.ids = std::move(one.ids)});
  }
  return {};
}

Refusal StartEmbeddings(EndpointContext& context, Exchange& exchange) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  KVANT_REFUSE(CheckMayBegin(context, body));
  CountUnknown(context, body, kEmbeddingFields);
  EmbeddingFields fields;
  KVANT_REFUSE(ReadEmbeddingFields(exchange, body, *context.served.embedder(), &fields));
  std::vector<EmbedTokens> texts;
  KVANT_REFUSE(ReadInput(context, body, fields, &texts));
  const int64_t tokens = CountTokens(texts);
  auto finish = [fields, tokens, model = context.served.options().alias](
                    std::vector<float> values, const std::vector<int64_t>& rows) {
    const AnsweredVectors vectors = {values, rows};
    if (fields.wants_rows) return RowsText(vectors);
    return EmbeddingsText(vectors, fields.encoding, model, tokens);
  };
  StartJob(context, std::move(exchange), std::move(texts), fields.vectors, std::move(finish));
  return {};
}

// ---- Scores -------------------------------------------------------------------------------------

struct RerankFields {
  std::string query;
  std::vector<std::string> documents;
  std::string field = "documents";  // or "texts", which text-embeddings-inference has
  int64_t top = 0;                  // 0: all
  DocumentUse use = DocumentUse::kLeftOut;
  ScoreKind kind = ScoreKind::kProbability;
  TooLong too_long = TooLong::kRefused;
};

Refusal ReadDocuments(const RequestJson& body, RerankFields* fields) {
  const RequestJson* given = Member(body, "documents");
  if (given == nullptr && Member(body, "texts") != nullptr) {
    fields->field = "texts";
    given = Member(body, "texts");
  }
  if (given == nullptr || !given->is_array() || given->empty()) {
    return WrongMember(fields->field, "a list of texts", given);
  }
  if (given->size() > kPromptsMax) {
    return WrongValue(fields->field, fmt::format("expected at most {} texts, found {}", kPromptsMax,
                                                 given->size()));
  }
  for (const RequestJson& one : *given) {
    if (!one.is_string()) return WrongType(fields->field, "texts", one);
    fields->documents.push_back(one.get<std::string>());
  }
  return {};
}

Refusal ReadRerankFields(const RequestJson& body, RerankFields* fields) {
  KVANT_REFUSE(ReadText(body, "query", &fields->query));
  KVANT_REFUSE(ReadDocuments(body, fields));
  KVANT_REFUSE(ReadTruncate(body, &fields->too_long));
  KVANT_REFUSE(ReadWhole(body, "top_n", 1, int64_t{1} << 31, &fields->top));
  bool raw = false;
  bool shown = false;
  KVANT_REFUSE(ReadFlag(body, "raw_scores", &raw));
  KVANT_REFUSE(ReadFlag(body, "return_documents", &shown));
  KVANT_REFUSE(ReadFlag(body, "return_text", &shown));
  if (raw) fields->kind = ScoreKind::kRaw;
  if (shown) fields->use = DocumentUse::kShown;
  return {};
}

std::vector<RankedDocument> RankedBy(const Ranking& ranking, const RerankFields& fields) {
  std::vector<RankedDocument> out;
  for (int64_t i = 0; i < std::ssize(fields.documents); ++i) {
    out.push_back({i, ranking.Score(i, fields.kind)});
  }
  std::ranges::stable_sort(
      out, [](const RankedDocument& a, const RankedDocument& b) { return a.score > b.score; });
  if (fields.top > 0) {
    out.resize(std::min(out.size(), static_cast<size_t>(fields.top)));
  }
  return out;
}

Refusal StartRerank(EndpointContext& context, Exchange& exchange) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  KVANT_REFUSE(CheckMayBegin(context, body));
  CountUnknown(context, body, kRerankFields);
  const ServedModel& served = context.served;
  const Embedder& embedder = *served.embedder();
  RerankFields fields;
  KVANT_REFUSE(ReadRerankFields(body, &fields));
  if (embedder.labels() > 2) {
    return NotSupported("model", fmt::format("expected one score, or two (yes and no), found a "
                                             "classifier of {} labels",
                                             embedder.labels()));
  }
  std::vector<EmbedTokens> pairs;
  for (const std::string& document : fields.documents) {
    auto pair = embedder.PairTokens(fields.query, document, fields.too_long);
    if (!pair.ok()) {
      const bool is_query = fields.query.empty();
      return TextError(served, pair.error(), is_query ? "query" : fields.field,
                       is_query ? -1 : std::ssize(pairs));
    }
    pairs.push_back(std::move(*pair));
  }
  const int64_t tokens = CountTokens(pairs);
  auto finish = [fields = std::move(fields), tokens, labels = embedder.labels(),
                 model = served.options().alias](std::vector<float> values,
                                                 const std::vector<int64_t>&) {
    const auto ranked = RankedBy({.labels = labels, .logits = std::move(values)}, fields);
    if (fields.field == "texts") return ScoresText(ranked, fields.documents, fields.use);
    return RankingText(ranked, fields.documents, fields.use, model, tokens);
  };
  StartJob(context, std::move(exchange), std::move(pairs), {}, std::move(finish));
  return {};
}

}  // namespace

void AnswerEmbeddings(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartEmbeddings(context, exchange)) exchange.Refuse(*refusal);
}

void AnswerRerank(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartRerank(context, exchange)) exchange.Refuse(*refusal);
}

}  // namespace kvant::tools
