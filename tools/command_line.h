// One command's arguments: declaring options, parsing, help, suggestions.
//
// CLI11 does the parsing; this adds what a command line of language models needs: llama.cpp's
// single-dash words (-ctk, -ngl), numbers checked against their range with one clear message,
// a suggestion for a misspelt option, and a help text with groups, defaults and examples.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace kvant::tools {

// What `kvant COMMAND --help` says around the options.
struct HelpText {
  const char* usage;        // after "kvant COMMAND": "MODEL [-p TEXT] [OPTIONS]"
  const char* description;  // paragraphs separated by empty lines
  const char* examples;     // lines as they are
};

class CommandLine {
 public:
  CommandLine(std::string command, std::vector<std::string> arguments)
      : command_(std::move(command)), arguments_(std::move(arguments)) {}

  // Parses into the variables bound to the options of `app`. Returns the exit code if there is
  // nothing more to do: help was shown, or the usage was wrong and has been reported.
  std::optional<int> Parse(CLI::App& app, const HelpText& help);

  // The arguments that belong to no option, after Parse.
  const std::vector<std::string>& positionals() const { return positionals_; }

  const std::string& command() const { return command_; }

  // Reports wrong usage found after parsing.
  int UsageError(std::string_view message) const;

 private:
  struct Words {
    std::vector<std::string> words;  // for CLI11
    bool help = false;
    bool list_options = false;
    std::string unknown;  // the first word that is no option for sure
  };
  Words Normalize(const CLI::App& app) const;
  int UnknownOption(const CLI::App& app, const std::string& word) const;
  std::optional<int> SortRemaining(const CLI::App& app);
  std::string Help(const CLI::App& app, const HelpText& help) const;

  std::string command_;
  std::vector<std::string> arguments_;
  std::vector<std::string> positionals_;
};

template <class T>
struct Bounds {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

// Options with a checked number; the target's value is shown as the default. The target of an
// optional one stays empty where the option is not given; `fallback` describes that case.
CLI::Option* AddInteger(CLI::App& app, const std::string& names, int64_t* target,
                        Bounds<int64_t> bounds, const std::string& description);
CLI::Option* AddInteger(CLI::App& app, const std::string& names, std::optional<int64_t>* target,
                        Bounds<int64_t> bounds, const std::string& description,
                        const std::string& fallback);
CLI::Option* AddReal(CLI::App& app, const std::string& names, float* target, Bounds<float> bounds,
                     const std::string& description);

// Options with a text, once (the last one counts) or many times.
CLI::Option* AddText(CLI::App& app, const std::string& names, std::optional<std::string>* target,
                     const std::string& type, const std::string& description);
CLI::Option* AddTexts(CLI::App& app, const std::string& names, std::vector<std::string>* target,
                      const std::string& type, const std::string& description);

CLI::Option* AddFlag(CLI::App& app, const std::string& names, bool* target,
                     const std::string& description);

// The known word nearest to `word` by edit distance, or "" if none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// Lines of at most `width` columns, the following ones indented by `indent` spaces.
std::string Wrap(std::string_view text, size_t width, size_t indent, size_t first_column);

}  // namespace kvant::tools
