// kvant seq: a program of operations on token sequences, a line of JSON for each. What programs of
// the library do with Runner can be tried, and failures repeated, from the shell.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/runner.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"

namespace kvant::tools {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr HelpText kHelp = {
    "MODEL -f PROGRAM [OPTIONS]",
    "Runs one operation per line on named sequences in one KV cache, and prints a line of JSON\n"
    "for each: the operation, the length of the sequences it touched, their likeliest next token\n"
    "and a hash of their logits, equal where the bits are. # begins a comment. The first line\n"
    "that fails ends the program; nothing it touched has changed.\n"
    "\n"
    "  new A                   an empty sequence; free A, reset A\n"
    "  append A 1 15 27        new tokens, by id; append A \"text\" tokenizes\n"
    "  step A 15 B 27          one token each, in one step\n"
    "  generate A 10           ten tokens, each the likeliest\n"
    "  fork A B                B becomes a copy of A\n"
    "  reorder A B C : 2 2 0   A and B become what C was, C what A was\n"
    "  rewind A 12             the first twelve tokens stay\n"
    "  prune A 4 100           all but the first 4 and the last 100 are forgotten; with `moved` "
    "at\n"
    "                          the end the last ones move to earlier positions\n"
    "  snapshot A S            remembers A as S; restore A S, drop S\n"
    "  save FILE A B           to a file; load FILE A B\n"
    "  logits A 5              the five likeliest tokens\n"
    "  tokens A                ids of all tokens\n"
    "  stats                   memory and work so far\n"
    "  check                   the invariants of the cache",
    "  kvant seq model.gguf -f program.txt\n"
    "  printf 'new A\\nappend A \"Once\"\\ngenerate A 5\\n' | kvant seq model.gguf -\n",
};

constexpr int64_t kSequencesDefault = 16;

struct Options {
  ModelGroup model;
  TextGroup program;
  SessionGroup session;
  int64_t sequences = kSequencesDefault;
  bool prefix_cache = false;
  bool strict = false;
};

// One line of a program.
struct Line {
  size_t number;
  Words words;
  bool quoted_last = false;  // the last word was a text in quotes
};

Error WrongLine(const Line& line, const std::string& expected) {
  return MakeError(ErrorCode::kInvalid, "line {}: expected {}", line.number, expected);
}

// Words, some perhaps in quotes with the escapes of Unescape, up to the end or a #.
Result<Line> ParseLine(size_t number, const std::string& text) {
  constexpr const char* kSpace = " \t\r\v\f";
  Line line{number, {}};
  for (size_t i = text.find_first_not_of(kSpace); i < text.size() && text[i] != '#';
       i = text.find_first_not_of(kSpace, i)) {
    line.quoted_last = text[i] == '"';
    size_t end = text.find_first_of(" \t\r\v\f#\"", i);
    if (line.quoted_last) {
      for (end = i + 1; end < text.size() && text[end] != '"'; ++end) {
        if (text[end] == '\\') ++end;
      }
      if (end >= text.size()) return WrongLine(line, "a closing quote");
      line.words.push_back(Unescape(text.substr(i + 1, end - i - 1)));
      i = end + 1;
    } else {
      end = std::min(end, text.size());
      line.words.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return line;
}

class Program {
 public:
  Program(Runner& runner, const Tokenizer& tokenizer) : runner_(runner), tokenizer_(tokenizer) {}

  // Runs a line and describes what it did.
  Result<Json> Run(const Line& line) {
    using Operation = Status (Program::*)(const Line&, Json&);
    static const std::map<std::string, Operation> operations = {
        {"new", &Program::New},       {"free", &Program::Free},
        {"reset", &Program::Reset},   {"append", &Program::Append},
        {"step", &Program::Step},     {"generate", &Program::Generate},
        {"fork", &Program::Fork},     {"reorder", &Program::Reorder},
        {"rewind", &Program::Rewind}, {"prune", &Program::Prune},
        {"snapshot", &Program::Take}, {"restore", &Program::Restore},
        {"drop", &Program::Drop},     {"save", &Program::Save},
        {"load", &Program::Load},     {"logits", &Program::Logits},
        {"tokens", &Program::Tokens}, {"stats", &Program::Stats},
        {"check", &Program::Check},
    };
    const auto found = operations.find(line.words.front());
    if (found == operations.end()) {
      std::vector<std::string> known;
      for (const auto& [name, operation] : operations) known.push_back(name);
      const std::string near = Nearest(line.words.front(), known);
      return WrongLine(line, fmt::format("an operation, found '{}'{}", Visible(line.words.front()),
                                         near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    Json out = {{"line", line.number}, {"op", line.words.front()}};
    const Status status = (this->*found->second)(line, out);
    if (status.ok()) return out;
    const std::string& message = status.error().message;
    return MakeError(status.error().code, "{}{}",
                     message.starts_with("line ") ? "" : fmt::format("line {}: ", line.number),
                     message);
  }

 private:
  static Status Need(const Line& line, size_t least, size_t most, const char* usage) {
    if (line.words.size() >= least && line.words.size() <= most) return {};
    return WrongLine(line, fmt::format("'{}'", usage));
  }

  static Result<int64_t> Number(const Line& line, size_t i) {
    const std::string& word = line.words[i];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      return WrongLine(line, fmt::format("a number, found '{}'", Visible(word)));
    }
    return value;
  }

  static Result<int64_t> Count(const Line& line, size_t i) {
    KVANT_ASSIGN(const int64_t value, Number(line, i));
    if (value >= 0) return value;
    return WrongLine(line, fmt::format("a count, found '{}'", value));
  }

  Result<std::span<const float>> LogitsOf(const Line& line, SequenceId id) const {
    const std::span<const float> logits = runner_.logits(id);
    if (!logits.empty()) return logits;
    return WrongLine(line, "a sequence whose last token has logits");
  }

  Result<SequenceId> Find(const Line& line, const std::string& name) const {
    const auto found = sequences_.find(name);
    if (found != sequences_.end()) return found->second;
    return WrongLine(line, fmt::format("a sequence, found '{}'", Visible(name)));
  }

  Status MustBeFree(const Line& line, const std::string& name) const {
    if (!sequences_.contains(name)) return {};
    return WrongLine(line, fmt::format("a new name, found '{}'", Visible(name)));
  }

  // What is worth knowing of a sequence after an operation.
  void Describe(Json& out, const std::string& name) const {
    const SequenceId id = sequences_.at(name);
    Json state = {{"sequence", name}, {"length", runner_.length(id)}};
    const std::span<const float> logits = runner_.logits(id);
    if (!logits.empty()) {
      state["top"] = std::max_element(logits.begin(), logits.end()) - logits.begin();
      state["logits_xxh64"] = fmt::format("{:016x}", XXH64(logits.data(), logits.size_bytes(), 0));
    }
    out["state"].push_back(std::move(state));
  }

  Status New(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 2, 2, "new A"));
    KVANT_TRY(MustBeFree(line, line.words[1]));
    KVANT_ASSIGN(sequences_[line.words[1]], NewSequence());
    Describe(out, line.words[1]);
    return {};
  }
  Result<SequenceId> NewSequence() { return runner_.NewSequence(); }

  Status Free(const Line& line, Json&) {
    KVANT_TRY(Need(line, 2, 2, "free A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_TRY(runner_.FreeSequence(id));
    sequences_.erase(line.words[1]);
    return {};
  }

  Status Reset(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 2, 2, "reset A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_TRY(runner_.Reset(id));
    Describe(out, line.words[1]);
    return {};
  }

  Status Append(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, ~size_t{0}, "append A 1 15 27' or 'append A \"text\""));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    std::vector<TokenId> tokens;
    if (line.quoted_last && line.words.size() == 3) {
      KVANT_ASSIGN(tokens,
                   tokenizer_.Encode(line.words.back(), {.add_special = runner_.length(id) == 0,
                                                         .parse_special = true}));
    } else {
      for (size_t i = 2; i < line.words.size(); ++i) {
        KVANT_ASSIGN(const int64_t token, Number(line, i));
        tokens.push_back(static_cast<TokenId>(std::clamp<int64_t>(token, INT32_MIN, INT32_MAX)));
      }
    }
    KVANT_TRY(runner_.Append(id, tokens));
    out["tokens"] = tokens.size();
    Describe(out, line.words[1]);
    return {};
  }

  Status Step(const Line& line, Json& out) {
    if (line.words.size() < 3 || line.words.size() % 2 == 0) {
      return WrongLine(line, "'step A 15 B 27'");
    }
    std::vector<TokenId> tokens(line.words.size() / 2);
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < tokens.size(); ++i) {
      KVANT_ASSIGN(const SequenceId id, Find(line, line.words[2 * i + 1]));
      KVANT_ASSIGN(const int64_t token, Number(line, 2 * i + 2));
      tokens[i] = static_cast<TokenId>(std::clamp<int64_t>(token, INT32_MIN, INT32_MAX));
      inputs.push_back({id, {&tokens[i], 1}});
    }
    KVANT_TRY(runner_.Step(inputs));
    for (size_t i = 1; i < line.words.size(); i += 2) Describe(out, line.words[i]);
    return {};
  }

  Status Generate(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 3, "generate A 10"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t count, Count(line, 2));
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const auto logits, LogitsOf(line, id));
      const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ids.push_back(static_cast<TokenId>(top));
      KVANT_TRY(runner_.Append(id, {&ids.back(), 1}));
    }
    out["ids"] = ids;
    out["text"] = tokenizer_.Decode(ids, false);
    Describe(out, line.words[1]);
    return {};
  }

  Status Fork(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 3, "fork A B"));
    KVANT_ASSIGN(const SequenceId from, Find(line, line.words[1]));
    KVANT_TRY(MustBeFree(line, line.words[2]));
    KVANT_ASSIGN(sequences_[line.words[2]], runner_.Fork(from));
    Describe(out, line.words[2]);
    return {};
  }

  Status Reorder(const Line& line, Json& out) {
    const auto colon = std::find(line.words.begin(), line.words.end(), ":");
    const size_t count = static_cast<size_t>(colon - line.words.begin()) - 1;
    if (colon == line.words.end() || count == 0 || line.words.size() != 2 * count + 2) {
      return WrongLine(line, "'reorder A B C : 2 2 0'");
    }
    std::vector<SequenceId> ids;
    std::vector<int> parents;
    for (size_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1 + i]));
      KVANT_ASSIGN(const int64_t parent, Number(line, count + 2 + i));
      ids.push_back(id);
      parents.push_back(static_cast<int>(std::clamp<int64_t>(parent, -1, INT32_MAX)));
    }
    KVANT_TRY(runner_.Reorder(ids, parents));
    for (size_t i = 1; i <= count; ++i) Describe(out, line.words[i]);
    return {};
  }

  Status Rewind(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 4, "rewind A 12' or 'rewind A 12 no-replay"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t length, Number(line, 2));
    if (line.words.size() == 4 && line.words[3] != "no-replay") {
      return WrongLine(line, fmt::format("'no-replay', found '{}'", Visible(line.words[3])));
    }
    const uint64_t replayed = runner_.stats().tokens_replayed;
    KVANT_TRY(
        runner_.Rewind(id, length, line.words.size() == 4 ? Replay::kForbidden : Replay::kAllowed));
    out["replayed"] = runner_.stats().tokens_replayed - replayed;
    Describe(out, line.words[1]);
    return {};
  }

  Status Prune(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 4, 5, "prune A 4 100' or 'prune A 4 100 moved"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t first, Number(line, 2));
    KVANT_ASSIGN(const int64_t last, Number(line, 3));
    if (line.words.size() == 5 && line.words[4] != "moved") {
      return WrongLine(line, fmt::format("'moved', found '{}'", Visible(line.words[4])));
    }
    KVANT_TRY(runner_.Prune(
        id, first, last, line.words.size() == 5 ? PrunePositions::kMoved : PrunePositions::kKept));
    Describe(out, line.words[1]);
    return {};
  }

  Status Take(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 3, "snapshot A S"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    if (snapshots_.contains(line.words[2])) return WrongLine(line, "a new name for the snapshot");
    KVANT_ASSIGN(snapshots_[line.words[2]], runner_.TakeSnapshot(id));
    Describe(out, line.words[1]);
    return {};
  }

  Status Restore(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 3, "restore A S"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    const auto snapshot = snapshots_.find(line.words[2]);
    if (snapshot == snapshots_.end()) return WrongLine(line, "the name of a snapshot");
    KVANT_TRY(runner_.Restore(id, snapshot->second));
    Describe(out, line.words[1]);
    return {};
  }

  Status Drop(const Line& line, Json&) {
    KVANT_TRY(Need(line, 2, 2, "drop S"));
    const auto snapshot = snapshots_.find(line.words[1]);
    if (snapshot == snapshots_.end()) return WrongLine(line, "the name of a snapshot");
    KVANT_TRY(runner_.DropSnapshot(snapshot->second));
    snapshots_.erase(snapshot);
    return {};
  }

  Status Save(const Line& line, Json&) {
    KVANT_TRY(Need(line, 3, ~size_t{0}, "save FILE A B"));
    std::vector<SequenceId> ids;
    for (size_t i = 2; i < line.words.size(); ++i) {
      KVANT_ASSIGN(const SequenceId id, Find(line, line.words[i]));
      ids.push_back(id);
    }
    return runner_.Save(line.words[1], ids);
  }

  Status Load(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, ~size_t{0}, "load FILE A B"));
    for (size_t i = 2; i < line.words.size(); ++i) {
      KVANT_TRY(MustBeFree(line, line.words[i]));
      const auto others = line.words.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find(line.words.begin() + 2, others, line.words[i]) == others) continue;
      return WrongLine(line, fmt::format("different names, found '{}'", Visible(line.words[i])));
    }
    KVANT_ASSIGN(const std::vector<SequenceId> ids, runner_.Load(line.words[1]));
    if (ids.size() != line.words.size() - 2) {
      for (const SequenceId id : ids) KVANT_TRY(runner_.FreeSequence(id));
      return WrongLine(line,
                       fmt::format("{} names, as many as the file has sequences", ids.size()));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      sequences_[line.words[i + 2]] = ids[i];
      Describe(out, line.words[i + 2]);
    }
    return {};
  }

  Status Logits(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 3, 3, "logits A 5"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t wanted, Count(line, 2));
    KVANT_ASSIGN(const auto logits, LogitsOf(line, id));
    std::vector<TokenId> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    const size_t count = std::min(static_cast<size_t>(wanted), order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end(), [&](TokenId a, TokenId b) {
                        const float x = logits[static_cast<size_t>(a)];
                        const float y = logits[static_cast<size_t>(b)];
                        return x != y ? x > y : a < b;
                      });
    out["logits"] = Json::array();
    for (size_t i = 0; i < count; ++i) {
      out["logits"].push_back({{"id", order[i]},
                               {"text", tokenizer_.TokenBytes(order[i], true)},
                               {"logit", logits[static_cast<size_t>(order[i])]}});
    }
    return {};
  }

  Status Tokens(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 2, 2, "tokens A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    out["ids"] = std::vector<TokenId>(runner_.tokens(id).begin(), runner_.tokens(id).end());
    return {};
  }

  Status Stats(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 1, 1, "stats"));
    const RunnerStats stats = runner_.stats();
    out["stats"] = {{"sequences", stats.sequences},
                    {"kv_bytes_used", stats.kv_bytes_used},
                    {"kv_bytes_written", stats.kv_bytes_written},
                    {"kv_bytes_copied", stats.kv_bytes_copied},
                    {"kv_blocks_taken", stats.kv_blocks_taken},
                    {"tokens_processed", stats.tokens_processed},
                    {"tokens_replayed", stats.tokens_replayed},
                    {"tokens_reused", stats.tokens_reused},
                    {"passes", stats.passes}};
    return {};
  }

  Status Check(const Line& line, Json& out) {
    KVANT_TRY(Need(line, 1, 1, "check"));
    KVANT_TRY(runner_.Check());
    out["ok"] = true;
    return {};
  }

  Runner& runner_;
  const Tokenizer& tokenizer_;
  std::map<std::string, SequenceId> sequences_;
  std::map<std::string, SnapshotId> snapshots_;
};

Status RunProgram(const Options& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.program.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid, "no program given: use -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options.sequences = options.sequences;
  session_options.prefix_cache = options.prefix_cache;
  session_options.strict = options.strict;
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  KVANT_ASSIGN(const auto runner, Runner::Create(model, session_options));
  KVANT_ASSIGN(auto log, options.session.KvLog());
  if (log) runner->SetKvLog(std::move(log));
  Program program(*runner, model->tokenizer());
  std::istringstream lines(*text);
  std::string content;
  for (size_t number = 1; std::getline(lines, content); ++number) {
    KVANT_ASSIGN(const Line line, ParseLine(number, content));
    if (line.words.empty()) continue;
    KVANT_ASSIGN(const Json result, program.Run(line));
    if (!out.Write(result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n")) break;
  }
  return {};
}

}  // namespace

int SeqCommand(CommandLine& line) {
  Options options;
  OptionList list;
  options.program.Add(list, "Program", "program");
  list.Integer("--sequences", &options.sequences, {1, 4096}, "Sequences at the same time, at most");
  list.Flag("--prefix-cache", &options.prefix_cache,
            "Take the cache of earlier sequences that began with the same tokens");
  list.Flag("--strict", &options.strict,
            "Compute prompts in the arithmetic of single tokens, so that the bits agree");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.AddThreads(list);
  options.session.AddContext(list, "the length the model was trained for");
  options.session.AddKvTypes(list);
  options.session.AddKvBudget(list);
  options.session.AddKvChecks(list);
  options.session.AddLog(list);
  options.session.AddChunk(list);
  AddIgnoredOptions(list);
  if (const auto code = line.Parse(list, kHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  const Status status = RunProgram(options, positionals, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
