// Endpoints of llama-server's own interface that make texts.
#include <algorithm>
#include <utility>

#include "tools/serve/answer/native_format.h"
#include "tools/serve/endpoints.h"
#include "tools/serve/request/fill_prompt.h"
#include "tools/serve/request/native_fields.h"

namespace kvant::tools {
namespace {

struct NativeRequest {
  RequestJson body;
  TextFields fields;
  NativeFields native;
};

Refusal ReadNativeRequest(EndpointContext& context, const Exchange& exchange, NativeRequest* out) {
  KVANT_REFUSE(ReadBody(exchange, &out->body));
  KVANT_REFUSE(ReadTextFields(context, exchange, out->body, TextUse::kNative, &out->fields));
  return ReadNativeFields(out->body, out->fields, &out->native);
}

Refusal StartNative(const EndpointContext& context, NativeRequest request,
                    std::vector<std::vector<TokenId>> prompts, Exchange& exchange) {
  ServedModel& served = context.served;
  std::vector<JobPrompt> jobs;
  std::vector<std::string> texts;
  for (std::vector<TokenId>& ids : prompts) {
    KVANT_REFUSE(served.CheckRoom(std::ssize(ids), "prompt"));
    texts.push_back(TextOfTokens(served.tokenizer(), ids));
    jobs.push_back({.tokens = std::move(ids), .text = texts.back()});
  }
  KVANT_REFUSE(FinishSampling(served, request.fields));
  std::shared_ptr<const Grammar> grammar;
  KVANT_REFUSE(MakeGrammar(served, request.fields, &grammar));
  auto format = std::make_unique<NativeFormat>(served, request.fields, std::move(request.native),
                                               std::move(texts));
  std::make_shared<TextJob>(served, TextUse::kNative, std::move(request.fields), std::move(jobs),
                            std::move(grammar), std::move(format), std::move(exchange))
      ->Start();
  return {};
}

Refusal StartNativeCompletion(EndpointContext& context, Exchange& exchange) {
  NativeRequest request;
  KVANT_REFUSE(ReadNativeRequest(context, exchange, &request));
  const ServedModel& served = context.served;
  std::vector<std::vector<TokenId>> prompts;
  KVANT_REFUSE(
      ReadNativePrompts(request.body, served.tokenizer(), served.model().vocab_size(), &prompts));
  return StartNative(context, std::move(request), std::move(prompts), exchange);
}

// How many tokens a prompt of a gap may have: the text has room for what it may become, but a
// quarter of the context where it has no limit, and half of it at most.
int64_t GapRoom(int64_t context, int64_t tokens_max) {
  const int64_t text = tokens_max < 0 ? context / 4 : std::min(tokens_max, context / 2);
  return context - text;
}

Refusal StartInfill(EndpointContext& context, Exchange& exchange) {
  const ServedModel& served = context.served;
  const Result<FillTokens>& tokens = served.fill_tokens();
  if (!tokens.ok()) return ApiErrorOf(tokens.error());
  KVANT_REFUSE(CheckFills(*tokens));
  NativeRequest request;
  KVANT_REFUSE(ReadNativeRequest(context, exchange, &request));
  GapText gap;
  KVANT_REFUSE(ReadGap(request.body, &gap));
  std::vector<TokenId> prompt;
  KVANT_REFUSE(MakeGapPrompt(served.tokenizer(), *tokens, gap,
                             GapRoom(served.session().context, request.fields.max_tokens),
                             &prompt));
  for (std::string& end : GapEnds(served.tokenizer(), *tokens)) {
    request.fields.stop_texts.push_back(std::move(end));
  }
  return StartNative(context, std::move(request), {std::move(prompt)}, exchange);
}

}  // namespace

void AnswerNativeCompletion(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartNativeCompletion(context, exchange)) exchange.Refuse(*refusal);
}

void AnswerInfill(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartInfill(context, exchange)) exchange.Refuse(*refusal);
}

}  // namespace kvant::tools
