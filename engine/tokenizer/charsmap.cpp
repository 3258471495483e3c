#include "engine/tokenizer/charsmap.h"

#include <cstring>
#include <utility>

#include "base/result.h"

namespace kvant {
namespace {

// Tables as they are published have keys of up to some 30 bytes, and no replacement is longer than
// what NFKC makes of one character (33 bytes). The limits bound the time that a place in a text
// takes, and how much a text can grow.
constexpr int kKeyBytesMax = 1024;
constexpr size_t kReplacementBytesMax = 1024;

constexpr uint32_t kValueBit = uint32_t{1} << 31;
constexpr uint32_t kLabelMask = kValueBit | 0xFF;  // with the bit, it is no label of a byte
constexpr uint32_t kNoUnit = ~uint32_t{0};

// The bits by which the number of a unit is changed to find its children.
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit >> 6) & 8); }

bool EndsKey(uint32_t unit) { return (unit & 0x100) != 0; }

}  // namespace

// Lists of the units by the base that they would be children of. A unit is in one list at most, so
// that going through the lists of all bases takes linear time, however many units share a base.
struct Charsmap::Children {
  explicit Children(const Charsmap& map) : first(map.units_, kNoUnit), next(map.units_, kNoUnit) {
    for (auto i = static_cast<uint32_t>(map.units_); i-- > 0;) {
      const uint32_t label = map.Unit(i) & kLabelMask;
      if (label > 0xFF || (i ^ label) >= map.units_) continue;
      next[i] = first[i ^ label];
      first[i ^ label] = i;
    }
  }
  std::vector<uint32_t> first;  // by base
  std::vector<uint32_t> next;   // by unit
};

uint32_t Charsmap::Unit(size_t number) const {
  uint32_t unit = 0;
  std::memcpy(&unit, trie_.data() + number * sizeof unit, sizeof unit);
  return unit;
}

uint32_t Charsmap::Base(uint32_t number) const { return number ^ Offset(Unit(number)); }

std::string_view Charsmap::Replacement(uint32_t place) const {
  const std::string_view rest = replacements_.substr(place);
  return rest.substr(0, rest.find('\0'));
}

Result<Charsmap> Charsmap::Parse(std::string_view table, const std::string& where) {
  uint32_t trie_bytes = 0;
  if (table.size() <= sizeof trie_bytes) {
    return MakeError(ErrorCode::kCorrupt, "{} has {} bytes, expected a table of replacements",
                     where, table.size());
  }
  std::memcpy(&trie_bytes, table.data(), sizeof trie_bytes);
  const size_t rest = table.size() - sizeof trie_bytes;
  if (trie_bytes == 0 || trie_bytes > rest || trie_bytes % sizeof(uint32_t) != 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{} says that its trie has {} bytes, expected a multiple of 4 up to the {} "
                     "that follow",
                     where, trie_bytes, rest);
  }
  Charsmap map;
  map.trie_ = table.substr(sizeof trie_bytes, trie_bytes);
  map.units_ = trie_bytes / sizeof(uint32_t);
  map.replacements_ = table.substr(sizeof trie_bytes + trie_bytes);
  if (!map.replacements_.empty() && map.replacements_.back() != '\0') {
    return MakeError(ErrorCode::kCorrupt, "{} ends with byte {}, expected the NUL of a replacement",
                     where, int{static_cast<uint8_t>(map.replacements_.back())});
  }
  KVANT_TRY(map.CheckGraph(where));
  return map;
}

// Finds all bases that can be reached from the root, and checks the units that lead to them.
Status Charsmap::CheckGraph(const std::string& where) const {
  const Children children(*this);
  KVANT_TRY(CheckUnit(0, where));
  std::vector<bool> seen(units_, false);
  std::vector<uint32_t> arrivals(units_, 0);  // of units, by base
  std::vector<uint32_t> bases{Base(0)};
  seen[bases[0]] = true;
  for (size_t i = 0; i < bases.size(); ++i) {
    for (uint32_t unit = children.first[bases[i]]; unit != kNoUnit; unit = children.next[unit]) {
      KVANT_TRY(CheckUnit(unit, where));
      const uint32_t base = Base(unit);
      ++arrivals[base];
      if (seen[base]) continue;
      seen[base] = true;
      bases.push_back(base);
    }
  }
  return CheckDepth(children, std::move(arrivals), bases.size(), where);
}

// Goes down from the root, to each base when all units that lead to it are done: so a base is as
// deep as the longest way to it, and bases on a way that leads back are never done.
Status Charsmap::CheckDepth(const Children& children, std::vector<uint32_t> arrivals, size_t bases,
                            const std::string& where) const {
  std::vector<uint32_t> level;
  if (arrivals[Base(0)] == 0) level.push_back(Base(0));
  size_t done = 0;
  for (int depth = 0; !level.empty(); ++depth) {
    if (depth > kKeyBytesMax) {
      return MakeError(ErrorCode::kCorrupt, "{} has a key of more than {} bytes", where,
                       kKeyBytesMax);
    }
    std::vector<uint32_t> below;
    for (const uint32_t base : level) {
      ++done;
      for (uint32_t unit = children.first[base]; unit != kNoUnit; unit = children.next[unit]) {
        if (--arrivals[Base(unit)] == 0) below.push_back(Base(unit));
      }
    }
    level = std::move(below);
  }
  if (done == bases) return {};
  return MakeError(ErrorCode::kCorrupt, "{} has a trie that leads back into itself", where);
}

// The children of a unit lie in the array, whatever bytes they are for, and so does its value.
Status Charsmap::CheckUnit(uint32_t number, const std::string& where) const {
  const uint32_t base = Base(number);
  if ((base | 0xFF) >= units_) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: unit {} of its trie has children at {}, but there are {} units", where,
                     number, base, units_);
  }
  if (!EndsKey(Unit(number))) return {};
  const uint32_t place = Unit(base) & ~kValueBit;
  if (place >= replacements_.size()) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: unit {} of its trie has a replacement at {}, but there are {} bytes of "
                     "them",
                     where, number, place, replacements_.size());
  }
  const size_t size = replacements_.substr(place, kReplacementBytesMax + 1).find('\0');
  if (size == std::string_view::npos) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: the replacement at {} is longer than the {} bytes expected at most",
                     where, place, kReplacementBytesMax);
  }
  return {};
}

Charsmap::Match Charsmap::FindLongest(std::string_view text) const {
  size_t size = 0;
  uint32_t place = 0;
  uint32_t base = Base(0);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint32_t node = base ^ byte;
    const uint32_t unit = Unit(node);
    if ((unit & kLabelMask) != byte) break;
    base = node ^ Offset(unit);
    if (!EndsKey(unit)) continue;
    size = i + 1;
    place = Unit(base) & ~kValueBit;
  }
  if (size == 0) return {};
  return {size, Replacement(place)};
}

}  // namespace kvant
