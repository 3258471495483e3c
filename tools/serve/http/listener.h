// Sockets that wait for connections: on addresses with a port, and in the file system.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant::tools {

// A socket that listens. The file of a Unix socket is removed with it.
class Listener {
 public:
  // Listens on all addresses of a host ("127.0.0.1", "::1", "localhost", "0.0.0.0"), or in a file
  // whose name ends with ".sock". Port 0 takes a free one. kIo where that is not possible; the
  // message names the host, the port and the reason. A socket file that nobody listens on is
  // replaced.
  static Result<std::vector<Listener>> Open(const std::string& host, uint16_t port);
  // Whether only this machine reaches what listens on a host. Nothing is opened.
  static Result<bool> IsLocal(const std::string& host);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int family() const { return family_; }
  // The socket, which the caller closes from now on.
  int TakeSocket();
  // "http://127.0.0.1:8080", "http://[::1]:8080", "unix:/run/kvant.sock"
  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }  // 0 for a file

 private:
  Listener() = default;
  static Result<Listener> OpenFile(const std::string& path);
  static Result<Listener> OpenAddress(const void* address, const std::string& host);

  int socket_ = -1;
  int family_ = 0;
  uint16_t port_ = 0;
  std::string url_;
  std::string path_;  // of a Unix socket
};

}  // namespace kvant::tools
