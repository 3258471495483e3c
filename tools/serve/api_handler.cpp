#include "tools/serve/api_handler.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvant/embed.h"
#include "tools/serve/answer/messages_format.h"
#include "tools/serve/page/page_files.h"

namespace kvant::tools {
namespace {

constexpr size_t kIdBytesMax = 128;

// A longer body may take over 50 ms to become tokens.
constexpr size_t kShortBytesMax = size_t{256} << 10;

// The path without /v1 in front.
std::string_view WithoutVersion(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  const bool has = path.starts_with(kVersion) && path.substr(kVersion.size()).starts_with('/');
  return has ? path.substr(kVersion.size()) : path;
}

// `path` is that of a request, `plain` the path without /v1.
bool IsAt(const Endpoint& endpoint, std::string_view path, std::string_view plain) {
  if (endpoint.is_page) return path == endpoint.path;
  return endpoint.path.ends_with('/') ? plain.starts_with(endpoint.path) : plain == endpoint.path;
}

using ErrorForm = Json (*)(const ApiError& error);

// The form that errors have at a path.
ErrorForm ErrorFormAt(const std::string& path) {
  const std::string_view plain = WithoutVersion(path);
  for (const Endpoint& one : Endpoints()) {
    if (IsAt(one, path, plain)) return one.error_json;
  }
  return ErrorJson;
}

// Adds the files of the page.
std::vector<Endpoint> WithPage(std::vector<Endpoint> endpoints) {
  for (const PageFile& file : PageFiles()) {
    endpoints.push_back({"GET", file.path, nullptr, false, true, AnswerPage, ErrorJson, true});
  }
  return endpoints;
}

// Refuses a model that does something else than what the endpoint is for.
Refusal CheckUse(const Endpoint& endpoint, const std::string& path, const ServedModel& served) {
  const Embedder* const embedder = served.embedder();
  ModelUse use = ModelUse::kTexts;
  if (embedder != nullptr) {
    use = embedder->pooling() == Pooling::kRank ? ModelUse::kScores : ModelUse::kVectors;
  }
  if (endpoint.use == ModelUse::kAny || endpoint.use == use) return {};
  ApiError error;
  error.status = 501;
  error.param = "model";
  error.code = "model_not_supported";
  error.message =
      fmt::format("{}: the model {} {}", path, served.options().alias, served.WhatItDoes());
  if (endpoint.use == ModelUse::kVectors && use == ModelUse::kTexts) {
    error.message += "; 'kvant serve MODEL --pooling mean', or last, makes vectors with it";
  }
  return error;
}

// The client's own id where it is a plain word, else a new one.
std::string RequestId(const HttpRequest& request) {
  const std::string* const id = request.Find("x-request-id");
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const bool own = id != nullptr && !id->empty() && id->size() <= kIdBytesMax &&
                   std::ranges::all_of(*id, is_plain);
  return own ? *id : RandomId("req-");
}

}  // namespace

const std::vector<Endpoint>& Endpoints() {
  static const std::vector<Endpoint> endpoints = WithPage({
      {"GET", "/health", nullptr, false, true, AnswerHealth},
      {"GET", "/models", nullptr, true, true, AnswerModels},
      {"GET", "/models/", nullptr, true, true, AnswerModel},
      {"POST", "/models/load", nullptr, true, true, AnswerLoad},
      {"POST", "/models/unload", nullptr, true, true, AnswerUnload},
      Endpoint{"GET", "/props", AnswerProps}.For(ModelUse::kAny),
      {"GET", "/slots", AnswerSlots},
      {"POST", "/slots/", AnswerSlotAction, true, false},
      {"GET", "/metrics", nullptr, true, true, AnswerMetrics},
      Endpoint{"GET", "/tokenizer_info", AnswerTokenizerInfo}.For(ModelUse::kAny),
      {"POST", "/chat/completions", AnswerChat, true, false},
      {"POST", "/chat/completions/input_tokens", AnswerChatTokens, true, false},
      {"POST", "/completions", AnswerCompletions, true, false},
      {"POST", "/completion", AnswerNativeCompletion, true, false},
      {"POST", "/infill", AnswerInfill, true, false},
      {"POST", "/messages", AnswerMessages, true, false, nullptr, MessagesErrorJson},
      {"POST", "/messages/count_tokens", AnswerMessagesTokens, true, false, nullptr,
       MessagesErrorJson},
      {"POST", "/responses", AnswerResponses, true, false},
      {"POST", "/responses/input_tokens", AnswerResponsesTokens, true, false},
      Endpoint{"POST", "/tokenize", AnswerTokenize, true, false}.For(ModelUse::kAny),
      Endpoint{"POST", "/detokenize", AnswerDetokenize, true, false}.For(ModelUse::kAny),
      {"POST", "/apply-template", AnswerApplyTemplate, true, false},
      Endpoint{"POST", "/embeddings", AnswerEmbeddings, true, false}.For(ModelUse::kVectors),
      Endpoint{"POST", "/embedding", AnswerEmbeddings, true, false}.For(ModelUse::kVectors),
      Endpoint{"POST", "/rerank", AnswerRerank, true, false}.For(ModelUse::kScores),
      Endpoint{"POST", "/reranking", AnswerRerank, true, false}.For(ModelUse::kScores),
      {"GET", "/lora-adapters", nullptr, true, true, AnswerNotThere},
      {"POST", "/lora-adapters", nullptr, true, true, AnswerNotThere},
  });
  return endpoints;
}

ApiHandler::ApiHandler(ModelPool& models, ServeMetrics& metrics, Access access, ModelNames names,
                       PageUse page, const SlotFolder* slot_folder)
    : access_(std::move(access)),
      context_{.models = models,
               .metrics = metrics,
               .draining = [this] { return draining_.load(); },
               .connections = [this] { return server_ == nullptr ? 0 : server_->connections(); },
               .strict_model = names == ModelNames::kOwnOnly,
               .has_page = page == PageUse::kShown,
               .slot_folder = slot_folder} {}

ApiHandler::~ApiHandler() { Stop(); }

void ApiHandler::Stop() {
  short_.Stop();
  long_.Stop();
}

void ApiHandler::Enqueue(const Endpoint& endpoint, Exchange exchange, const ModelLease& model) {
  WorkQueue& queue = exchange.request.body.size() > kShortBytesMax ? long_ : short_;
  queue.Push([this, &endpoint, model, exchange = std::move(exchange)]() mutable {
    if (model == nullptr) return FindModel(endpoint, std::move(exchange));
    Answer(endpoint, std::move(exchange), model);
  });
}

// The model that a request names: in its query, or in its body.
Refusal ApiHandler::ReadModelName(const Exchange& exchange, std::string* out) const {
  *out = exchange.request.Parameter("model");
  if (context_.models.has_one() || !out->empty() || exchange.request.body.empty()) return {};
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  return Member(body, "model") == nullptr ? Refusal() : ReadText(body, "model", out);
}

// Answers with the model that the request is for: now if it is loaded, else later.
void ApiHandler::FindModel(const Endpoint& endpoint, Exchange exchange) {
  std::string name;
  if (const Refusal refusal = ReadModelName(exchange, &name)) return exchange.Refuse(*refusal);
  const std::thread::id here = std::this_thread::get_id();
  auto ready = [this, &endpoint, here, exchange = std::move(exchange)](
                   const ModelLease& model, const Refusal& refusal) mutable {
    if (refusal.has_value()) return exchange.Refuse(*refusal);
    if (std::this_thread::get_id() == here) return Answer(endpoint, std::move(exchange), model);
    Enqueue(endpoint, std::move(exchange), model);
  };
  context_.models.Acquire(name, std::move(ready));
}

void ApiHandler::Answer(const Endpoint& endpoint, Exchange exchange, const ModelLease& model) {
  exchange.model = model;
  const Refusal refusal = CheckUse(endpoint, exchange.request.path, *model);
  if (refusal.has_value()) return exchange.Refuse(*refusal);
  EndpointContext context = {context_, *model};
  endpoint.answer(context, std::move(exchange));
}

// Whether the request may be answered, and by which endpoint; null: it is a question for options.
Refusal ApiHandler::CheckHead(const HttpRequest& head, const Endpoint** endpoint) const {
  *endpoint = nullptr;
  KVANT_REFUSE(access_.CheckOrigin(head));
  if (head.method == "OPTIONS") return {};
  const std::string_view path = WithoutVersion(head.path);
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  std::string allowed;
  bool open = false;
  for (const Endpoint& one : Endpoints()) {
    if (!IsAt(one, head.path, path) || (one.is_page && !context_.has_page)) continue;
    open |= !one.needs_key;
    if (one.method == method) *endpoint = &one;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", one.method);
  }
  if (!open) KVANT_REFUSE(access_.CheckKey(head));
  ApiError error;
  if (allowed.empty()) {
    error.status = 404;
    error.message = fmt::format("there is no {}", head.path);
    return error;
  }
  if (*endpoint == nullptr) {
    error.status = 405;
    error.message = fmt::format("{}: expected {}, found {}", head.path, allowed, head.method);
    error.further = {{"allow", allowed}};
    return error;
  }
  const std::string* const coding = head.Find("content-encoding");
  if (coding != nullptr && *coding != "identity" && !coding->empty()) {
    error.status = 415;
    error.message = "Content-Encoding: expected a body as it is";
    return error;
  }
  return {};
}

std::vector<HttpHeader> ApiHandler::HeadersFor(const HttpRequest& request) const {
  HttpAnswer answer;
  answer.headers = {{"Server", "kvant"},
                    {"X-Request-Id", RequestId(request)},
                    {"X-Content-Type-Options", "nosniff"}};
  access_.AddHeaders(request, answer);
  return std::move(answer.headers);
}

std::optional<HttpAnswer> ApiHandler::OnHead(const HttpRequest& head) {
  const Endpoint* endpoint = nullptr;
  const auto refused = CheckHead(head, &endpoint);
  if (!refused.has_value()) return {};
  context_.metrics.CountAnswer("refused", refused->status);
  HttpAnswer answer = AnswerOf(*refused, ErrorFormAt(head.path)(*refused));
  for (HttpHeader& header : HeadersFor(head)) answer.headers.push_back(std::move(header));
  if (refused->status == 405) {
    answer.headers.push_back({"Allow", refused->further["allow"].get<std::string>()});
  }
  return answer;
}

void ApiHandler::OnRequest(HttpRequest request, std::shared_ptr<HttpStream> stream) {
  const Endpoint* endpoint = nullptr;
  (void)CheckHead(request, &endpoint);  // as it was when the head came
  Exchange exchange;
  exchange.headers = HeadersFor(request);
  exchange.stream = std::move(stream);
  exchange.metrics = &context_.metrics;
  exchange.request = std::move(request);
  if (endpoint == nullptr) {
    exchange.route = "OPTIONS";
    HttpAnswer answer;
    answer.status = 204;
    return exchange.Send(std::move(answer));
  }
  exchange.route = endpoint->path;
  exchange.error_json = endpoint->error_json;
  if (endpoint->answer == nullptr) {
    return endpoint->answer_without(context_, std::move(exchange));
  }
  if (endpoint->is_quick) return FindModel(*endpoint, std::move(exchange));
  Enqueue(*endpoint, std::move(exchange), nullptr);
}

HttpAnswer ApiHandler::RefuseBytes(int status, const std::string& message) {
  context_.metrics.CountAnswer("refused", status);
  ApiError error;
  error.status = status;
  error.message = message;
  HttpAnswer answer = AnswerOf(error, ErrorJson(error));
  for (HttpHeader& header : HeadersFor({})) answer.headers.push_back(std::move(header));
  return answer;
}

}  // namespace kvant::tools
