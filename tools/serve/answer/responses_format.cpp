#include "tools/serve/answer/responses_format.h"

#include <fmt/format.h>

#include <utility>

namespace kvant::tools {
namespace {

Json TextPart(std::string_view text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ResponseUsage(const SampleAnswer& sample) {
  return {{"input_tokens", sample.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", sample.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", sample.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", sample.reasoning_tokens}}},
          {"total_tokens", sample.prompt_tokens + sample.completion_tokens}};
}

// {"id", "type"} of items and what their texts are called.
struct ItemNames {
  const char* id;
  const char* type;
  const char* part;   // of the content; null: there is none
  const char* event;  // for pieces of the text
};

constexpr ItemNames kReasoningNames = {"rs_", "reasoning", "reasoning_text", "reasoning_text"};
constexpr ItemNames kContentNames = {"msg_", "message", "output_text", "output_text"};
constexpr ItemNames kCallNames = {"fc_", "function_call", nullptr, "function_call_arguments"};

const ItemNames& NamesOf(AnswerBlock::Kind kind) {
  switch (kind) {
    case AnswerBlock::Kind::kReasoning: return kReasoningNames;
    case AnswerBlock::Kind::kCall: return kCallNames;
    default: return kContentNames;
  }
}

std::string_view StatusOf(const SampleAnswer& sample) {
  return sample.finish_reason == "length" ? "incomplete" : "completed";
}

// Where its limit has cut an answer, its last block is not complete, unless it is a call that is.
std::string_view StatusOfBlock(const SampleAnswer& sample, size_t i) {
  const AnswerBlock& block = sample.blocks[i];
  if (block.kind == AnswerBlock::Kind::kCall) return block.is_complete ? "completed" : "incomplete";
  return i + 1 == sample.blocks.size() ? StatusOf(sample) : "completed";
}

}  // namespace

ResponsesFormat::ResponsesFormat(ResponseSettings settings)
    : settings_(std::move(settings)), id_(RandomId("resp_")), created_(SecondsOfClock()) {}

// `ended` is null while the answer goes on.
Json ResponsesFormat::Response(std::string_view status, Json output,
                               const SampleAnswer* ended) const {
  const bool is_cut = status == "incomplete";
  return {{"id", id_},
          {"object", "response"},
          {"created_at", created_},
          {"status", status},
          {"background", false},
          {"error", nullptr},
          {"incomplete_details", is_cut ? Json{{"reason", "max_output_tokens"}} : Json(nullptr)},
          {"instructions", settings_.instructions},
          {"max_output_tokens", settings_.max_output_tokens},
          {"model", settings_.model},
          {"output", std::move(output)},
          {"parallel_tool_calls", settings_.is_parallel},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", settings_.reasoning_effort}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", settings_.temperature},
          {"text", {{"format", settings_.text_format}}},
          {"tool_choice", settings_.tool_choice},
          {"tools", settings_.tools},
          {"top_p", settings_.top_p},
          {"truncation", "disabled"},
          {"usage", ended == nullptr ? Json(nullptr) : ResponseUsage(*ended)},
          {"metadata", Json::object()}};
}

// The id of an item, which it keeps.
const std::string& ResponsesFormat::IdOf(size_t item, AnswerBlock::Kind kind) {
  while (ids_.size() <= item) ids_.push_back(RandomId(NamesOf(kind).id));
  return ids_[item];
}

Json ResponsesFormat::Item(size_t item, const AnswerBlock& block, std::string_view status) {
  Json out = {
      {"id", IdOf(item, block.kind)}, {"type", NamesOf(block.kind).type}, {"status", status}};
  Json content = Json::array();
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      if (!block.text.empty()) {
        content.push_back({{"type", "reasoning_text"}, {"text", block.text}});
      }
      out["summary"] = Json::array();
      out["content"] = std::move(content);
      break;
    case AnswerBlock::Kind::kContent:
      if (!block.text.empty()) content.push_back(TextPart(block.text));
      out["role"] = "assistant";
      out["content"] = std::move(content);
      break;
    case AnswerBlock::Kind::kCall:
      out["call_id"] = block.id;
      out["name"] = block.name;
      out["arguments"] = block.text;
      break;
  }
  return out;
}

// The items of an answer that has ended.
Json ResponsesFormat::OutputOf(const SampleAnswer& sample) {
  Json output = Json::array();
  for (size_t i = 0; i < sample.blocks.size(); ++i) {
    output.push_back(Item(i, sample.blocks[i], StatusOfBlock(sample, i)));
  }
  return output;
}

Json ResponsesFormat::Whole(const std::vector<SampleAnswer>& samples,
                            const std::vector<EchoAnswer>&, ListUse, const TokenCounts&) {
  const SampleAnswer& sample = samples.front();
  return Response(StatusOf(sample), OutputOf(sample), &sample);
}

// ---- Events -------------------------------------------------------------------------------------

void ResponsesFormat::Add(std::string_view type, Json members, Events& events) {
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(members);
  events.push_back(std::move(event));
}

Events ResponsesFormat::Begin(SampleAnswer&, const EchoAnswer*, ListUse) {
  Events events;
  for (const char* const type : {"response.created", "response.in_progress"}) {
    Add(type, {{"response", Response("in_progress", Json::array(), nullptr)}}, events);
  }
  return events;
}

// Where the text of the last item that was opened lies.
Json ResponsesFormat::Place(const SampleAnswer& sample) const {
  Json place = {{"item_id", ids_[opened_ - 1]}, {"output_index", opened_ - 1}};
  if (sample.blocks[opened_ - 1].kind != AnswerBlock::Kind::kCall) place["content_index"] = 0;
  return place;
}

// Begins the item of the last block, unless that was done.
void ResponsesFormat::Open(const SampleAnswer& sample, Events& events) {
  if (opened_ == sample.blocks.size()) return;
  Close(sample, events);
  opened_ = sample.blocks.size();
  is_open_ = true;
  AnswerBlock block = sample.blocks.back();
  block.text.clear();
  Add("response.output_item.added",
      {{"output_index", opened_ - 1}, {"item", Item(opened_ - 1, block, "in_progress")}}, events);
  if (block.kind != AnswerBlock::Kind::kContent) return;
  Json part = Place(sample);
  part["part"] = TextPart("");
  Add("response.content_part.added", std::move(part), events);
}

void ResponsesFormat::Close(const SampleAnswer& sample, Events& events) {
  if (!std::exchange(is_open_, false)) return;
  const size_t item = opened_ - 1;
  const AnswerBlock& block = sample.blocks[item];
  const bool is_content = block.kind == AnswerBlock::Kind::kContent;
  Json done = Place(sample);
  if (block.kind == AnswerBlock::Kind::kCall) {
    done["name"] = block.name;
    done["arguments"] = block.text;
  } else {
    done["text"] = block.text;
  }
  if (is_content) done["logprobs"] = Json::array();
  Add(fmt::format("response.{}.done", NamesOf(block.kind).event), std::move(done), events);
  if (is_content) {
    Json part = Place(sample);
    part["part"] = TextPart(block.text);
    Add("response.content_part.done", std::move(part), events);
  }
  Add("response.output_item.done",
      {{"output_index", item}, {"item", Item(item, block, StatusOfBlock(sample, item))}}, events);
}

Events ResponsesFormat::Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
                              const std::vector<TokenLogProbs>*) {
  if (text.empty()) return {};
  Events events = CallPiece(sample, text, nullptr);
  if (part == AnswerPart::kContent) events.back()["logprobs"] = Json::array();
  return events;
}

Events ResponsesFormat::CallPiece(SampleAnswer& sample, std::string_view text,
                                  const std::vector<TokenLogProbs>*) {
  Events events;
  Open(sample, events);
  if (text.empty()) return events;
  Json delta = Place(sample);
  delta["delta"] = text;
  Add(fmt::format("response.{}.delta", NamesOf(sample.blocks.back().kind).event), std::move(delta),
      events);
  return events;
}

Events ResponsesFormat::CallEnd(SampleAnswer& sample) {
  Events events;
  Close(sample, events);
  return events;
}

Events ResponsesFormat::End(SampleAnswer& sample) {
  Events events;
  Close(sample, events);
  const std::string_view status = StatusOf(sample);
  Add(status == "completed" ? "response.completed" : "response.incomplete",
      {{"response", Response(status, OutputOf(sample), &sample)}}, events);
  return events;
}

Events ResponsesFormat::Failure(const ApiError& error) {
  Json response = Response("failed", Json::array(), nullptr);
  response["error"] = {{"code", error.code.empty() ? "server_error" : error.code},
                       {"message", error.message}};
  Events events;
  Add("response.failed", {{"response", std::move(response)}}, events);
  return events;
}

}  // namespace kvant::tools
