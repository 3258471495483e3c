#include "engine/convert/front_matter.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::convert {
namespace {

// Cards have some kB; the texts of a card go into a model's metadata.
constexpr size_t kCardBytesMax = size_t{1} << 20;
constexpr size_t kListMax = 1000;

constexpr std::string_view kFence = "---";
constexpr std::string_view kSpaces = " \t\r";

std::string_view Trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// The next line, which the text loses, without its end.
std::string_view TakeLine(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// A text in quotes at the beginning of `rest`, which loses it; nothing if the quotes do not end.
std::optional<std::string> TakeQuoted(std::string_view& rest) {
  const char quote = rest.front();
  std::string text;
  for (size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == quote && quote == '\'' && i + 1 < rest.size() && rest[i + 1] == quote) {
      ++i;  // '' within single quotes is one
    } else if (rest[i] == quote) {
      rest.remove_prefix(i + 1);
      return text;
    } else if (rest[i] == '\\' && quote == '"' && i + 1 < rest.size()) {
      ++i;
    }
    text += rest[i];
  }
  return std::nullopt;
}

// A text up to one of `ends` or a comment, in quotes or not. `rest` loses it.
std::optional<std::string> TakeText(std::string_view& rest, std::string_view ends) {
  rest.remove_prefix(std::min(rest.find_first_not_of(kSpaces), rest.size()));
  if (!rest.empty() && (rest.front() == '"' || rest.front() == '\'')) return TakeQuoted(rest);
  size_t end = rest.find_first_of(ends);
  end = std::min({end, rest.find(" #"), rest.size()});
  const std::string_view text = Trim(rest.substr(0, end));
  rest.remove_prefix(end);
  // Nothing, texts of several lines, references and nested values.
  constexpr std::string_view kOther = "|>&*!{[?%@`";
  if (text.empty() || text == "null" || text == "~" || kOther.find(text.front()) != kOther.npos) {
    return std::nullopt;
  }
  return std::string(text);
}

void Add(std::optional<std::string> text, std::vector<std::string>& list) {
  if (text && !text->empty() && IsValidUtf8(*text) && list.size() < kListMax) {
    list.push_back(std::move(*text));
  }
}

// "text", or "[a, 'b']" on one line.
std::vector<std::string> ParseValue(std::string_view rest) {
  std::vector<std::string> values;
  rest = Trim(rest);
  if (rest.empty() || rest.front() != '[') {
    Add(TakeText(rest, ""), values);
    return values;
  }
  if (rest.find(']') == std::string_view::npos) return values;  // it goes on in the next line
  while (!rest.empty() && rest.front() != ']') {
    rest.remove_prefix(1);  // the bracket or a comma
    Add(TakeText(rest, ",]"), values);
    rest.remove_prefix(std::min(rest.find_first_of(",]"), rest.size()));
  }
  return values;
}

// The key of a line "key: ..." and what follows it; "" for another line.
std::string_view TakeKey(std::string_view& line) {
  const size_t colon = line.find(':');
  const bool is_key = colon != std::string_view::npos && colon > 0 &&
                      (colon + 1 == line.size() || kSpaces.find(line[colon + 1]) != kSpaces.npos) &&
                      line.find_first_of(" \t#-'\"") > colon;
  if (!is_key) return "";
  const std::string_view key = line.substr(0, colon);
  line.remove_prefix(colon + 1);
  return key;
}

}  // namespace

FrontMatter ParseFrontMatter(std::string_view text) {
  FrontMatter found;
  text = text.substr(0, kCardBytesMax);
  if (TakeLine(text) != kFence) return found;
  std::vector<std::string>* list = nullptr;  // of the key above, if it has no value beside it
  while (!text.empty()) {
    std::string_view line = TakeLine(text);
    if (line == kFence) return found;
    std::string_view item = Trim(line);
    if (item.empty() || item.front() == '#') continue;
    if (item.starts_with("- ") || item == "-") {
      item = Trim(item.substr(1));
      if (list != nullptr && TakeKey(item).empty()) Add(TakeText(item, ""), *list);
      continue;
    }
    const std::string_view key = TakeKey(line);
    if (key.empty()) continue;  // it belongs to a nested value
    std::vector<std::string>& values = found[std::string(key)];
    values = ParseValue(line);
    list = values.empty() ? &values : nullptr;
  }
  return {};  // no second fence: it was no front matter
}

Result<FrontMatter> ReadModelCard(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "README.md").string();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return FrontMatter();
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  return ParseFrontMatter({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace kvant::convert
