// The table by which SentencePiece normalizes texts (NFKC, lower case and what else a model was
// trained with): tokenizer.ggml.precompiled_charsmap.
//
// Layout, all numbers little-endian: the size of the trie in bytes (u32), the trie, and the
// replacements, each ended by a NUL. The trie is a double array of 32-bit units. A unit has an
// offset, by which its own number is changed (by exclusive or) to the base of its children; the
// child for a byte is at the base, changed by that byte, and has the byte as its label. Where a key
// ends (bit 8), the unit at the base is no child but holds the place of the replacement. Units that
// go on alike may share a base.
// Source of the layout: Darts-clone, and SentencePiece's normalizer.cc.
//
// A table is checked whole before it is used, in linear time: all that can be reached from the root
// lies in the array, no way through it leads back or is longer than a bound, and every replacement
// ends within the table. So looking up reads nothing else and takes bounded time.
// Thread-safety: const after Parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant {

class Charsmap {
 public:
  // `table` must outlive the object. kCorrupt, with `where` (the file and the key) in front.
  static Result<Charsmap> Parse(std::string_view table, const std::string& where);

  struct Match {
    size_t size = 0;  // bytes of the text that are replaced; 0: no key fits
    std::string_view replacement;
  };
  // The longest key that `text` begins with.
  Match FindLongest(std::string_view text) const;

 private:
  struct Children;  // of all units, for the check

  uint32_t Unit(size_t number) const;
  uint32_t Base(uint32_t number) const;
  std::string_view Replacement(uint32_t place) const;
  Status CheckGraph(const std::string& where) const;
  Status CheckUnit(uint32_t number, const std::string& where) const;
  Status CheckDepth(const Children& children, std::vector<uint32_t> arrivals, size_t bases,
                    const std::string& where) const;

  std::string_view trie_;
  size_t units_ = 0;
  std::string_view replacements_;
};

}  // namespace kvant
