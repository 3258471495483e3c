#include "tools/serve/answer/openai_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvant::tools {
namespace {

// An answer with tools has no content until there is some.
Json ContentJson(const SampleAnswer& sample) {
  return sample.has_tools && sample.content.empty() ? Json(nullptr) : Json(sample.content);
}

Json CallJson(const AnswerBlock& call, std::string_view arguments) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", arguments}}}};
}

Json MessageJson(const SampleAnswer& sample) {
  Json message = {{"role", "assistant"}, {"content", ContentJson(sample)}, {"refusal", nullptr}};
  if (!sample.reasoning.empty()) message["reasoning_content"] = sample.reasoning;
  for (const AnswerBlock& block : sample.blocks) {
    if (block.kind != AnswerBlock::Kind::kCall) continue;
    message["tool_calls"].push_back(CallJson(block, block.text));
  }
  return message;
}

bool IsWholeText(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  text += stream.Finish();
  return text == bytes;
}

}  // namespace

OpenAiFormat::OpenAiFormat(const ServedModel& served, TextUse use)
    : served_(served),
      use_(use),
      id_(RandomId(use == TextUse::kChat ? "chatcmpl-" : "cmpl-")),
      created_(SecondsOfClock()) {}

Json OpenAiFormat::Frame(FrameUse frame) const {
  const char* const object = use_ == TextUse::kCompletion ? "text_completion"
                             : frame == FrameUse::kChunk  ? "chat.completion.chunk"
                                                          : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", served_.options().alias},
          {"system_fingerprint", served_.fingerprint()},
          {"choices", Json::array()}};
}

Json OpenAiFormat::ChunkOf(Json choice) const {
  Json chunk = Frame(FrameUse::kChunk);
  chunk["choices"].push_back(std::move(choice));
  return chunk;
}

// ---- Log-probabilities --------------------------------------------------------------------------

// The text of a token; "bytes:\xe2\x82" where its bytes are a part of a character.
std::string OpenAiFormat::TokenText(TokenId id) const {
  if (id < 0 || id >= served_.tokenizer().vocab_size()) return "";
  const std::string bytes = served_.tokenizer().TokenBytes(id, {.special = true});
  if (IsWholeText(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

Json OpenAiFormat::ChatLogProbs(const std::vector<TokenLogProbs>& log_probs) const {
  const Tokenizer& tokenizer = served_.tokenizer();
  Json content = Json::array();
  for (const TokenLogProbs& one : log_probs) {
    Json token = LogProbJson(tokenizer, one.chosen);
    Json top = Json::array();
    for (const TokenLogProb& other : one.top) top.push_back(LogProbJson(tokenizer, other));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Adds a token to the four lists of a completion. Of two tokens with one text the likelier counts;
// the chosen one is always there.
void OpenAiFormat::AddToLists(TokenId id, const TokenLogProbs* log_probs, Json& lists,
                              int64_t* text_offset) const {
  const std::string text = TokenText(id);
  lists["tokens"].push_back(text);
  lists["text_offset"].push_back(*text_offset);
  const std::string bytes = id < served_.tokenizer().vocab_size()
                                ? served_.tokenizer().TokenBytes(id, {.special = true})
                                : "";
  *text_offset += CountCharacters(bytes);
  if (log_probs == nullptr) {
    lists["token_logprobs"].push_back(nullptr);
    lists["top_logprobs"].push_back(nullptr);
    return;
  }
  lists["token_logprobs"].push_back(LogProbJson(log_probs->chosen.log_prob));
  Json top = Json::object();
  for (const TokenLogProb& one : log_probs->top) {
    top.emplace(TokenText(one.id), LogProbJson(one.log_prob));  // the likelier ones come first
  }
  top.emplace(text, LogProbJson(log_probs->chosen.log_prob));
  lists["top_logprobs"].push_back(std::move(top));
}

Json OpenAiFormat::ListLogProbs(const EchoAnswer* echo, const std::vector<TokenLogProbs>& log_probs,
                                int64_t* text_offset) const {
  Json lists = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
  if (echo != nullptr) {
    for (size_t i = 0; i < echo->tokens.size(); ++i) {
      const bool known = i > 0 && i <= echo->log_probs.size();
      AddToLists(echo->tokens[i], known ? &echo->log_probs[i - 1] : nullptr, lists, text_offset);
    }
  }
  for (const TokenLogProbs& one : log_probs) AddToLists(one.chosen.id, &one, lists, text_offset);
  return lists;
}

// ---- Usage --------------------------------------------------------------------------------------

Json OpenAiFormat::UsageJson(const TokenCounts& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

// ---- Answers ------------------------------------------------------------------------------------

Json OpenAiFormat::Whole(const std::vector<SampleAnswer>& samples,
                         const std::vector<EchoAnswer>& echo, ListUse list_use,
                         const TokenCounts& usage) {
  Json out = Frame(FrameUse::kWhole);
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleAnswer& sample = samples[i];
    Json choice = {{"index", i}};
    Json log_probs;
    if (use_ == TextUse::kChat) {
      choice["message"] = MessageJson(sample);
      if (list_use == ListUse::kWanted) log_probs = ChatLogProbs(sample.log_probs);
    } else {
      const EchoAnswer* const before = echo.empty() ? nullptr : &echo[i];
      choice["text"] = (before == nullptr ? "" : before->text) + sample.content;
      int64_t offset = 0;
      if (list_use == ListUse::kWanted) log_probs = ListLogProbs(before, sample.log_probs, &offset);
    }
    choice["logprobs"] = std::move(log_probs);
    choice["finish_reason"] = sample.finish_reason;
    choice["seed"] = sample.seed;
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = UsageJson(usage);
  if (!samples.empty()) out["timings"] = TimingsJson(samples.front());
  return out;
}

Events OpenAiFormat::Begin(SampleAnswer& sample, const EchoAnswer* echo, ListUse list_use) {
  if (use_ == TextUse::kChat) {
    return {ChunkOf(
        {{"index", sample.index},
         {"delta",
          {{"role", "assistant"},
           {"content", sample.has_tools && sample.content.empty() ? Json(nullptr) : Json("")}}},
         {"logprobs", nullptr},
         {"finish_reason", nullptr}})};
  }
  if (echo == nullptr) return {};
  Json log_probs;
  if (list_use == ListUse::kWanted) log_probs = ListLogProbs(echo, {}, &sample.text_offset);
  return {ChunkOf({{"index", sample.index},
                   {"text", echo->text},
                   {"logprobs", std::move(log_probs)},
                   {"finish_reason", nullptr}})};
}

// A chunk with a change of a chat's message.
Json OpenAiFormat::DeltaOf(const SampleAnswer& sample, Json delta,
                           const std::vector<TokenLogProbs>* log_probs) const {
  return ChunkOf({{"index", sample.index},
                  {"delta", std::move(delta)},
                  {"logprobs", log_probs == nullptr ? Json(nullptr) : ChatLogProbs(*log_probs)},
                  {"finish_reason", nullptr}});
}

Events OpenAiFormat::CallPiece(SampleAnswer& sample, std::string_view text,
                               const std::vector<TokenLogProbs>* log_probs) {
  const auto is_call = [](const AnswerBlock& block) {
    return block.kind == AnswerBlock::Kind::kCall;
  };
  Json call = {{"index", std::ranges::count_if(sample.blocks, is_call) - 1}};
  if (text.empty()) {
    call.update(CallJson(sample.blocks.back(), ""));
  } else {
    call["function"] = {{"arguments", text}};
  }
  return {DeltaOf(sample, {{"tool_calls", Json::array({std::move(call)})}}, log_probs)};
}

Events OpenAiFormat::Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
                           const std::vector<TokenLogProbs>* log_probs) {
  if (use_ == TextUse::kChat) {
    const bool thinks = part == AnswerPart::kReasoning;
    if (text.empty() && sample.has_tools) return {DeltaOf(sample, Json::object(), log_probs)};
    return {DeltaOf(sample, {{thinks ? "reasoning_content" : "content", text}}, log_probs)};
  }
  Json lists;
  if (log_probs != nullptr) lists = ListLogProbs(nullptr, *log_probs, &sample.text_offset);
  return {ChunkOf({{"index", sample.index},
                   {"text", text},
                   {"logprobs", std::move(lists)},
                   {"finish_reason", nullptr}})};
}

Events OpenAiFormat::End(SampleAnswer& sample) {
  Json choice = {{"index", sample.index}};
  if (use_ == TextUse::kCompletion) {
    choice["text"] = "";
  } else {
    choice["delta"] = Json::object();
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = sample.finish_reason;
  choice["seed"] = sample.seed;
  Json chunk = ChunkOf(std::move(choice));
  chunk["timings"] = TimingsJson(sample);
  return {std::move(chunk)};
}

Events OpenAiFormat::Progress(SampleAnswer& sample, const PromptProgress& progress) {
  Json chunk = Frame(FrameUse::kChunk);
  chunk["prompt_progress"] = ProgressJson(sample, progress);
  return {std::move(chunk)};
}

Events OpenAiFormat::UsageEvents(const TokenCounts& usage) {
  Json chunk = Frame(FrameUse::kChunk);
  chunk["usage"] = UsageJson(usage);
  return {std::move(chunk)};
}

}  // namespace kvant::tools
