// Finds the format of a template's calls by comparison of what it renders.
//
// Names, keys and values of a call are words that no template has. Where they stand in the text
// shows which form the calls have; what stands around them, and between two calls, are the marks.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/result.h"
#include "engine/text/calls/call_cursor.h"
#include "engine/text/calls/format_rows.h"
#include "engine/text/calls/json_scan.h"
#include "kvant/tool_calls.h"

namespace kvant {
namespace {

using Form = ToolFormat::Form;
using ProbeJson = nlohmann::ordered_json;
constexpr size_t kNowhere = std::string_view::npos;

// Words with different first and last letters, none of which is a part of another one.
constexpr const char* kNames[2] = {"vfirstcallm", "wsecondcalln"};
constexpr const char* kKeys[2] = {"kfirstkeyg", "ksecondkeyh"};
constexpr const char* kValues[2] = {"jfirstvaluep", "jsecondvalueq"};
constexpr const char* kIds[2] = {"Zcall0001", "Zcall0002"};  // of nine letters and digits
constexpr const char* kContentWord = "Qcontentword0";
constexpr const char* kReasonWord = "Xreasonword0";

// ---- What is rendered ---------------------------------------------------------------------------

struct ProbeStyle {
  bool text_arguments = false;
  bool null_content = false;
};

ProbeJson ProbeCall(int number, ProbeStyle style) {
  const ProbeJson arguments = {{kKeys[0], kValues[0]}, {kKeys[1], kValues[1]}};
  ProbeJson given = arguments;
  if (style.text_arguments) given = arguments.dump();
  return {{"id", kIds[number]},
          {"type", "function"},
          {"function", {{"name", kNames[number]}, {"arguments", given}}}};
}

std::string ProbeTools() {
  ProbeJson tools = ProbeJson::array();
  for (const char* name : kNames) {
    const ProbeJson text = {{"type", "string"}, {"description", "a text"}};
    const ProbeJson parameters = {{"type", "object"},
                                  {"properties", {{kKeys[0], text}, {kKeys[1], text}}},
                                  {"required", ProbeJson::array({kKeys[0]})}};
    tools.push_back(
        {{"type", "function"},
         {"function", {{"name", name}, {"description", "a tool"}, {"parameters", parameters}}}});
  }
  return tools.dump();
}

bool HasText(std::string_view text, std::string_view part) { return text.find(part) != kNowhere; }

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat_template) : template_(chat_template) {}

  Result<std::string> Render(const std::vector<ProbeJson>& answers, bool with_tools,
                             bool add_generation_prompt = false) const {
    ProbeJson messages = ProbeJson::array();
    messages.push_back({{"role", "user"}, {"content", "a question"}});
    for (const ProbeJson& answer : answers) messages.push_back(answer);
    KVANT_ASSIGN(
        ChatText text,
        template_.RenderJson(messages.dump(), {.add_generation_prompt = add_generation_prompt,
                                               .tools = with_tools ? ProbeTools() : "",
                                               .now = 0}));
    return std::move(text.text);
  }

  bool TakesSystem() const {
    const ProbeJson messages = {{{"role", "system"}, {"content", kContentWord}},
                                {{"role", "user"}, {"content", "a question"}}};
    for (const bool with_tools : {true, false}) {
      const auto text = template_.RenderJson(messages.dump(),
                                             {.tools = with_tools ? ProbeTools() : "", .now = 0});
      if (text.ok()) return HasText(text->text, kContentWord);
    }
    return false;
  }

  // "" where the template does not render it.
  std::string Answer(const ProbeJson& answer) const {
    auto text = Render({answer}, true);
    return text.ok() ? std::move(*text) : std::string();
  }

  std::string Calls(int count, ProbeStyle style, const char* reason) const {
    ProbeJson calls = ProbeJson::array();
    for (int i = 0; i < count; ++i) calls.push_back(ProbeCall(i, style));
    ProbeJson answer = {{"role", "assistant"}, {"content", nullptr}};
    if (!style.null_content) answer["content"] = "";
    answer["tool_calls"] = calls;
    if (reason != nullptr) {
      for (const char* key : {"reasoning_content", "reasoning", "thinking", "tool_plan"}) {
        answer[key] = reason;
      }
    }
    return Answer(answer);
  }

 private:
  const ChatTemplate& template_;
};

// ---- Marks --------------------------------------------------------------------------------------

// How much of the beginnings is equal, without the beginning of a mark in < and >.
size_t EqualBeginning(std::string_view a, std::string_view b) {
  const auto size = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < size && a[length] == b[length]) ++length;
  const size_t open = a.substr(0, length).find_last_of("<>");
  if (open != kNowhere && a[open] == '<') length = open;
  return length;
}

size_t EqualEnd(std::string_view a, std::string_view b) {
  const auto size = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < size && a[a.size() - 1 - length] == b[b.size() - 1 - length]) ++length;
  const std::string_view end = a.substr(a.size() - length);
  const size_t close = end.find_first_of("<>");
  if (close != kNowhere && end[close] == '>') length -= close + 1;
  return length;
}

// ---- One call in a text -------------------------------------------------------------------------

// Where a call stands: `begin` is that of its object or its name, `end` is behind its arguments.
struct FoundCall {
  ToolFormat format;
  size_t begin = 0;
  size_t end = 0;
};

std::optional<FoundCall> FindObject(std::string_view text, size_t from, int number) {
  const size_t name = text.find(kNames[number], from);
  if (name == kNowhere) return std::nullopt;
  for (size_t at = text.find('{', from); at < name; at = text.find('{', at + 1)) {
    JsonScan scan;
    const size_t length = scan.Take(text.substr(at));
    if (scan.state() != JsonScan::State::kDone || at + length <= name) continue;
    const ProbeJson json = ProbeJson::parse(text.substr(at, length), nullptr, false);
    FoundCall found{{}, at, at + length};
    ToolFormat& format = found.format;
    const ProbeJson* object = &json;
    for (const auto& [key, value] : json.items()) {
      if (!value.is_object() || !HasText(value.dump(), kNames[number])) continue;
      format.wrapper_key = key;
      object = &value;
    }
    bool has_name = false;
    bool has_arguments = false;
    for (const auto& [key, value] : object->items()) {
      if (value == kNames[number]) {
        format.name_key = key;
        has_name = true;
      } else if (HasText(value.dump(), kKeys[0])) {
        format.arguments_key = key;
        has_arguments = value.is_object();
      }
    }
    bool was_named = false;
    for (const auto& [key, value] : json.items()) {
      was_named = was_named || HasText(value.dump(), kNames[number]);
      if (key != "id" && !key.ends_with("_id")) continue;
      format.id_key = key;
      format.id_is_first = !was_named;
    }
    if (!has_name || !has_arguments) return std::nullopt;
    return found;
  }
  return std::nullopt;
}

std::optional<FoundCall> FindNamed(std::string_view text, size_t from, int number) {
  const size_t name = text.find(kNames[number], from);
  if (name == kNowhere) return std::nullopt;
  const size_t behind = name + std::string_view(kNames[number]).size();
  FoundCall found{{.form = Form::kNamed}, name, 0};
  ToolFormat& format = found.format;
  for (size_t at = text.find('{', behind); at != kNowhere; at = text.find('{', at + 1)) {
    JsonScan scan;
    const size_t length = scan.Take(text.substr(at));
    const std::string_view object = text.substr(at, length);
    if (scan.state() != JsonScan::State::kDone || !HasText(object, kValues[1])) continue;
    format.name_close = text.substr(behind, at - behind);
    if (const size_t id = format.name_close.find(kIds[number]); id != kNowhere) {
      format.id_open = format.name_close.substr(0, id);
      format.name_close.erase(0, id + std::string_view(kIds[number]).size());
    }
    found.end = at + length;
    return found;
  }
  return std::nullopt;
}

std::optional<FoundCall> FindTagged(std::string_view text, size_t from, int number) {
  const size_t name = text.find(kNames[number], from);
  if (name == kNowhere) return std::nullopt;
  size_t at = name + std::string_view(kNames[number]).size();
  std::string_view between[4];  // before the first key, value, the second key, value
  for (int i = 0; i < 4; ++i) {
    const std::string_view word = i % 2 == 0 ? kKeys[i / 2] : kValues[i / 2];
    const size_t found = text.find(word, at);
    if (found == kNowhere) return std::nullopt;
    between[i] = text.substr(at, found - at);
    at = found + word.size();
  }
  FoundCall call{{.form = Form::kTagged}, name, at};
  ToolFormat& format = call.format;
  const size_t open = EqualEnd(between[0], between[2]);
  format.argument_open = between[0].substr(between[0].size() - open);
  format.name_close = between[0].substr(0, between[0].size() - open);
  format.argument_close = between[2].substr(0, between[2].size() - open);
  format.key_close = between[1];
  // Line ends belong to what stands before them.
  while (format.argument_open.starts_with('\n')) {
    format.argument_open.erase(0, 1);
    format.name_close += '\n';
    format.argument_close += '\n';
  }
  const bool is_tagged = !TrimmedMark(format.argument_open).empty() &&
                         !TrimmedMark(format.key_close).empty() &&
                         !TrimmedMark(format.argument_close).empty() && between[1] == between[3];
  if (!is_tagged) return std::nullopt;
  const std::string_view rest = text.substr(at);
  const size_t close = EqualBeginning(rest, format.argument_close);
  if (!HasText(rest.substr(0, close), TrimmedMark(format.argument_close))) return std::nullopt;
  call.end = at + close;
  return call;
}

// name(key='value', ...)
std::optional<FoundCall> FindPythonic(std::string_view text, size_t from, int number) {
  const size_t name = text.find(kNames[number], from);
  if (name == kNowhere) return std::nullopt;
  const size_t behind = name + std::string_view(kNames[number]).size();
  const size_t value = text.find(kValues[1], behind);
  const size_t close = value == kNowhere ? kNowhere : text.find(')', value);
  const bool is_call = text.substr(behind).starts_with('(') && close != kNowhere &&
                       HasText(text.substr(behind, close), std::string(kKeys[0]) + "=");
  if (!is_call) return std::nullopt;
  return FoundCall{{.form = Form::kPythonic}, name, close + 1};
}

std::optional<FoundCall> FindCall(std::string_view text, size_t from, int number) {
  for (const auto find : {FindObject, FindNamed, FindPythonic, FindTagged}) {
    if (auto found = find(text, from, number); found.has_value()) return found;
  }
  return std::nullopt;
}

// ---- All of an answer ---------------------------------------------------------------------------

// The text between what all answers begin and end with.
struct AnswerFrame {
  size_t begin = 0;
  size_t end = 0;  // bytes at the end of the text

  std::string_view Of(std::string_view text) const {
    return text.size() < begin + end ? std::string_view()
                                     : text.substr(begin, text.size() - begin - end);
  }
};

// Thoughts stand before calls: what is around them, and none of it in the marks of calls.
void FindReasoning(std::string_view with, ToolFormat& format) {
  const size_t word = with.find(kReasonWord);
  const size_t name = with.find(kNames[0]);
  if (word == kNowhere || word > name) return;
  const std::string_view behind = with.substr(word + std::string_view(kReasonWord).size());
  const std::string_view mark = TrimmedMark(behind);
  const char end = mark.starts_with('<') ? '>' : ']';
  const size_t close = mark.find(end);
  if (mark.empty() || (mark.front() != '<' && mark.front() != '[') || close == kNowhere) return;
  format.reasoning_open = TrimmedMark(with.substr(0, word));
  format.reasoning_close = mark.substr(0, close + 1);
}

std::string_view WithoutReasoning(std::string_view open, const ToolFormat& format) {
  for (const std::string* mark : {&format.reasoning_open, &format.reasoning_close}) {
    const std::string_view trimmed = TrimmedMark(open);
    if (mark->empty() || !trimmed.starts_with(*mark)) continue;
    open = trimmed.substr(mark->size());
    open.remove_prefix(std::min(open.find_first_not_of(kCallBlanks), open.size()));
  }
  return open;
}

// Brackets around all calls.
void TakeBrackets(std::string& open, std::string& close, ToolFormat& format) {
  const size_t last = open.find_last_not_of(kCallBlanks);
  const size_t first = close.find_first_not_of(kCallBlanks);
  const bool has_both =
      last != kNowhere && open[last] == '[' && first != kNowhere && close[first] == ']';
  if (!has_both) return;
  format.is_array = true;
  open.erase(last);
  close.erase(0, first + 1);
}

std::optional<ToolFormat> FormatOfTexts(std::string_view one, std::string_view two,
                                        std::string_view reasoned) {
  const auto call = FindCall(one, 0, 0);
  if (!call.has_value()) return std::nullopt;
  ToolFormat format = call->format;
  FindReasoning(reasoned, format);
  std::string open(WithoutReasoning(one.substr(0, call->begin), format));
  std::string close(one.substr(call->end));
  TakeBrackets(open, close, format);
  const auto first = FindCall(two, 0, 0);
  const auto second = first.has_value() ? FindCall(two, first->end, 1) : std::nullopt;
  format.is_parallel = second.has_value();
  if (format.is_array) {
    format.section_open = open;
    format.section_close = close;
  } else if (!second.has_value()) {
    format.call_open = open;
    format.call_close = close;
  } else {
    std::string between(two.substr(first->end, second->begin - first->end));
    const size_t call_open = EqualEnd(open, between);
    format.call_open = open.substr(open.size() - call_open);
    format.section_open = open.substr(0, open.size() - call_open);
    between.resize(between.size() - call_open);
    const size_t call_close = EqualBeginning(close, between);
    format.call_close = close.substr(0, call_close);
    format.section_close = close.substr(call_close);
    format.separator = between.substr(call_close);
  }
  // Blanks before the first mark belong to what an answer has before its calls.
  std::string& first_mark = format.section_open.empty() ? format.call_open : format.section_open;
  first_mark.erase(0, std::min(first_mark.find_first_not_of(kCallBlanks), first_mark.size()));
  return format;
}

std::optional<ToolFormat> FormatByComparison(const Prober& prober) {
  const std::string plain = prober.Answer({{"role", "assistant"}, {"content", kContentWord}});
  const size_t word = plain.rfind(kContentWord);
  for (const bool null_content : {false, true}) {
    for (const bool text_arguments : {false, true}) {
      const ProbeStyle style{text_arguments, null_content};
      const std::string one = prober.Calls(1, style, nullptr);
      if (one.empty() || word == kNowhere) continue;
      AnswerFrame frame;
      frame.begin = std::min(EqualBeginning(plain, one), word);
      frame.end = EqualEnd(std::string_view(plain).substr(frame.begin),
                           std::string_view(one).substr(frame.begin));
      const std::string two = prober.Calls(2, style, nullptr);
      const std::string reasoned = prober.Calls(1, style, kReasonWord);
      auto format = FormatOfTexts(frame.Of(one), frame.Of(two), frame.Of(reasoned));
      if (!format.has_value()) continue;
      format->text_arguments = text_arguments;
      format->null_content = null_content;
      const std::string_view body = frame.Of(plain);
      const size_t content = body.find(kContentWord);
      const std::string_view around[2] = {
          WithoutReasoning(body.substr(0, content), *format),
          body.substr(std::min(body.size(), content + std::string_view(kContentWord).size()))};
      for (const std::string_view mark : around) {
        if (!TrimmedMark(mark).empty()) format->skipped.emplace_back(TrimmedMark(mark));
      }
      return format;
    }
  }
  return std::nullopt;
}

// Which form of arguments and content the template takes, for a format that is known by name.
void FindStyle(const Prober& prober, ToolFormat& format) {
  for (const bool null_content : {false, true}) {
    for (const bool text_arguments : {false, true}) {
      const std::string text = prober.Calls(1, {text_arguments, null_content}, nullptr);
      const bool has_call = HasText(text, kValues[0]) && !HasText(text, "\\\"");
      const bool is_python_dict = HasText(text, std::string("{'") + kKeys[0]);
      if (!has_call || is_python_dict) continue;
      format.text_arguments = text_arguments;
      format.null_content = null_content;
      return;
    }
  }
  format.shows_calls = false;
}

}  // namespace

Result<ToolFormat> DetectToolFormat(const ChatTemplate& chat_template) {
  const Prober prober(chat_template);
  const auto without = prober.Render({}, false, true);
  const auto with = prober.Render({}, true, true);
  if (!without.ok() && !with.ok()) return with.error();
  const bool takes_system = prober.TakesSystem();
  const bool shows_tools = with.ok() && HasText(*with, kNames[0]);
  const std::string_view source = chat_template.source();
  if (const ToolFormat* certain = CertainFormat(source); certain != nullptr) {
    ToolFormat format = *certain;
    const std::string_view prompt = with.ok() ? *with : *without;
    const std::string_view open = FirstOfMark(format.section_open + format.call_open);
    const size_t end = prompt.find_last_not_of(kCallBlanks) + 1;
    format.opens_in_prompt = !open.empty() && prompt.substr(0, end).ends_with(open);
    format.shows_tools = shows_tools;
    format.takes_system = takes_system;
    FindStyle(prober, format);
    return format;
  }
  if (auto found = FormatByComparison(prober); found.has_value()) {
    found->name = NameOfFound(*found);
    found->shows_tools = shows_tools;
    found->takes_system = takes_system;
    const bool is_bare = TrimmedMark(found->section_open + found->call_open).empty();
    if (is_bare) found->skipped.emplace_back("<|python_tag|>");
    return std::move(*found);
  }
  const ToolFormat* likely = shows_tools ? LikelyFormat(source) : nullptr;
  ToolFormat format = likely != nullptr ? *likely : GenericFormat();
  format.shows_tools = shows_tools;
  format.shows_calls = false;
  format.takes_system = takes_system;
  return format;
}

}  // namespace kvant
