#include "tools/serve/answer/messages_format.h"

#include <utility>

#include "tools/serve/answer/partial_json.h"

namespace kvant::tools {
namespace {

std::string_view ErrorType(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 500: return "api_error";
    case 503: return "overloaded_error";
    default: return "invalid_request_error";
  }
}

// Tokens of the prompt that were known are counted apart.
Json MessageUsage(const SampleAnswer& sample) {
  return {{"input_tokens", sample.prompt_tokens - sample.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", sample.cached_tokens},
          {"output_tokens", sample.completion_tokens}};
}

Json StopReason(const SampleAnswer& sample) {
  if (sample.finish_reason.empty()) return nullptr;
  if (!sample.stop_text.empty()) return "stop_sequence";
  if (sample.finish_reason == "tool_calls") return "tool_use";
  return sample.finish_reason == "length" ? "max_tokens" : "end_turn";
}

Json StopSequence(const SampleAnswer& sample) {
  return sample.stop_text.empty() ? Json(nullptr) : Json(sample.stop_text);
}

Json BlockOf(const AnswerBlock& block, std::string_view text) {
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
    case AnswerBlock::Kind::kCall:
      return {{"type", "tool_use"},
              {"id", block.id},
              {"name", block.name},
              {"input", WholePartOf(text)}};
    default: return {{"type", "text"}, {"text", text}};
  }
}

}  // namespace

Json MessagesErrorJson(const ApiError& error) {
  Json members = {{"type", ErrorType(error.status)}, {"message", error.message}};
  if (error.further.contains("details")) members["details"] = error.further["details"];
  return {{"type", "error"}, {"error", std::move(members)}};
}

Json MessagesFormat::Message(Json content, const SampleAnswer& sample) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", std::move(content)},
          {"stop_reason", StopReason(sample)},
          {"stop_sequence", StopSequence(sample)},
          {"usage", MessageUsage(sample)}};
}

Json MessagesFormat::Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>&,
                           ListUse, const TokenCounts&) {
  const SampleAnswer& sample = samples.front();
  Json content = Json::array();
  for (const AnswerBlock& block : sample.blocks) content.push_back(BlockOf(block, block.text));
  return Message(std::move(content), sample);
}

Events MessagesFormat::Begin(SampleAnswer& sample, const EchoAnswer*, ListUse) {
  return {{{"type", "message_start"}, {"message", Message(Json::array(), sample)}},
          {{"type", "ping"}}};
}

void MessagesFormat::Close(Events& events) {
  if (!std::exchange(is_open_, false)) return;
  events.push_back({{"type", "content_block_stop"}, {"index", opened_ - 1}});
}

// Begins the last block, unless that was done.
void MessagesFormat::Open(const SampleAnswer& sample, Events& events) {
  if (opened_ == sample.blocks.size()) return;
  Close(events);
  opened_ = sample.blocks.size();
  is_open_ = true;
  events.push_back({{"type", "content_block_start"},
                    {"index", opened_ - 1},
                    {"content_block", BlockOf(sample.blocks.back(), "")}});
}

Json MessagesFormat::Delta(std::string_view type, std::string_view member,
                           std::string_view text) const {
  return {{"type", "content_block_delta"},
          {"index", opened_ - 1},
          {"delta", {{"type", type}, {member, text}}}};
}

Events MessagesFormat::Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
                             const std::vector<TokenLogProbs>*) {
  Events events;
  if (text.empty()) return events;
  Open(sample, events);
  const bool is_text = part == AnswerPart::kContent;
  events.push_back(
      Delta(is_text ? "text_delta" : "thinking_delta", is_text ? "text" : "thinking", text));
  return events;
}

Events MessagesFormat::CallPiece(SampleAnswer& sample, std::string_view text,
                                 const std::vector<TokenLogProbs>*) {
  Events events;
  Open(sample, events);
  if (!text.empty()) events.push_back(Delta("input_json_delta", "partial_json", text));
  return events;
}

Events MessagesFormat::CallEnd(SampleAnswer&) {
  Events events;
  Close(events);
  return events;
}

Events MessagesFormat::End(SampleAnswer& sample) {
  Events events;
  Close(events);
  events.push_back(
      {{"type", "message_delta"},
       {"delta", {{"stop_reason", StopReason(sample)}, {"stop_sequence", StopSequence(sample)}}},
       {"usage", MessageUsage(sample)}});
  events.push_back({{"type", "message_stop"}});
  return events;
}

Events MessagesFormat::Failure(const ApiError& error) { return {MessagesErrorJson(error)}; }

}  // namespace kvant::tools
