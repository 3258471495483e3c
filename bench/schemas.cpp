// schemas [MODEL.gguf] [--annotations] [--compact]: judges JSON texts by JSON schemas, for scripts
// that compare with test suites and other engines. Lines from standard input, a line of answer to
// each:
//
//   S SCHEMA   "ok MICROSECONDS", of compilation and first mask, or "refused MESSAGE"
//   T STRING   a JSON string that holds the text: "1" if it satisfies the schema, else "0", then
//              the times of the masks in microseconds; "error MESSAGE"
//   R STRING   as T, but with the keys of objects in any order, without times
//   G SEED     a text of random tokens that satisfies the schema, as a JSON string; null where it
//              has not ended after 3,000 tokens
//   N COUNT SEED  so many texts of seeds from SEED on, without those that have not ended, as a
//   list;
//              "error MESSAGE" where too few end
//   B          bytes of the grammar's automata, and of what is kept of tokens, after the texts so
//   far
//
// Without a model every byte is a token, and no masks are computed. --annotations: unknown keywords
// are annotations.
#include <algorithm>
#include <bit>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/schema/json_schema.h"
#include "kvant/model.h"
#include "kvant/random.h"

namespace {

namespace grammar = kvant::grammar;

// The time that this thread has had on a CPU, in microseconds: other programs do not count.
double CpuMicroseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

class Judge {
 public:
  Judge(const kvant::Tokenizer* tokenizer, grammar::JsonSchemaForm form)
      : tokenizer_(tokenizer), form_(form) {
    if (tokenizer != nullptr) {
      trie_ = tokenizer->trie();
      ends_ = tokenizer->special().end_of_generation;
      return;
    }
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();
    trie_ = std::make_shared<const grammar::TokenTrie>(std::move(texts));
    ends_ = {256};
  }

  std::string Compile(const std::string& schema) {
    matcher_.reset();
    const double begin = CpuMicroseconds();
    auto built = grammar::ParseJsonSchema(schema, form_);
    if (!built.ok()) return "refused " + built.error().message;
    matcher_ = std::make_unique<grammar::Matcher>(std::move(*built), trie_, ends_);
    bits_.resize(grammar::Matcher::WordsFor(matcher_->vocab()));
    if (tokenizer_ != nullptr) {
      const kvant::Status status = matcher_->Mask(matcher_->Begin(), bits_);
      if (!status.ok()) return "refused " + status.error().message;
    }
    return "ok " + std::to_string(CpuMicroseconds() - begin);
  }

  kvant::Result<std::string> Try(const std::string& text) {
    grammar::MatchState state = matcher_->Begin();
    if (tokenizer_ == nullptr) {
      KVANT_ASSIGN(const bool moved, matcher_->AdvanceBytes(state, text));
      return std::string(moved && state.accepts ? "1" : "0");
    }
    std::string times;
    KVANT_ASSIGN(std::vector<kvant::TokenId> tokens, tokenizer_->Encode(text, {}));
    tokens.push_back(ends_.at(0));
    for (const kvant::TokenId token : tokens) {
      const double begin = CpuMicroseconds();
      KVANT_TRY(matcher_->Mask(state, bits_));
      const auto place = static_cast<size_t>(token);
      const bool allowed = (bits_[place / 64] >> (place % 64) & 1) != 0;
      KVANT_ASSIGN(const bool moved, matcher_->Advance(state, token));
      times += ' ';
      times += std::to_string(CpuMicroseconds() - begin);
      if (allowed != moved) {
        return kvant::MakeError(kvant::ErrorCode::kInvalid,
                                "the mask and the step of token {} disagree", token);
      }
      if (!moved) return "0" + times;
    }
    return "1" + times;
  }

  // Whether a value is accepted with the keys of its objects in some order. Orders are tried until
  // there is none left, or a budget is used up.
  bool TryOrders(const nlohmann::ordered_json& value) {
    budget_ = 2'000'000;
    return Write(value, matcher_->Begin(),
                 [](const grammar::MatchState& state) { return state.accepts; });
  }

  // A text of tokens that are all as likely, but those that close something are more so.
  kvant::Result<std::string> Generate(uint64_t seed) {
    KVANT_ASSIGN(const std::optional<std::string> text, RandomText(seed));
    return text.has_value() ? nlohmann::json(*text).dump() : std::string("null");
  }

  kvant::Result<std::string> GenerateMany(int64_t count, uint64_t seed) {
    constexpr int64_t kTriesMax = 4;  // for each text
    nlohmann::json texts = nlohmann::json::array();
    for (int64_t i = 0; i < kTriesMax * count && std::ssize(texts) < count; ++i) {
      KVANT_ASSIGN(const std::optional<std::string> text,
                   RandomText(seed * 1'000'003 + static_cast<uint64_t>(i)));
      if (text.has_value()) texts.push_back(*text);
    }
    if (std::ssize(texts) == count) return texts.dump();
    return kvant::MakeError(kvant::ErrorCode::kInvalid, "expected {} texts that end, found {}",
                            count, texts.size());
  }

  std::string Bytes() {
    const grammar::Matcher::Bytes bytes = matcher_->bytes();
    return std::to_string(bytes.automata) + " " + std::to_string(bytes.kept);
  }

  bool has_schema() const { return matcher_ != nullptr; }

 private:
  // nullopt: it has not ended after 3,000 tokens.
  kvant::Result<std::optional<std::string>> RandomText(uint64_t seed) {
    kvant::Xoshiro256 random(seed);
    grammar::MatchState state = matcher_->Begin();
    std::string text;
    for (int step = 0; step < 3000; ++step) {
      KVANT_TRY(matcher_->Mask(state, bits_));
      if (step % 3 == 2) PreferClosing(random);
      const kvant::TokenId token =
          state.accepts && random.Next() % 4 != 0 ? ends_.at(0) : RandomTokenIn(bits_, random);
      if (token < 0) {
        return kvant::MakeError(kvant::ErrorCode::kInvalid, "no token may follow '{}'", text);
      }
      KVANT_ASSIGN(const bool moved, matcher_->Advance(state, token));
      if (!moved) {
        return kvant::MakeError(kvant::ErrorCode::kInvalid,
                                "the mask and the step of token {} disagree", token);
      }
      if (state.has_ended) return std::optional(text);
      text += trie_->text(token);
    }
    return std::optional<std::string>();
  }

  // One of the tokens whose bits are set; -1: there is none.
  static kvant::TokenId RandomTokenIn(std::span<const uint64_t> bits, kvant::Xoshiro256& random) {
    uint64_t count = 0;
    for (const uint64_t word : bits) count += static_cast<uint64_t>(std::popcount(word));
    if (count == 0) return -1;
    uint64_t left = random.Below(count);
    for (size_t i = 0;; ++i) {
      const auto here = static_cast<uint64_t>(std::popcount(bits[i]));
      if (left >= here) {
        left -= here;
        continue;
      }
      uint64_t word = bits[i];
      for (; left > 0; --left) word &= word - 1;
      return static_cast<kvant::TokenId>(i * 64 + static_cast<size_t>(std::countr_zero(word)));
    }
  }

  // Leaves only tokens that close something, if one of them is allowed: most others go on for ever.
  void PreferClosing(kvant::Xoshiro256& random) {
    if (closing_.empty()) {
      closing_.resize(bits_.size());
      for (size_t token = 0; token < matcher_->vocab(); ++token) {
        const std::string_view text = trie_->text(static_cast<kvant::TokenId>(token));
        const bool closes = text.size() == 1 && std::string_view("\"}],").find(text) != text.npos;
        if (closes) closing_[token / 64] |= uint64_t{1} << (token % 64);
      }
    }
    std::vector<uint64_t> both = bits_;
    uint64_t any = 0;
    for (size_t i = 0; i < both.size(); ++i) any |= both[i] &= closing_[i];
    if (any != 0 && random.Next() % 2 == 0) bits_ = both;
  }

  using Next = std::function<bool(const grammar::MatchState&)>;
  using Value = nlohmann::ordered_json;

  bool WriteText(const std::string& text, grammar::MatchState state, const Next& next) {
    if (--budget_ < 0) return false;
    const auto moved = matcher_->AdvanceBytes(state, text);
    return moved.ok() && *moved && next(state);
  }

  bool Write(const Value& value, const grammar::MatchState& state, const Next& next) {
    if (value.is_object()) {
      LeftMembers members;
      for (const auto& member : value.get_ref<const Value::object_t&>()) {
        members.members.push_back(&member);
      }
      return WriteText("{", state, [&](const grammar::MatchState& inside) {
        return WriteMembers(members, 0, inside, next);
      });
    }
    if (!value.is_array()) return WriteText(value.dump(), state, next);
    return WriteText("[", state, [&](const grammar::MatchState& inside) {
      return WriteItems(value, 0, inside, next);
    });
  }

  bool WriteItems(const Value& list, size_t done, const grammar::MatchState& state,
                  const Next& next) {
    if (done == list.size()) return WriteText("]", state, next);
    return WriteText(done == 0 ? "" : ", ", state, [&](const grammar::MatchState& here) {
      return Write(list[done], here, [&](const grammar::MatchState& after) {
        return WriteItems(list, done + 1, after, next);
      });
    });
  }

  using Members = std::vector<const Value::object_t::value_type*>;

  static std::string KeyOf(const Value::object_t::value_type& member, size_t done) {
    return (done == 0 ? "" : ", ") + Value(member.first).dump() + ": ";
  }

  // The members of an object that are not written yet, in the order in which they are tried.
  struct LeftMembers {
    Members members;
    std::set<const Value::object_t::value_type*> ordered = {};  // against each other
  };

  static bool Nothing(const grammar::MatchState& /*state*/) { return true; }

  // Moves those members to the front that leave most others their turn, where some may come next
  // of which that is not known yet.
  void Order(LeftMembers& left, size_t done, const grammar::MatchState& state) {
    Members open;
    std::ranges::copy_if(left.members, std::back_inserter(open), [&](const auto* member) {
      return WriteText(KeyOf(*member, done), state, Nothing);
    });
    if (std::ranges::all_of(open, [&](const auto* one) { return left.ordered.contains(one); })) {
      return;
    }
    std::map<const Value::object_t::value_type*, int> shut;  // how many it leaves no turn
    for (const auto* member : open) {
      WriteText(KeyOf(*member, done), state, [&](const auto& here) {
        return Write(member->second, here, [&](const grammar::MatchState& after) {
          shut[member] = static_cast<int>(std::ranges::count_if(open, [&](const auto* other) {
            return !WriteText(KeyOf(*other, done + 1), after, Nothing);
          }));
          return true;
        });
      });
      left.ordered.insert(member);
    }
    std::ranges::stable_sort(left.members, {}, [&](const auto* member) {
      const auto found = shut.find(member);
      return found == shut.end() ? INT_MAX : found->second;
    });
  }

  bool WriteMembers(LeftMembers left, size_t done, const grammar::MatchState& state,
                    const Next& next) {
    if (left.members.empty()) return WriteText("}", state, next);
    Order(left, done, state);
    for (size_t i = 0; i < left.members.size(); ++i) {
      const auto* member = left.members[i];
      LeftMembers others = left;
      others.members.erase(others.members.begin() + static_cast<ptrdiff_t>(i));
      const bool found = WriteText(KeyOf(*member, done), state, [&](const auto& here) {
        return Write(member->second, here, [&](const grammar::MatchState& after) {
          return WriteMembers(others, done + 1, after, next);
        });
      });
      if (found) return true;
    }
    return false;
  }

  const kvant::Tokenizer* tokenizer_;
  grammar::JsonSchemaForm form_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::vector<kvant::TokenId> ends_;
  std::unique_ptr<grammar::Matcher> matcher_;
  std::vector<uint64_t> bits_;
  std::vector<uint64_t> closing_;  // tokens that close something
  int budget_ = 0;
};

std::string Answer(Judge& judge, const std::string& line) {
  if (line.starts_with("S ")) return judge.Compile(line.substr(2));
  if (line.starts_with("G ") && judge.has_schema()) {
    const auto text = judge.Generate(std::strtoull(line.c_str() + 2, nullptr, 10));
    return text.ok() ? *text : "error " + text.error().message;
  }
  if (line == "B" && judge.has_schema()) return judge.Bytes();
  if (line.starts_with("N ") && judge.has_schema()) {
    char* seed = nullptr;
    const int64_t count = std::strtoll(line.c_str() + 2, &seed, 10);
    const auto texts = judge.GenerateMany(count, std::strtoull(seed, nullptr, 10));
    return texts.ok() ? *texts : "error " + texts.error().message;
  }
  const auto text = nlohmann::json::parse(line.substr(std::min<size_t>(2, line.size())), nullptr,
                                          /*allow_exceptions=*/false);
  const bool any_order = line.starts_with("R ");
  if ((!line.starts_with("T ") && !any_order) || !text.is_string() || !judge.has_schema()) {
    return "error expected a schema that is understood, then 'T' and a JSON string";
  }
  if (any_order) {
    const auto value = nlohmann::ordered_json::parse(text.get<std::string>(), nullptr, false);
    return judge.TryOrders(value) ? "1" : "0";
  }
  const auto verdict = judge.Try(text.get<std::string>());
  return verdict.ok() ? *verdict : "error " + verdict.error().message;
}

}  // namespace

int main(int argc, char** argv) {
  grammar::JsonSchemaForm form;
  std::shared_ptr<const kvant::Model> model;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--annotations") {
      form.allows_unknown = true;
    } else if (word == "--compact") {
      form.compact = true;
    } else {
      auto opened = kvant::Model::Open(word);
      if (!opened.ok()) {
        std::fprintf(stderr, "schemas: %s\n", opened.error().message.c_str());
        return 1;
      }
      model = *opened;
    }
  }
  std::ios::sync_with_stdio(false);
  Judge judge(model == nullptr ? nullptr : &model->tokenizer(), form);
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer = Answer(judge, line);
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    std::puts(answer.c_str());
    std::fflush(stdout);
  }
  return 0;
}
