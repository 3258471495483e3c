#include "engine/grammar/matcher.h"

#include <algorithm>

#include <xxhash.h>

namespace kvant::grammar {
namespace {

constexpr size_t kRowsMax = kLexStatesMax;
constexpr uint32_t kWholeTree = 0;  // the list of the node above all

static_assert(RegexPool::kLentUnit > TokenTrie::kBytesMax);

void SetBit(std::span<uint64_t> bits, TokenId token) {
  const auto place = static_cast<size_t>(token);
  bits[place / 64] |= uint64_t{1} << (place % 64);
}

}  // namespace

Matcher::Matcher(std::unique_ptr<Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                 std::vector<TokenId> end_tokens)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      end_tokens_(std::move(end_tokens)),
      pool_(grammar_->pool),
      lexer_(pool_, grammar_->terminals),
      rows_(*grammar_, lexer_),
      walk_(*trie_, lexer_, pool_),
      begin_(AtRow(rows_.first())),
      begin_behind_blanks_(AtRow(rows_.first_behind_blanks())),
      lists_(1) {}

MatchState Matcher::AtRow(RowId row) const {
  MatchState state;
  if (rows_.StartOf(row) != kDeadState) state.readings.push_back({rows_.StartOf(row), row});
  state.here = row;
  state.accepts = rows_.AcceptsAt(row);
  return state;
}

bool Matcher::IsTooLarge() const { return walk_.is_too_large() || rows_.size() > kRowsMax; }

Status Matcher::CheckSize() const {
  if (!IsTooLarge()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "grammar: expected at most {} states, found more: counted repetitions of "
                   "alternatives that overlap take many",
                   kLexStatesMax);
}

// False, with the state half changed, if no terminal goes on.
bool Matcher::AdvanceByte(MatchState& state, uint8_t byte) {
  std::vector<MatchState::Reading> readings;
  std::vector<RowId> ended;
  for (const MatchState::Reading& reading : state.readings) {
    const LexState next = lexer_.Next(reading.lex, byte);
    if (next == kDeadState) continue;
    uint32_t lent = reading.lent;
    const LexState settled = lexer_.Settle(next, lent);
    readings.push_back({settled, reading.row, lent});
    const uint32_t ends = lexer_.EndsAt(next);
    const RowId row = ends == 0 ? kNoRow : rows_.After(reading.row, ends);
    if (row != kNoRow) ended.push_back(row);
  }
  if (readings.empty()) return false;
  state.here = kNoRow;
  state.accepts = false;
  if (!ended.empty()) {
    const MatchState after = AtRow(rows_.Merge(ended));
    readings.insert(readings.end(), after.readings.begin(), after.readings.end());
    state.here = after.here;
    state.accepts = after.accepts;
  }
  std::sort(readings.begin(), readings.end());
  readings.erase(std::unique(readings.begin(), readings.end()), readings.end());
  state.readings = std::move(readings);
  return true;
}

Result<bool> Matcher::AdvanceBytes(MatchState& state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (state.has_ended) return bytes.empty();
  MatchState next = state;
  for (const char byte : bytes) {
    if (!AdvanceByte(next, static_cast<uint8_t>(byte))) return false;
    KVANT_TRY(CheckSize());
  }
  state = std::move(next);
  return true;
}

// How many bytes may follow, 2 for more, and one of them.
int Matcher::NextBytes(const MatchState& state, uint8_t& byte) {
  int count = 0;
  for (int value = 0; value < 256 && count < 2; ++value) {
    const auto next = static_cast<uint8_t>(value);
    const bool follows = std::ranges::any_of(state.readings, [&](const auto& reading) {
      return lexer_.Next(reading.lex, next) != kDeadState;
    });
    if (!follows) continue;
    byte = next;
    ++count;
  }
  return count;
}

std::string Matcher::ForcedBytes(MatchState state, size_t most) {
  const std::lock_guard lock(mutex_);
  std::string bytes;
  while (bytes.size() < most && !state.accepts && !state.has_ended && !IsTooLarge()) {
    if (state.here != kNoRow && !rows_.TokenSetsAt(state.here).empty()) break;
    uint8_t byte = 0;
    if (NextBytes(state, byte) != 1 || !AdvanceByte(state, byte)) break;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

bool Matcher::IsOver(const MatchState& state) {
  if (state.has_ended) return true;
  if (!state.accepts) return false;
  const std::lock_guard lock(mutex_);
  uint8_t byte = 0;
  return rows_.TokenSetsAt(state.here).empty() && NextBytes(state, byte) == 0;
}

Result<bool> Matcher::Advance(MatchState& state, TokenId token) {
  if (std::binary_search(end_tokens_.begin(), end_tokens_.end(), token)) {
    if (!state.accepts || state.has_ended) return false;
    state.has_ended = true;
    return true;
  }
  if (token < 0 || static_cast<size_t>(token) >= vocab()) return false;
  MatchState by_bytes = state;
  const std::string_view text = trie_->text(token);
  bool goes_on = false;
  if (!text.empty()) {
    KVANT_ASSIGN(goes_on, AdvanceBytes(by_bytes, text));
  }
  const std::lock_guard lock(mutex_);
  std::vector<RowId> rows;
  if (state.here != kNoRow && !state.has_ended) {
    for (const uint32_t number : rows_.TokenSetsAt(state.here)) {
      const TokenSet& set = grammar_->token_sets[number];
      const bool is_in = std::binary_search(set.ids.begin(), set.ids.end(), token);
      if (is_in != set.negated) rows.push_back(rows_.AfterToken(state.here, number));
    }
  }
  if (rows.empty()) {
    if (goes_on) state = std::move(by_bytes);
    return goes_on;
  }
  if (goes_on && by_bytes.here != kNoRow) rows.push_back(by_bytes.here);
  MatchState next = AtRow(rows_.Merge(rows));
  if (goes_on) {
    next.readings.insert(next.readings.end(), by_bytes.readings.begin(), by_bytes.readings.end());
    std::sort(next.readings.begin(), next.readings.end());
    next.readings.erase(std::unique(next.readings.begin(), next.readings.end()),
                        next.readings.end());
  }
  state = std::move(next);
  return true;
}

// ---- Masks --------------------------------------------------------------------------------------

Matcher::NodeListId Matcher::ListOf(std::vector<uint32_t> places) {
  const uint64_t hash = XXH64(places.data(), places.size() * sizeof(uint32_t), 0);
  const uint32_t known =
      by_places_.Find(hash, [&](uint32_t number) { return lists_[number] == places; });
  if (known != IdTable::kNone) return known;
  places.shrink_to_fit();
  reach_bytes_ += sizeof(places) + places.size() * sizeof(uint32_t);
  const auto number = static_cast<NodeListId>(lists_.size());
  lists_.push_back(std::move(places));
  by_places_.Add(hash, number);
  return number;
}

const Matcher::Reach& Matcher::ReachOf(NodeListId list, LexState lex) {
  lex = lexer_.Clamp(lex, trie_->bytes_max());
  const uint64_t key = uint64_t{list} << 32 | lex;
  const auto kept = reaches_.find(key);
  if (kept != reaches_.end()) return *kept->second;

  TreeWalk::Found found = list == kWholeTree ? walk_.All(lex) : walk_.Below(lists_[list], lex);
  auto reach = std::make_unique<Reach>();
  reach->base = found.base;
  reach->without.assign(found.without.begin(), found.without.end());  // without spare room
  reach->few.assign(found.few.begin(), found.few.end());
  reach->bits = std::move(found.bits);
  for (auto& [ends, places] : found.ends) {
    reach->ends.emplace_back(ends, ListOf(std::move(places)));
  }
  constexpr size_t kMapNode = 40;  // an entry of reaches_, with its bucket
  reach_bytes_ +=
      kMapNode + sizeof(Reach) + (reach->few.size() + reach->without.size()) * sizeof(TokenId) +
      reach->bits.size() * sizeof(uint64_t) + reach->ends.capacity() * sizeof(reach->ends[0]);
  return *reaches_.emplace(key, std::move(reach)).first->second;
}

size_t Matcher::KeptBytes() const { return reach_bytes_ + by_places_.bytes() + walk_.bytes(); }

// Forgets what was kept, where it is too much. What a mask needs is there until it is made.
void Matcher::MakeRoom() {
  if (KeptBytes() <= kKeptBytesMax) return;
  reaches_.clear();
  lists_.resize(1);
  by_places_.Clear();
  reach_bytes_ = 0;
  walk_.Forget();
}

Matcher::Bytes Matcher::bytes() {
  const std::lock_guard lock(mutex_);
  return {.automata = grammar_->bytes() + lexer_.bytes() + rows_.bytes(), .kept = KeptBytes()};
}

// Adds a loop's tokens without some. Of these, those stay that others have added.
void Matcher::AddBase(const Reach& reach, std::span<uint64_t> bits) {
  cleared_.clear();
  for (const TokenId token : reach.without) {
    const auto place = static_cast<size_t>(token);
    if ((bits[place / 64] >> (place % 64) & 1) == 0) cleared_.push_back(token);
  }
  for (size_t i = 0; i < reach.base->tokens.size(); ++i) bits[i] |= reach.base->tokens[i];
  for (const TokenId token : cleared_) {
    const auto place = static_cast<size_t>(token);
    bits[place / 64] &= ~(uint64_t{1} << (place % 64));
  }
}

void Matcher::Add(NodeListId list, LexState lex, RowId row, std::span<uint64_t> bits) {
  const Reach& reach = ReachOf(list, lex);
  if (reach.base != nullptr) AddBase(reach, bits);
  for (const TokenId token : reach.few) SetBit(bits, token);
  for (size_t i = 0; i < reach.bits.size(); ++i) bits[i] |= reach.bits[i];
  for (const auto& [ends, below] : reach.ends) {
    const RowId after = rows_.After(row, ends);
    if (after == kNoRow || rows_.StartOf(after) == kDeadState) continue;
    const std::pair visit(below, after);
    if (std::find(visited_.begin(), visited_.end(), visit) != visited_.end()) continue;
    visited_.push_back(visit);
    Add(below, rows_.StartOf(after), after, bits);
  }
}

void Matcher::AddTokens(const TokenSet& set, std::span<uint64_t> bits) const {
  if (!set.negated) {
    for (const TokenId token : set.ids) SetBit(bits, token);
    return;
  }
  const auto has = [](const std::vector<TokenId>& ids, TokenId token) {
    return std::binary_search(ids.begin(), ids.end(), token);
  };
  for (TokenId token = 0; static_cast<size_t>(token) < vocab(); ++token) {
    if (!has(set.ids, token) && !has(end_tokens_, token)) SetBit(bits, token);
  }
}

Status Matcher::Mask(const MatchState& state, std::span<uint64_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  if (state.has_ended) return {};
  const std::lock_guard lock(mutex_);
  MakeRoom();
  visited_.clear();
  for (const MatchState::Reading& reading : state.readings) {
    Add(kWholeTree, reading.lex, reading.row, bits);
  }
  if (state.here != kNoRow) {
    for (const uint32_t number : rows_.TokenSetsAt(state.here)) {
      AddTokens(grammar_->token_sets[number], bits);
    }
  }
  if (state.accepts) {
    for (const TokenId token : end_tokens_) SetBit(bits, token);
  }
  return CheckSize();
}

Status Matcher::AllowBelow(uint32_t node, const MatchState& state, std::span<uint64_t> bits) {
  if (trie_->nodes()[node].end == node + 1 || state.has_ended) return {};
  const std::lock_guard lock(mutex_);
  MakeRoom();
  const NodeListId list = ListOf({node});
  visited_.clear();
  for (const MatchState::Reading& reading : state.readings) {
    Add(list, reading.lex, reading.row, bits);
  }
  return CheckSize();
}

}  // namespace kvant::grammar
