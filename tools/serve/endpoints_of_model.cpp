// Endpoints that tell of a model.
#include <utility>

#include "formats/gguf.h"
#include "kvant/embed.h"
#include "kvant/model_defaults.h"
#include "tools/serve/answer/sampling_json.h"
#include "tools/serve/endpoints.h"

namespace kvant::tools {
namespace {

// The settings that hold where a request says nothing else.
Json DefaultsJson(const ServedModel& served) {
  const SamplingOptions& options = served.options().sampling;
  Json out = SamplingJson(options);
  out["seed"] = options.seed.has_value() ? Json(*options.seed) : Json(-1);
  out["n_predict"] = out["max_tokens"] = served.options().max_tokens;
  out["stream"] = true;
  return out;
}

Json TokenName(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id.has_value() ? Json(tokenizer.piece(*id)) : Json(nullptr);
}

// The name of the form in which calls of tools are written and read.
Json ToolFormatName(ServedModel& served) {
  const auto& format = served.tools().format();
  return format.ok() ? Json(format->name) : Json(nullptr);
}

Json TemplateSource(const Model& model) {
  const auto& source = model.defaults().chat_template;
  return source.has_value() ? Json(*source) : Json(nullptr);
}

// The properties of a model that makes vectors or scores.
Json EmbedderProps(const ServedModel& served) {
  const Embedder& embedder = *served.embedder();
  Json prompts = Json::object();
  for (const EmbedPrompt& prompt : embedder.prompts()) prompts[prompt.name] = prompt.text;
  Json out = {{"default_generation_settings", {{"n_ctx", served.context()}}},
              {"model_alias", served.options().alias},
              {"model_path", served.model().file().path()},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"pooling", PoolingName(embedder.pooling())},
              {"prompts", std::move(prompts)},
              {"build_info", served.fingerprint()}};
  if (embedder.labels() == 0) out["dimensions"] = embedder.dim();
  return out;
}

}  // namespace

void AnswerProps(EndpointContext& context, Exchange exchange) {
  ServedModel& served = context.served;
  if (!served.makes_texts()) return exchange.Send(JsonAnswer(EmbedderProps(served)));
  const SessionOptions& session = served.session();
  exchange.Send(
      JsonAnswer({{"default_generation_settings",
                   {{"n_ctx", session.context}, {"params", DefaultsJson(served)}}},
                  {"total_slots", session.sequences},
                  {"model_alias", served.options().alias},
                  {"model_path", served.model().file().path()},
                  {"modalities", {{"vision", false}, {"audio", false}}},
                  {"chat_template", TemplateSource(served.model())},
                  {"tool_format", ToolFormatName(served)},
                  {"bos_token", TokenName(served.tokenizer(), served.tokenizer().special().bos)},
                  {"eos_token", TokenName(served.tokenizer(), served.tokenizer().special().eos)},
                  {"build_info", served.fingerprint()},
                  {"prefix_cache", session.prefix_cache},
                  // Whether a text has the same bits whatever was known of its prompt.
                  {"strict", session.strict}}));
}

void AnswerTokenizerInfo(EndpointContext& context, Exchange exchange) {
  const Tokenizer& tokenizer = context.served.tokenizer();
  const SpecialTokens& special = tokenizer.special();
  exchange.Send(JsonAnswer({{"tokenizer_class", tokenizer.kind()},
                            {"bos_token", TokenName(tokenizer, special.bos)},
                            {"eos_token", TokenName(tokenizer, special.eos)},
                            {"pad_token", TokenName(tokenizer, special.pad)},
                            {"unk_token", TokenName(tokenizer, special.unk)},
                            {"chat_template", TemplateSource(context.served.model())}}));
}

}  // namespace kvant::tools
