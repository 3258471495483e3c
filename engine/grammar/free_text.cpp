#include "engine/grammar/free_text.h"

#include <algorithm>

namespace kvant::grammar {
namespace {

void SetTokenBit(std::span<uint64_t> bits, TokenId token) {
  const auto place = static_cast<size_t>(token);
  bits[place / 64] |= uint64_t{1} << (place % 64);
}

void ClearTokenBit(std::span<uint64_t> bits, TokenId token) {
  const auto place = static_cast<size_t>(token);
  bits[place / 64] &= ~(uint64_t{1} << (place % 64));
}

bool HasId(std::span<const TokenId> ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

BoundText::BoundText(std::shared_ptr<Matcher> matcher, Names control, FreeTextOptions options)
    : matcher_(std::move(matcher)),
      control_(std::move(control)),
      options_(std::move(options)),
      words_(options_.words) {
  for (const ThoughtMark& mark : options_.marks) closes_.emplace_back(std::span(&mark.close, 1));
}

Result<std::shared_ptr<BoundText>> BoundText::Create(std::shared_ptr<Matcher> matcher,
                                                     Names control, FreeTextOptions options) {
  size_t bytes = 0;
  for (const std::string& word : options.words) bytes += word.size();
  if (bytes > WordSearch::kBytesMax) {
    return MakeError(ErrorCode::kInvalid, "triggers: expected words of at most {} bytes, found {}",
                     WordSearch::kBytesMax, bytes);
  }
  const std::shared_ptr<BoundText> made(
      new BoundText(std::move(matcher), std::move(control), std::move(options)));
  KVANT_TRY(made->CheckTriggers());
  KVANT_TRY(made->MakeTriggers());
  BoundState& begin = made->begin_;
  begin = made->AfterThought();
  if (!made->options_.waits) begin.match = made->matcher_->Begin();
  if (made->options_.opened >= 0) {
    begin = {.phase = Phase::kThought, .mark = made->options_.opened};
  } else if (!made->options_.marks.empty()) {
    // Beside triggers a text that is no thought waits for them, see ReadOpening.
    begin.phase = Phase::kOpening;
    if (made->options_.must_open) begin.match = {};
  }
  return made;
}

Status BoundText::CheckTriggers() {
  for (const TokenId token : options_.tokens) {
    if (token >= 0 && static_cast<size_t>(token) < trie().vocab()) continue;
    return MakeError(ErrorCode::kInvalid, "triggers: expected tokens below {}, found {}",
                     trie().vocab(), token);
  }
  for (const std::string& word : options_.words) {
    MatchState& begun = begun_.emplace_back(matcher_->Begin());
    KVANT_ASSIGN(const bool begins, matcher_->AdvanceBytes(begun, word));
    if (begins && !word.empty()) continue;
    return MakeError(ErrorCode::kInvalid,
                     "triggers: expected words with which the grammar can begin, found '{}'", word);
  }
  return {};
}

// Words and patterns are searched for together.
Status BoundText::MakeTriggers() {
  if (options_.patterns.empty() && options_.full_patterns.empty()) return {};
  KVANT_ASSIGN(triggers_,
               TriggerSearch::Create(options_.words, options_.patterns, options_.full_patterns));
  return {};
}

Status BoundText::CheckTriggerStates() const {
  if (triggers_ == nullptr || !triggers_->is_too_large()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "triggers: expected patterns of at most {} states, found more",
                   TriggerSearch::kStatesMax);
}

// ---- From state to state ------------------------------------------------------------------------

const WordSearch& BoundText::SearchOf(const BoundState& state) const {
  return state.phase == Phase::kThought ? closes_[static_cast<size_t>(state.mark)] : words_;
}

BoundState BoundText::AfterThought() const {
  if (options_.waits) return {.phase = Phase::kWaiting};
  return {.phase = Phase::kBound, .match = matcher_->BeginBehindBlanks()};
}

BoundState BoundText::AfterWord(const BoundState& state, int32_t word) const {
  if (state.phase == Phase::kThought) return AfterThought();
  return {.phase = Phase::kBound, .match = begun_[static_cast<size_t>(word)]};
}

std::string_view BoundText::ShownAs(TokenId token) const {
  const auto found =
      std::lower_bound(control_.begin(), control_.end(), token,
                       [](const auto& entry, TokenId id) { return entry.first < id; });
  if (found != control_.end() && found->first == token) return found->second;
  return trie().text(token);
}

// Reads free text with patterns; false where a trigger is complete with which the grammar cannot
// begin.
Result<bool> BoundText::ReadForTriggers(BoundState& state, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const TriggerSearch::Step step = triggers_->Next(state.place, static_cast<uint8_t>(text[i]));
    KVANT_TRY(CheckTriggerStates());
    std::vector<std::optional<MatchState>> begun;
    for (const int32_t origin : step.origins) {
      std::optional<MatchState>& match = begun.emplace_back(
          origin == TriggerSearch::kNew ? matcher_->Begin()
                                        : state.begun[static_cast<size_t>(origin)]);
      if (!match.has_value()) continue;
      KVANT_ASSIGN(const bool goes_on, matcher_->AdvanceBytes(*match, text.substr(i, 1)));
      if (!goes_on) match.reset();
    }
    if (step.complete >= 0) {
      std::optional<MatchState>& match = begun[static_cast<size_t>(step.complete)];
      if (!match.has_value()) return false;
      state = {.phase = Phase::kBound, .match = std::move(*match)};
      return Read(state, text.substr(i + 1));
    }
    state.place = step.next;
    state.begun = std::move(begun);
  }
  return true;
}

// Reads text in any phase but kOpening.
Result<bool> BoundText::Read(BoundState& state, std::string_view text) {
  if (state.phase == Phase::kBound) return matcher_->AdvanceBytes(state.match, text);
  if (UsesPatterns(state)) return ReadForTriggers(state, text);
  const WordSearch& search = SearchOf(state);
  for (size_t i = 0; i < text.size(); ++i) {
    state.place = search.Next(state.place, static_cast<uint8_t>(text[i]));
    const int32_t word = search.WordAt(state.place);
    if (word < 0) continue;
    state = AfterWord(state, word);
    return Read(state, text.substr(i + 1));
  }
  return true;
}

// Whether a text begins with a mark, or may become one; the state and the text behind it then.
BoundText::Opening BoundText::Open(std::string_view text, BoundState& state,
                                   std::string_view& rest) const {
  Opening opening = Opening::kNone;
  for (size_t i = 0; i < options_.marks.size(); ++i) {
    const ThoughtMark& mark = options_.marks[i];
    if (text.starts_with(mark.open)) {
      state = AfterThought();
      if (!mark.close.empty()) {
        state = {.phase = Phase::kThought, .mark = static_cast<int32_t>(i)};
      }
      rest = text.substr(mark.open.size());
      return Opening::kWhole;
    }
    if (std::string_view(mark.open).starts_with(text)) opening = Opening::kPart;
  }
  return opening;
}

// Reads a token where a text may become a thought or be none. `text` is how the token is shown.
Result<bool> BoundText::ReadOpening(BoundState& state, TokenId token, std::string_view text) {
  const std::string whole = state.opening + std::string(text);
  BoundState opened;
  std::string_view rest;
  const Opening opening = text.empty() ? Opening::kNone : Open(whole, opened, rest);
  if (opening == Opening::kWhole) {
    KVANT_ASSIGN(const bool goes_on, Read(opened, rest));
    if (goes_on) state = std::move(opened);
    return goes_on;
  }
  if (options_.waits && !options_.must_open && opening == Opening::kNone) {
    BoundState waiting = AfterThought();
    KVANT_ASSIGN(const bool waits, Read(waiting, state.opening));
    if (!waits) return false;
    KVANT_ASSIGN(const bool goes_on, Advance(waiting, token));
    if (goes_on) state = std::move(waiting);
    return goes_on;
  }
  MatchState match = state.match;
  KVANT_ASSIGN(const bool follows, matcher_->Advance(match, token));
  if (!follows && opening == Opening::kNone) return false;
  state.match = follows ? std::move(match) : MatchState();
  state.opening = opening == Opening::kPart ? whole : "";
  if (opening == Opening::kNone) state.phase = Phase::kBound;
  return true;
}

Result<bool> BoundText::Advance(BoundState& state, TokenId token) {
  if (state.phase == Phase::kBound) return matcher_->Advance(state.match, token);
  if (token < 0 || static_cast<size_t>(token) >= trie().vocab()) return false;
  const bool is_end = HasId(matcher_->end_tokens(), token);
  if (state.phase == Phase::kOpening) {
    return ReadOpening(state, token, is_end ? std::string_view() : ShownAs(token));
  }
  if (is_end) {
    if (state.phase == Phase::kThought) return false;
    state.phase = Phase::kBound;
    state.match = {};
    state.match.has_ended = true;
    return true;
  }
  if (state.phase == Phase::kWaiting && HasId(options_.tokens, token)) {
    MatchState match = matcher_->Begin();
    KVANT_ASSIGN(const bool begins, matcher_->Advance(match, token));
    state = {.phase = Phase::kBound, .match = begins ? std::move(match) : matcher_->Begin()};
    return true;
  }
  BoundState next = state;
  KVANT_ASSIGN(const bool goes_on, Read(next, ShownAs(token)));
  if (goes_on) state = std::move(next);
  return goes_on;
}

// ---- Masks --------------------------------------------------------------------------------------

const BoundText::Found& BoundText::FoundFrom(const BoundState& state) {
  // A step of the search, and whether a word or trigger ends there, which has a number.
  const auto next = [&](WordSearch::State& place, uint8_t byte) -> int32_t {
    if (UsesPatterns(state)) return triggers_->Advance(place, byte) ? 0 : -1;
    place = SearchOf(state).Next(place, byte);
    return SearchOf(state).WordAt(place);
  };
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Found>& known = found_[{state.mark, state.place}];
  if (known != nullptr) return *known;
  known = std::make_unique<Found>();
  const std::span nodes = trie().nodes();
  std::vector<WordSearch::State> places(TokenTrie::kBytesMax + 1, state.place);  // by depth
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    places[node.depth] = places[node.depth - 1u];
    const int32_t word = next(places[node.depth], node.byte);
    if (word < 0) {
      ++i;
      continue;
    }
    known->nodes.emplace_back(i, word);
    for (; i < node.end; ++i) {
      for (TokenId token = nodes[i].token; token >= 0; token = trie().NextAlike(token)) {
        known->tokens.push_back(token);
      }
    }
  }
  for (const auto& entry : control_) {
    WordSearch::State place = state.place;
    bool has_word = false;
    for (const char byte : entry.second) {
      has_word = has_word || next(place, static_cast<uint8_t>(byte)) >= 0;
    }
    if (has_word) known->control.push_back(&entry);
  }
  return *known;
}

void BoundText::AllowAt(uint32_t node, std::span<uint64_t> bits) const {
  for (TokenId token = trie().nodes()[node].token; token >= 0; token = trie().NextAlike(token)) {
    SetTokenBit(bits, token);
  }
}

void BoundText::ForbidFrom(uint32_t node, std::span<uint64_t> bits) const {
  const std::span nodes = trie().nodes();
  for (uint32_t i = node; i < nodes[node].end; ++i) {
    for (TokenId token = nodes[i].token; token >= 0; token = trie().NextAlike(token)) {
      ClearTokenBit(bits, token);
    }
  }
}

// The bytes from the top of the tree to a node.
std::string_view BoundText::PathOf(uint32_t node) const {
  const std::span nodes = trie().nodes();
  uint32_t token = node;
  while (nodes[token].token < 0) ++token;  // the bytes of a node are the beginning of some token
  return trie().text(nodes[token].token).substr(0, nodes[node].depth);
}

// Allows the tokens at and below a node where a trigger is complete, if the grammar begins with it.
// The state is that of a node of the depth `above` on the way there.
Status BoundText::AllowIfTriggered(uint32_t node, uint16_t above, const BoundState& state,
                                   std::span<uint64_t> bits) {
  BoundState next = state;
  KVANT_ASSIGN(const bool goes_on, ReadForTriggers(next, PathOf(node).substr(above)));
  if (!goes_on) return {};
  AllowAt(node, bits);
  return AllowBelow(node, next, bits);
}

// Allows the tokens below a node that go on from a state behind it.
Status BoundText::AllowBelow(uint32_t node, const BoundState& state, std::span<uint64_t> bits) {
  if (state.phase == Phase::kBound) return matcher_->AllowBelow(node, state.match, bits);
  const std::span nodes = trie().nodes();
  const uint16_t depth = nodes[node].depth;
  if (UsesPatterns(state)) {
    std::vector<TriggerSearch::State> places = {state.place};  // by depth below the node
    for (uint32_t i = node + 1; i < nodes[node].end;) {
      places.resize(static_cast<size_t>(nodes[i].depth - depth));
      places.push_back(places.back());
      const bool is_complete = triggers_->Advance(places.back(), nodes[i].byte);
      if (is_complete) {
        KVANT_TRY(AllowIfTriggered(i, depth, state, bits));
      } else {
        AllowAt(i, bits);
      }
      i = is_complete ? nodes[i].end : i + 1;
    }
    return {};
  }
  const WordSearch& search = SearchOf(state);
  std::vector<WordSearch::State> places = {state.place};  // by depth below the node
  for (uint32_t i = node + 1; i < nodes[node].end;) {
    const auto below = static_cast<size_t>(nodes[i].depth - depth);
    places.resize(below);
    places.push_back(search.Next(places.back(), nodes[i].byte));
    AllowAt(i, bits);
    const int32_t word = search.WordAt(places.back());
    if (word >= 0) KVANT_TRY(AllowBelow(i, AfterWord(state, word), bits));
    i = word >= 0 ? nodes[i].end : i + 1;
  }
  return {};
}

// All tokens but those that end the free text and do not begin what follows it; in a thought not
// those that end the whole.
Status BoundText::MaskFree(const BoundState& state, std::span<uint64_t> bits) {
  std::fill(bits.begin(), bits.end(), ~uint64_t{0});
  if (trie().vocab() % 64 != 0) bits.back() >>= 64 - trie().vocab() % 64;
  if (state.phase == Phase::kThought) {
    for (const TokenId token : matcher_->end_tokens()) ClearTokenBit(bits, token);
  }
  const Found& found = FoundFrom(state);
  KVANT_TRY(CheckTriggerStates());
  for (const TokenId token : found.tokens) ClearTokenBit(bits, token);
  for (const auto& [node, word] : found.nodes) {
    if (UsesPatterns(state)) {
      KVANT_TRY(AllowIfTriggered(node, 0, state, bits));
      continue;
    }
    AllowAt(node, bits);
    KVANT_TRY(AllowBelow(node, AfterWord(state, word), bits));
  }
  for (const auto* entry : found.control) {
    BoundState next = state;
    KVANT_ASSIGN(const bool goes_on, Read(next, entry->second));
    if (!goes_on) ClearTokenBit(bits, entry->first);
  }
  if (state.phase != Phase::kWaiting) return {};
  for (const TokenId token : options_.tokens) SetTokenBit(bits, token);
  return {};
}

Status BoundText::MaskOpening(const BoundState& state, std::span<uint64_t> bits) {
  if (options_.waits && !options_.must_open) {
    // Anything may come that the triggers allow; a mark is no part of what they begin.
    BoundState waiting = AfterThought();
    KVANT_ASSIGN(const bool waits, Read(waiting, state.opening));
    KVANT_TRY(waits ? Mask(waiting, bits) : Status());
  } else {
    KVANT_TRY(matcher_->Mask(state.match, bits));
  }
  const std::span nodes = trie().nodes();
  std::string text = state.opening;
  for (uint32_t i = 0; i < nodes.size();) {
    text.resize(state.opening.size() + nodes[i].depth - 1u);
    text += static_cast<char>(nodes[i].byte);
    BoundState opened;
    std::string_view rest;
    const Opening opening = Open(text, opened, rest);
    if (opening == Opening::kWhole) ForbidFrom(i, bits);
    if (opening != Opening::kNone) AllowAt(i, bits);
    if (opening == Opening::kWhole) KVANT_TRY(AllowBelow(i, opened, bits));
    i = opening == Opening::kPart ? i + 1 : nodes[i].end;
  }
  for (const auto& [token, name] : control_) {
    const std::string shown = state.opening + name;
    BoundState opened;
    std::string_view rest;
    const Opening opening = Open(shown, opened, rest);
    bool goes_on = opening == Opening::kPart;
    if (opening == Opening::kWhole) {
      KVANT_ASSIGN(goes_on, Read(opened, rest));
    }
    if (opening == Opening::kWhole) ClearTokenBit(bits, token);
    if (goes_on) SetTokenBit(bits, token);
  }
  return {};
}

Status BoundText::Mask(const BoundState& state, std::span<uint64_t> bits) {
  switch (state.phase) {
    case Phase::kOpening: return MaskOpening(state, bits);
    case Phase::kThought:
    case Phase::kWaiting: return MaskFree(state, bits);
    case Phase::kBound: break;
  }
  return matcher_->Mask(state.match, bits);
}

// ---- What follows in any case -------------------------------------------------------------------

bool BoundText::IsOver(const BoundState& state) {
  return state.phase == Phase::kBound && matcher_->IsOver(state.match);
}

void BoundText::Guess(const BoundState& state, size_t most, Guesses which,
                      std::vector<TokenId>& tokens) {
  constexpr size_t kBytesMax = 256;
  if (state.phase != Phase::kBound) return;
  const std::string bytes = matcher_->ForcedBytes(state.match, kBytesMax);
  std::string_view left = bytes;
  for (size_t i = 0; i < most && !left.empty(); ++i) {
    if (which == Guesses::kSure && trie().HasLonger(left)) return;
    const TokenId token = trie().LongestIn(left);
    if (token < 0) return;
    tokens.push_back(token);
    left.remove_prefix(trie().text(token).size());
  }
}

}  // namespace kvant::grammar
