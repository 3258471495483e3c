#include "tools/options/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/result.h"
#include "tools/options/help_text.h"
#include "tools/options/llama_words.h"
#include "tools/options/nearest_word.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

// Whether a word is a value that an option without effect may have in other programs, or a list of
// such values: "on", "0,1".
bool IsSwitchValue(const std::string& word) {
  static constexpr const char* kValues[] = {"on", "off", "auto", "0", "1", "true", "false"};
  const std::vector<std::string> parts = SplitList(word);
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return std::find(std::begin(kValues), std::end(kValues), part) != std::end(kValues);
  });
}

// An option that is accepted without effect.
bool IsIdle(const CLI::Option& option) { return option.get_group().empty(); }

// The option that a word names, null for unknown ones and for plain arguments.
const CLI::Option* FindOption(const CLI::App& app, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  return app.get_option_no_throw(word.substr(0, word.find('=')));
}

bool ReplaceDashWord(std::string& word) {
  for (const DashWord& dash_word : DashWords()) {
    if (word != dash_word.spelling) continue;
    word = dash_word.name;
    return true;
  }
  return false;
}

// "-temp": several letters after one dash. "-t4" and "-n-1" are short options with their value.
bool IsUnknownShort(const std::string& word) {
  if (word.size() < 3 || word[0] != '-' || word[1] == '-') return false;
  return std::string_view("0123456789+-.").find(word[2]) == std::string_view::npos;
}

// Whole numbers without an exponent, others in their shortest form.
std::string NumberText(int64_t value) { return std::to_string(value); }
std::string NumberText(float value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

// Reads the whole text as a number within the bounds. `kind` is "a whole number".
template <class T>
Status ParseNumber(const std::string& text, const char* kind, Bounds<T> bounds, T* target) {
  T value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  const bool read = error == std::errc() && stop == end;
  if (!read || !(value >= bounds.min && value <= bounds.max)) {
    return MakeError(ErrorCode::kInvalid, "expected {} from {} to {}, found '{}'", kind,
                     NumberText(bounds.min), NumberText(bounds.max), text);
  }
  *target = value;
  return {};
}

std::string LongName(const std::string& names) {
  for (const std::string& name : CLI::detail::split(names, ',')) {
    if (name.starts_with("--")) return name;
  }
  return names.substr(0, names.find(','));
}

// The long name of a declared option, or its short one where it has no other.
std::string LongName(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return "-" + option.get_snames().front();
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // accepted, but not shown
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const DashWord& word : DashWords()) {
      if (option->check_name(word.name)) names.emplace_back(word.spelling);
    }
  }
  return names;
}

}  // namespace

OptionList::OptionList() : app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag();
  app_->allow_extras();
}

OptionList::~OptionList() = default;

CLI::Option* OptionList::Declare(CLI::Option* option, const std::string& type,
                                 const std::string& fallback) {
  return option->type_name(type)->default_str(fallback)->group(group_)->take_last();
}

std::string OptionList::Spelled(const std::string& name) const {
  const auto typed = typed_.find(name);
  if (typed == typed_.end()) return name;
  const bool is_long = typed->second.starts_with("--") || !name.starts_with("--");
  return is_long ? typed->second : fmt::format("{}, {}", typed->second, name);
}

void OptionList::Values(const std::string& name, std::vector<std::string> values) {
  values_[name] = std::move(values);
}

std::vector<std::string> OptionList::ValuesOf(std::string_view word) const {
  std::string typed(word);
  ReplaceDashWord(typed);
  const CLI::Option* const option = FindOption(*app_, typed);
  if (const auto known = values_.find(option == nullptr ? typed : LongName(*option));
      known != values_.end()) {
    return known->second;
  }
  // "show|hide|off"
  const std::string type = option == nullptr ? "" : option->get_type_name();
  if (type.find('|') == std::string::npos) return {};
  if (std::any_of(type.begin(), type.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) return {};
  return CLI::detail::split(type, '|');
}

std::vector<std::string> OptionList::Names() const { return OptionNames(*app_); }

bool OptionList::Has(const std::string& name) const { return FindOption(*app_, name) != nullptr; }

Status OptionList::Take(const std::string& name, const std::string& value) {
  typed_[name] = name;
  std::vector<std::string> words = {value, name};  // CLI11 takes them from the end
  try {
    app_->parse(words);
  } catch (const CLI::Error& error) {
    return MakeError(ErrorCode::kInvalid, "{}", error.what());
  }
  return {};
}

Status OptionList::Need(std::initializer_list<const char*> options, std::string_view what) const {
  for (const char* option : options) {
    if (!Given(option)) continue;
    return MakeError(ErrorCode::kInvalid, "{}: expected {} with it", Spelled(option), what);
  }
  return {};
}

Status OptionList::Exclude(std::initializer_list<const char*> options,
                           std::string_view other) const {
  for (const char* option : options) {
    if (!Given(option)) continue;
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with {}", Spelled(option),
                     other);
  }
  return {};
}

void OptionList::Checked(const std::string& names,
                         const std::function<Status(const std::string&)>& take,
                         const std::string& type, const std::string& description,
                         const std::string& fallback) {
  const auto read = [this, take, name = LongName(names)](const std::string& text) {
    const Status status = take(text);
    if (!status.ok()) throw CLI::ValidationError(Spelled(name), status.error().message);
  };
  Declare(app_->add_option_function<std::string>(names, read, description), type, fallback);
}

void OptionList::CheckedEach(const std::string& names,
                             const std::function<Status(const std::string&)>& take,
                             const std::string& type, const std::string& description) {
  const auto read = [this, take, name = LongName(names)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const Status status = take(text);
      if (!status.ok()) throw CLI::ValidationError(Spelled(name), status.error().message);
    }
  };
  Declare(app_->add_option_function<std::vector<std::string>>(names, read, description), type, "")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

void OptionList::Integer(const std::string& names, int64_t* target, Bounds<int64_t> bounds,
                         const std::string& description) {
  const auto take = [target](int64_t number) { *target = number; };
  Integer(names, take, bounds, description, std::to_string(*target));
}

void OptionList::Integer(const std::string& names, std::optional<int64_t>* target,
                         Bounds<int64_t> bounds, const std::string& description,
                         const std::string& fallback) {
  Integer(
      names, [target](int64_t number) { *target = number; }, bounds, description, fallback);
}

void OptionList::Integer(const std::string& names, const std::function<void(int64_t)>& take,
                         Bounds<int64_t> bounds, const std::string& description,
                         const std::string& fallback) {
  const auto read = [=](const std::string& text) -> Status {
    int64_t number = 0;
    KVANT_TRY(ParseNumber(text, "a whole number", bounds, &number));
    take(number);
    return {};
  };
  Checked(names, read, "N", description, fallback);
}

void OptionList::Real(const std::string& names, float* target, Bounds<float> bounds,
                      const std::string& description) {
  const auto take = [=](const std::string& text) {
    return ParseNumber(text, "a number", bounds, target);
  };
  Checked(names, take, "N", description, fmt::format("{}", *target));
}

void OptionList::Real(const std::string& names, std::optional<float>* target, Bounds<float> bounds,
                      const std::string& description, const std::string& fallback) {
  const auto take = [=](const std::string& text) {
    return ParseNumber(text, "a number", bounds, &target->emplace());
  };
  Checked(names, take, "N", description, fallback);
}

void OptionList::Text(const std::string& names, std::optional<std::string>* target,
                      const std::string& type, const std::string& description,
                      const std::string& fallback) {
  const auto read = [target](const std::string& text) { *target = text; };
  Declare(app_->add_option_function<std::string>(names, read, description), type, fallback);
}

void OptionList::Texts(const std::string& names, std::vector<std::string>* target,
                       const std::string& type, const std::string& description,
                       const std::string& fallback) {
  Declare(app_->add_option(names, *target, description), type, fallback)
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

void OptionList::Flag(const std::string& names, bool* target, const std::string& description) {
  Flag(
      names, [target] { *target = true; }, description);
}

void OptionList::Flag(const std::string& names, const std::function<void()>& take,
                      const std::string& description) {
  app_->add_flag_callback(names, take, description)->group(group_);
}

void OptionList::IdleValue(const std::string& names, const std::string& reason) {
  const auto note = [this, reason, name = LongName(names)](const std::string&) {
    Note(fmt::format("{} has no effect: {}", typed_.at(name), reason));
  };
  app_->add_option_function<std::string>(names, note, "")->take_last()->group("");
}

void OptionList::IdleFlag(const std::string& names, const std::string& reason) {
  const auto note = [this, reason, name = LongName(names)] {
    Note(fmt::format("{} has no effect: {}", typed_.at(name), reason));
  };
  app_->add_flag_callback(names, note, "")->group("");
}

int CommandLine::UsageError(std::string_view message) const {
  return Fail(fmt::format("{} (see 'kvant {} --help')", message, command_), kExitUsage);
}

// Rewrites what CLI11 does not know (llama.cpp's dash words, an empty value after '='), and finds
// what must be known before it runs: a call for help, a word that only looks like a short option.
CommandLine::Words CommandLine::Normalize(OptionList& options) const {
  const CLI::App& app = *options.app_;
  Words out;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    std::string word = arguments_[i];
    if (word == "--") {
      out.words.insert(out.words.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(i),
                       arguments_.end());
      break;
    }
    // "-n=3", "-ctk=q8"
    const size_t equals = word.starts_with("--") ? std::string::npos : word.find('=');
    std::string head = word.substr(0, equals);
    const bool dash_word = ReplaceDashWord(head);
    const bool attached = equals != std::string::npos && FindOption(app, head) != nullptr;
    if (dash_word && equals == std::string::npos) word = head;
    if (word == "-h" || word == "--help") out.shows = Shows::kBriefHelp;
    if (word == "--help-all") out.shows = Shows::kHelp;
    if (word == "--list-options") out.shows = Shows::kOptions;
    if (word == "--list-values") {
      out.shows = Shows::kValues;
      out.values_of = i + 1 < arguments_.size() ? arguments_[i + 1] : "";
      break;
    }
    const bool unknown =
        dash_word ? FindOption(app, head) == nullptr : !attached && IsUnknownShort(word);
    if (unknown && out.unknown.empty()) out.unknown = arguments_[i];
    const CLI::Option* option = FindOption(app, attached ? head : word);
    const CLI::Option* named = option;
    if (option == nullptr && !word.starts_with("--")) named = FindOption(app, word.substr(0, 2));
    if (named != nullptr) {
      const std::string& typed = arguments_[i];
      const size_t end = option == nullptr ? 2 : typed.find('=');
      options.typed_[LongName(*named)] = typed.substr(0, end);
    }
    const bool takes_value = option != nullptr && TakesValue(*option);
    const bool may_have_value = option != nullptr && !takes_value && IsIdle(*option);
    if (may_have_value && word.find('=') != std::string::npos) {
      word.resize(word.find('='));
    }
    if (attached && takes_value) {
      out.words.push_back(head);
      out.words.push_back(word.substr(equals + 1));
      continue;
    }
    if (takes_value && word.starts_with("--") && word.ends_with('=')) {
      out.words.push_back(word.substr(0, word.size() - 1));
      out.words.emplace_back();
      continue;
    }
    out.words.push_back(word);
    if (i + 1 == arguments_.size()) break;
    // A value is taken as it is, whatever it looks like.
    if (takes_value && word.find('=') == std::string::npos) out.words.push_back(arguments_[++i]);
    if (may_have_value && IsSwitchValue(arguments_[i + 1])) ++i;
  }
  return out;
}

int CommandLine::UnknownOption(const CLI::App& app, const std::string& word) const {
  const std::string name = word.substr(0, word.find('='));
  const std::string_view advice = OptionAdvice(command_, name);
  if (!advice.empty()) return UsageError(fmt::format("{}: {}", name, advice));
  std::string nearest = Nearest(name, OptionNames(app));
  if (FindOption(app, "-" + word) != nullptr) nearest = "-" + word;  // -temp for --temp
  const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
  return UsageError(fmt::format("unknown option {}{}", word, hint));
}

// Splits what CLI11 left over into positional arguments and unknown options.
std::optional<int> CommandLine::SortRemaining(const CLI::App& app) {
  bool only_positionals = false;
  for (const std::string& word : app.remaining()) {
    if (!only_positionals && word == "--") {
      only_positionals = true;
      continue;
    }
    if (only_positionals || word == "-" || !word.starts_with('-')) {
      positionals_.push_back(word);
      continue;
    }
    return UnknownOption(app, word);
  }
  return std::nullopt;
}

// Prints what the words ask for in place of the command's work.
int CommandLine::Show(const OptionList& options, const Words& words, const HelpText& help) const {
  const CLI::App& app = *options.app_;
  ResultStream out;
  switch (words.shows) {
    case Shows::kBriefHelp: out.Write(BriefHelp(app, command_, help)); break;
    case Shows::kHelp: out.Write(FullHelp(app, command_, help)); break;
    case Shows::kOptions:
      for (const std::string& name : OptionNames(app)) out.Write(name + "\n");
      break;
    case Shows::kValues:
      for (const std::string& value : options.ValuesOf(words.values_of)) out.Write(value + "\n");
      break;
    case Shows::kNothing: break;
  }
  return out.Finish(kExitDone);
}

std::optional<int> CommandLine::Parse(OptionList& options, const HelpText& help) {
  bool unused = false;
  options.Group(kOtherGroup);
  options.Flag("-h,--help", &unused, "Show a short help");
  options.Flag("--help-all", &unused, "Show all options");
  options.Group("");
  options.Flag("--list-options", &unused, "");  // for shell completion
  options.Flag("--list-values", &unused, "");   // of the option that follows
  CLI::App& app = *options.app_;
  takes_text_ = FindOption(app, "--prompt") != nullptr;
  Words words = Normalize(options);
  if (words.shows != Shows::kNothing) return Show(options, words, help);
  if (!words.unknown.empty()) return UnknownOption(app, words.unknown);
  std::reverse(words.words.begin(), words.words.end());
  try {
    app.parse(words.words);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string message = error.what();
    return UsageError(options.Spelled(message.substr(0, message.find(':'))) + " needs a value");
  } catch (const CLI::Error& error) {
    return UsageError(error.what());
  }
  return SortRemaining(app);
}

}  // namespace kvant::tools
