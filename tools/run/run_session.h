// kvant run --session FILE and --prompt-cache FILE: a sequence that outlives the program, and how a
// prompt goes on behind it.
//
// One process at a time uses a file. Only a whole new file replaces a saved one, and tokens are
// dropped from it only where an option says so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvant/prompt.h"
#include "kvant/session.h"

namespace kvant::tools {

// The lock on the file of a session, held until the end of its life.
class SessionLock {
 public:
  // Opens the file, or creates an empty one, and locks it. kIo where another process holds it,
  // where it is no regular file, or where it could not be saved in the end.
  static Result<SessionLock> Take(const std::string& path);

  SessionLock(SessionLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {
    std::swap(path_, other.path_);
    std::swap(created_, other.created_);
    std::swap(empty_, other.empty_);
  }
  SessionLock& operator=(SessionLock&&) = delete;
  ~SessionLock();  // removes a file that it has created and that has stayed empty

  bool empty() const { return empty_; }  // nothing was saved yet

 private:
  SessionLock() = default;

  int fd_ = -1;
  std::string path_;
  bool created_ = false;
  bool empty_ = false;
};

// The fate of a saved text that the prompt does not repeat as its beginning.
enum class SavedText : uint8_t {
  kKept,     // the prompt comes behind it
  kRewound,  // only what it has in common with the prompt stays
};

// How a run goes on from a saved sequence.
struct Continuation {
  std::vector<TokenId> prompt;  // of the whole text: what is kept, and what is new
  int64_t kept = 0;             // tokens of the saved sequence at the beginning of `prompt`
  // The text of `prompt` is more than was saved, and what was saved is its beginning whether or not
  // the new tokens are computed to their end: half of the work may be saved, too.
  bool repeated = false;
  std::string note;  // what was decided, for people
};

// Decides that. `text` is the prompt, nullopt if there is none. kInvalid where the saved text
// begins with the prompt and `saved_text` is kKept: nothing may be dropped, and nothing is new.
Result<Continuation> Continue(const Tokenizer& tokenizer, std::span<const TokenId> saved,
                              const std::optional<std::string>& text, SavedText saved_text);

}  // namespace kvant::tools
