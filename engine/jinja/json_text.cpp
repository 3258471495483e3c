// tojson: what Python's json.dumps writes.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "engine/jinja/native_code.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

std::string EscapeJson(char32_t c, bool ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  const auto code = static_cast<uint32_t>(c);
  if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000)) {
    if (code != 0x7F) return fmt::format("\\u{:04x}", code);
  }
  if (ascii && code >= 0x10000) {
    const uint32_t rest = code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }
  std::string same;
  AppendUtf8(c, same);
  return same;
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  Status Write(const Value& value) {
    KVANT_TRY(run_.Charge(8));
    if (value.IsText()) {
      WriteText(value.text());
    } else if (value.IsNone()) {
      out_.Append("null");
    } else if (value.IsBool()) {
      out_.Append(value.boolean() ? "true" : "false");
    } else if (value.IsInt()) {
      out_.Append(WholeText(value.whole()));
    } else if (value.IsFloat()) {
      out_.Append(Number(value.number()));
    } else if (value.IsDict()) {
      return WriteDict(value.dict());
    } else if (value.IsSequence(Sequence::Kind::kList) ||
               value.IsSequence(Sequence::Kind::kTuple)) {
      return WriteList(value.sequence().items);
    } else if (value.IsSequence(Sequence::Kind::kGenerator)) {
      // Python has no JSON of generators. llama.cpp writes a list, and templates made for it
      // rely on that.
      const Sequence& left = value.sequence();
      const size_t taken = std::exchange(left.taken, left.items.size());
      return WriteList(std::span(left.items).subspan(taken));
    } else if (value.IsUndefined()) {
      return Wrong("{}", value.UndefinedMessage());
    } else {
      return Wrong("a {} cannot be written as JSON", value.TypeName());
    }
    return {};
  }
  Text TakeText() { return std::move(out_); }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void WriteText(const Text& text) {
    out_.Append("\"");
    out_.Append(MapCharacters(text, [this](char32_t c) { return EscapeJson(c, style_.ascii); }));
    out_.Append("\"");
  }

  // The begin of an item's line, or of the line of what closes a list.
  void Break() {
    if (!style_.lines) return;
    out_.Append("\n");
    for (int i = 0; i < depth_; ++i) out_.Append(style_.indent);
  }

  Status WriteList(std::span<const Value> items) {
    if (items.empty()) {
      out_.Append("[]");
      return {};
    }
    out_.Append("[");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      Break();
      KVANT_TRY(run_.Charge(style_.indent.size() * static_cast<size_t>(depth_)));
      KVANT_TRY(Write(items[i]));
    }
    --depth_;
    Break();
    out_.Append("]");
    return {};
  }

  static Result<Text> KeyText(const Value& key) {
    if (key.IsText()) return key.text();
    if (key.IsNone()) return Text("null");
    if (key.IsBool()) return Text(key.boolean() ? "true" : "false");
    if (key.IsInt()) return Text(WholeText(key.whole()));
    if (key.IsFloat()) return Text(Number(key.number()));
    return Wrong("a {} cannot be a key in JSON", key.TypeName());
  }

  Status WriteDict(const Dict& dict) {
    if (dict.items.empty()) {
      out_.Append("{}");
      return {};
    }
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (style_.sort_keys) {
      const bool texts = std::all_of(items.begin(), items.end(),
                                     [](const auto& item) { return item.first.IsText(); });
      if (!texts) return Wrong("only keys that are strings can be sorted");
      std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
        return a.first.text().bytes() < b.first.text().bytes();
      });
    }
    out_.Append("{");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      Break();
      KVANT_TRY(run_.Charge(style_.indent.size() * static_cast<size_t>(depth_)));
      KVANT_ASSIGN(const Text key, KeyText(items[i].first));
      WriteText(key);
      out_.Append(style_.key_separator);
      KVANT_TRY(Write(items[i].second));
    }
    --depth_;
    Break();
    out_.Append("}");
    return {};
  }

  Run& run_;
  const JsonStyle& style_;
  Text out_;
  int depth_ = 0;
};

}  // namespace

Result<Text> ToJson(Run& run, const Value& value, const JsonStyle& style) {
  KVANT_TRY(run.Charge(value.weight()));
  JsonWriter writer(run, style);
  KVANT_TRY(writer.Write(value));
  return writer.TakeText();
}

Result<Value> FilterToJson(Run& run, const Value& self, const Bound& arguments) {
  JsonStyle style;
  style.ascii = arguments.Flag(0, false);
  style.sort_keys = arguments.Flag(3, false);
  const Value& indent = arguments[1];
  if (indent.IsText()) {
    style.lines = true;
    style.indent = indent.text().bytes();
  } else if (indent.IsWhole()) {
    if (indent.place() > 100) return Wrong("an indent of {} is too large", indent.place());
    style.lines = true;
    style.indent.assign(static_cast<size_t>(std::max<int64_t>(indent.place(), 0)), ' ');
  }
  if (style.lines) style.item_separator = Text(",");
  const Value& separators = arguments[2];
  if (separators.IsSequence() && separators.sequence().items.size() == 2) {
    const std::vector<Value>& both = separators.sequence().items;
    if (!both[0].IsText() || !both[1].IsText()) return Wrong("separators are two strings");
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  } else if (!separators.IsUndefined() && !separators.IsNone()) {
    return Wrong("separators are two strings, found {}", separators.TypeName());
  }
  KVANT_ASSIGN(Text text, ToJson(run, self, style));
  return run.Make(std::move(text));
}

}  // namespace kvant::jinja
