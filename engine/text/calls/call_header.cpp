#include "engine/text/calls/call_header.h"

#include <nlohmann/json.hpp>

namespace kvant {
namespace {

using Form = ToolFormat::Form;

// The marks before a call: at least one, where the format has any.
bool TakeOpen(const ToolFormat& format, CallCursor& cursor) {
  const bool has_section = cursor.Try(format.section_open);
  cursor.Blanks();
  const bool must_open = !has_section || (format.form != Form::kJson && !format.is_array);
  if (TrimmedMark(format.call_open).empty()) return cursor.is_good();
  if (cursor.Try(format.call_open)) return true;
  return cursor.is_good() && (must_open ? cursor.Fail() : true);
}

std::string IdOfJson(std::string_view value) {
  const auto json = nlohmann::json::parse(value, nullptr, false);
  return json.is_string() ? json.get<std::string>() : std::string(value);
}

// A JSON string as the text that it stands for; other JSON as it is.
std::string ArgumentsOfJson(std::string_view value) { return IdOfJson(value); }

bool TakeKey(CallCursor& cursor, std::string& key) {
  cursor.Blanks();
  if (!cursor.JsonText(key)) return false;
  cursor.Blanks();
  if (!cursor.Char(':')) return false;
  cursor.Blanks();
  return cursor.is_good();
}

bool TakeObject(const ToolFormat& format, CallCursor& cursor, CallHeader& header) {
  cursor.Blanks();
  if (!cursor.Char('{')) return false;
  header.depth = 1;
  bool has_arguments = false;
  for (bool first = true;; first = false) {
    cursor.Blanks();
    while (header.depth > 0 && cursor.TryChar('}')) {
      --header.depth;
      first = false;
      if (header.depth > 0) cursor.Blanks();
    }
    if (header.depth == 0) break;
    if (!first && !cursor.Char(',')) return false;
    std::string key;
    if (!TakeKey(cursor, key)) return false;
    if (!format.wrapper_key.empty() && key == format.wrapper_key && cursor.TryChar('{')) {
      ++header.depth;
      std::string inner;
      cursor.Blanks();
      if (!TakeKey(cursor, inner)) return false;
      key = std::move(inner);
    }
    std::string_view value;
    if (key == format.name_key) {
      if (!cursor.JsonText(header.name)) return false;
    } else if (key == format.arguments_key && !header.name.empty() && !has_arguments) {
      header.has_text_arguments = cursor.Sees('"');
      return header.has_text_arguments || cursor.Sees('{') || (cursor.is_good() && cursor.Fail());
    } else if (!cursor.Json(value)) {
      return false;
    } else if (key == format.arguments_key) {
      header.arguments = ArgumentsOfJson(value);
      has_arguments = true;
    } else if (!format.id_key.empty() && key == format.id_key) {
      header.id = IdOfJson(value);
    }
  }
  if (header.name.empty() || (!has_arguments && IsBareFormat(format))) return cursor.Fail();
  if (!has_arguments) header.arguments = "{}";
  return true;
}

// "functions.f:0" without what is not the name.
std::string NameInId(const std::string& id) {
  std::string name = id.substr(0, id.rfind(':'));
  constexpr std::string_view kPrefix = "functions.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

bool TakeNamed(const ToolFormat& format, CallCursor& cursor, CallHeader& header) {
  cursor.Blanks();
  std::string name;
  if (!cursor.Name(name)) return false;
  if (format.name_in_id) {
    header.id = name;
    name = NameInId(name);
    if (name.empty()) return cursor.Fail();
  }
  header.name = name;
  cursor.Blanks();
  if (!format.id_open.empty() && cursor.Try(format.id_open)) {
    cursor.Blanks();
    if (!cursor.Name(header.id)) return false;
  }
  if (!cursor.Mark(format.name_close)) return false;
  cursor.Blanks();
  if (format.form == Form::kTagged) return cursor.is_good();
  return cursor.Sees('{') || (cursor.is_good() && cursor.Fail());
}

}  // namespace

bool IsBareFormat(const ToolFormat& format) {
  return format.form != Form::kChannels && TrimmedMark(format.section_open).empty() &&
         TrimmedMark(format.call_open).empty();
}

void TakeHeader(const ToolFormat& format, const ToolList& tools, CallPlace place,
                CallCursor& cursor, CallHeader& header) {
  cursor.Blanks();
  if (place == CallPlace::kOutside) {
    if (!TakeOpen(format, cursor)) return;
    cursor.Blanks();
    const bool may_be_array = format.form == Form::kJson || format.form == Form::kPythonic;
    header.opens_array = may_be_array && cursor.TryChar('[');
    cursor.Blanks();
  }
  if (!cursor.is_good()) return;
  switch (format.form) {
    case Form::kJson:
      if (!TakeObject(format, cursor, header)) return;
      break;
    case Form::kNamed:
    case Form::kTagged:
      if (!TakeNamed(format, cursor, header)) return;
      break;
    case Form::kPythonic:
      if (!cursor.Name(header.name) || !cursor.Char('(')) return;
      break;
    case Form::kBraces:
      if (!cursor.Name(header.name) || !cursor.Char('{')) return;
      break;
    case Form::kChannels: cursor.Fail(); return;
  }
  if (IsBareFormat(format) && !tools.empty() && tools.Find(header.name) == nullptr) cursor.Fail();
}

void TakeMembersBehind(const ToolFormat& format, int depth, CallCursor& cursor, std::string& id) {
  while (depth > 0 && cursor.is_good()) {
    cursor.Blanks();
    if (cursor.TryChar('}')) {
      --depth;
      continue;
    }
    std::string key;
    std::string_view value;
    if (!cursor.Char(',') || !TakeKey(cursor, key) || !cursor.Json(value)) return;
    if (!format.id_key.empty() && key == format.id_key) id = IdOfJson(value);
  }
}

}  // namespace kvant
