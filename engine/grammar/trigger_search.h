// Finds where the text of a lazy grammar begins, by regular expressions.
//
// A trigger has two expressions: what comes before the grammar's text, and how that begins. A text
// that is read byte by byte may have begun at several places at once, as it looks so far. The
// places are told apart by what may follow them: of two that have come equally far the earlier one
// counts. So what is read is a state of a deterministic automaton, whose places are the states'
// entries. The trigger is complete at the first byte where some place has read all; the earliest of
// these counts.
//
// Thread-safety: all functions may run concurrently.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/byte_regex.h"

namespace kvant::grammar {

class TriggerSearch {
 public:
  using State = uint32_t;
  static constexpr State kBegin = 0;

  // `words` and `patterns` are found anywhere. A full pattern matches the whole text so far; the
  // grammar's text begins with its first group, or with the text where it has none. kInvalid, with
  // the expression, for one that is not understood or matches the empty text, and for a first group
  // that stands within another one or in an alternative.
  static Result<std::unique_ptr<TriggerSearch>> Create(const std::vector<std::string>& words,
                                                       const std::vector<std::string>& patterns,
                                                       const std::vector<std::string>& full);

  // A step by a byte. `origins` has the places of the new state, the earliest first: each as its
  // number in the state before, or kNew where the grammar's text begins with this byte.
  static constexpr int32_t kNew = -1;
  struct Step {
    State next = kBegin;
    int32_t complete = -1;  // the place in `origins` that has read all of a trigger; -1: none
    std::vector<int32_t> origins = {};
  };
  Step Next(State state, uint8_t byte);
  // As Next, where only the state matters: true where a trigger is complete.
  bool Advance(State& state, uint8_t byte);
  // Whether there are more states than triggers may take; steps then lead nowhere.
  bool is_too_large() const;
  static constexpr size_t kStatesMax = 1000;

 private:
  struct Trigger {
    ExprId before;
    ExprId text;
  };
  struct Key {
    std::vector<ExprId> befores;  // [triggers] what may follow before the grammar's text
    std::vector<ExprId> places;   // what may follow in each place, the earliest first
    bool operator==(const Key&) const = default;
  };
  static constexpr uint32_t kUnknown = UINT32_MAX;

  TriggerSearch() = default;
  Status Add(std::string_view before, std::string_view text, std::string_view shown);
  State StateOf(Key key);
  const Step& StepOf(State state, uint8_t byte);

  mutable std::mutex mutex_;
  RegexPool pool_;
  std::vector<Trigger> triggers_;
  std::vector<Key> states_;
  std::vector<std::array<uint32_t, 256>> numbers_;  // [states] of steps
  std::vector<Step> steps_;
};

}  // namespace kvant::grammar
