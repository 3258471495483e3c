// "%s" % x and "{}".format(x): what templates use of Python's two kinds of formatting, which is
// strings, numbers, widths and precisions.
#include <algorithm>
#include <cmath>

#include "engine/jinja/natives.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {
namespace {

constexpr int64_t kFieldWidthMax = 10'000;

// [[fill]align][sign][0][width][,][.precision][type]; what both kinds share.
struct FieldStyle {
  char align = ' ';  // < > ^, or ' ' for the type's own
  char sign = '-';   // '-' for negative numbers only, '+', ' '
  std::string fill = " ";
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 's';
};

int64_t TakeDigits(std::string_view text, size_t* at) {
  int64_t value = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    value = std::min<int64_t>(value * 10 + (text[*at] - '0'), kFieldWidthMax + 1);
  }
  return value;
}

Text Pad(const Text& text, const FieldStyle& style, char align) {
  const auto size = static_cast<int64_t>(CountCharacters(text.view()));
  const int64_t missing = std::max<int64_t>(style.width - size, 0);
  const int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(style.fill);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(style.fill);
  return out;
}

std::string WithCommas(std::string digits) {
  const size_t end = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

Result<std::string> Digits(const Value& value, const FieldStyle& style) {
  const int64_t precision = style.precision < 0 ? 6 : style.precision;
  const bool whole = std::string_view("dixXob").find(style.type) != std::string_view::npos;
  if (!value.IsNumber() || (whole && !value.IsNumber())) {
    return Wrong("%{} needs a number, found {}", style.type, value.TypeName());
  }
  if (!whole) {
    const double number = std::fabs(value.number());
    if (style.type == 'e') return fmt::format("{:.{}e}", number, precision);
    if (style.type == 'g') return fmt::format("{:.{}g}", number, precision);
    if (style.type == '%') return fmt::format("{:.{}f}%", number * 100, precision);
    return fmt::format("{:.{}f}", number, precision);
  }
  const auto number = value.IsFloat() ? WholeOf(value.number()) : std::optional(value.whole());
  if (!number.has_value()) return Wrong("a number is too large");
  const auto size = static_cast<uint64_t>(*number < 0 ? -*number : *number);
  if (style.type == 'x') return fmt::format("{:x}", size);
  if (style.type == 'X') return fmt::format("{:X}", size);
  if (style.type == 'o') return fmt::format("{:o}", size);
  if (style.type == 'b') return fmt::format("{:b}", size);
  return fmt::format("{}", size);
}

// A number in a field; '=' puts the filling behind the sign.
Result<Text> FormatNumber(const Value& value, const FieldStyle& style) {
  KVANT_ASSIGN(std::string digits, Digits(value, style));
  if (style.comma) digits = WithCommas(std::move(digits));
  const bool negative = value.IsFloat() ? std::signbit(value.number()) : value.whole() < 0;
  const std::string sign = negative ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
  if (style.align == '=') {
    FieldStyle rest = style;
    rest.width -= static_cast<int64_t>(sign.size());
    Text out(sign);
    out.Append(Pad(Text(digits), rest, '>'));
    return out;
  }
  return Pad(Text(sign + digits), style, style.align == ' ' ? '>' : style.align);
}

Result<Text> FormatText(const Text& text, const FieldStyle& style) {
  Text cut = text;
  if (style.precision >= 0) {
    const std::vector<size_t> offsets = CharacterOffsets(text.view());
    const size_t most = std::min(static_cast<size_t>(style.precision), offsets.size() - 1);
    cut = text.Part(0, offsets[most]);
  }
  return Pad(cut, style, style.align == ' ' ? '<' : style.align);
}

// The arguments of %, in turn or by name.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& value) : value_(value) {}
  Result<Value> Next() {
    const bool tuple = value_.IsSequence(Sequence::Kind::kTuple);
    const size_t count = tuple ? value_.sequence().items.size() : 1;
    if (next_ == count) return Wrong("the format needs more than {} values", count);
    const size_t at = next_++;
    return tuple ? value_.sequence().items[at] : value_;
  }
  Result<Value> Named(std::string_view name) {
    named_ = true;
    if (!value_.IsDict()) return Wrong("%({}) needs a dict", name.substr(0, 60));
    if (const Value* member = value_.dict().FindText(name)) return *member;
    return Wrong("the dict has no member {:?}", name.substr(0, 60));
  }
  Status Finish() const {
    const bool tuple = value_.IsSequence(Sequence::Kind::kTuple);
    if (named_ || value_.IsDict()) return {};
    if (next_ == (tuple ? value_.sequence().items.size() : 1)) return {};
    return Wrong("the format needs fewer values");
  }

 private:
  const Value& value_;
  size_t next_ = 0;
  bool named_ = false;
};

Result<Text> FormatDirective(Run& run, std::string_view format, size_t* at,
                             PercentArguments& arguments) {
  FieldStyle style;
  std::string_view name;
  bool named = false;
  if (format.substr(*at).starts_with('(')) {
    const size_t close = format.find(')', *at);
    if (close == std::string_view::npos) return Wrong("a name in the format has no end");
    name = format.substr(*at + 1, close - *at - 1);
    named = true;
    *at = close + 1;
  }
  style.align = '>';
  for (; *at < format.size() && std::string_view("-+ 0#").find(format[*at]) != std::string::npos;
       ++*at) {
    if (format[*at] == '-') style.align = '<';
    if (format[*at] == '+' || format[*at] == ' ') style.sign = format[*at];
    if (format[*at] == '0' && style.align != '<') {
      style.align = '=';
      style.fill = "0";
    }
  }
  style.width = TakeDigits(format, at);
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    style.precision = TakeDigits(format, at);
  }
  if (style.width > kFieldWidthMax || style.precision > kFieldWidthMax) {
    return Wrong("a field of the format is too wide");
  }
  if (*at >= format.size()) return Wrong("the format ends within a field");
  style.type = format[(*at)++];
  if (style.type == '%') return Text("%");
  KVANT_ASSIGN(const Value value, named ? arguments.Named(name) : arguments.Next());
  if (style.type == 's' || style.type == 'r') {
    if (style.align == '=') {
      style.align = '>';
      style.fill = " ";
    }
    KVANT_TRY(run.Charge(value.weight()));
    return FormatText(style.type == 's' ? Str(value) : Repr(value), style);
  }
  if (std::string_view("dixXoefgF").find(style.type) == std::string_view::npos) {
    return Wrong("%{} is not supported", style.type);
  }
  return FormatNumber(value, style);
}

Result<FieldStyle> ParseFieldStyle(std::string_view text) {
  FieldStyle style;
  style.type = ' ';
  size_t at = 0;
  constexpr std::string_view kAligns = "<>^=";
  const size_t first = text.empty() ? 0 : CharacterOffsets(text)[1];
  if (first < text.size() && kAligns.find(text[first]) != std::string_view::npos) {
    style.fill = text.substr(0, first);
    style.align = text[first];
    at = first + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    style.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) {
    style.sign = text[at++];
  }
  if (at < text.size() && text[at] == '0') {
    if (style.align == ' ') {
      style.align = '=';
      style.fill = "0";
    }
    ++at;
  }
  style.width = TakeDigits(text, &at);
  if (at < text.size() && text[at] == ',') {
    style.comma = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    style.precision = TakeDigits(text, &at);
  }
  if (at < text.size()) style.type = text[at++];
  if (at != text.size() || style.width > kFieldWidthMax || style.precision > kFieldWidthMax ||
      std::string_view(" sdxXobefg%").find(style.type) == std::string_view::npos) {
    return Wrong("the format of a field is not supported: {:?}", text.substr(0, 60));
  }
  return style;
}

// The value that "0.name[key]" names.
Result<Value> FieldValue(Run& run, std::string_view path, const Arguments& arguments,
                         size_t* next) {
  size_t end = std::min(path.find_first_of(".["), path.size());
  const std::string_view head = path.substr(0, end);
  Value value;
  if (head.find_first_not_of("0123456789") == std::string_view::npos) {
    size_t at = 0;
    const size_t place = head.empty() ? (*next)++ : static_cast<size_t>(TakeDigits(head, &at));
    if (place >= arguments.positional.size()) return Wrong("the format needs value {}", place);
    value = arguments.positional[place];
  } else {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [head](const auto& entry) { return entry.first == head; });
    if (found == arguments.named.end()) return Wrong("no value is called {:?}", head.substr(0, 60));
    value = found->second;
  }
  while (end < path.size()) {
    const bool item = path[end] == '[';
    const size_t begin = end + 1;
    end = std::min(path.find_first_of(item ? "]" : ".[", begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (item && end++ == path.size()) return Wrong("a key in the format has no end");
    size_t at = 0;
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    const Value key = number ? Value(TakeDigits(name, &at)) : Value::Own(name);
    KVANT_ASSIGN(value, item ? GetItem(run, value, key) : GetAttribute(run, value, name));
  }
  return value;
}

Result<Text> FormatField(Run& run, std::string_view field, const Arguments& arguments,
                         size_t* next) {
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view path = field.substr(0, colon);
  char conversion = ' ';
  if (path.size() >= 2 && path[path.size() - 2] == '!') {
    conversion = path.back();
    path.remove_suffix(2);
  }
  KVANT_ASSIGN(Value value, FieldValue(run, path, arguments, next));
  KVANT_ASSIGN(FieldStyle style,
               ParseFieldStyle(colon < field.size() ? field.substr(colon + 1) : ""));
  KVANT_TRY(run.Charge(value.weight()));
  if (conversion == 'r') value = Repr(value);
  if (conversion == 's') value = Str(value);
  const bool plain = colon + 1 >= field.size();
  if (plain || value.IsText() || value.IsNone() || value.IsUndefined()) {
    if (style.type != ' ' && style.type != 's') return Wrong("a string is no number");
    return FormatText(Str(value), style);
  }
  if (!value.IsNumber()) return Wrong("a {} has no format", value.TypeName());
  if (style.type == ' ') {
    style.type = value.IsFloat() ? 'g' : 'd';
    if (value.IsFloat() && style.precision < 0) {
      return Pad(Str(value), style, style.align == ' ' ? '>' : style.align);
    }
  }
  if (value.IsFloat() && std::string_view("dxXob").find(style.type) != std::string_view::npos) {
    return Wrong("a float has no format {}", style.type);
  }
  return FormatNumber(value, style);
}

}  // namespace

Result<Value> FormatPercent(Run& run, const Text& format, const Value& arguments) {
  PercentArguments values(arguments);
  Text out;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.bytes().find('%', at), format.size());
    out.AppendPart(format, at, percent);
    if (percent == format.size()) break;
    at = percent + 1;
    KVANT_ASSIGN(const Text field, FormatDirective(run, format.view(), &at, values));
    KVANT_TRY(run.Write(field, out));
  }
  KVANT_TRY(values.Finish());
  return run.Make(std::move(out));
}

Result<Value> FormatBraces(Run& run, const Text& format, const Arguments& arguments) {
  const std::string_view view = format.view();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t brace = std::min(view.find_first_of("{}", at), view.size());
    out.AppendPart(format, at, brace);
    if (brace == view.size()) break;
    if (brace + 1 < view.size() && view[brace + 1] == view[brace]) {
      out.AppendPart(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t close = view.find('}', brace);
    if (view[brace] == '}' || close == std::string_view::npos) {
      return Wrong("a brace of the format stands alone");
    }
    KVANT_ASSIGN(const Text field,
                 FormatField(run, view.substr(brace + 1, close - brace - 1), arguments, &next));
    KVANT_TRY(run.Write(field, out));
    at = close + 1;
  }
  return run.Make(std::move(out));
}

}  // namespace kvant::jinja
