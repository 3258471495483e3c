#include "engine/grammar/schema/json_text.h"

#include <algorithm>
#include <array>

namespace kvant::grammar {
namespace {

using CodePoints = RegexPool::CodePoints;

constexpr uint32_t kBlanksMax = 20;
constexpr uint32_t kFirstPair = 0x10000;  // the first code point that is escaped as a pair

// All characters are plain but control characters, the quotation mark and the backslash.
constexpr std::array<CodePoints, 4> kPlainRanges = {
    {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xd7ff}, {0xe000, 0x10ffff}}};

constexpr std::array<CodePoints, 3> kSpecialRanges = {{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}};

// Letters behind a backslash and what they stand for.
constexpr std::array<std::pair<char, uint32_t>, 8> kEscapes = {{{'"', '"'},
                                                                {'\\', '\\'},
                                                                {'/', '/'},
                                                                {'b', '\b'},
                                                                {'f', '\f'},
                                                                {'n', '\n'},
                                                                {'r', '\r'},
                                                                {'t', '\t'}}};

constexpr std::array<CodePoints, 2> kAllCharacters = {{{0, 0xd7ff}, {0xe000, 0x10ffff}}};

ByteSet HexDigits(uint32_t first, uint32_t last) {
  ByteSet set;
  for (uint32_t digit = first; digit <= last; ++digit) {
    set.Add(static_cast<uint8_t>("0123456789abcdef"[digit]));
    set.Add(static_cast<uint8_t>("0123456789ABCDEF"[digit]));
  }
  return set;
}

bool IsMark(char c) { return c == '"' || c == '\\'; }

// The part of a range within another one; whether there is any.
bool Within(const CodePoints& range, uint32_t first, uint32_t last, CodePoints& part) {
  part = {std::max(range.first, first), std::min(range.last, last)};
  return part.first <= part.last;
}

}  // namespace

JsonText::JsonText(RegexPool& pool, Form form) : pool_(pool) {
  space_ = RegexPool::kEmpty;
  if (form == Form::kSpaced) {
    ByteSet blanks;
    blanks.Add(' ');
    blanks.Add('\t');
    const ExprId more = pool_.Repeat(pool_.Bytes(blanks), 0, kBlanksMax);
    const std::array<ExprId, 3> spaces = {RegexPool::kEmpty, pool_.Literal(" "),
                                          pool_.Concat(pool_.Literal("\n"), more)};
    space_ = pool_.Either(spaces);
  }
  any_character_ = Character(kAllCharacters, Escaped::kAll);
}

// The numbers from first to last, in exactly so many digits.
ExprId JsonText::Hex(uint32_t first, uint32_t last, int digits) {
  if (digits == 0) return RegexPool::kEmpty;
  const int shift = 4 * (digits - 1);
  const uint32_t mask = (uint32_t{1} << shift) - 1;
  std::vector<ExprId> parts;
  const auto add = [&](uint32_t from, uint32_t to, uint32_t low, uint32_t high) {
    parts.push_back(pool_.Concat(pool_.Bytes(HexDigits(from, to)), Hex(low, high, digits - 1)));
  };
  uint32_t from = first >> shift;
  uint32_t to = last >> shift;
  if (from == to) {
    add(from, to, first & mask, last & mask);
    return parts[0];
  }
  if ((first & mask) != 0) {
    add(from, from, first & mask, mask);
    ++from;
  }
  if ((last & mask) != mask) {
    add(to, to, 0, last & mask);
    --to;
  }
  if (from <= to) add(from, to, 0, mask);
  return pool_.Either(parts);
}

ExprId JsonText::Escapes(std::span<const CodePoints> ranges) {
  Ranges key;
  for (const CodePoints& range : ranges) key.emplace_back(range.first, range.last);
  const auto kept = escapes_.find(key);
  if (kept != escapes_.end()) return kept->second;
  ByteSet letters;
  std::vector<ExprId> numbers;
  for (const CodePoints& range : ranges) {
    for (const auto& [letter, code] : kEscapes) {
      if (range.first <= code && code <= range.last) letters.Add(static_cast<uint8_t>(letter));
    }
    CodePoints part;
    if (Within(range, 0, kFirstPair - 1, part)) numbers.push_back(Hex(part.first, part.last, 4));
    if (!Within(range, kFirstPair, 0x10ffff, part)) continue;
    // The high halves whose low halves are not all, and those in between.
    const auto add = [&](uint32_t high, uint32_t last_high, uint32_t low, uint32_t last_low) {
      const std::array<ExprId, 3> pair = {Hex(0xd800 + high, 0xd800 + last_high, 4),
                                          pool_.Literal("\\u"),
                                          Hex(0xdc00 + low, 0xdc00 + last_low, 4)};
      numbers.push_back(pool_.Concat(pair));
    };
    const uint32_t first = part.first - kFirstPair;
    const uint32_t last = part.last - kFirstPair;
    uint32_t high = first >> 10;
    uint32_t last_high = last >> 10;
    if (high == last_high) {
      add(high, high, first & 0x3ff, last & 0x3ff);
      continue;
    }
    if ((first & 0x3ff) != 0) add(high++, first >> 10, first & 0x3ff, 0x3ff);
    if ((last & 0x3ff) != 0x3ff) add(last_high--, last >> 10, 0, last & 0x3ff);
    if (high <= last_high) add(high, last_high, 0, 0x3ff);
  }
  const std::array<ExprId, 2> forms = {pool_.Bytes(letters),
                                       pool_.Concat(pool_.Literal("u"), pool_.Either(numbers))};
  const ExprId expr = pool_.Concat(pool_.Literal("\\"), pool_.Either(forms));
  escapes_.emplace(std::move(key), expr);
  return expr;
}

ExprId JsonText::Character(std::span<const CodePoints> ranges, Escaped escaped) {
  std::pair<Escaped, Ranges> key = {escaped, {}};
  for (const CodePoints& range : ranges) key.second.emplace_back(range.first, range.last);
  const auto kept = characters_.find(key);
  if (kept != characters_.end()) return kept->second;
  std::vector<CodePoints> plain;
  for (const CodePoints& range : ranges) {
    for (const CodePoints& allowed : kPlainRanges) {
      CodePoints part;
      if (Within(range, allowed.first, allowed.last, part)) plain.push_back(part);
    }
  }
  std::vector<CodePoints> must;
  for (const CodePoints& range : ranges) {
    for (const CodePoints& special : kSpecialRanges) {
      CodePoints part;
      if (Within(range, special.first, special.last, part)) must.push_back(part);
    }
  }
  const std::array<ExprId, 2> forms = {pool_.OneCodePoint(plain),
                                       Escapes(escaped == Escaped::kAll ? ranges : must)};
  const ExprId expr = pool_.Either(forms);
  characters_.emplace(std::move(key), expr);
  return expr;
}

// Edges to one state become one step.
template <class Characters>
void JsonText::AddSteps(const TextSet::State& state, const Characters& characters,
                        RegexPool::AutomatonState& out) {
  sorted_edges_.assign(state.edges.begin(), state.edges.end());
  std::ranges::stable_sort(sorted_edges_, {}, &TextSet::Edge::target);
  for (size_t begin = 0; begin < sorted_edges_.size();) {
    const uint32_t target = sorted_edges_[begin].target;
    ranges_.clear();
    for (; begin < sorted_edges_.size() && sorted_edges_[begin].target == target; ++begin) {
      ranges_.push_back({sorted_edges_[begin].first, sorted_edges_[begin].last});
    }
    out.steps.push_back({characters(ranges_), target});
  }
}

// `all`: what stands for a state that accepts every text. `lengths`: of `texts`, or nullptr.
template <class Characters>
ExprId JsonText::AutomatonOf(const TextSet& texts, const TextLengths* lengths, ExprId all,
                             const Characters& characters) {
  std::vector<RegexPool::AutomatonState> states;
  for (size_t number = 0; number < texts.states.size(); ++number) {
    const TextSet::State& state = texts.states[number];
    const auto self = static_cast<uint32_t>(number);
    RegexPool::AutomatonState out;
    out.accepts = state.accepts;
    if (lengths != nullptr) {
      out.counts = {lengths->ranges[number].least, lengths->ranges[number].most};
    }
    const bool is_loop = state.accepts && state.edges.size() == 2 &&
                         state.edges[0] == TextSet::Edge{0, 0xd7ff, self} &&
                         state.edges[1] == TextSet::Edge{0xe000, 0x10ffff, self};
    if (is_loop) {
      out.instead = all;
    } else {
      AddSteps(state, characters, out);
    }
    states.push_back(std::move(out));
  }
  using Counted = RegexPool::Counted;
  return pool_.Automaton(states, lengths == nullptr ? Counted::kNo : Counted::kYes);
}

ExprId JsonText::Inside(const TextSet& texts) { return InsideWith(texts, nullptr); }

ExprId JsonText::Inside(const TextSet& texts, const TextLengths& lengths) {
  return InsideWith(texts, &lengths);
}

ExprId JsonText::InsideWith(const TextSet& texts, const TextLengths* lengths) {
  const ExprId all = pool_.Repeat(any_character_, 0, kNoLimit);
  return AutomatonOf(texts, lengths, all, [this](const auto& ranges) { return Character(ranges); });
}

ExprId JsonText::Name(const TextSet& texts) {
  const ExprId any = Character(kAllCharacters, Escaped::kNecessary);
  return AutomatonOf(texts, nullptr, pool_.Repeat(any, 0, kNoLimit),
                     [this](const auto& ranges) { return Character(ranges, Escaped::kNecessary); });
}

ExprId JsonText::Plain(const TextSet& texts) { return PlainWith(texts, nullptr); }

ExprId JsonText::Plain(const TextSet& texts, const TextLengths& lengths) {
  return PlainWith(texts, &lengths);
}

ExprId JsonText::PlainWith(const TextSet& texts, const TextLengths* lengths) {
  return AutomatonOf(texts, lengths, RegexPool::kNothing,
                     [this](const auto& ranges) { return pool_.OneCodePoint(ranges); });
}

ExprId JsonText::Literal(std::string_view utf8) {
  const auto is_special = [](char c) { return static_cast<uint8_t>(c) < 0x20 || IsMark(c); };
  std::vector<ExprId> parts;
  while (!utf8.empty()) {
    const auto end = std::ranges::find_if(utf8, is_special);
    const auto plain = static_cast<size_t>(end - utf8.begin());
    parts.push_back(pool_.Literal(utf8.substr(0, plain)));
    utf8.remove_prefix(plain);
    if (utf8.empty()) break;
    const auto code = static_cast<uint32_t>(utf8[0]);
    const CodePoints one = {code, code};
    parts.push_back(Character({&one, 1}));
    utf8.remove_prefix(1);
  }
  return pool_.Concat(parts);
}

ExprId JsonText::OneOf(std::span<const std::string> texts) {
  std::vector<std::string_view> plain;
  std::vector<ExprId> parts;
  for (const std::string& text : texts) {
    const bool is_plain = std::ranges::none_of(
        text, [](char c) { return static_cast<uint8_t>(c) < 0x20 || IsMark(c); });
    if (is_plain) {
      plain.push_back(text);
    } else {
      parts.push_back(Literal(text));
    }
  }
  parts.push_back(pool_.OneOf(std::move(plain)));
  return pool_.Either(parts);
}

ExprId JsonText::Quoted(ExprId inside) {
  const std::array<ExprId, 3> parts = {pool_.Literal("\""), inside, pool_.Literal("\"")};
  return pool_.Concat(parts);
}

}  // namespace kvant::grammar
