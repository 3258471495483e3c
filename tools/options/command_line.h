// One command's arguments: declaring options, parsing, help, suggestions.
//
// CLI11 does the parsing; this adds what a command line of language models needs: llama.cpp's
// single-dash words (llama_words.h), values checked with one clear message that names the option as
// it was typed, a suggestion for a misspelt option, and a help text with groups, defaults and
// examples. CLI11 is not visible here, since its headers take seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
class Option;
}  // namespace CLI

namespace kvant::tools {

template <class T>
struct Bounds {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

// The first of an option's spellings: "--typical" of "--typical,--typical-p".
inline std::string FirstFlag(std::string_view flags) {
  return std::string(flags.substr(0, flags.find(',')));
}

// The options of a command, bound to variables that outlive it. Names are separated by commas:
// "-n,--predict". Given twice, the last one counts. The value that a number has when it is declared
// is shown as its default.
class OptionList {
 public:
  OptionList();
  ~OptionList();
  OptionList(const OptionList&) = delete;
  OptionList& operator=(const OptionList&) = delete;

  // The heading of the options declared from here on.
  void Group(std::string heading) { group_ = std::move(heading); }
  const std::string& group() const { return group_; }

  void Integer(const std::string& names, int64_t* target, Bounds<int64_t> bounds,
               const std::string& description);
  // Stays empty where it is not given; `fallback` describes that case in the help.
  void Integer(const std::string& names, std::optional<int64_t>* target, Bounds<int64_t> bounds,
               const std::string& description, const std::string& fallback);
  // `take` gets the number.
  void Integer(const std::string& names, const std::function<void(int64_t)>& take,
               Bounds<int64_t> bounds, const std::string& description, const std::string& fallback);
  void Real(const std::string& names, float* target, Bounds<float> bounds,
            const std::string& description);
  void Real(const std::string& names, std::optional<float>* target, Bounds<float> bounds,
            const std::string& description, const std::string& fallback);
  void Text(const std::string& names, std::optional<std::string>* target, const std::string& type,
            const std::string& description, const std::string& fallback = "");
  void Texts(const std::string& names, std::vector<std::string>* target, const std::string& type,
             const std::string& description, const std::string& fallback = "");  // every one given
  void Flag(const std::string& names, bool* target, const std::string& description);
  // `take` is called if the flag was given.
  void Flag(const std::string& names, const std::function<void()>& take,
            const std::string& description);
  // `take` reads the value; its error is shown behind the option's name.
  void Checked(const std::string& names, const std::function<Status(const std::string&)>& take,
               const std::string& type, const std::string& description,
               const std::string& fallback = "");

  // Like Checked, for an option that may be given several times: `take` gets every value.
  void CheckedEach(const std::string& names, const std::function<Status(const std::string&)>& take,
                   const std::string& type, const std::string& description);

  // Accepted with a note on stderr that it has no effect and why, and not shown in the help.
  void IdleValue(const std::string& names, const std::string& reason);
  void IdleFlag(const std::string& names, const std::string& reason);

  // After parsing: whether an option was given, by its first long name.
  bool Given(const std::string& name) const { return typed_.contains(name); }
  // The option as it was typed: "-t, --threads", or "--threads" if that was typed or nothing.
  std::string Spelled(const std::string& name) const;

  // The spellings of all options that the help shows.
  std::vector<std::string> Names() const;
  bool Has(const std::string& name) const;

  // Values that a shell offers for an option, by its first long name; "" for arguments.
  void Values(const std::string& name, std::vector<std::string> values);
  // The values of an option in any spelling; none where it is unknown.
  std::vector<std::string> ValuesOf(std::string_view word) const;

  // Takes the value of one option that has a value, as if both had been typed.
  Status Take(const std::string& name, const std::string& value);

  // To be called where `what` was not given. kInvalid if one of `options` was given, since they all
  // need `what`: "--parallel: expected --prompts with it".
  Status Need(std::initializer_list<const char*> options, std::string_view what) const;
  // kInvalid for the first of the options that was given although it does not go with `other`.
  Status Exclude(std::initializer_list<const char*> options, std::string_view other) const;

 private:
  friend class CommandLine;
  CLI::Option* Declare(CLI::Option* option, const std::string& type, const std::string& fallback);

  std::unique_ptr<CLI::App> app_;
  std::string group_ = "Options";
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, std::string> typed_;  // first long name -> the word on the command line
};

// The lines of `kvant COMMAND --help` before and after the options.
struct HelpText {
  const char* usage;        // after "kvant COMMAND": "MODEL [-p TEXT] [OPTIONS]"
  const char* description;  // lines as they are
  const char* examples;     // lines as they are
  // The options of a short help, in its order, where --help shall not list all of them.
  std::span<const char* const> common = {};
};

class CommandLine {
 public:
  CommandLine(std::string command, std::vector<std::string> arguments)
      : command_(std::move(command)), arguments_(std::move(arguments)) {}

  // Parses into the variables bound to the options. Returns the exit code if there is nothing more
  // to do: help was shown, or the usage was wrong and has been reported.
  std::optional<int> Parse(OptionList& options, const HelpText& help);

  // The arguments that belong to no option, after Parse.
  const std::vector<std::string>& positionals() const { return positionals_; }

  const std::string& command() const { return command_; }
  const std::vector<std::string>& arguments() const { return arguments_; }  // as they came

  // Whether the command has -p for a text, after Parse.
  bool takes_text() const { return takes_text_; }

  // Reports wrong usage found after parsing.
  int UsageError(std::string_view message) const;

 private:
  // Chooses what is printed in place of the command's work.
  enum class Shows : uint8_t { kNothing, kBriefHelp, kHelp, kOptions, kValues };
  struct Words {
    std::vector<std::string> words;  // for CLI11
    Shows shows = Shows::kNothing;
    std::string values_of;  // kValues: the option, or "" for arguments
    std::string unknown;    // the first word that is no option for sure
  };
  Words Normalize(OptionList& options) const;
  int UnknownOption(const CLI::App& app, const std::string& word) const;
  std::optional<int> SortRemaining(const CLI::App& app);
  int Show(const OptionList& options, const Words& words, const HelpText& help) const;

  std::string command_;
  std::vector<std::string> arguments_;
  std::vector<std::string> positionals_;
  bool takes_text_ = false;
};

}  // namespace kvant::tools
