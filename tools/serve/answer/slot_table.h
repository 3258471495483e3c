// The slots of a server, as llama-server's interface has them.
//
// A slot is a number, 0 to --parallel - 1, that a text has from its request to its end. It knows
// the tokens of the last text that ended in it, and shows how far its newest text is or was. It
// holds no memory of the KV cache: beginnings of texts are known to all slots
// (SessionOptions::prefix_cache). A slot is what can be saved to a file: its tokens, and the keys
// and values that belong to them.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kvant/token_id.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

class SlotTable {
 public:
  // A text in its slot, by a number of its own.
  struct Place {
    int64_t slot = 0;
    int64_t text = -1;
  };
  // How far a text is.
  struct Progress {
    int64_t prompt = 0;     // tokens of the prompt that are processed, known ones included
    int64_t cached = 0;     // known ones
    int64_t generated = 0;  // tokens
    bool has_new_line = false;
  };
  struct Slot {
    int64_t texts = 0;   // under way
    int64_t tokens = 0;  // of the last text that ended
    // The newest text.
    int64_t text = -1;                                   // -1: there was none
    std::shared_ptr<const TextFields> fields = nullptr;  // what it was asked to be
    Progress progress = {};
  };

  explicit SlotTable(int64_t count) : slots_(static_cast<size_t>(count)) {}

  int64_t count() const { return static_cast<int64_t>(slots_.size()); }
  std::vector<Slot> List() const;

  // Gives a text its slot: the one that is asked for, where that is not -1, else one with the
  // fewest texts under way, of these the one that was used least recently.
  Place Take(int64_t asked, std::shared_ptr<const TextFields> fields);
  // Has no effect once a newer text has the slot.
  void Show(Place place, const Progress& progress);
  // The text has ended, and was processed as far as these tokens. Where there are none, the slot
  // keeps those of the text before.
  void Leave(int64_t slot, std::vector<TokenId> tokens);

  std::vector<TokenId> Tokens(int64_t slot) const;
  void SetTokens(int64_t slot, std::vector<TokenId> tokens);

 private:
  struct Entry {
    int64_t texts = 0;
    uint64_t used = 0;  // tick of the last use
    std::vector<TokenId> tokens = {};
    int64_t text = -1;
    std::shared_ptr<const TextFields> fields = nullptr;
    Progress progress = {};
  };

  mutable std::mutex mutex_;
  uint64_t tick_ = 0;
  int64_t texts_ = 0;  // that were there so far
  std::vector<Entry> slots_;
};

}  // namespace kvant::tools
