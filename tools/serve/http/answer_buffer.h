// The answer to a request on its way from the threads that make it to the connection that sends it.
//
// Thread-safety: functions of HttpStream may be called by any thread; all others belong to the
// server's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tools/serve/http/http_server.h"

namespace kvant::tools {

// The connection, as an answer knows it. Any thread may call these functions; the server's thread
// does the work.
class AnswerOwner {
 public:
  virtual ~AnswerOwner() = default;
  virtual void TakeAnswerSoon() = 0;  // there are bytes to take, or the end
  virtual void CloseSoon() = 0;
};

class AnswerBuffer final : public HttpStream {
 public:
  using Clock = std::chrono::steady_clock;

  struct Setup {
    size_t unsent_max = 0;  // bytes of an answer in pieces that nobody has taken
    int minor_version = 1;  // of the request
    bool is_head = false;   // the answer has no body
    bool keeps_alive = true;
  };
  AnswerBuffer(std::shared_ptr<AnswerOwner> owner, const Setup& setup)
      : setup_(setup), owner_(std::move(owner)) {}

  void Send(HttpAnswer answer) override;
  void Begin(HttpAnswer head, std::string idle_piece, double idle_seconds) override;
  bool Write(std::string_view piece) override;
  void End() override;
  void Abort() override;
  void OnClosed(std::function<void()> closed) override;

  // The bytes to send next. `ended` tells whether they are the last ones.
  std::string Take(bool* ended);
  void Sent(size_t bytes);
  // The connection has ended, or the answer has been sent.
  void Close();
  // Writes the idle piece if nothing was written for its time.
  void WriteIfIdle(Clock::time_point now);
  // Whether the connection ends after the answer.
  bool closes_after();

 private:
  enum class Phase : uint8_t { kNew, kBegun, kEnded };

  void AppendHead(const HttpAnswer& answer, std::optional<size_t> length);
  void Append(std::string_view piece);
  void Flush(std::unique_lock<std::mutex>& lock);

  const Setup setup_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<AnswerOwner> owner_;
  std::function<void()> closed_;
  Phase phase_ = Phase::kNew;
  bool gone_ = false;
  bool asked_ = false;  // the connection will take what is pending
  bool closes_after_ = false;
  std::string pending_;
  size_t unsent_ = 0;  // taken by the connection, not by the client
  std::string idle_piece_;
  Clock::duration idle_ = {};
  Clock::time_point written_at_ = {};
};

}  // namespace kvant::tools
