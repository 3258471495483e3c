// The list of paths, and what the server does at each. An endpoint answers through the exchange, at
// once or later.
//
// Thread-safety: any thread, except where a model's own rules say otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "tools/serve/answer/answer_format.h"
#include "tools/serve/answer/exchange.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/answer/text_job.h"
#include "tools/serve/models/model_pool.h"
#include "tools/serve/request/dialects.h"
#include "tools/serve/request/request_fields.h"
#include "tools/serve/slot_folder.h"

namespace kvant::tools {

// The server, for all endpoints.
struct ServerContext {
  ModelPool& models;
  ServeMetrics& metrics;
  std::function<bool()> draining;
  std::function<size_t()> connections;
  bool strict_model = false;  // a request for another model is refused
  bool has_page = true;
  const SlotFolder* slot_folder = nullptr;  // null: slots are not saved
};

// The server with the model that a request is for.
struct EndpointContext : ServerContext {
  ServedModel& served;
};

// The models that an endpoint is for.
enum class ModelUse : uint8_t { kTexts, kVectors, kScores, kAny };

struct Endpoint {
  std::string_view method;
  // The path, also behind /v1. One that ends with '/' is that of all below it.
  std::string_view path;
  void (*answer)(EndpointContext& context, Exchange exchange);  // null: it needs no model
  bool needs_key = true;
  bool is_quick = true;  // answered by the thread that reads requests of all connections
  void (*answer_without)(ServerContext& context, Exchange exchange) = nullptr;  // a model
  Json (*error_json)(const ApiError& error) = ErrorJson;  // the form of its errors
  bool is_page = false;  // a file of the page, whose path is as it stands
  ModelUse use = ModelUse::kTexts;

  // The endpoint for these models.
  Endpoint For(ModelUse models) const {
    Endpoint out = *this;
    out.use = models;
    return out;
  }
};

// All endpoints.
const std::vector<Endpoint>& Endpoints();

// ---- endpoints_of_model.cpp ----

void AnswerProps(EndpointContext& context, Exchange exchange);
void AnswerTokenizerInfo(EndpointContext& context, Exchange exchange);

// ---- endpoints_of_server.cpp ----

void AnswerHealth(ServerContext& context, Exchange exchange);
void AnswerModels(ServerContext& context, Exchange exchange);
void AnswerModel(ServerContext& context, Exchange exchange);
void AnswerLoad(ServerContext& context, Exchange exchange);
void AnswerUnload(ServerContext& context, Exchange exchange);
void AnswerMetrics(ServerContext& context, Exchange exchange);
void AnswerNotThere(ServerContext& context, Exchange exchange);

// ---- endpoints_of_text.cpp ----

void AnswerChat(EndpointContext& context, Exchange exchange);
void AnswerChatTokens(EndpointContext& context, Exchange exchange);
void AnswerCompletions(EndpointContext& context, Exchange exchange);
void AnswerTokenize(EndpointContext& context, Exchange exchange);
void AnswerDetokenize(EndpointContext& context, Exchange exchange);
void AnswerApplyTemplate(EndpointContext& context, Exchange exchange);

// ---- endpoints_of_dialects.cpp ----

void AnswerMessages(EndpointContext& context, Exchange exchange);
void AnswerMessagesTokens(EndpointContext& context, Exchange exchange);
void AnswerResponses(EndpointContext& context, Exchange exchange);
void AnswerResponsesTokens(EndpointContext& context, Exchange exchange);

// ---- endpoints_of_vectors.cpp ----

void AnswerEmbeddings(EndpointContext& context, Exchange exchange);
void AnswerRerank(EndpointContext& context, Exchange exchange);

// ---- endpoints_of_page.cpp ----

void AnswerPage(ServerContext& context, Exchange exchange);

// ---- endpoints_of_native.cpp ----

void AnswerNativeCompletion(EndpointContext& context, Exchange exchange);
void AnswerInfill(EndpointContext& context, Exchange exchange);

// ---- endpoints_of_slots.cpp ----

void AnswerSlots(EndpointContext& context, Exchange exchange);
void AnswerSlotAction(EndpointContext& context, Exchange exchange);

// ---- What these have in common, in endpoints_of_text.cpp ----

// The body of a request, which is a JSON object.
Refusal ReadBody(const Exchange& exchange, RequestJson* out);
// The body of a request and the chat that it asks for. `convert` is the interface that it has.
using ToChat = Refusal (*)(const RequestJson& body, std::string_view text, ChatRequest* chat);
Refusal ReadChatBody(const Exchange& exchange, ToChat convert, RequestJson* body,
                     ChatRequest* chat);
// Refuses a new request while the server ends, and one for another model where that is strict.
Refusal CheckMayBegin(const EndpointContext& context, const RequestJson& body);
// The fields that all kinds of texts have, with what holds where there is none.
Refusal ReadTextFields(EndpointContext& context, const Exchange& exchange, const RequestJson& body,
                       TextUse use, TextFields* fields);
// Turns biases of texts into those of tokens, and checks the sampling as a whole.
Refusal FinishSampling(const ServedModel& served, TextFields& fields);
Refusal MakeGrammar(const ServedModel& served, const TextFields& fields,
                    std::shared_ptr<const Grammar>* out);
// The text of tokens that came as ids, with control tokens.
std::string TextOfTokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids);
// Makes the format of an answer for the fields that hold.
using FormatMaker = std::function<std::unique_ptr<AnswerFormat>(const TextFields& fields)>;
// Starts a chat. The exchange is taken unless the chat is refused.
Refusal StartChat(EndpointContext& context, const ChatRequest& chat, const FormatMaker& make,
                  Exchange& exchange);
// A chat's prompt: for counting its tokens, and to be looked at.
Refusal ReadPrompt(EndpointContext& context, const Exchange& exchange, const ChatRequest& chat,
                   JobPrompt* out);
void SendOrRefuse(Exchange& exchange, const Refusal& refusal, const Json& answer);

}  // namespace kvant::tools
