// Status and Result<T>: how every fallible function of the library reports an error.
//
// The library never prints, exits or throws for bad input. A failing call returns an Error whose
// message names the file, tensor, key or flag, what was expected and what was found, in one line.
// Asking a failure for its value, or a success for its error, is a bug of the caller and ends the
// process.
//
// Thread-safety: values; no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace kvant {

// Ends the process: a Result or Status was asked for what it does not have.
[[noreturn]] void WrongResultAccess();

enum class ErrorCode : uint8_t {
  kInvalid,       // a wrong argument, flag, token id or option
  kNotSupported,  // understood, but this build, model or backend cannot do it
  kOutOfMemory,   // memory for the request is not available
  kContextFull,   // the sequence does not fit the context
  kIo,            // the operating system refused: open, read, write, map
  kCorrupt,       // a file's content contradicts its format
  kCancelled,     // the caller asked to stop
  kBusy,          // too much is waiting already; the caller may try again later
  kDeadline,      // the time that the caller allowed is over
};

// The stable, upper-case name of a code, for example "CONTEXT_FULL".
const char* ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  // Whether it is an error of this code.
  bool Is(ErrorCode code) const { return error_.has_value() && error_->code == code; }
  const Error& error() const {
    if (!error_.has_value()) WrongResultAccess();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

// A value, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  const Error& error() const {
    if (ok()) WrongResultAccess();
    return std::get<1>(state_);
  }
  T& value() & {
    if (!ok()) WrongResultAccess();
    return std::get<0>(state_);
  }
  const T& value() const& {
    if (!ok()) WrongResultAccess();
    return std::get<0>(state_);
  }
  T&& value() && {
    if (!ok()) WrongResultAccess();
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace kvant

#define KVANT_CONCAT_INNER(a, b) a##b
#define KVANT_CONCAT(a, b) KVANT_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression to the caller.
#define KVANT_TRY(expression)                                    \
  do {                                                           \
    auto kvant_try_status = (expression);                        \
    if (!kvant_try_status.ok()) return kvant_try_status.error(); \
  } while (false)

// KVANT_ASSIGN(auto model, Model::Open(path));  declares or assigns the value, or returns the
// error.
#define KVANT_ASSIGN(target, expression) \
  KVANT_ASSIGN_IMPL(KVANT_CONCAT(kvant_result_, __LINE__), target, expression)
#define KVANT_ASSIGN_IMPL(name, target, expression) \
  auto name = (expression);                         \
  if (!name.ok()) return name.error();              \
  target = std::move(name).value()
