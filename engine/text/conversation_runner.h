// The runner of a conversation and its forks, and the sequence of each. A runner has room for a
// number of sequences that is fixed when it is made. Where more are needed a larger one is opened,
// and the sequences are copied over in memory (Runner::Adopt); a runner that was given stays.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvant/conversation.h"
#include "kvant/runner.h"

namespace kvant {

class ConversationRunner {
 public:
  // Nothing is opened before the first member joins.
  explicit ConversationRunner(RunnerMaker open) : open_(std::move(open)) {}
  explicit ConversationRunner(std::shared_ptr<Runner> given) : runner_(std::move(given)) {}

  // There is one as soon as a member has joined.
  Runner& runner() const { return *runner_; }
  SequenceId sequence(int member) const { return members_[static_cast<size_t>(member)]; }

  // Whether `more` sequences beside those of the members need a larger runner.
  bool MustGrow(int64_t more) const { return open_ && members() + more > room_; }
  // Opens a larger runner where one is needed. Members whose sequences cannot be copied have empty
  // ones then.
  Status MakeRoom(int64_t more);

  // Gives a new member an empty sequence; there is room for `more` sequences beside it.
  Result<int> Join(int64_t more);
  // Gives a new member a fork of another one's sequence.
  Result<int> JoinAsFork(int member, int64_t more);
  void Leave(int member);
  // Gives a member another sequence in place of one that was freed.
  void Replace(int member, SequenceId sequence) {
    members_[static_cast<size_t>(member)] = sequence;
  }

 private:
  static constexpr SequenceId kNone = -1;

  int64_t members() const;
  Status Grow(int64_t sequences);
  int Add(SequenceId sequence);

  RunnerMaker open_;  // empty: the runner was given
  std::shared_ptr<Runner> runner_;
  int64_t room_ = 0;                 // sequences that an opened runner has room for
  std::vector<SequenceId> members_;  // by number; kNone: nobody has the number
};

}  // namespace kvant
