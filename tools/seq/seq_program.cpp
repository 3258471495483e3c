// The operations of `kvant seq` (described by its help): parsing a line, running it, and telling
// what became of the sequences it touched.
#include "tools/seq/seq_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/counted.h"
#include "base/result.h"
#include "engine/text/languages.h"
#include "tools/options/command_line.h"
#include "tools/options/frames_file.h"
#include "tools/options/json.h"
#include "tools/options/nearest_word.h"
#include "tools/seq/seq_line.h"
#include "tools/seq/seq_report.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

class Interpreter {
 public:
  Interpreter(Runner& runner, const Tokenizer& tokenizer)
      : runner_(runner), tokenizer_(tokenizer) {}

  // Runs a line and describes what it did.
  Result<Json> Run(const SeqLine& line) {
    using Operation = Status (Interpreter::*)(const SeqLine&, Json&);
    static const std::map<std::string, Operation> operations = {
        {"encode", &Interpreter::Encode}, {"forget", &Interpreter::Forget},
        {"new", &Interpreter::New},       {"free", &Interpreter::Free},
        {"reset", &Interpreter::Reset},   {"append", &Interpreter::Append},
        {"step", &Interpreter::Step},     {"generate", &Interpreter::Generate},
        {"fork", &Interpreter::Fork},     {"reorder", &Interpreter::Reorder},
        {"rewind", &Interpreter::Rewind}, {"prune", &Interpreter::Prune},
        {"snapshot", &Interpreter::Take}, {"restore", &Interpreter::Restore},
        {"drop", &Interpreter::Drop},     {"save", &Interpreter::Save},
        {"load", &Interpreter::Load},     {"logits", &Interpreter::Logits},
        {"export", &Interpreter::Export}, {"import", &Interpreter::Import},
        {"tokens", &Interpreter::Tokens}, {"stats", &Interpreter::Stats},
        {"check", &Interpreter::Check},
    };
    const auto found = operations.find(line.words.front());
    if (found == operations.end()) {
      std::vector<std::string> known;
      for (const auto& [name, operation] : operations) known.push_back(name);
      const std::string near = Nearest(line.words.front(), known);
      return WrongSeqLine(line,
                          fmt::format("an operation, found '{}'{}", Visible(line.words.front()),
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
  Result<std::span<const float>> LogitsOf(SequenceId id) const {
    KVANT_TRY(runner_.ComputeLogits(id));
    return runner_.logits(id);
  }

  Result<SequenceId> Find(const SeqLine& line, const std::string& name) const {
    const auto found = sequences_.find(name);
    if (found != sequences_.end()) return found->second;
    return WrongSeqLine(line, fmt::format("a sequence, found '{}'", Visible(name)));
  }

  Status MustBeFree(const SeqLine& line, const std::string& name) const {
    if (!sequences_.contains(name)) return {};
    return WrongSeqLine(line, fmt::format("a new name, found '{}'", Visible(name)));
  }

  // Adds the state of a sequence after an operation.
  void Describe(Json& out, const std::string& name) const {
    const SequenceId id = sequences_.at(name);
    out["state"].push_back(StateJson(name, runner_.length(id), runner_.logits(id)));
  }

  Status New(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 2, 3, "new A' or 'new A S"));
    KVANT_TRY(MustBeFree(line, line.words[1]));
    SequenceId id = -1;
    if (line.words.size() == 3) {
      KVANT_ASSIGN(const SourceId source, FindSource(line, line.words[2]));
      KVANT_ASSIGN(id, runner_.NewSequence(source));
    } else {
      KVANT_ASSIGN(id, runner_.NewSequence());
    }
    sequences_[line.words[1]] = id;
    Describe(out, line.words[1]);
    return {};
  }

  Result<SourceId> FindSource(const SeqLine& line, const std::string& name) const {
    const auto found = sources_.find(name);
    if (found != sources_.end()) return found->second;
    return WrongSeqLine(line, fmt::format("a source, found '{}'", Visible(name)));
  }

  Status Encode(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, ~size_t{0}, "encode S 1 15 27' or 'encode S \"text\""));
    if (sources_.contains(line.words[1])) return WrongSeqLine(line, "a new name for the source");
    if (runner_.model().frame_shape().has_value()) return EncodeFrames(line, out);
    KVANT_ASSIGN(const auto tokens, SourceOf(line));
    KVANT_ASSIGN(sources_[line.words[1]], runner_.Encode(tokens));
    out["tokens"] = tokens.size();
    return {};
  }

  Status EncodeFrames(const SeqLine& line, Json& out) {
    if (line.words.size() != 4 || line.words[2] != "frames") {
      return WrongSeqLine(line, "'encode S frames FILE.npy' of a model that reads frames");
    }
    KVANT_ASSIGN(const auto frames, ReadFrames(line.words[3], runner_.model()));
    KVANT_ASSIGN(sources_[line.words[1]], runner_.EncodeFrames(frames));
    out["frames"] = runner_.model().frame_shape()->frames;
    return {};
  }

  Status Forget(const SeqLine& line, Json&) {
    KVANT_TRY(NeedWords(line, 2, 2, "forget S"));
    KVANT_ASSIGN(const SourceId source, FindSource(line, line.words[1]));
    KVANT_TRY(runner_.FreeSource(source));
    sources_.erase(line.words[1]);
    return {};
  }

  Status Free(const SeqLine& line, Json&) {
    KVANT_TRY(NeedWords(line, 2, 2, "free A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_TRY(runner_.FreeSequence(id));
    sequences_.erase(line.words[1]);
    return {};
  }

  Status Reset(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 2, 2, "reset A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_TRY(runner_.Reset(id));
    Describe(out, line.words[1]);
    return {};
  }

  enum class AddSpecial : uint8_t { kNo, kYes };

  // The ids behind the first two words, or the ids of a text in quotes.
  Result<std::vector<TokenId>> TokensOf(const SeqLine& line, AddSpecial special) const {
    if (line.quoted_last && line.words.size() == 3) {
      return tokenizer_.Encode(line.words.back(),
                               {.add_special = special == AddSpecial::kYes, .parse_special = true});
    }
    std::vector<TokenId> tokens;
    for (size_t i = 2; i < line.words.size(); ++i) {
      KVANT_ASSIGN(const int64_t token, SeqNumber(line, i));
      tokens.push_back(static_cast<TokenId>(std::clamp<int64_t>(token, INT32_MIN, INT32_MAX)));
    }
    return tokens;
  }

  Result<std::vector<TokenId>> SourceOf(const SeqLine& line) const {
    const bool is_text = line.quoted_last && line.words.size() == 3;
    if (!is_text) return TokensOf(line, AddSpecial::kYes);
    KVANT_ASSIGN(const Translation translation, MakeTranslation(runner_.model(), {}));
    return EncodeSource(runner_.model(), translation, line.words.back());
  }

  Status Append(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, ~size_t{0}, "append A 1 15 27' or 'append A \"text\""));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    // A text that answers a source begins with a token that the caller gives.
    const bool first = runner_.length(id) == 0 && sources_.empty();
    KVANT_ASSIGN(const auto tokens, TokensOf(line, first ? AddSpecial::kYes : AddSpecial::kNo));
    KVANT_TRY(runner_.Append(id, tokens));
    out["tokens"] = tokens.size();
    Describe(out, line.words[1]);
    return {};
  }

  Status Step(const SeqLine& line, Json& out) {
    std::vector<std::vector<TokenId>> tokens;
    SeqWords names;
    for (size_t i = 1; i < line.words.size(); ++i) {
      if (sequences_.contains(line.words[i])) {
        names.push_back(line.words[i]);
        tokens.emplace_back();
        continue;
      }
      if (tokens.empty()) return WrongSeqLine(line, "'step A 15 16 B 27'");
      KVANT_ASSIGN(const int64_t token, SeqNumber(line, i));
      tokens.back().push_back(
          static_cast<TokenId>(std::clamp<int64_t>(token, INT32_MIN, INT32_MAX)));
    }
    if (names.empty()) return WrongSeqLine(line, "'step A 15 16 B 27'");
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < names.size(); ++i) inputs.push_back({sequences_[names[i]], tokens[i]});
    KVANT_TRY(runner_.Step(inputs));
    for (const std::string& name : names) Describe(out, name);
    return {};
  }

  Status Generate(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 3, "generate A 10"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t count, SeqCount(line, 2));
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const auto logits, LogitsOf(id));
      const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ids.push_back(static_cast<TokenId>(top));
      KVANT_TRY(runner_.Append(id, {&ids.back(), 1}));
    }
    out["ids"] = ids;
    out["text"] = tokenizer_.Decode(ids, {.special = false});
    Describe(out, line.words[1]);
    return {};
  }

  Status Fork(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 3, "fork A B"));
    KVANT_ASSIGN(const SequenceId from, Find(line, line.words[1]));
    KVANT_TRY(MustBeFree(line, line.words[2]));
    KVANT_ASSIGN(sequences_[line.words[2]], runner_.Fork(from));
    Describe(out, line.words[2]);
    return {};
  }

  Status Reorder(const SeqLine& line, Json& out) {
    const auto colon = std::find(line.words.begin(), line.words.end(), ":");
    const size_t count = static_cast<size_t>(colon - line.words.begin()) - 1;
    if (colon == line.words.end() || count == 0 || line.words.size() != 2 * count + 2) {
      return WrongSeqLine(line, "'reorder A B C : 2 2 0'");
    }
    std::vector<SequenceId> ids;
    std::vector<int> parents;
    for (size_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1 + i]));
      KVANT_ASSIGN(const int64_t parent, SeqNumber(line, count + 2 + i));
      ids.push_back(id);
      parents.push_back(static_cast<int>(std::clamp<int64_t>(parent, -1, INT32_MAX)));
    }
    KVANT_TRY(runner_.Reorder(ids, parents));
    for (size_t i = 1; i <= count; ++i) Describe(out, line.words[i]);
    return {};
  }

  Status Rewind(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 4, "rewind A 12' or 'rewind A 12 no-replay"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t length, SeqNumber(line, 2));
    if (line.words.size() == 4 && line.words[3] != "no-replay") {
      return WrongSeqLine(line, fmt::format("'no-replay', found '{}'", Visible(line.words[3])));
    }
    const uint64_t replayed = runner_.stats().tokens_replayed;
    KVANT_TRY(
        runner_.Rewind(id, length, line.words.size() == 4 ? Replay::kForbidden : Replay::kAllowed));
    out["replayed"] = runner_.stats().tokens_replayed - replayed;
    Describe(out, line.words[1]);
    return {};
  }

  Status Prune(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 4, 5, "prune A 4 100' or 'prune A 4 100 moved"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t first, SeqNumber(line, 2));
    KVANT_ASSIGN(const int64_t last, SeqNumber(line, 3));
    if (line.words.size() == 5 && line.words[4] != "moved") {
      return WrongSeqLine(line, fmt::format("'moved', found '{}'", Visible(line.words[4])));
    }
    KVANT_TRY(runner_.Prune(
        id, first, last, line.words.size() == 5 ? PrunePositions::kMoved : PrunePositions::kKept));
    Describe(out, line.words[1]);
    return {};
  }

  Status Take(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 3, "snapshot A S"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    if (snapshots_.contains(line.words[2]))
      return WrongSeqLine(line, "a new name for the snapshot");
    KVANT_ASSIGN(snapshots_[line.words[2]], runner_.TakeSnapshot(id));
    Describe(out, line.words[1]);
    return {};
  }

  Status Restore(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 3, "restore A S"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    const auto snapshot = snapshots_.find(line.words[2]);
    if (snapshot == snapshots_.end()) return WrongSeqLine(line, "the name of a snapshot");
    KVANT_TRY(runner_.Restore(id, snapshot->second));
    Describe(out, line.words[1]);
    return {};
  }

  Status Drop(const SeqLine& line, Json&) {
    KVANT_TRY(NeedWords(line, 2, 2, "drop S"));
    const auto snapshot = snapshots_.find(line.words[1]);
    if (snapshot == snapshots_.end()) return WrongSeqLine(line, "the name of a snapshot");
    KVANT_TRY(runner_.DropSnapshot(snapshot->second));
    snapshots_.erase(snapshot);
    return {};
  }

  Status Save(const SeqLine& line, Json&) {
    KVANT_TRY(NeedWords(line, 3, ~size_t{0}, "save FILE A B"));
    std::vector<SequenceId> ids;
    for (size_t i = 2; i < line.words.size(); ++i) {
      KVANT_ASSIGN(ids.emplace_back(), Find(line, line.words[i]));
    }
    return runner_.Save(line.words[1], ids);
  }

  Status Load(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, ~size_t{0}, "load FILE A B"));
    return Name(
        line, 2, [&] { return runner_.Load(line.words[1]); }, out);
  }

  Status Export(const SeqLine& line, Json&) {
    KVANT_TRY(NeedWords(line, 4, ~size_t{0}, "export FILE bhsd A B"));
    KVANT_ASSIGN(const KvLayout layout, ParseKvLayout(line.words[2]));
    std::vector<SequenceId> ids;
    for (size_t i = 3; i < line.words.size(); ++i) {
      KVANT_ASSIGN(ids.emplace_back(), Find(line, line.words[i]));
    }
    KVANT_ASSIGN(const KvTensors tensors, runner_.Export(ids, layout));
    return WriteKvTensors(line.words[1], tensors);
  }

  Status Import(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 4, ~size_t{0}, "import FILE bhsd A B"));
    KVANT_ASSIGN(const KvLayout layout, ParseKvLayout(line.words[2]));
    const auto import = [&]() -> Result<std::vector<SequenceId>> {
      KVANT_ASSIGN(const KvTensors tensors, ReadKvTensors(line.words[1]));
      return runner_.Import(tensors, layout);
    };
    return Name(line, 3, import, out);
  }

  // Gives the words from number `first` on to the new sequences that `make` returns.
  Status Name(const SeqLine& line, size_t first,
              const std::function<Result<std::vector<SequenceId>>()>& make, Json& out) {
    const auto names = line.words.begin() + static_cast<std::ptrdiff_t>(first);
    for (auto name = names; name != line.words.end(); ++name) {
      KVANT_TRY(MustBeFree(line, *name));
      if (std::find(names, name, *name) == name) continue;
      return WrongSeqLine(line, fmt::format("different names, found '{}'", Visible(*name)));
    }
    KVANT_ASSIGN(const std::vector<SequenceId> ids, make());
    if (ids.size() != line.words.size() - first) {
      for (const SequenceId id : ids) KVANT_TRY(runner_.FreeSequence(id));
      return WrongSeqLine(
          line, fmt::format("{}, as many as the file has sequences", Counted(ids.size(), "name")));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      sequences_[line.words[i + first]] = ids[i];
      Describe(out, line.words[i + first]);
    }
    return {};
  }

  Status Logits(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 3, 3, "logits A 5"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    KVANT_ASSIGN(const int64_t wanted, SeqCount(line, 2));
    KVANT_ASSIGN(const auto logits, LogitsOf(id));
    out["logits"] = TopLogitsJson(logits, wanted, tokenizer_);
    Describe(out, line.words[1]);
    return {};
  }

  Status Tokens(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 2, 2, "tokens A"));
    KVANT_ASSIGN(const SequenceId id, Find(line, line.words[1]));
    out["ids"] = std::vector<TokenId>(runner_.tokens(id).begin(), runner_.tokens(id).end());
    return {};
  }

  Status Stats(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 1, 1, "stats"));
    out["stats"] = StatsJson(runner_.stats());
    return {};
  }

  Status Check(const SeqLine& line, Json& out) {
    KVANT_TRY(NeedWords(line, 1, 1, "check"));
    KVANT_TRY(runner_.Check());
    out["ok"] = true;
    return {};
  }

  Runner& runner_;
  const Tokenizer& tokenizer_;
  std::map<std::string, SequenceId> sequences_;
  std::map<std::string, SnapshotId> snapshots_;
  std::map<std::string, SourceId> sources_;
};

}  // namespace

Status RunSequenceProgram(const std::string& text, Runner& runner, const Tokenizer& tokenizer,
                          const std::function<bool(const std::string& line)>& print) {
  Interpreter interpreter(runner, tokenizer);
  std::istringstream lines(text);
  std::string content;
  for (size_t number = 1; std::getline(lines, content); ++number) {
    KVANT_ASSIGN(const SeqLine line, ParseSeqLine(number, content));
    if (line.words.empty()) continue;
    KVANT_ASSIGN(const Json result, interpreter.Run(line));
    if (!print(Dump(result) + "\n")) break;
  }
  return {};
}

}  // namespace kvant::tools
