#include "engine/text/conversation_runner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/result.h"

namespace kvant {

int64_t ConversationRunner::members() const {
  return std::ssize(members_) - std::count(members_.begin(), members_.end(), kNone);
}

Status ConversationRunner::MakeRoom(int64_t more) {
  return MustGrow(more) ? Grow(members() + more) : Status();
}

Status ConversationRunner::Grow(int64_t sequences) {
  KVANT_ASSIGN(auto larger, open_(sequences));
  std::vector<SequenceId> held;
  std::ranges::copy_if(members_, std::back_inserter(held),
                       [](SequenceId sequence) { return sequence != kNone; });
  std::vector<SequenceId> taken;
  if (!held.empty()) {
    auto adopted = larger->Adopt(*runner_, held);
    if (adopted.ok()) taken = std::move(*adopted);
  }
  while (taken.size() < held.size()) {
    KVANT_ASSIGN(taken.emplace_back(), larger->NewSequence());
  }
  auto next = taken.begin();
  for (SequenceId& sequence : members_) {
    if (sequence != kNone) sequence = *next++;
  }
  runner_ = std::move(larger);
  room_ = sequences;
  return {};
}

int ConversationRunner::Add(SequenceId sequence) {
  const auto place = std::find(members_.begin(), members_.end(), kNone);
  const auto number = static_cast<int>(place - members_.begin());
  if (place == members_.end()) {
    members_.push_back(sequence);
  } else {
    *place = sequence;
  }
  return number;
}

Result<int> ConversationRunner::Join(int64_t more) {
  KVANT_TRY(MakeRoom(1 + more));
  KVANT_ASSIGN(const SequenceId sequence, runner_->NewSequence());
  return Add(sequence);
}

// Room for twice the members, so that many forks cost few copies.
Result<int> ConversationRunner::JoinAsFork(int member, int64_t more) {
  if (MustGrow(1 + more)) KVANT_TRY(Grow(2 * members() + more));
  KVANT_ASSIGN(const SequenceId copy, runner_->Fork(sequence(member)));
  return Add(copy);
}

void ConversationRunner::Leave(int member) {
  const SequenceId left = std::exchange(members_[static_cast<size_t>(member)], kNone);
  if (open_ && members() == 0) return;  // the runner goes with its last member
  (void)runner_->FreeSequence(left);    // fails only where a given runner has lost it already
}

}  // namespace kvant
