// Texts of which a grammar describes the end: a thought may come first, and then anything up to a
// trigger. Both are free.
//
// A mark that ends the free part, such as </think>, may end inside a token. From the tokens with
// its end in them, only those may be chosen whose rest begins the text of the grammar. Free text is
// what is shown: control tokens count with their names there.
//
// Thread-safety: all functions may run concurrently; a state belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/trigger_search.h"
#include "engine/grammar/word_search.h"
#include "kvant/logit_stage.h"
#include "kvant/token_id.h"

namespace kvant::grammar {

struct ThoughtMark {
  std::string open;
  std::string close;  // "": what follows is no thought
  bool operator==(const ThoughtMark&) const = default;
};

struct FreeTextOptions {
  std::vector<ThoughtMark> marks = {};  // a text may begin with the thought of one of these
  bool must_open = false;               // it has to
  int32_t opened = -1;                  // the mark in front of the text
  bool waits = false;                   // the grammar's text begins with a trigger:
  std::vector<std::string> words = {};
  std::vector<TokenId> tokens = {};
  std::vector<std::string> patterns = {};       // regular expressions, found anywhere
  std::vector<std::string> full_patterns = {};  // that match all of the free text
  bool operator==(const FreeTextOptions&) const = default;
};

struct BoundState {
  enum class Phase : uint8_t { kOpening, kThought, kWaiting, kBound };
  Phase phase = Phase::kBound;
  int32_t mark = -1;            // kThought
  WordSearch::State place = 0;  // kThought, kWaiting; with patterns, of a TriggerSearch
  // kWaiting, with patterns: the grammar's states for texts that may have begun. None: it refuses
  // what has been read since then.
  std::vector<std::optional<MatchState>> begun = {};
  std::string opening = {};  // kOpening: the text so far
  MatchState match = {};     // kBound; kOpening: if the text is no thought
};

class BoundText {
 public:
  // Control tokens, ascending, and the names that they are shown by.
  using Names = std::vector<std::pair<TokenId, std::string>>;

  // kInvalid for triggers with which the grammar cannot begin.
  static Result<std::shared_ptr<BoundText>> Create(std::shared_ptr<Matcher> matcher, Names control,
                                                   FreeTextOptions options);

  BoundState Begin() const { return begin_; }
  // As Matcher's functions.
  Result<bool> Advance(BoundState& state, TokenId token);
  Status Mask(const BoundState& state, std::span<uint64_t> bits);
  bool IsOver(const BoundState& state);
  // Adds the longest tokens, at most `most`, that spell what follows in any case. Sure are those
  // that no longer token can replace, which spells some of the free text behind, too.
  void Guess(const BoundState& state, size_t most, Guesses which, std::vector<TokenId>& tokens);

  const FreeTextOptions& options() const { return options_; }

 private:
  using Phase = BoundState::Phase;
  enum class Opening : uint8_t { kNone, kPart, kWhole };

  // The words that a search finds in tokens, from one of its states on.
  struct Found {
    std::vector<std::pair<uint32_t, int32_t>> nodes;  // where a word ends, and the word
    std::vector<TokenId> tokens;                      // that end there or below
    std::vector<const Names::value_type*> control;    // that have a word in their names
  };

  BoundText(std::shared_ptr<Matcher> matcher, Names control, FreeTextOptions options);
  Status MakeTriggers();
  Status CheckTriggerStates() const;
  Status CheckTriggers();

  const TokenTrie& trie() const { return matcher_->trie(); }
  const WordSearch& SearchOf(const BoundState& state) const;
  BoundState AfterThought() const;
  BoundState AfterWord(const BoundState& state, int32_t word) const;
  Opening Open(std::string_view text, BoundState& state, std::string_view& rest) const;
  std::string_view ShownAs(TokenId token) const;
  bool UsesPatterns(const BoundState& state) const {
    return state.phase == Phase::kWaiting && triggers_ != nullptr;
  }
  Result<bool> ReadForTriggers(BoundState& state, std::string_view text);
  Result<bool> Read(BoundState& state, std::string_view text);
  Result<bool> ReadOpening(BoundState& state, TokenId token, std::string_view text);
  const Found& FoundFrom(const BoundState& state);
  void AllowAt(uint32_t node, std::span<uint64_t> bits) const;
  void ForbidFrom(uint32_t node, std::span<uint64_t> bits) const;
  Status AllowBelow(uint32_t node, const BoundState& state, std::span<uint64_t> bits);
  std::string_view PathOf(uint32_t node) const;
  Status AllowIfTriggered(uint32_t node, uint16_t above, const BoundState& state,
                          std::span<uint64_t> bits);
  Status MaskFree(const BoundState& state, std::span<uint64_t> bits);
  Status MaskOpening(const BoundState& state, std::span<uint64_t> bits);

  std::shared_ptr<Matcher> matcher_;
  Names control_;
  FreeTextOptions options_;
  std::vector<WordSearch> closes_;  // [marks]
  WordSearch words_;
  std::unique_ptr<TriggerSearch> triggers_;  // where there are patterns; it knows the words, too
  std::vector<MatchState> begun_;            // [words] behind each
  BoundState begin_;

  std::mutex mutex_;
  std::map<std::pair<int32_t, WordSearch::State>, std::unique_ptr<Found>> found_;  // by mark
};

}  // namespace kvant::grammar
