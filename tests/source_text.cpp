// See source_text.h. Two passes: one blanks everything that is not code, one matches braces and
// looks at the text before each to tell bodies of functions from namespaces, types and
// initialisers.
#include "tests/source_text.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace kvant::test {
namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The end (one past) of the literal or comment that begins at `begin`, or `begin` if none does.
size_t EndOfNonCode(std::string_view text, size_t begin) {
  const std::string_view rest = text.substr(begin);
  const auto after = [&](std::string_view mark, size_t from) {
    const size_t at = text.find(mark, from);
    return at == std::string_view::npos ? text.size() : at + mark.size();
  };
  if (rest.starts_with("//")) return std::min(text.find('\n', begin), text.size());
  if (rest.starts_with("/*")) return after("*/", begin + 2);
  if (rest.starts_with("R\"") && (begin == 0 || !IsWord(text[begin - 1]))) {
    const size_t open = text.find('(', begin);
    const std::string close = ")" + std::string(text.substr(begin + 2, open - begin - 2)) + "\"";
    return after(close, open);
  }
  const char quote = text[begin];
  const bool separates_digits = quote == '\'' && begin > 0 && IsWord(text[begin - 1]);
  if ((quote != '"' && quote != '\'') || separates_digits) return begin;
  size_t end = begin + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// The end of the directive whose # is at `begin`, continuation lines included.
size_t EndOfDirective(std::string_view text, size_t begin) {
  size_t end = text.find('\n', begin);
  while (end != std::string_view::npos && text[end - 1] == '\\') end = text.find('\n', end + 1);
  return std::min(end, text.size());
}

// The end of the template parameter list that begins at `begin`, one past its last `>`.
size_t EndOfTemplate(std::string_view text, size_t begin) {
  int angles = 0;
  int parentheses = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '(') ++parentheses;
    if (text[i] == ')') --parentheses;
    if (parentheses > 0) continue;
    if (text[i] == '<') ++angles;
    if (text[i] == '>' && --angles == 0) return i + 1;
  }
  return text.size();
}

std::string WithoutTemplates(std::string header) {
  static const std::regex kTemplate("\\btemplate\\s*<");
  for (std::smatch match; std::regex_search(header, match, kTemplate);) {
    const auto begin = static_cast<size_t>(match.position());
    header.erase(begin, EndOfTemplate(header, begin) - begin);
  }
  return header;
}

// The header without template parameter lists and without anything in parentheses.
std::string WithoutParameters(const std::string& header) {
  std::string kept;
  int depth = 0;
  for (const char c : WithoutTemplates(header)) {
    if (c == '(') ++depth;
    if (depth == 0) kept += c;
    if (c == ')') --depth;
  }
  return kept;
}

// The name of the function that `header` declares, or "" if it declares none.
std::string FunctionName(const std::string& with_template) {
  const std::string header = WithoutTemplates(with_template);
  static const std::regex kTest("\\b(?:TYPED_)?TEST(?:_F|_P)?\\((\\w+), *(\\w+)\\)");
  static const std::regex kCall(
      "((?:[\\w~]+(?:<[^()<> ]*>)?::)*(?:operator *[^\\s\\w(]+|[\\w~]+)) *\\(");
  std::smatch match;
  if (std::regex_search(header, match, kTest)) return match.str(1) + "." + match.str(2);
  static const std::regex kNotAName("alignas|decltype|requires|noexcept|explicit|__attribute__");
  for (std::sregex_iterator it(header.begin(), header.end(), kCall), end; it != end; ++it) {
    if (!std::regex_match(it->str(1), kNotAName)) return it->str(1);
  }
  return "";
}

enum class Scope { kDeclarations, kFunction, kOther, kInitialiser };

struct OpenBrace {
  Scope scope;
  std::string name;
  int line;
};

// The scope that the brace after `header` opens, when declarations surround it.
Scope Classify(const std::string& header) {
  const size_t last = header.find_last_not_of(" \n");
  if (last == std::string::npos) return Scope::kOther;
  if (last + 1 == header.size()) return Scope::kInitialiser;  // no blank before the brace
  if (std::string_view("=,(").find(header[last]) != std::string_view::npos) {
    return Scope::kInitialiser;
  }
  static const std::regex kDeclares("\\b(namespace|class|struct|union|enum|extern)\\b");
  if (std::regex_search(WithoutParameters(header), kDeclares)) return Scope::kDeclarations;
  return header.find('(') == std::string::npos ? Scope::kOther : Scope::kFunction;
}

}  // namespace

std::string BlankNonCode(std::string_view text) {
  std::string code(text);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  bool line_is_empty = true;  // up to here
  for (size_t i = 0; i < text.size();) {
    size_t end = EndOfNonCode(text, i);
    const bool is_directive = end == i && text[i] == '#' && line_is_empty;
    if (is_directive) end = EndOfDirective(text, i);
    if (end > i) {
      const bool is_string = !is_directive && text[i] != '/';
      blank(is_string ? i + 1 : i, is_string ? end - 1 : end);
      i = end;
      continue;
    }
    if (text[i] == '\n') {
      line_is_empty = true;
    } else if (text[i] != ' ') {
      line_is_empty = false;
    }
    ++i;
  }
  return code;
}

std::vector<FunctionSize> FindFunctions(std::string_view text) {
  const std::string code = BlankNonCode(text);
  std::vector<FunctionSize> functions;
  std::vector<OpenBrace> open;
  std::string header;  // since the last ; { or } among declarations
  int line = 1;
  const auto among_declarations = [&] {
    return open.empty() || open.back().scope == Scope::kDeclarations;
  };
  for (const char c : code) {
    if (c == '\n') ++line;
    if (c == '{') {
      const Scope scope = among_declarations() ? Classify(header) : Scope::kOther;
      open.push_back({scope, scope == Scope::kFunction ? FunctionName(header) : "", line});
      if (scope == Scope::kDeclarations) header.clear();
    } else if (c == '}' && !open.empty()) {
      const OpenBrace closed = open.back();
      open.pop_back();
      if (closed.scope == Scope::kFunction) {
        functions.push_back({closed.name, closed.line, line - closed.line + 1});
      }
      if (closed.scope == Scope::kInitialiser) header += "}";
      if (among_declarations() && closed.scope != Scope::kInitialiser) header.clear();
    } else if (among_declarations()) {
      c == ';' ? header.clear() : header.push_back(c);
    }
  }
  return functions;
}

std::vector<std::string> StringLiterals(std::string_view text) {
  std::vector<std::string> literals;
  for (size_t i = 0; i < text.size();) {
    const size_t end = EndOfNonCode(text, i);
    if (end > i + 1 && text[i] == '"') literals.emplace_back(text.substr(i + 1, end - i - 2));
    i = std::max(end, i + 1);
  }
  return literals;
}

std::vector<std::string> LineComments(std::string_view text) {
  std::vector<std::string> comments;
  for (size_t i = 0; i < text.size();) {
    const size_t end = EndOfNonCode(text, i);
    if (end > i && text.substr(i).starts_with("//")) {
      comments.emplace_back(text.substr(i, end - i));
    }
    i = std::max(end, i + 1);
  }
  return comments;
}

std::vector<std::string> CommentsWithoutSubject(std::string_view text) {
  static const std::regex kOpening("// *(Of|The same|Likewise|Those|What)\\b");
  std::vector<std::string> found;
  bool line_is_empty = true;  // up to here
  for (size_t i = 0; i < text.size();) {
    const size_t end = EndOfNonCode(text, i);
    if (end > i && line_is_empty) {
      std::string comment(text.substr(i, end - i));
      if (std::regex_search(comment, kOpening, std::regex_constants::match_continuous)) {
        found.push_back(std::move(comment));
      }
    }
    line_is_empty = text[i] == '\n' || (line_is_empty && text[i] == ' ');
    i = std::max(end, i + 1);
  }
  return found;
}

std::vector<std::string> BoolParameters(std::string_view text) {
  const std::string code = BlankNonCode(text);
  static const std::regex kParameter(
      "[(,]\\s*(?:const )?(bool (?!value\\b|otherwise\\b)[a-z_]\\w*)(?: = \\w+)?\\s*(?=[,)])");
  std::vector<std::string> found;
  for (std::sregex_iterator it(code.begin(), code.end(), kParameter), end; it != end; ++it) {
    found.push_back(it->str(1));
  }
  return found;
}

std::vector<std::string> QuotedIncludes(std::string_view text) {
  std::vector<std::string> includes;
  for (const std::string_view line : SplitLines(text)) {
    constexpr std::string_view kOpening = "#include \"";
    if (!line.starts_with(kOpening)) continue;
    includes.emplace_back(line.substr(kOpening.size(), line.rfind('"') - kOpening.size()));
  }
  return includes;
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace kvant::test
