// kvant template: a conversation as the text or the token ids that a model's template makes of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/counted.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/chat.h"
#include "tools/commands.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"
#include "tools/options/model_names.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kTemplateHelp = {
    "MODEL MESSAGES.json [OPTIONS]",
    "Prints the text that the model's chat template makes of a conversation. MESSAGES.json is a\n"
    "JSON array of messages with role, content and whatever else the template knows (tool_calls,\n"
    "reasoning_content ...); \"-\" is standard input. The file of the model may hold a\n"
    "vocabulary alone. The text of a message never becomes a control token: --ids shows it.",
    "  kvant template model.gguf messages.json\n"
    "  kvant template model.gguf messages.json --tools tools.json --ids\n"
    "  echo '[{\"role\":\"user\",\"content\":\"Hello\"}]' | kvant template model.gguf - "
    "--chat-template chatml\n",
};

struct TemplateOptions {
  ModelGroup model;
  std::optional<std::string> chat_template;
  std::optional<std::string> tools;
  std::optional<std::string> variables;
  bool no_generation_prompt = false;
  bool ids = false;
  bool json = false;
};

Result<std::string> ReadText(const std::string& path) {
  TextGroup group;
  Positionals positionals;
  if (path == "-") {
    positionals.stdin_text = true;
  } else {
    group.file = path;
  }
  KVANT_ASSIGN(auto text, group.Read(positionals));
  return std::move(text).value_or("");
}

Status Template(const TemplateOptions& options, const std::string& model,
                const std::string& messages, ResultStream& out) {
  ChatRenderOptions render;
  render.add_generation_prompt = !options.no_generation_prompt;
  render.variables = options.variables.value_or("");
  if (options.tools.has_value()) {
    KVANT_ASSIGN(render.tools, ReadText(*options.tools));
  }
  KVANT_ASSIGN(const std::string conversation, ReadText(messages));
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(model, FileAccess::kMap,
                                                        formats::UnreadableTensors::kListed));
  KVANT_ASSIGN(const auto tokenizer, Tokenizer::Create(file, options.model.Options().tokenizer));
  auto parsed = options.chat_template.has_value()
                    ? ChatTemplate::Named(*tokenizer, *options.chat_template)
                    : ChatTemplate::OfFile(file, *tokenizer);
  if (!parsed.ok() && parsed.error().code == ErrorCode::kNotSupported) {
    return MakeError(ErrorCode::kNotSupported, "{}; --chat-template names another one",
                     parsed.error().message);
  }
  if (!parsed.ok()) return parsed.error();
  KVANT_ASSIGN(const ChatText text, parsed->RenderJson(conversation, render));
  if (!options.ids && !options.json) {
    out.Write(text.text);
    out.EndLineOnTerminal();
    return {};
  }
  KVANT_ASSIGN(const auto ids, parsed->Tokens(text));
  if (!options.json) {
    out.Write(fmt::format("{}\n", fmt::join(ids, " ")));
    return {};
  }
  Json object;
  object["text"] = text.text;
  object["ids"] = ids;
  out.Write(Dump(object) + "\n");
  return {};
}

}  // namespace

int TemplateCommand(CommandLine& line) {
  TemplateOptions options;
  OptionList list;
  options.model.AddPath(list);
  options.model.AddPre(list);
  list.Group("Conversation");
  list.Text("--chat-template", &options.chat_template, "NAME|FILE",
            "Use this template: chatml, llama2, llama3, gemma-it, zephyr or a file",
            "the model's own");
  list.Text("--tools", &options.tools, "FILE", "A JSON array of tools that the model may call");
  list.Text("--chat-template-kwargs", &options.variables, "JSON",
            "Further variables of the template: {\"enable_thinking\": false}");
  list.Flag("--no-generation-prompt", &options.no_generation_prompt,
            "Do not begin an assistant's message");
  list.Group("Output");
  list.Flag("--ids", &options.ids, "Print token ids on one line instead of the text");
  list.Flag("--json", &options.json, "Print one JSON object: text, ids");
  if (const auto code = line.Parse(list, kTemplateHelp)) return *code;
  std::vector<std::string> words = line.positionals();
  if (options.model.option_path.has_value())
    words.insert(words.begin(), *options.model.option_path);
  if (words.size() != 2) {
    return line.UsageError(fmt::format("expected MODEL and MESSAGES.json, found {}",
                                       Counted(words.size(), "argument")));
  }
  ResultStream out;
  const auto model = FindModel(words[0]);
  if (!model.ok()) return Fail(model.error());
  const Status status = Template(options, *model, words[1], out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
