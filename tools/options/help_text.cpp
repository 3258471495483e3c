#include "tools/options/help_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "tools/options/llama_words.h"

namespace kvant::tools {
namespace {

constexpr size_t kHelpColumns = 96;
constexpr size_t kHelpIndent = 30;
constexpr int64_t kLongHelp = 60;  // lines
constexpr char kNoBreak = '\x1f';  // a blank where no line may end

// "-n, --predict, --n-predict N"
std::string OptionHead(const CLI::Option& option) {
  std::string head;
  for (const std::string& name : option.get_snames()) head += ", -" + name;
  for (const DashWord& word : DashWords()) {
    if (option.check_name(word.name)) head += fmt::format(", {}", word.spelling);
  }
  for (const std::string& name : option.get_lnames()) head += ", --" + name;
  head.erase(0, 2);
  if (head.starts_with("--")) head = "    " + head;  // as wide as "-x, "
  if (TakesValue(option)) head += " " + option.get_type_name();
  return head;
}

// Lines of at most `width` columns, the following ones indented by `indent` spaces.
std::string Wrap(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = indent;
  std::istringstream words{std::string(text)};
  std::string word;
  bool line_start = true;
  while (words >> word) {
    if (!line_start && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      line_start = true;
    }
    if (!line_start) out += " ";
    column += word.size() + (line_start ? 0 : 1);
    out += word;
    line_start = false;
  }
  std::replace(out.begin(), out.end(), kNoBreak, ' ');
  return out;
}

// "text", the names of an option before it.
std::string OptionLines(const std::string& head, const std::string& text) {
  std::string line = "  " + head;
  const size_t column = line.size();
  if (column + 2 > kHelpIndent) {
    line += "\n";
    line.append(kHelpIndent, ' ');
  } else {
    line.append(kHelpIndent - column, ' ');
  }
  return line + Wrap(text, kHelpColumns, kHelpIndent) + "\n";
}

std::string WithDefault(std::string text, const CLI::Option& option) {
  if (option.get_default_str().empty()) return text;
  return text + fmt::format(" (default:{}{})", kNoBreak, option.get_default_str());
}

std::string OptionHelp(const CLI::Option& option) {
  return OptionLines(OptionHead(option), WithDefault(option.get_description(), option));
}

// "-n, --predict N" and the first clause of the text.
std::string BriefOptionHelp(const CLI::Option& option) {
  std::string head =
      option.get_snames().empty() ? "    " : fmt::format("-{}, ", option.get_snames().front());
  if (!option.get_lnames().empty()) {
    head += "--" + option.get_lnames().front();
  } else {
    head = head.substr(0, 2);
  }
  if (TakesValue(option)) head += " " + option.get_type_name();
  std::string text = option.get_description();
  text.resize(std::min({text.size(), text.find("; "), text.find(". ")}));
  return OptionLines(head, WithDefault(std::move(text), option));
}

// The groups in the order of the help.
std::vector<std::string> Groups(const CLI::App& app) {
  std::vector<std::string> groups = app.get_groups();
  std::erase(groups, "");
  for (const char* last : {kDebuggingGroup, kOtherGroup}) {
    if (std::erase(groups, last) > 0) groups.emplace_back(last);
  }
  return groups;
}

size_t CountShown(const CLI::App& app) {
  const auto options = app.get_options();
  return static_cast<size_t>(std::count_if(options.begin(), options.end(), [](const auto* option) {
    return !option->get_group().empty();
  }));
}

std::string FirstLines(std::string_view text, size_t lines) {
  size_t end = 0;
  for (; lines > 0 && end < text.size(); --lines)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return std::string(text.substr(0, end));
}

template <class Wanted>
std::string HelpOf(const CLI::App& app, const std::string& command, const HelpText& help,
                   const Wanted& wanted) {
  std::string out =
      fmt::format("Usage: kvant {} {}\n\n{}\n", command, help.usage, help.description);
  for (const std::string& group : Groups(app)) {
    std::string lines;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group && wanted(*option)) lines += OptionHelp(*option);
    }
    if (!lines.empty()) out += fmt::format("\n{}\n{}", group, lines);
  }
  return out + fmt::format("\nExamples\n{}", help.examples);
}

// A help of many lines without the options that all commands have for speed, memory and debugging,
// but for the usual ones.
std::string WithoutRareOptions(const CLI::App& app, const std::string& command,
                               const HelpText& help) {
  std::string full = FullHelp(app, command, help);
  if (std::count(full.begin(), full.end(), '\n') <= kLongHelp) return full;
  return HelpOf(app, command, help, [](const CLI::Option& option) {
    const bool rare = option.get_group() == kRunGroup || option.get_group() == kDebuggingGroup;
    return !rare || option.check_name("--threads") || option.check_name("--ctx-size") ||
           option.check_name("--kv-type");
  });
}

}  // namespace

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

std::string FullHelp(const CLI::App& app, const std::string& command, const HelpText& help) {
  return HelpOf(app, command, help, [](const CLI::Option&) { return true; });
}

std::string BriefHelp(const CLI::App& app, const std::string& command, const HelpText& help) {
  if (help.common.empty()) return WithoutRareOptions(app, command, help);
  constexpr size_t kExamples = 4;
  const std::string_view description = help.description;
  std::string out = fmt::format("Usage: kvant {} {}\n\n{}\n\nOptions\n", command, help.usage,
                                description.substr(0, description.find("\n\n")));
  for (const char* name : help.common) {
    const CLI::Option* const option = app.get_option_no_throw(name);
    if (option != nullptr) out += BriefOptionHelp(*option);
  }
  out += OptionLines("    --help-all", fmt::format("Show all {} options", CountShown(app)));
  return out + "\nExamples\n" + FirstLines(help.examples, kExamples);
}

}  // namespace kvant::tools
