#include "tools/serve/http/http_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <asio/basic_socket_acceptor.hpp>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <atomic>
#include <chrono>
#include <set>
#include <utility>

#include "tools/serve/http/answer_buffer.h"
#include "tools/serve/http/chunked_body.h"
#include "tools/serve/http/http_head.h"

namespace kvant::tools {
namespace {

using asio::error_code;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;
using Acceptor = asio::basic_socket_acceptor<Protocol>;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 16384;
// Bytes of further requests that are kept while an answer is under way.
constexpr size_t kPipelinedBytesMax = 65536;
// A connection that the server ends is read on for so long, so that the client gets the answer
// before the system tells it that nobody reads what it sends.
constexpr double kLingerSeconds = 2;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // without descriptors

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Connection;
class ServerState;

class Connection final : public AnswerOwner, public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState& server, Socket socket);

  void Start();
  void Close();
  void EndIfIdle();
  // Whether a whole request is there, and its answer not yet sent.
  bool has_request() const { return part_ == Part::kAnswer || writing_; }
  // One whose head is complete counts as younger than one without.
  bool WaitsLongerThan(const Connection& other) const {
    return part_ != other.part_ ? part_ < other.part_ : waits_since_ < other.waits_since_;
  }

  // Any thread.
  void TakeAnswerSoon() override;
  void CloseSoon() override;

 private:
  enum class Part : uint8_t { kHead, kBody, kAnswer, kLinger };

  void Read();
  void OnRead(const error_code& error, size_t bytes);
  void Process();
  bool ReadHead();
  bool ReadBody();
  void Refuse(int status, const std::string& message);
  void Hand();
  void MakeAnswer();
  void WriteAnswer();
  void SendOnly(HttpAnswer answer);
  void WriteSome();
  void OnWritten(const error_code& error, size_t bytes);
  void AnswerDone();
  void SetDeadline(double seconds);
  void WaitForDeadline();
  void OnTimer();

  ServerState& server_;
  Socket socket_;
  asio::steady_timer timer_;
  Clock::time_point deadline_;
  Clock::time_point waits_since_ = Clock::now();  // for a request
  bool timer_waits_ = false;
  bool closed_ = false;
  bool reading_ = false;
  bool writing_ = false;
  Part part_ = Part::kHead;
  std::array<char, kReadBytes> buffer_;
  std::string in_;   // read, not yet understood
  std::string out_;  // being written
  size_t written_ = 0;
  size_t progress_ = 0;  // of these, when the deadline was set
  HttpHead head_;
  std::optional<ChunkedBody> chunks_;
  std::shared_ptr<AnswerBuffer> answer_;
};

// A listening socket, and the connections that come from it.
struct Door {
  explicit Door(asio::io_context& context, Listener one)
      : listener(std::move(one)), acceptor(context), pause(context) {}
  Listener listener;  // keeps the file of a Unix socket
  Acceptor acceptor;
  asio::steady_timer pause;
  bool accepting = false;
};

class ServerState final : public HttpServer {
 public:
  ServerState(std::vector<Listener> listeners, const HttpLimits& limits, HttpHandler& handler)
      : limits_(limits), handler_(handler) {
    for (Listener& listener : listeners) {
      doors_.push_back(std::make_unique<Door>(context_, std::move(listener)));
      Door& door = *doors_.back();
      door.acceptor.assign(Protocol(door.listener.family(), 0), door.listener.TakeSocket());
      Accept(door);
    }
  }

  void Run() override {
    const auto work = asio::make_work_guard(context_);
    context_.run();
  }

  void CloseListeners() override {
    asio::post(context_, [this] {
      draining_ = true;
      doors_.clear();
      const auto all = connections_;
      for (const auto& connection : all) connection->EndIfIdle();
    });
  }

  void Stop() override {
    asio::post(context_, [this] {
      doors_.clear();
      const auto all = connections_;
      for (const auto& connection : all) connection->Close();
      context_.stop();
    });
  }

  size_t connections() const override { return count_.load(); }

  asio::io_context& context() { return context_; }
  const HttpLimits& limits() const { return limits_; }
  HttpHandler& handler() { return handler_; }
  bool draining() const { return draining_; }

  void Remove(const std::shared_ptr<Connection>& connection) {
    connections_.erase(connection);
    count_.store(connections_.size());
    AcceptMore();
  }

  // There may be room for connections that wait outside.
  void AcceptMore() {
    for (const auto& door : doors_) Accept(*door);
  }

 private:
  bool is_full() const { return connections_.size() >= limits_.connections_max; }
  std::shared_ptr<Connection> LongestWithoutRequest() const;

  void Accept(Door& door) {
    if (door.accepting || draining_ || (is_full() && LongestWithoutRequest() == nullptr)) return;
    door.accepting = true;
    door.acceptor.async_accept([this, &door](const error_code& error, Socket socket) {
      if (error == asio::error::operation_aborted) return;
      door.accepting = false;
      if (error) {
        door.accepting = true;
        door.pause.expires_after(kAcceptPause);
        door.pause.async_wait([this, &door](const error_code& stopped) {
          if (stopped) return;
          door.accepting = false;
          Accept(door);
        });
        return;
      }
      if (is_full()) {
        const auto gives_way = LongestWithoutRequest();
        if (gives_way == nullptr) return;  // all of them got requests meanwhile: the new one ends
        gives_way->Close();
      }
      const int on = 1;  // refused by a Unix socket, which needs it not
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      auto connection = std::make_shared<Connection>(*this, std::move(socket));
      connections_.insert(connection);
      count_.store(connections_.size());
      connection->Start();
      Accept(door);
    });
  }

  asio::io_context context_{1};
  const HttpLimits limits_;
  HttpHandler& handler_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::atomic<size_t> count_ = 0;
  bool draining_ = false;
};

// The connection that gives way to a new one where all are taken: one without a whole request, so
// that clients that send nothing, or slowly, keep nobody out, however many they are. Null where all
// have one.
std::shared_ptr<Connection> ServerState::LongestWithoutRequest() const {
  std::shared_ptr<Connection> out;
  for (const auto& connection : connections_) {
    if (connection->has_request()) continue;
    if (out == nullptr || connection->WaitsLongerThan(*out)) out = connection;
  }
  return out;
}

// ---- Connections --------------------------------------------------------------------------------

Connection::Connection(ServerState& server, Socket socket)
    : server_(server), socket_(std::move(socket)), timer_(server.context()) {}

void Connection::Start() {
  SetDeadline(server_.limits().head_seconds);
  Read();
}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (const auto answer = std::exchange(answer_, nullptr)) answer->Close();
  server_.Remove(self);
}

// Ends a connection that has no request under way.
void Connection::EndIfIdle() {
  if (part_ == Part::kHead && in_.empty() && !writing_) Close();
}

void Connection::Read() {
  if (closed_ || reading_) return;
  if (part_ == Part::kAnswer && in_.size() >= kPipelinedBytesMax) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->reading_ = false;
                            self->OnRead(error, bytes);
                          });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) return Close();
  if (part_ != Part::kLinger) {
    if (part_ == Part::kHead && in_.empty()) SetDeadline(server_.limits().head_seconds);
    in_.append(buffer_.data(), bytes);
    Process();
  }
  Read();
}

// Goes on with the bytes that were read as far as they reach.
void Connection::Process() {
  while (!closed_) {
    if (part_ == Part::kHead ? !ReadHead() : part_ != Part::kBody || !ReadBody()) return;
  }
}

// True if there is more to do with the bytes that were read.
bool Connection::ReadHead() {
  if (in_.empty()) return false;
  HeadResult result = ParseHead(in_, server_.limits().body_bytes_max);
  if (result.state == HeadResult::State::kMore) return false;
  if (result.state == HeadResult::State::kWrong) {
    Refuse(result.status, result.message);
    return false;
  }
  in_.erase(0, result.bytes);
  head_ = std::move(result.head);
  if (server_.draining()) head_.keeps_alive = false;
  if (auto refused = server_.handler().OnHead(head_.request)) {
    const bool has_body = head_.chunked || head_.length > 0;
    if (has_body) head_.keeps_alive = false;  // the body is not read
    SendOnly(*std::move(refused));
    return false;
  }
  chunks_.reset();
  if (head_.chunked) chunks_.emplace(server_.limits().body_bytes_max);
  part_ = Part::kBody;
  SetDeadline(server_.limits().body_seconds);
  const bool waits = head_.expects_continue && in_.empty() && (head_.chunked || head_.length > 0);
  if (waits) {
    out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    writing_ = true;
    asio::async_write(socket_, asio::buffer(out_),
                      [self = shared_from_this()](const error_code& error, size_t) {
                        self->writing_ = false;
                        if (error) return self->Close();
                        self->WriteAnswer();
                      });
  }
  return true;
}

bool Connection::ReadBody() {
  std::string& body = head_.request.body;
  if (chunks_.has_value()) {
    size_t taken = 0;
    const ChunkedBody::State state = chunks_->Push(in_, body, &taken);
    in_.erase(0, taken);
    if (state == ChunkedBody::State::kWrong) {
      Refuse(400, "the body is not made of chunks");
      return false;
    }
    if (state == ChunkedBody::State::kTooLarge) {
      Refuse(413, fmt::format("the body has more than {} bytes", server_.limits().body_bytes_max));
      return false;
    }
    if (state == ChunkedBody::State::kMore) return false;
  } else {
    const size_t count = std::min(in_.size(), static_cast<size_t>(head_.length) - body.size());
    body.append(in_, 0, count);
    in_.erase(0, count);
    if (body.size() < head_.length) return false;
  }
  Hand();
  return false;
}

void Connection::MakeAnswer() {
  answer_ = std::make_shared<AnswerBuffer>(
      shared_from_this(), AnswerBuffer::Setup{.unsent_max = server_.limits().unsent_bytes_max,
                                              .minor_version = head_.request.minor_version,
                                              .is_head = head_.request.method == "HEAD",
                                              .keeps_alive = head_.keeps_alive});
}

void Connection::TakeAnswerSoon() {
  asio::post(server_.context(), [self = shared_from_this()] { self->WriteAnswer(); });
}

void Connection::CloseSoon() {
  asio::post(server_.context(), [self = shared_from_this()] { self->Close(); });
}

// Hands the request to the handler.
void Connection::Hand() {
  part_ = Part::kAnswer;
  MakeAnswer();
  SetDeadline(0);
  server_.handler().OnRequest(std::move(head_.request), answer_);
}

// Answers what is no request, and ends the connection.
void Connection::Refuse(int status, const std::string& message) {
  head_.keeps_alive = false;
  head_.request.method.clear();
  SendOnly(server_.handler().RefuseBytes(status, message));
}

void Connection::SendOnly(HttpAnswer answer) {
  part_ = Part::kAnswer;
  MakeAnswer();
  answer_->Send(std::move(answer));
}

// Writes what the answer has so far.
void Connection::WriteAnswer() {
  if (closed_ || writing_ || answer_ == nullptr) return;
  bool ended = false;
  out_ = answer_->Take(&ended);
  if (out_.empty()) {
    if (ended) AnswerDone();
    return;
  }
  written_ = progress_ = 0;
  writing_ = true;
  SetDeadline(server_.limits().write_seconds);
  WriteSome();
}

// Bytes that come out one by one do not count as progress, so that a client cannot keep an answer
// here for days.
void Connection::WriteSome() {
  if (written_ - progress_ >= kProgressBytes) {
    progress_ = written_;
    SetDeadline(server_.limits().write_seconds);
  }
  socket_.async_write_some(asio::buffer(out_) + written_,
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             self->OnWritten(error, bytes);
                           });
}

void Connection::OnWritten(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) return Close();
  answer_->Sent(bytes);
  written_ += bytes;
  if (written_ < out_.size()) return WriteSome();
  out_.clear();
  writing_ = false;
  SetDeadline(0);
  WriteAnswer();
}

// Goes on with the next request after a whole answer.
void Connection::AnswerDone() {
  const bool closes = answer_->closes_after() || server_.draining();
  std::exchange(answer_, nullptr)->Close();
  if (closes) {
    part_ = Part::kLinger;
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    in_.clear();
    SetDeadline(kLingerSeconds);
    return Read();
  }
  part_ = Part::kHead;
  waits_since_ = Clock::now();
  SetDeadline(in_.empty() ? server_.limits().idle_seconds : server_.limits().head_seconds);
  server_.AcceptMore();
  Process();
  Read();
}

// ---- Deadlines ----------------------------------------------------------------------------------

// The connection ends after so many seconds; 0: it does not, but the answer may want to say
// something while it is idle.
void Connection::SetDeadline(double seconds) {
  deadline_ = seconds > 0 ? Clock::now() + Seconds(seconds) : Clock::time_point::max();
  WaitForDeadline();
}

void Connection::WaitForDeadline() {
  auto next = deadline_;
  if (part_ == Part::kAnswer && answer_ != nullptr) {
    // Answers in pieces are looked at once a second for what they say while they are idle.
    next = std::min(next, Clock::now() + std::chrono::seconds(1));
  }
  if (closed_ || next == Clock::time_point::max()) return;
  if (timer_waits_ && timer_.expiry() <= next) return;
  timer_waits_ = true;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error) return;  // another wait has taken its place, or the connection is closed
    self->timer_waits_ = false;
    self->OnTimer();
  });
}

void Connection::OnTimer() {
  if (closed_) return;
  const auto now = Clock::now();
  if (now >= deadline_) return Close();
  if (answer_ != nullptr) answer_->WriteIfIdle(now);
  WaitForDeadline();
}

}  // namespace

std::unique_ptr<HttpServer> HttpServer::Create(std::vector<Listener> listeners,
                                               const HttpLimits& limits, HttpHandler& handler) {
  return std::make_unique<ServerState>(std::move(listeners), limits, handler);
}

}  // namespace kvant::tools
