// Grammars of calls, from the description that the reader of answers has, too.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/json_schema.h"
#include "engine/text/calls/call_cursor.h"
#include "engine/text/calls/call_header.h"
#include "engine/text/calls/call_values.h"
#include "engine/text/calls/tool_list.h"
#include "kvant/tokenizer.h"
#include "kvant/tool_calls.h"

namespace kvant {
namespace {

using Form = ToolFormat::Form;
using SchemaJson = nlohmann::ordered_json;

std::string DumpSchema(const SchemaJson& json) {
  return json.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

constexpr std::string_view kCommentary = "<|channel|>commentary";
constexpr std::string_view kRecipient = " to=functions.";  // behind it

// A text in quotes as GBNF has it, whose escapes are those of JSON.
std::string QuotedForGbnf(std::string_view text) { return '"' + EscapedForJson(text) + '"'; }

// One character that is none of these, as a class of GBNF.
std::string NoneOf(std::string_view bytes) {
  std::string out = "[^";
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
  return out + ']';
}

// Texts without a mark in ASCII whose first byte stands in it only once: after a part of the mark
// there comes a byte that does not go on with it, or the first byte again.
std::string TextWithout(std::string_view mark) {
  const std::string first = QuotedForGbnf(mark.substr(0, 1));
  // From the longest part of the mark to the shortest.
  std::string inner;
  for (size_t i = mark.size() - 1; i >= 1; --i) {
    const std::string wrong = NoneOf(std::string{mark[i], mark[0]});
    inner = inner.empty()
                ? wrong
                : fmt::format("{} | {} ({})", wrong, QuotedForGbnf(mark.substr(i, 1)), inner);
  }
  std::string parts;
  for (size_t i = 1; i < mark.size(); ++i) {
    parts += (parts.empty() ? "" : " | ") + QuotedForGbnf(mark.substr(1, i - 1));
  }
  return fmt::format("({} | {} (({}) {})* ({}))* ({} (({}) {})* ({}))?", NoneOf(mark.substr(0, 1)),
                     first, parts, first, inner, first, parts, first, parts);
}

class ToolGrammarWriter {
 public:
  ToolGrammarWriter(const ToolFormat& format, const ToolList& tools, const Tokenizer& tokenizer)
      : format_(format), tools_(tools), tokenizer_(tokenizer) {}

  Result<std::string> Write(const ToolChoice& choice) {
    std::string calls;
    for (size_t i = 0; i < tools_.tools().size(); ++i) {
      const ToolEntry& tool = tools_.tools()[i];
      if (choice.kind == ToolChoice::Kind::kNamed && tool.name != choice.name) continue;
      KVANT_ASSIGN(const std::string call, Call(tool, i));
      const std::string rule = fmt::format("call{}", i);
      AddRule(rule, call);
      calls += (calls.empty() ? "" : " | ") + rule;
    }
    const bool is_behind_channel =
        format_.form == Form::kChannels && choice.kind == ToolChoice::Kind::kAuto;
    std::string open = Mark(format_.call_open);
    if (format_.form == Form::kChannels && !is_behind_channel) open = Mark(kCommentary);
    AddRule("call", fmt::format("{} ({}) {}", open, calls, Mark(format_.call_close)));
    const std::string first =
        format_.opens_in_prompt ? fmt::format("({}) {}", calls, Mark(format_.call_close)) : "call";
    const bool is_parallel =
        choice.is_parallel && format_.is_parallel && choice.kind != ToolChoice::Kind::kNamed;
    std::string more;
    if (is_parallel) {
      const std::string between = format_.is_array ? QuotedForGbnf(", ") : Mark(format_.separator);
      more = fmt::format("({} call)*", between);
    }
    const char* const begin = format_.is_array ? "\"[\"" : "";
    const char* const end = format_.is_array ? "\"]\"" : "";
    std::string root = fmt::format("{} {} {} {} {} {}", Mark(format_.section_open), begin, first,
                                   more, end, Mark(format_.section_close));
    if (choice.kind == ToolChoice::Kind::kAuto && IsBareFormat(format_)) {
      // Without a mark an answer is a call where it begins as one.
      AddRule("free", "[ \\t\\r\\n]* ([^ \\t\\r\\n\\x5b\\x7b] .*)?");
      root = fmt::format("free | {}", root);
    }
    if (choice.kind == ToolChoice::Kind::kAuto && format_.opens_in_prompt) {
      // The mark at the end of the prompt may become a skipped mark, and content behind it.
      for (const std::string& skipped : format_.skipped) {
        if (!skipped.starts_with(format_.call_open)) continue;
        root = fmt::format("{} .* | {}", Mark(skipped.substr(format_.call_open.size())), root);
      }
    }
    return "root ::= " + root + "\n" + rules_;
  }

 private:
  void AddRule(const std::string& name, const std::string& definition) {
    rules_ += name + " ::= " + definition + "\n";
  }

  // A mark, in which control tokens are tokens.
  std::string Mark(std::string_view mark) const {
    const auto ids = tokenizer_.Encode(mark, {.add_special = false, .parse_special = true});
    std::string out;
    std::string text;
    const auto flush = [&] {
      if (!text.empty()) out += QuotedForGbnf(std::exchange(text, "")) + ' ';
    };
    const bool is_spelt = ids.ok() && tokenizer_.Decode(*ids, {.special = true}) == mark;
    if (!is_spelt) return mark.empty() ? "" : QuotedForGbnf(mark);
    for (size_t i = 0; i < ids->size(); ++i) {
      const TokenId id = (*ids)[i];
      if (!tokenizer_.is_control(id)) {
        const std::string bytes = tokenizer_.TokenBytes(id, {});
        // A tokenizer may put a blank in front of every text, which is no part of the mark.
        const bool is_added = i == 0 && bytes.starts_with(' ') && mark.front() != ' ';
        text += bytes.substr(is_added ? 1 : 0);
      } else if (!tokenizer_.is_end_of_generation(id)) {
        flush();
        out += fmt::format("<[{}]> ", id);
      }
    }
    flush();
    return out;
  }

  Result<std::string> Call(const ToolEntry& tool, size_t number) {
    switch (format_.form) {
      case Form::kJson: return JsonCall(tool, number);
      case Form::kNamed: return NamedCall(tool, number);
      case Form::kTagged: return TaggedCall(tool, number);
      case Form::kPythonic:
      case Form::kBraces: return ItemsCall(tool, number);
      case Form::kChannels: break;
    }
    KVANT_ASSIGN(const std::string arguments, Arguments(tool, number));
    return fmt::format("{} {} {}", QuotedForGbnf(std::string(kRecipient) + tool.name),
                       Mark(" <|constrain|>json<|message|>"), arguments);
  }

  Result<std::string> JsonCall(const ToolEntry& tool, size_t number) {
    KVANT_ASSIGN(const std::string arguments, Arguments(tool, number));
    const auto key = [](const std::string& name) { return '"' + EscapedForJson(name) + "\": "; };
    std::string open = "{";
    std::string before;
    std::string behind;
    if (!format_.id_key.empty()) {
      const std::string id = fmt::format("{} {} \"\\\"\"", QuotedForGbnf(key(format_.id_key) + '"'),
                                         "[a-zA-Z0-9]{1,9}");
      if (format_.id_is_first) {
        before = fmt::format("\"{{\" {} \", \"", id);
        open = "";
      } else {
        behind = fmt::format("\", \" {}", format_.id_key == "id" && format_.is_array
                                              ? fmt::format("{} [a-zA-Z0-9]{{9}} \"\\\"\"",
                                                            QuotedForGbnf(key("id") + '"'))
                                              : id);
      }
    }
    if (!format_.wrapper_key.empty()) open += key(format_.wrapper_key) + '{';
    open += key(format_.name_key) + '"' + EscapedForJson(tool.name) + "\", " +
            key(format_.arguments_key);
    const char* const inner = format_.wrapper_key.empty() ? "" : "\"}\"";
    return fmt::format("{} {} {} {} {} \"}}\"", before, QuotedForGbnf(open), arguments, inner,
                       behind);
  }

  Result<std::string> NamedCall(const ToolEntry& tool, size_t number) {
    KVANT_ASSIGN(const std::string arguments, Arguments(tool, number));
    std::string name = QuotedForGbnf(tool.name);
    if (format_.name_in_id) name = QuotedForGbnf("functions." + tool.name + ":") + " [0-9]{1,3}";
    if (!format_.id_open.empty()) name += ' ' + Mark(format_.id_open) + " [a-zA-Z0-9]{9}";
    return fmt::format("{} {} {}", name, Mark(format_.name_close), arguments);
  }

  // The arguments as one JSON object.
  Result<std::string> Arguments(const ToolEntry& tool, size_t number) {
    if (tool.parameters.is_null()) return std::string("\"{}\"");
    SchemaJson schema = tool.parameters;
    if (!schema.contains("type")) schema["type"] = "object";
    KVANT_ASSIGN(const std::string element, Schema(schema, tool, "/parameters", "object"));
    const std::string rule = fmt::format("arguments{}", number);
    AddRule(rule, element);
    return rule;
  }

  // An element for a schema; for one that cannot be enforced, that of any value of a type, unless
  // the tool is strict.
  Result<std::string> Schema(const SchemaJson& schema, const ToolEntry& tool,
                             const std::string& place, const std::string& type) {
    const std::string text = DumpSchema(schema);
    grammar::GrammarBuilder scratch;
    const auto closed = grammar::AddJsonSchema(scratch, text, {});
    if (closed.ok()) return "%json " + text;
    if (tool.is_strict) {
      return MakeError(closed.error().code, "tool {}: {}: {}", tool.name, place,
                       closed.error().message);
    }
    const auto open = grammar::AddJsonSchema(scratch, text, {.allows_unknown = true});
    if (open.ok()) return "%json-open " + text;
    return type.empty() ? std::string("%json {}")
                        : "%json " + DumpSchema(SchemaJson{{"type", type}});
  }

  // ---- Arguments that are no JSON object --------------------------------------------------------

  struct Parameter {
    std::string name;
    SchemaJson schema;
    bool is_required = false;
  };

  // The parameters in their order. kInvalid for a strict tool whose schema says more than which
  // there are, which must be there and what each may be.
  Result<std::vector<Parameter>> Parameters(const ToolEntry& tool) const {
    std::vector<Parameter> out;
    if (tool.parameters.is_null()) return out;
    for (const auto& [key, value] : tool.parameters.items()) {
      const bool is_known = key == "type" || key == "properties" || key == "required" ||
                            key == "title" || key == "description" || key == "$schema" ||
                            key == "additionalProperties";
      if (is_known || !tool.is_strict) continue;
      return MakeError(ErrorCode::kInvalid,
                       "tool {}: /parameters/{}: not possible in the format {}, whose arguments "
                       "are no JSON",
                       tool.name, key, format_.name);
    }
    const auto properties = tool.parameters.find("properties");
    if (properties == tool.parameters.end() || !properties->is_object()) return out;
    const SchemaJson required = tool.parameters.value("required", SchemaJson::array());
    for (const auto& [name, schema] : properties->items()) {
      const bool is_required = required.is_array() &&
                               std::find(required.begin(), required.end(), name) != required.end();
      out.push_back({name, schema, is_required});
    }
    return out;
  }

  // All in their order, with `separator` between two; what is not required may be left out.
  static std::string InOrder(const std::vector<std::string>& elements,
                             const std::vector<Parameter>& parameters,
                             const std::string& separator) {
    // From the last to the first: what may follow where nothing came, and where something did.
    std::string fresh = "\"\"";
    std::string after;
    for (size_t i = elements.size(); i-- > 0;) {
      const std::string first = fmt::format("({} {})", elements[i], after);
      const bool may_miss = !parameters[i].is_required;
      fresh = may_miss ? fmt::format("({} | {})", first, fresh) : first;
      after = fmt::format("({} {}){} {}", separator, elements[i], may_miss ? "?" : "", after);
    }
    return fresh;
  }

  Result<std::string> TaggedCall(const ToolEntry& tool, size_t number) {
    KVANT_ASSIGN(const auto parameters, Parameters(tool));
    std::vector<std::string> elements;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      KVANT_ASSIGN(const std::string value, TaggedValue(tool, parameter));
      const std::string rule = fmt::format("argument{}x{}", number, i);
      AddRule(rule, fmt::format("{} {} {} {} {}", Mark(format_.argument_open),
                                QuotedForGbnf(parameter.name), Mark(format_.key_close), value,
                                Mark(format_.argument_close)));
      elements.push_back(rule);
    }
    std::string all;
    for (size_t i = 0; i < elements.size(); ++i) {
      all += elements[i] + (parameters[i].is_required ? " " : "? ");
    }
    return fmt::format("{} {} {}", QuotedForGbnf(tool.name), Mark(format_.name_close), all);
  }

  Result<std::string> TaggedValue(const ToolEntry& tool, const Parameter& parameter) {
    const ToolTypes types = tools_.TypesOf(tool.name, parameter.name);
    const std::string place = "/parameters/properties/" + parameter.name;
    if (types != kTypeText) return Schema(parameter.schema, tool, place, "");
    if (const auto values = parameter.schema.find("enum"); values != parameter.schema.end()) {
      std::string out;
      for (const SchemaJson& value : *values) {
        if (!value.is_string()) continue;
        out += (out.empty() ? "" : " | ") + QuotedForGbnf(value.get<std::string>());
      }
      return '(' + out + ')';
    }
    for (const auto& [key, value] : parameter.schema.items()) {
      const bool is_known = key == "type" || key == "title" || key == "description" ||
                            key == "default" || key == "examples";
      if (is_known || !tool.is_strict) continue;
      return MakeError(ErrorCode::kInvalid,
                       "tool {}: {}/{}: not possible in the format {}, whose texts are no JSON",
                       tool.name, place, key, format_.name);
    }
    return TextWithout(TrimmedMark(format_.argument_close));
  }

  Result<std::string> ItemsCall(const ToolEntry& tool, size_t number) {
    KVANT_ASSIGN(const auto parameters, Parameters(tool));
    const bool is_python = format_.form == Form::kPythonic;
    std::vector<std::string> elements;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      const std::string place = "/parameters/properties/" + parameter.name;
      KVANT_ASSIGN(std::string value, Schema(parameter.schema, tool, place, ""));
      if (!is_python) {
        KVANT_ASSIGN(value, BracedValue(tool, parameter));
      }
      const std::string rule = fmt::format("argument{}x{}", number, i);
      AddRule(rule, QuotedForGbnf(parameter.name + (is_python ? "=" : ":")) + ' ' + value);
      elements.push_back(rule);
    }
    const std::string separator = is_python ? "\", \"" : "\",\"";
    return fmt::format("{} {} {}", QuotedForGbnf(tool.name + (is_python ? "(" : "{")),
                       InOrder(elements, parameters, separator), is_python ? "\")\"" : "\"}\"");
  }

  // A value of Gemma 4: its type, and which texts there are; nothing more.
  Result<std::string> BracedValue(const ToolEntry& tool, const Parameter& parameter) {
    if (std::exchange(has_braced_, true) == false) {
      const std::string quote = Mark(kBracedQuote);
      AddRule("bracedtext", fmt::format("{} {} {}", quote, TextWithout(kBracedQuote), quote));
      AddRule("bracednumber", "\"-\"? (\"0\" | [1-9] [0-9]{0,20}) (\".\" [0-9]{1,20})?");
      AddRule("bracedlist", "\"[\" (braced (\",\" braced)*)? \"]\"");
      AddRule("bracedmember", "[a-zA-Z0-9_]{1,64} \":\" braced");
      AddRule("bracedobject", "\"{\" (bracedmember (\",\" bracedmember)*)? \"}\"");
      AddRule("braced",
              "bracedtext | bracednumber | \"true\" | \"false\" | \"null\" | bracedlist | "
              "bracedobject");
    }
    if (tool.is_strict) {
      return MakeError(
          ErrorCode::kInvalid,
          "tool {}: strict: not possible in the format {}, whose arguments are no JSON", tool.name,
          format_.name);
    }
    const ToolTypes types = tools_.TypesOf(tool.name, parameter.name);
    std::string out;
    const auto add = [&out](const char* element) {
      out += (out.empty() ? "" : " | ") + std::string(element);
    };
    if ((types & kTypeText) != 0) add("bracedtext");
    if ((types & kTypeNumber) != 0) add("bracednumber");
    if ((types & kTypeBoolean) != 0) add("\"true\" | \"false\"");
    if ((types & kTypeNull) != 0) add("\"null\"");
    if ((types & kTypeOther) != 0) add("bracedlist | bracedobject");
    return '(' + out + ')';
  }

  const ToolFormat& format_;
  const ToolList& tools_;
  const Tokenizer& tokenizer_;
  std::string rules_;
  bool has_braced_ = false;
};

// The marks with which the grammar's own text begins where an answer may have content before calls.
GrammarTriggers TriggersOf(const ToolFormat& format, const Tokenizer& tokenizer) {
  GrammarTriggers out;
  if (format.form == Form::kChannels) {
    out.words.emplace_back(kRecipient);
    return out;
  }
  if (format.opens_in_prompt) return out;
  const std::string_view section = FirstOfMark(format.section_open);
  const std::string_view mark = section.empty() ? FirstOfMark(format.call_open) : section;
  if (mark.empty()) return out;
  const auto ids = tokenizer.Encode(mark, {.add_special = false, .parse_special = true});
  if (ids.ok() && !ids->empty() && tokenizer.is_control(ids->front())) {
    out.tokens.push_back(ids->front());
  } else {
    out.words.emplace_back(mark);
  }
  return out;
}

}  // namespace

ToolChoice ToolChoice::Of(std::string_view text) {
  if (text == "auto") return {};
  if (text == "none") return {.kind = Kind::kNone};
  if (text == "required") return {.kind = Kind::kRequired};
  return {.kind = Kind::kNamed, .name = std::string(text)};
}

Result<GrammarText> ToolGrammar(const ToolFormat& format, std::string_view tools,
                                const ToolChoice& choice, const Tokenizer& tokenizer) {
  if (choice.kind == ToolChoice::Kind::kNone) {
    return MakeError(ErrorCode::kNotSupported, "tools: there is no grammar of answers without");
  }
  KVANT_ASSIGN(const ToolList list, ToolList::Parse(tools));
  if (list.empty()) {
    return MakeError(ErrorCode::kInvalid, "the tools: expected at least one, found none");
  }
  if (choice.kind == ToolChoice::Kind::kNamed && list.Find(choice.name) == nullptr) {
    return MakeError(ErrorCode::kInvalid, "tool choice: expected the name of a tool, found '{}'",
                     choice.name);
  }
  GrammarText out;
  KVANT_ASSIGN(out.text, ToolGrammarWriter(format, list, tokenizer).Write(choice));
  if (choice.kind == ToolChoice::Kind::kAuto) out.triggers = TriggersOf(format, tokenizer);
  return out;
}

}  // namespace kvant
