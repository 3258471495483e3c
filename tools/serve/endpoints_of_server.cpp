// Endpoints that tell of the server and of all its models.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/arch/spec.h"
#include "tools/serve/endpoints.h"

namespace kvant::tools {
namespace {

const char* StateName(ModelPool::State state) {
  switch (state) {
    case ModelPool::State::kUnloaded: return "unloaded";
    case ModelPool::State::kLoading: return "loading";
    case ModelPool::State::kLoaded: return "loaded";
    case ModelPool::State::kUnloading: return "unloading";
  }
  return "unknown";
}

const char* OutputOf(const ServedModel& served) {
  if (served.makes_texts()) return "text";
  return served.embedder()->pooling() == Pooling::kRank ? "scores" : "embeddings";
}

// The entry of a model that is loaded.
Json LoadedEntry(const ServedModel& served) {
  const Model& model = served.model();
  return {
      {"id", served.options().alias},
      {"object", "model"},
      {"created", served.created()},
      {"owned_by", "kvant"},
      {"max_model_len", served.context()},
      {"architecture", {{"input_modalities", {"text"}}, {"output_modalities", {OutputOf(served)}}}},
      {"meta",
       {{"n_vocab", model.vocab_size()},
        {"n_ctx_train", model.context_length()},
        {"n_embd", arch::FirstStack(model.spec()).dim},
        {"n_params", served.parameters()},
        {"size", served.bytes()}}}};
}

Json ModelEntry(const ModelPool::Listed& listed) {
  Json out;
  if (listed.model != nullptr) {
    out = LoadedEntry(*listed.model);
  } else {
    out = {{"id", listed.name},
           {"object", "model"},
           {"created", 0},
           {"owned_by", "kvant"},
           {"meta", {{"size", listed.file_bytes}}}};
  }
  out["status"] = {{"value", StateName(listed.state)}};
  if (!listed.error.empty()) {
    out["status"]["failed"] = true;
    out["status"]["error"] = listed.error;
  }
  return out;
}

// The name of a model in the body of a request.
Refusal ReadModelName(const Exchange& exchange, std::string* out) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  return ReadText(body, "model", out);
}

void AnswerModelAction(Exchange& exchange, ModelPool& models,
                       Refusal (ModelPool::*action)(const std::string& name)) {
  std::string name;
  Refusal refusal = ReadModelName(exchange, &name);
  if (!refusal.has_value()) refusal = (models.*action)(name);
  SendOrRefuse(exchange, refusal, {{"success", true}});
}

}  // namespace

void AnswerHealth(ServerContext& context, Exchange exchange) {
  if (!context.draining() && !context.models.failed()) {
    return exchange.Send(JsonAnswer({{"status", "ok"}}));
  }
  ApiError error;
  error.status = 503;
  error.message = context.models.failed() ? "the model has failed" : "the server is stopping";
  error.further = {{"code", 503}};
  exchange.Refuse(error);
}

void AnswerModels(ServerContext& context, Exchange exchange) {
  Json data = Json::array();
  for (const ModelPool::Listed& one : context.models.List()) data.push_back(ModelEntry(one));
  exchange.Send(JsonAnswer({{"object", "list"}, {"data", std::move(data)}}));
}

void AnswerModel(ServerContext& context, Exchange exchange) {
  constexpr std::string_view kFolder = "/models/";
  const std::string& path = exchange.request.path;
  const std::string id = path.substr(path.find(kFolder) + kFolder.size());
  for (const ModelPool::Listed& one : context.models.List()) {
    if (one.name == id) return exchange.Send(JsonAnswer(ModelEntry(one)));
  }
  ApiError error;
  error.status = 404;
  error.message = fmt::format("there is no model {}", id);
  error.code = "model_not_found";
  exchange.Refuse(error);
}

void AnswerLoad(ServerContext& context, Exchange exchange) {
  AnswerModelAction(exchange, context.models, &ModelPool::Load);
}

void AnswerUnload(ServerContext& context, Exchange exchange) {
  AnswerModelAction(exchange, context.models, &ModelPool::Unload);
}

void AnswerMetrics(ServerContext& context, Exchange exchange) {
  ModelPool& models = context.models;
  std::string lines =
      context.metrics.Lines(models.counters(), models.sequences(), context.connections());
  if (!models.has_one()) {
    lines += GaugeLines("kvant_models_loaded", "Models that are loaded.", models.loaded()) +
             GaugeLines("kvant_models_bytes", "Bytes that these need by their plans.",
                        models.bytes_used());
  }
  HttpAnswer answer = TextAnswer(std::move(lines), "text/plain; version=0.0.4");
  // As llama-server tells when all counters were 0.
  answer.headers.push_back({"Process-Start-Time-Unix", fmt::format("{}", context.metrics.began())});
  exchange.Send(std::move(answer));
}

void AnswerNotThere(ServerContext&, Exchange exchange) {
  ApiError error;
  error.status = 501;
  error.message = fmt::format("{} is not there yet", exchange.request.path);
  exchange.Refuse(error);
}

}  // namespace kvant::tools
