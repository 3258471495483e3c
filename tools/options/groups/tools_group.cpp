#include "tools/options/groups/tools_group.h"

#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"

namespace kvant::tools {

void ToolsGroup::Add(OptionList& list, const std::string& about) {
  list.Text("--tools", &file, "FILE",
            "Tools that the model may call: a JSON array as in OpenAI's API. " + about);
  const auto take_choice = [this](const std::string& text) -> Status {
    if (text.empty()) return MakeError(ErrorCode::kInvalid, "expected a choice, found none");
    choice = text;
    return {};
  };
  list.Checked("--tool-choice", take_choice, "auto|none|required|NAME",
               "Whether an answer may call tools, may not, must, or must call the one of this name",
               "auto");
}

Status ToolsGroup::Check() const {
  if (file.has_value() || choice == "auto") return {};
  return MakeError(ErrorCode::kInvalid, "--tool-choice: expected --tools beside it");
}

Result<std::string> ToolsGroup::Read() const {
  if (!file.has_value()) return std::string();
  TextGroup source;
  source.file = file;
  KVANT_ASSIGN(const auto text, source.Read({}));
  const Status tools = CheckTools(text.value_or(""));
  if (tools.ok()) return text.value_or("");
  return MakeError(tools.error().code, "--tools {}: {}", *file, tools.error().message);
}

std::string CallLine(const ToolCall& call) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  return Dump(Json{{"id", call.id}, {"name", call.name}, {"arguments", arguments}}) + "\n";
}

}  // namespace kvant::tools
