// Endpoints that make texts, and those that show how a text becomes tokens.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/result.h"
#include "kvant/grammar.h"
#include "kvant/prompt.h"
#include "tools/serve/answer/chat_prompt.h"
#include "tools/serve/answer/openai_format.h"
#include "tools/serve/endpoints.h"
#include "tools/serve/request/dialects.h"
#include "tools/serve/request/fill_prompt.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {
namespace {

// More members of objects than this are refused before a body is taken apart: each becomes some
// hundred bytes, several times.
constexpr size_t kBodyMembersMax = size_t{1} << 18;

// How many tokens /v1/completions makes where nothing else is said, as OpenAI has it.
constexpr int64_t kCompletionTokens = 16;

Refusal CheckModel(const EndpointContext& context, const RequestJson& body) {
  const RequestJson* const name = Member(body, "model");
  if (name == nullptr) return {};
  if (!name->is_string()) return WrongValue("model", "expected a text");
  if (!context.strict_model || *name == context.served.options().alias) return {};
  ApiError error =
      WrongValue("model", fmt::format("there is no model {}; \"{}\" is served",
                                      formats::Shown(*name), context.served.options().alias));
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

// Checks that gaps can be filled, and ends texts at the tokens of gaps.
Refusal PrepareGaps(const ServedModel& served, TextFields& fields) {
  const Result<FillTokens>& tokens = served.fill_tokens();
  if (!tokens.ok()) return ApiErrorOf(tokens.error(), "suffix");
  if (Refusal refusal = CheckFills(*tokens)) {
    refusal->param = "suffix";
    return refusal;
  }
  for (std::string& end : GapEnds(served.tokenizer(), *tokens)) {
    fields.stop_texts.push_back(std::move(end));
  }
  return {};
}

// The prompt between which and the suffix the text stands.
Refusal GapPromptOf(const ServedModel& served, const std::string& suffix, PromptField& given,
                    JobPrompt* out) {
  if (!given.is_text) return WrongValue("suffix", "expected a prompt that is a text with it");
  FillTokens tokens = *served.fill_tokens();
  tokens.repository = tokens.file = {};  // there is no other file
  constexpr int64_t kNoCut = -1;
  KVANT_REFUSE(MakeGapPrompt(served.tokenizer(), tokens, {.prefix = given.text, .suffix = suffix},
                             kNoCut, &out->tokens));
  out->text = std::move(given.text);
  return {};
}

Refusal StartCompletions(EndpointContext& context, Exchange& exchange) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  ServedModel& served = context.served;
  TextFields fields;
  KVANT_REFUSE(ReadTextFields(context, exchange, body, TextUse::kCompletion, &fields));
  std::vector<PromptField> given;
  KVANT_REFUSE(ReadPrompts(body, "prompt", served.model().vocab_size(), &given));
  std::vector<JobPrompt> prompts;
  if (!fields.suffix.empty()) KVANT_REFUSE(PrepareGaps(served, fields));
  for (PromptField& one : given) {
    JobPrompt& prompt = prompts.emplace_back();
    if (!fields.suffix.empty()) {
      KVANT_REFUSE(GapPromptOf(served, fields.suffix, one, &prompt));
    } else if (one.is_text) {
      auto tokens = PromptTokens(served.tokenizer(), one.text);
      if (!tokens.ok()) return ApiErrorOf(tokens.error(), "prompt");
      prompt.tokens = std::move(*tokens);
      prompt.text = std::move(one.text);
    } else {
      prompt.tokens = std::move(one.ids);
      prompt.text = TextOfTokens(served.tokenizer(), prompt.tokens);
    }
    KVANT_REFUSE(served.CheckRoom(std::ssize(prompt.tokens), "prompt"));
  }
  KVANT_REFUSE(FinishSampling(served, fields));
  std::shared_ptr<const Grammar> grammar;
  KVANT_REFUSE(MakeGrammar(served, fields, &grammar));
  auto format = std::make_unique<OpenAiFormat>(served, TextUse::kCompletion);
  std::make_shared<TextJob>(served, TextUse::kCompletion, std::move(fields), std::move(prompts),
                            std::move(grammar), std::move(format), std::move(exchange))
      ->Start();
  return {};
}

Refusal Tokenize(EndpointContext& context, const Exchange& exchange, Json* out) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  const std::string field = Member(body, "content") != nullptr ? "content" : "prompt";
  std::string text;
  KVANT_REFUSE(ReadText(body, field, &text));
  EncodeOptions options;
  options.parse_special = true;
  bool with_pieces = false;
  KVANT_REFUSE(ReadFlag(body, "add_special", &options.add_special));
  KVANT_REFUSE(ReadFlag(body, "add_special_tokens", &options.add_special));
  KVANT_REFUSE(ReadFlag(body, "parse_special", &options.parse_special));
  KVANT_REFUSE(ReadFlag(body, "with_pieces", &with_pieces));
  const Tokenizer& tokenizer = context.served.tokenizer();
  const auto ids = tokenizer.Encode(text, options);
  if (!ids.ok()) return ApiErrorOf(ids.error(), field);
  Json tokens = Json::array();
  for (const TokenId id : *ids) {
    if (!with_pieces) {
      tokens.push_back(id);
      continue;
    }
    const std::string bytes = tokenizer.TokenBytes(id, {.special = true});
    Utf8Stream stream;
    std::string whole = stream.Push(bytes);
    whole += stream.Finish();
    Json piece = bytes;
    if (whole != bytes) {  // a part of a character
      piece = Json::array();
      for (const char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    tokens.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  *out = {{"tokens", std::move(tokens)},
          {"count", ids->size()},
          {"max_model_len", context.served.context()}};
  return {};
}

Refusal Detokenize(EndpointContext& context, const Exchange& exchange, Json* out) {
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  const RequestJson* const tokens = Member(body, "tokens");
  if (tokens == nullptr) return WrongValue("tokens", "expected a list of token ids, found nothing");
  const Tokenizer& tokenizer = context.served.tokenizer();
  std::vector<TokenId> ids;
  KVANT_REFUSE(ReadIds(*tokens, "tokens", tokenizer.vocab_size(), &ids));
  const std::string text = tokenizer.Decode(ids, {.special = true});
  *out = {{"content", text}, {"prompt", text}};
  return {};
}

// Members of objects in a text of JSON: the colons that are not in strings.
size_t MembersIn(std::string_view text) {
  size_t count = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      in_string = !in_string;
    } else if (in_string && text[i] == '\\') {
      ++i;
    } else if (!in_string && text[i] == ':') {
      ++count;
    }
  }
  return count;
}

}  // namespace

Refusal CheckMayBegin(const EndpointContext& context, const RequestJson& body) {
  if (!context.draining()) return CheckModel(context, body);
  ApiError error;
  error.status = 503;
  error.message = "the server is stopping";
  error.code = "server_error";
  return error;
}

Refusal ReadTextFields(EndpointContext& context, const Exchange& exchange, const RequestJson& body,
                       TextUse use, TextFields* fields) {
  KVANT_REFUSE(CheckMayBegin(context, body));
  const ServedModelOptions& options = context.served.options();
  fields->sampling = options.sampling;
  fields->render = options.render;
  fields->max_tokens = use == TextUse::kCompletion ? kCompletionTokens : options.max_tokens;
  fields->body = exchange.request.body;
  int64_t unknown = 0;
  KVANT_REFUSE(ReadFields(body, use, *fields, &unknown));
  context.served.metrics().CountUnknownFields(unknown);
  const int64_t slots = context.served.slots().count();
  if (fields->slot >= slots) {
    return WrongValue(
        "id_slot", fmt::format("there is no slot {}, expected 0 to {}", fields->slot, slots - 1));
  }
  return {};
}

Refusal FinishSampling(const ServedModel& served, TextFields& fields) {
  const Tokenizer& tokenizer = served.tokenizer();
  const int32_t vocab = served.model().vocab_size();
  for (const FieldBias& bias : fields.biases) {
    std::vector<TokenId> ids;
    if (bias.token.has_value()) {
      if (*bias.token >= vocab) {
        return WrongValue("logit_bias", fmt::format("there is no token {}, expected 0 to {}",
                                                    *bias.token, vocab - 1));
      }
      ids.push_back(*bias.token);
    } else {
      auto encoded = tokenizer.Encode(bias.text, {});
      if (!encoded.ok()) return ApiErrorOf(encoded.error(), "logit_bias");
      ids = std::move(*encoded);
    }
    for (const TokenId id : ids) fields.sampling.logit_bias.push_back({id, bias.bias});
  }
  const auto sampler = Sampler::Create(fields.sampling, vocab, &tokenizer);
  if (!sampler.ok()) return ApiErrorOf(sampler.error());
  return {};
}

Refusal MakeGrammar(const ServedModel& served, const TextFields& fields,
                    std::shared_ptr<const Grammar>* out) {
  if (!fields.grammar.has_value()) return {};
  auto grammar = Grammar::Create(*fields.grammar, served.tokenizer());
  if (!grammar.ok()) {
    ApiError error = WrongValue(fields.grammar_field, grammar.error().message);
    return error;
  }
  *out = std::move(*grammar);
  return {};
}

std::string TextOfTokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (id < tokenizer.vocab_size()) bytes += tokenizer.TokenBytes(id, {.special = true});
  }
  return bytes;
}

Refusal ReadBody(const Exchange& exchange, RequestJson* out) {
  if (MembersIn(exchange.request.body) > kBodyMembersMax) {
    ApiError error;
    error.message = fmt::format("the body: expected at most {} members of objects, found more",
                                kBodyMembersMax);
    return error;
  }
  auto body = formats::ParseJson(exchange.request.body, "the body");
  if (!body.ok()) return ApiErrorOf(body.error());
  if (!body->is_object()) {
    ApiError error;
    error.message =
        fmt::format("the body: expected a JSON object, found {}", formats::Shown(*body));
    return error;
  }
  *out = std::move(*body);
  return {};
}

Refusal ReadChatBody(const Exchange& exchange, ToChat convert, RequestJson* body,
                     ChatRequest* chat) {
  KVANT_REFUSE(ReadBody(exchange, body));
  return convert(*body, exchange.request.body, chat);
}

Refusal StartChat(EndpointContext& context, const ChatRequest& chat, const FormatMaker& make,
                  Exchange& exchange) {
  ServedModel& served = context.served;
  TextFields fields;
  KVANT_REFUSE(ReadTextFields(context, exchange, chat.body, TextUse::kChat, &fields));
  if (chat.tools.are_used() && fields.grammar.has_value()) {
    return WrongValue(fields.grammar_field,
                      "not possible together with tools, whose calls have a grammar of their own");
  }
  std::vector<JobPrompt> prompts(1);
  KVANT_REFUSE(MakeChatPrompt(served, chat, fields.render, &prompts[0]));
  KVANT_REFUSE(served.CheckRoom(std::ssize(prompts[0].tokens), "messages"));
  KVANT_REFUSE(FinishSampling(served, fields));
  std::shared_ptr<const Grammar> grammar;
  KVANT_REFUSE(MakeGrammar(served, fields, &grammar));
  std::optional<ToolUse> tools;
  KVANT_REFUSE(PrepareTools(served, chat, &tools));
  auto format = make(fields);
  const auto job =
      std::make_shared<TextJob>(served, TextUse::kChat, std::move(fields), std::move(prompts),
                                std::move(grammar), std::move(format), std::move(exchange));
  if (tools.has_value()) job->UseTools(std::move(*tools));
  job->Start();
  return {};
}

Refusal ReadPrompt(EndpointContext& context, const Exchange& exchange, const ChatRequest& chat,
                   JobPrompt* out) {
  TextFields fields;
  KVANT_REFUSE(ReadTextFields(context, exchange, chat.body, TextUse::kChat, &fields));
  return MakeChatPrompt(context.served, chat, fields.render, out);
}

void SendOrRefuse(Exchange& exchange, const Refusal& refusal, const Json& answer) {
  if (refusal.has_value()) return exchange.Refuse(*refusal);
  exchange.Send(JsonAnswer(answer));
}

void AnswerChat(EndpointContext& context, Exchange exchange) {
  const ServedModel& served = context.served;
  const auto start = [&]() -> Refusal {
    RequestJson body;
    ChatRequest chat;
    KVANT_REFUSE(ReadChatBody(exchange, ReadChat, &body, &chat));
    const auto make = [&](const TextFields&) {
      return std::make_unique<OpenAiFormat>(served, TextUse::kChat);
    };
    return StartChat(context, chat, make, exchange);
  };
  if (const Refusal refusal = start()) exchange.Refuse(*refusal);
}

void AnswerCompletions(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartCompletions(context, exchange)) exchange.Refuse(*refusal);
}

void AnswerChatTokens(EndpointContext& context, Exchange exchange) {
  RequestJson body;
  ChatRequest chat;
  JobPrompt prompt;
  Refusal refusal = ReadChatBody(exchange, ReadChat, &body, &chat);
  if (!refusal.has_value()) refusal = ReadPrompt(context, exchange, chat, &prompt);
  SendOrRefuse(exchange, refusal,
               {{"object", "response.input_tokens"}, {"input_tokens", prompt.tokens.size()}});
}

void AnswerApplyTemplate(EndpointContext& context, Exchange exchange) {
  RequestJson body;
  ChatRequest chat;
  JobPrompt prompt;
  Refusal refusal = ReadChatBody(exchange, ReadChat, &body, &chat);
  if (!refusal.has_value()) refusal = ReadPrompt(context, exchange, chat, &prompt);
  SendOrRefuse(exchange, refusal, {{"prompt", prompt.text}});
}

void AnswerTokenize(EndpointContext& context, Exchange exchange) {
  Json answer;
  const Refusal refusal = Tokenize(context, exchange, &answer);
  SendOrRefuse(exchange, refusal, answer);
}

void AnswerDetokenize(EndpointContext& context, Exchange exchange) {
  Json answer;
  const Refusal refusal = Detokenize(context, exchange, &answer);
  SendOrRefuse(exchange, refusal, answer);
}

}  // namespace kvant::tools
