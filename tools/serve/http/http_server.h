// An HTTP/1.1 server: reads requests, hands them to a handler, and sends its answers, whole or in
// pieces. Its .cpp is the only file that includes Asio.
//
// One thread, the one that calls Run, reads, writes and calls the handler. A connection serves one
// request after another, in order. While an answer is under way the connection is still read, so
// that a client that goes away is noticed at once; a client that shuts its side of the connection
// counts as gone. Everything that a client can make large or slow has a limit.
//
// Thread-safety: HttpStream, CloseListeners, Stop and connections() may be used by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/serve/http/http_message.h"
#include "tools/serve/http/listener.h"

namespace kvant::tools {

// A client has to take so much of an answer in a time, or is left.
inline constexpr size_t kProgressBytes = 4096;

struct HttpLimits {
  uint64_t body_bytes_max = uint64_t{16} << 20;
  // Bytes of an answer in pieces that the client has not taken yet; beyond it the connection ends.
  size_t unsent_bytes_max = size_t{1} << 20;
  // Where there are so many, one without a whole request gives way to a new one.
  size_t connections_max = 1024;
  // Seconds: from the first byte of a head to its last, without a request, for a body, and until a
  // client takes kProgressBytes more of an answer, or what there is of it.
  double head_seconds = 10;
  double idle_seconds = 75;
  double body_seconds = 120;
  double write_seconds = 60;
};

// The answer to a request. It ends once, by Send, End or Abort; what is called after that has no
// effect.
class HttpStream {
 public:
  virtual ~HttpStream() = default;

  // Sends a whole answer.
  virtual void Send(HttpAnswer answer) = 0;
  // Sends the head of an answer whose body follows in pieces. Where nothing was written for
  // `idle_seconds`, `idle_piece` is, if it is not empty.
  virtual void Begin(HttpAnswer head, std::string idle_piece, double idle_seconds) = 0;
  // False: nobody reads the answer any more.
  virtual bool Write(std::string_view piece) = 0;
  virtual void End() = 0;
  // Closes the connection without the end of the answer.
  virtual void Abort() = 0;
  // `closed` is called if the connection ends before the answer does: by the server's thread, or
  // at once if it has ended.
  virtual void OnClosed(std::function<void()> closed) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called with a head, before the body is read. An answer refuses the request.
  virtual std::optional<HttpAnswer> OnHead(const HttpRequest& head) = 0;
  virtual void OnRequest(HttpRequest request, std::shared_ptr<HttpStream> stream) = 0;
  // The answer to what is no request.
  virtual HttpAnswer RefuseBytes(int status, const std::string& message) = 0;
};

class HttpServer {
 public:
  // The handler must outlive the server and all streams.
  static std::unique_ptr<HttpServer> Create(std::vector<Listener> listeners,
                                            const HttpLimits& limits, HttpHandler& handler);
  virtual ~HttpServer() = default;

  virtual void Run() = 0;
  // Accepts no connection any more. Each connection ends after its answer.
  virtual void CloseListeners() = 0;
  // Ends Run and all connections.
  virtual void Stop() = 0;
  virtual size_t connections() const = 0;
};

}  // namespace kvant::tools
