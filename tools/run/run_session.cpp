#include "tools/run/run_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/counted.h"
#include "base/result.h"

namespace kvant::tools {
namespace {

// Tokens of a text that comes behind another one: no BOS, and no space in front of it.
Result<std::vector<TokenId>> PieceTokens(const Tokenizer& tokenizer, const std::string& text) {
  const EncodeOptions options = {.add_special = false, .parse_special = true};
  if (tokenizer.special().add_space_prefix && tokenizer.kind() == std::string_view("spm")) {
    // A byte that is part of no piece but its own takes the space, and both are cut off again.
    constexpr const char* kFront = "\x01";
    KVANT_ASSIGN(const auto front, tokenizer.Encode(kFront, options));
    KVANT_ASSIGN(auto ids, tokenizer.Encode(kFront + text, options));
    if (ids.size() >= front.size() && std::equal(front.begin(), front.end(), ids.begin())) {
      ids.erase(ids.begin(), ids.begin() + std::ssize(front));
      return ids;
    }
  }
  return tokenizer.Encode(text, options);
}

// The text of a sequence as a prompt would spell it.
std::string TextOf(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  const SpecialTokens& special = tokenizer.special();
  if (special.add_bos && !tokens.empty() && tokens.front() == special.bos) {
    tokens = tokens.subspan(1);
  }
  return tokenizer.Decode(tokens, {.special = true});
}

bool BeginsWith(std::span<const TokenId> tokens, std::span<const TokenId> first) {
  return tokens.size() >= first.size() && std::equal(first.begin(), first.end(), tokens.begin());
}

// The saved tokens and the tokens of `rest` behind them. If the tokens of the whole text begin with
// the saved ones, they are returned: a text is cut better when all of it is known.
Result<std::vector<TokenId>> Joined(const Tokenizer& tokenizer, std::span<const TokenId> saved,
                                    const std::string& saved_text, const std::string& rest) {
  KVANT_ASSIGN(auto whole, PromptTokens(tokenizer, saved_text + rest));
  if (BeginsWith(whole, saved)) return whole;
  KVANT_ASSIGN(const auto piece, PieceTokens(tokenizer, rest));
  whole.assign(saved.begin(), saved.end());
  whole.insert(whole.end(), piece.begin(), piece.end());
  return whole;
}

// Goes back to the beginning that the saved sequence and the prompt have in common.
Result<Continuation> Rewound(const Tokenizer& tokenizer, std::span<const TokenId> saved,
                             const std::string& text) {
  Continuation out;
  KVANT_ASSIGN(out.prompt, PromptTokens(tokenizer, text));
  const auto end =
      std::mismatch(saved.begin(), saved.end(), out.prompt.begin(), out.prompt.end()).first;
  out.kept = end - saved.begin();
  out.repeated = true;
  out.note = fmt::format("goes back to the first {} of {}, and drops {}", out.kept,
                         Counted(saved.size(), "saved token"), std::ssize(saved) - out.kept);
  return out;
}

}  // namespace

Result<SessionLock> SessionLock::Take(const std::string& path) {
  SessionLock lock;
  lock.path_ = path;
  const auto error = [&](const char* what) {
    return MakeError(ErrorCode::kIo, "{}: {}: {}", path, what, std::strerror(errno));
  };
  while (true) {
    // O_NONBLOCK: opening a pipe must not hang before it can be refused.
    lock.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (lock.fd_ < 0 && errno == ENOENT) {
      lock.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      lock.created_ = lock.fd_ >= 0;
      if (lock.fd_ < 0 && errno == EEXIST) continue;
      if (lock.fd_ < 0) return error("cannot create");
    }
    if (lock.fd_ < 0) return error("cannot open");
    struct stat opened {};
    struct stat named {};
    if (fstat(lock.fd_, &opened) != 0) return error("cannot open");
    if (!S_ISREG(opened.st_mode)) {
      return MakeError(ErrorCode::kIo, "{}: expected a file for the session, found a {}", path,
                       S_ISDIR(opened.st_mode) ? "directory" : "device or pipe");
    }
    // File systems without locks are used without.
    if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      lock.created_ = false;
      return MakeError(ErrorCode::kIo, "{}: another process is using this session", path);
    }
    // The process that held the lock until now may have put another file in this one's place.
    const bool same = stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
                      named.st_dev == opened.st_dev;
    lock.empty_ = opened.st_size == 0;
    if (same) break;
    close(std::exchange(lock.fd_, -1));
    lock.created_ = false;
  }
  // The next version is written beside this one.
  const auto folder = std::filesystem::path(path).parent_path().string();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
    return error("cannot be saved in its folder");
  }
  return lock;
}

SessionLock::~SessionLock() {
  if (fd_ < 0) return;
  struct stat opened {};
  struct stat named {};
  const bool same = fstat(fd_, &opened) == 0 && stat(path_.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (created_ && same && opened.st_size == 0) unlink(path_.c_str());
  close(fd_);
}

Result<Continuation> Continue(const Tokenizer& tokenizer, std::span<const TokenId> saved,
                              const std::optional<std::string>& text, SavedText saved_text) {
  Continuation out;
  if (saved.empty()) {
    KVANT_ASSIGN(out.prompt, PromptTokens(tokenizer, text.value_or("")));
    out.repeated = true;
    return out;
  }
  const std::string prompt = text.value_or("");
  if (prompt.empty()) {
    out.prompt.assign(saved.begin(), saved.end());
    out.kept = std::ssize(saved);
    out.note = fmt::format("goes on at the end of its {}", Counted(saved.size(), "token"));
    return out;
  }
  const std::string before = TextOf(tokenizer, saved);
  KVANT_ASSIGN(const auto prompt_tokens, PromptTokens(tokenizer, prompt));
  out.kept = std::ssize(saved);
  out.repeated = prompt.starts_with(before) || BeginsWith(prompt_tokens, saved);
  if (out.repeated) {
    out.prompt = prompt_tokens;
    if (!BeginsWith(prompt_tokens, saved)) {
      KVANT_ASSIGN(out.prompt, Joined(tokenizer, saved, before, prompt.substr(before.size())));
    }
    out.note = fmt::format("the prompt repeats its {}, and adds {}", Counted(saved.size(), "token"),
                           std::ssize(out.prompt) - out.kept);
    return out;
  }
  if (saved_text == SavedText::kRewound) return Rewound(tokenizer, saved, prompt);
  if (before.starts_with(prompt)) {
    return MakeError(ErrorCode::kInvalid,
                     "the saved text of {} begins with this prompt: leave the prompt out to "
                     "go on at its end, or give --session-rewind to go back to the prompt and drop "
                     "the rest",
                     Counted(saved.size(), "token"));
  }
  KVANT_ASSIGN(out.prompt, Joined(tokenizer, saved, before, prompt));
  out.note = fmt::format("the prompt comes behind its {}, as the next piece of its text",
                         Counted(saved.size(), "token"));
  return out;
}

}  // namespace kvant::tools
