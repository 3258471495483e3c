#include "tools/serve/http/listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace kvant::tools {
namespace {

constexpr int kBacklog = 511;  // connections that wait for accept

Error ListenError(const std::string& where) {
  const int number = errno;
  const char* const hint =
      number == EADDRINUSE ? "; another program listens there, --port takes another port" : "";
  return MakeError(ErrorCode::kIo, "cannot listen on {}: {}{}", where, std::strerror(number), hint);
}

// Whether a program listens on the socket file.
bool IsInUse(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  const bool in_use = connect(probe, general, sizeof(address)) == 0;
  close(probe);
  return in_use;
}

constexpr std::string_view kFileEnd = ".sock";

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> AddressesOf(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    return MakeError(ErrorCode::kInvalid, "--host: '{}' is no address here: {}", host,
                     gai_strerror(code));
  }
  return Addresses(found, freeaddrinfo);
}

bool IsLoopback(const addrinfo& info) {
  if (info.ai_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(info.ai_addr);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
  }
  const auto& v4 = *reinterpret_cast<const sockaddr_in*>(info.ai_addr);
  return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
}

}  // namespace

Listener::~Listener() {
  if (socket_ >= 0) close(socket_);
  if (!path_.empty()) unlink(path_.c_str());
}

Listener::Listener(Listener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      family_(other.family_),
      port_(other.port_),
      url_(std::move(other.url_)),
      path_(std::exchange(other.path_, {})) {}

Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(family_, other.family_);
  std::swap(port_, other.port_);
  std::swap(url_, other.url_);
  std::swap(path_, other.path_);
  return *this;
}

int Listener::TakeSocket() { return std::exchange(socket_, -1); }

Result<Listener> Listener::OpenFile(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return MakeError(ErrorCode::kInvalid,
                     "--host: the path of a socket has {} bytes, expected at most {}", path.size(),
                     sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat status = {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return MakeError(ErrorCode::kIo, "cannot listen on {}: there is another file", path);
    }
    if (IsInUse(address)) {
      return MakeError(ErrorCode::kIo, "cannot listen on {}: another program listens there", path);
    }
    unlink(path.c_str());
  }
  Listener out;
  out.family_ = AF_UNIX;
  out.url_ = "unix:" + path;
  out.socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (out.socket_ < 0) return ListenError(path);
  // The owner alone may connect, from the first moment on.
  const mode_t before = umask(S_IRWXG | S_IRWXO);
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  const int bound = bind(out.socket_, general, sizeof(address));
  umask(before);
  if (bound != 0) return ListenError(path);
  out.path_ = path;
  if (listen(out.socket_, kBacklog) != 0) return ListenError(path);
  return out;
}

Result<Listener> Listener::OpenAddress(const void* address, const std::string& host) {
  const auto& info = *static_cast<const addrinfo*>(address);
  Listener out;
  out.family_ = info.ai_family;
  out.socket_ = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (out.socket_ < 0) return ListenError(host);
  const int on = 1;
  setsockopt(out.socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool is_v6 = info.ai_family == AF_INET6;
  if (is_v6) setsockopt(out.socket_, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(out.socket_, info.ai_addr, info.ai_addrlen) != 0 || listen(out.socket_, kBacklog) != 0) {
    return ListenError(host);
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(out.socket_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return ListenError(host);
  }
  char text[INET6_ADDRSTRLEN] = {};
  if (is_v6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    out.port_ = ntohs(v6.sin6_port);
    out.url_ = fmt::format("http://[{}]:{}", text, out.port_);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    out.port_ = ntohs(v4.sin_port);
    out.url_ = fmt::format("http://{}:{}", text, out.port_);
  }
  return out;
}

Result<std::vector<Listener>> Listener::Open(const std::string& host, uint16_t port) {
  std::vector<Listener> out;
  if (host.ends_with(kFileEnd)) {
    KVANT_ASSIGN(Listener file, OpenFile(host));
    out.push_back(std::move(file));
    return out;
  }
  KVANT_ASSIGN(const Addresses found, AddressesOf(host, port));
  Status first_error;
  for (const addrinfo* info = found.get(); info != nullptr; info = info->ai_next) {
    auto listener = OpenAddress(info, fmt::format("{}, port {}", host, port));
    if (listener.ok()) {
      out.push_back(std::move(*listener));
    } else if (first_error.ok()) {
      first_error = listener.error();
    }
  }
  // A host of both kinds of addresses is reached by one of them where the system lacks the other.
  if (out.empty()) return first_error.error();
  return out;
}

Result<bool> Listener::IsLocal(const std::string& host) {
  if (host.ends_with(kFileEnd)) return true;
  KVANT_ASSIGN(const Addresses found, AddressesOf(host, 0));
  for (const addrinfo* info = found.get(); info != nullptr; info = info->ai_next) {
    if (!IsLoopback(*info)) return false;
  }
  return true;
}

}  // namespace kvant::tools
