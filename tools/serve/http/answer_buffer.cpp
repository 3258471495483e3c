#include "tools/serve/http/answer_buffer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace kvant::tools {

// `length` is that of the body; nullopt: it comes in pieces.
void AnswerBuffer::AppendHead(const HttpAnswer& answer, std::optional<size_t> length) {
  bool keeps_alive = setup_.keeps_alive;
  pending_ += fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", answer.status,
                          ReasonPhrase(answer.status), fmt::gmtime(std::time(nullptr)));
  for (const HttpHeader& header : answer.headers) {
    pending_ += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  if (length.has_value()) {
    // RFC 9110, 8.6: an answer without content by its status has no length.
    const bool has_length = answer.status != 204 && answer.status != 304;
    if (has_length) pending_ += fmt::format("Content-Length: {}\r\n", *length);
  } else if (setup_.minor_version == 1) {
    pending_ += "Transfer-Encoding: chunked\r\n";
  } else {
    keeps_alive = false;  // the end of the connection is the end of the answer
  }
  closes_after_ = !keeps_alive;
  pending_ += keeps_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

// Every piece is a chunk.
void AnswerBuffer::Append(std::string_view piece) {
  if (setup_.is_head || piece.empty()) return;
  if (setup_.minor_version == 1) {
    pending_ += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  } else {
    pending_ += piece;
  }
  written_at_ = Clock::now();
}

// Tells the connection that there is something to take.
void AnswerBuffer::Flush(std::unique_lock<std::mutex>& lock) {
  if (gone_ || std::exchange(asked_, true)) return;
  const std::shared_ptr<AnswerOwner> owner = owner_;
  lock.unlock();
  if (owner != nullptr) owner->TakeAnswerSoon();
}

void AnswerBuffer::Send(HttpAnswer answer) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kNew) return;
  phase_ = Phase::kEnded;
  AppendHead(answer, answer.body.size());
  if (!setup_.is_head) pending_ += answer.body;
  Flush(lock);
}

void AnswerBuffer::Begin(HttpAnswer head, std::string idle_piece, double idle_seconds) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kNew) return;
  phase_ = Phase::kBegun;
  AppendHead(head, {});
  idle_piece_ = std::move(idle_piece);
  idle_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(idle_seconds));
  written_at_ = Clock::now();
  Flush(lock);
}

bool AnswerBuffer::Write(std::string_view piece) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kBegun) return false;
  if (pending_.size() + unsent_ + piece.size() > setup_.unsent_max) {
    lock.unlock();
    Abort();
    return false;
  }
  Append(piece);
  Flush(lock);
  return true;
}

void AnswerBuffer::End() {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kBegun) return;
  phase_ = Phase::kEnded;
  if (setup_.minor_version == 1 && !setup_.is_head) pending_ += "0\r\n\r\n";
  Flush(lock);
}

void AnswerBuffer::Abort() {
  std::shared_ptr<AnswerOwner> owner;
  {
    const std::lock_guard guard(mutex_);
    if (gone_ || phase_ == Phase::kEnded) return;
    owner = owner_;
  }
  if (owner != nullptr) owner->CloseSoon();
}

void AnswerBuffer::OnClosed(std::function<void()> closed) {
  {
    const std::lock_guard guard(mutex_);
    if (!gone_) {
      closed_ = std::move(closed);
      return;
    }
    if (phase_ == Phase::kEnded) return;
  }
  closed();
}

std::string AnswerBuffer::Take(bool* ended) {
  const std::lock_guard guard(mutex_);
  asked_ = false;
  *ended = phase_ == Phase::kEnded;
  unsent_ += pending_.size();
  return std::exchange(pending_, {});
}

void AnswerBuffer::Sent(size_t bytes) {
  const std::lock_guard guard(mutex_);
  unsent_ -= std::min(unsent_, bytes);
}

void AnswerBuffer::Close() {
  std::function<void()> closed;
  std::shared_ptr<AnswerOwner> owner;
  {
    const std::lock_guard guard(mutex_);
    owner = std::move(owner_);
    closed = std::exchange(closed_, {});
    if (std::exchange(gone_, true)) return;
    // The end of an answer that was sent as a whole is nobody's concern.
    if (phase_ == Phase::kEnded && pending_.empty() && unsent_ == 0) return;
  }
  if (closed) closed();
}

void AnswerBuffer::WriteIfIdle(Clock::time_point now) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kBegun || idle_piece_.empty()) return;
  if (now < written_at_ + idle_ || !pending_.empty()) return;
  Append(idle_piece_);
  Flush(lock);
}

bool AnswerBuffer::closes_after() {
  const std::lock_guard guard(mutex_);
  return closes_after_;
}

}  // namespace kvant::tools
