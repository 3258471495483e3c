#include "tools/embed/text_input.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "base/result.h"
#include "formats/json.h"
#include "tools/options/groups/text_group.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

Status TakeJsonLine(const std::string& line, InputText& out) {
  const auto wrong = [&out](std::string_view found) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: expected a JSON string, or {{\"text\": TEXT}} with an \"id\" if wanted, "
                     "found {}",
                     out.where, found);
  };
  auto entry = formats::ParseJson(line, "line");
  if (!entry.ok() || line.find('\0') != std::string::npos) return wrong("no valid JSON");
  if (entry->is_string()) {
    out.text = entry->get<std::string>();
    return {};
  }
  if (!entry->is_object() || !entry->contains("text") || !(*entry)["text"].is_string()) {
    return wrong("neither");
  }
  for (const auto& [key, value] : entry->items()) {
    if (key == "id") out.id = value;
    if (key != "id" && key != "text") return wrong(fmt::format("the key \"{}\"", Visible(key)));
  }
  out.text = (*entry)["text"].get<std::string>();
  return {};
}

// The lines of a text; the end of the last line begins no further one.
std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

void TextInput::Add(OptionList& list, const std::string& what, Texts accepted) {
  list.Group("Input");
  if (accepted == Texts::kAccepted) {
    list.Texts("-p,--prompt", &texts, "TEXT", "A text; may be given several times");
  }
  list.Text("-f,--file", &file, "FILE",
            "Read the " + what + " from a file, one a line; - is standard input");
  list.Text(
      "--jsonl", &lines_of_json, "FILE",
      "Read the " + what +
          " from lines of JSON: a string each, or {\"text\": TEXT}, with an \"id\" if wanted");
}

Result<std::vector<InputText>> TextInput::Read(const Positionals& positionals) const {
  const int ways = (texts.empty() ? 0 : 1) + (file.has_value() || positionals.stdin_text ? 1 : 0) +
                   (lines_of_json.has_value() ? 1 : 0);
  if (ways != 1) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: use one of -p TEXT, -f FILE, --jsonl FILE, or - for "
                     "standard input",
                     ways == 0 ? "no text given" : "texts come in more than one way");
  }
  std::vector<InputText> read;
  for (const std::string& text : texts) {
    read.push_back({text, texts.size() == 1 ? "-p" : fmt::format("-p number {}", read.size() + 1)});
  }
  if (texts.empty()) {
    TextGroup source;
    source.file = lines_of_json.has_value() ? lines_of_json : file;
    KVANT_ASSIGN(const auto content, source.Read(positionals));
    const bool from_stdin = !source.file.has_value() || source.file == "-";
    const std::string name = from_stdin ? "standard input" : *source.file;
    for (std::string& line : LinesOf(*content)) {
      read.push_back({std::move(line), fmt::format("{}: line {}", name, read.size() + 1)});
    }
    if (read.empty()) return MakeError(ErrorCode::kInvalid, "{}: no texts", name);
  }
  for (InputText& text : read) {
    if (lines_of_json.has_value()) {
      const std::string line = std::exchange(text.text, "");
      KVANT_TRY(TakeJsonLine(line, text));
    }
    if (text.text.empty()) {
      return MakeError(ErrorCode::kInvalid, "{}: expected a text, found none", text.where);
    }
  }
  return read;
}

}  // namespace kvant::tools
