// Calls of tools in the texts of a job.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/text/answer_text.h"
#include "tools/serve/answer/text_job.h"

namespace kvant::tools {

// Reads the text of the model as thoughts, content and calls.
void TextJob::ReadCalls(Sample& sample, GenerateOptions& options) {
  const std::string& prompt = sample.prompt->text;
  options.special = options.special || tools_->marks_are_control;
  options.logits.grammar = tools_->grammar;
  options.logits.thoughts = ThoughtsBeforeCalls(*tools_->format, prompt, *served_.chat_template());
  sample.answer.has_tools = true;
  sample.calls.emplace(*tools_->format, tools_->tools, prompt,
                       [this, &sample](const auto& event) { return TakeEvent(sample, event); });
}

bool TextJob::TakeEvent(Sample& sample, const ToolEvent& event) {
  if (sample.stopped) return false;
  std::vector<AnswerBlock>& blocks = sample.answer.blocks;
  switch (event.kind) {
    case ToolEvent::Kind::kReasoning: return TakePart(sample, AnswerPart::kReasoning, event.text);
    case ToolEvent::Kind::kContent: return TakePart(sample, AnswerPart::kContent, event.text);
    case ToolEvent::Kind::kCallBegin:
      EndThoughts(sample);
      ReleaseContent(sample);
      blocks.push_back({.kind = AnswerBlock::Kind::kCall,
                        .id = IdOfCall(event),
                        .name = std::string(event.text)});
      EmitCall(sample, "");
      break;
    case ToolEvent::Kind::kArguments:
      blocks.back().text += event.text;
      EmitCall(sample, event.text);
      break;
    case ToolEvent::Kind::kCallEnd:
      blocks.back().is_complete = event.is_complete;
      if (fields_.stream) Send(format_->CallEnd(sample.answer));
      break;
  }
  return true;
}

// Content that might have become a stop text stands before the call.
void TextJob::ReleaseContent(Sample& sample) {
  const std::string held = sample.stops->Finish();
  sample.stops.emplace(fields_.stop_texts);
  if (!held.empty()) Emit(sample, AnswerPart::kContent, held);
}

// The id that the model wrote, unless an earlier call has it. Others have nine letters and digits,
// which is what templates take that check ids.
std::string TextJob::IdOfCall(const ToolEvent& event) {
  constexpr int kIdLength = 9;
  std::set<std::string>& ids = tools_->ids;
  std::string id(event.id);
  for (size_t number = ids.size(); id.empty() || ids.contains(id); ++number) {
    id = tools_->format->name_in_id ? fmt::format("functions.{}:{}", event.text, number)
                                    : RandomId("", kIdLength);
  }
  ids.insert(id);
  return id;
}

void TextJob::EmitCall(Sample& sample, std::string_view text) {
  EmitEvents(sample, [&](const std::vector<TokenLogProbs>* log_probs) {
    return format_->CallPiece(sample.answer, text, log_probs);
  });
}

// Whether a text that has ended by itself has called tools.
bool TextJob::HasCalled(const SampleAnswer& answer) {
  return std::ranges::any_of(answer.blocks, &AnswerBlock::is_complete);
}

}  // namespace kvant::tools
