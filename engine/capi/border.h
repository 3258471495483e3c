// The border between C callers and the library: errors become codes and texts, exceptions end here,
// pointers and structs of callers are checked before they are used.
//
// Texts of errors are kept for each thread and handle, the last few handles of a thread: so a model
// that many threads use has an error for each. Nothing here looks into a handle.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "kvant/kvant.h"

namespace kvant::capi {

// Keeps the error as the last one of the calling thread on this handle, and returns its code.
kvant_status Remember(const void* handle, const Error& error) noexcept;
// A handle has been made or freed: what was remembered under its address is not its own.
void Forget(const void* handle) noexcept;
const char* LastError(const void* handle) noexcept;

kvant_status StatusOf(ErrorCode code);

// Runs what a call does, a function that returns Status. No exception leaves it.
template <class Body>
kvant_status Call(const void* handle, Body&& body) noexcept {
  try {
    const Status status = std::forward<Body>(body)();
    return status.ok() ? KVANT_OK : Remember(handle, status.error());
  } catch (const std::bad_alloc&) {
    return Remember(handle, {ErrorCode::kOutOfMemory, "memory for the call is not available"});
  } catch (const std::exception& exception) {
    Remember(handle, {ErrorCode::kInvalid, exception.what()});
  } catch (...) {
    Remember(handle, {ErrorCode::kInvalid, "an exception of unknown type"});
  }
  return KVANT_INTERNAL;
}

// kInvalid, naming the argument, if it is NULL.
Status Need(const void* pointer, std::string_view name);

// An array of a caller. kInvalid for NULL with a count above 0.
template <class T>
Result<std::span<T>> Array(T* data, size_t count, std::string_view name) {
  if (count > 0) KVANT_TRY(Need(data, name));
  return std::span<T>(data, data == nullptr ? 0 : count);
}
Result<std::string_view> Text(const char* data, size_t size, std::string_view name);

// "" for NULL.
inline std::string TextOrNone(const char* text) { return text == nullptr ? "" : text; }

// kInvalid, naming the field, unless the number is one of 0 ... last.
Status CheckChoice(int64_t value, int64_t last, std::string_view name);

// Memory of the caller that kvant_free gives back; at least one byte, so that it is never NULL.
template <class T>
T* Copy(std::span<const T> values) {
  auto* memory = static_cast<T*>(std::malloc(std::max<size_t>(1, values.size_bytes())));
  if (memory == nullptr) throw std::bad_alloc();
  if (!values.empty()) std::memcpy(memory, values.data(), values.size_bytes());
  return memory;
}
// Terminated by a 0.
char* CopyText(std::string_view text);

Status CheckStruct(const void* given, size_t size, size_t known, std::string_view name);

// The struct of a caller, who may be older than the library, over the defaults, or who is newer and
// has left what the library does not know at 0. All for NULL: the defaults.
template <class T>
Result<T> ReadStruct(const T* given, T defaults, std::string_view name) {
  if (given == nullptr) return defaults;
  KVANT_TRY(CheckStruct(given, given->struct_size, sizeof(T), name));
  std::memcpy(static_cast<void*>(&defaults), given, std::min(given->struct_size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  return defaults;
}

// Fills in as much of a caller's struct as it says it has.
template <class T>
Status WriteStruct(T* out, T values, std::string_view name) {
  KVANT_TRY(Need(out, name));
  const size_t size = out->struct_size;
  if (size < sizeof(size_t)) {
    return MakeError(ErrorCode::kInvalid, "{}: expected its size in struct_size, found {}", name,
                     size);
  }
  std::memcpy(static_cast<void*>(out), &values, std::min(size, sizeof(T)));
  out->struct_size = size;
  return {};
}

// Writes a struct whose size the caller passes, with 0 where the library knows no field.
template <class T>
Status Fill(T* out, size_t size, const T& values) {
  KVANT_TRY(Need(out, "options"));
  if (size < sizeof(size_t)) {
    return MakeError(ErrorCode::kInvalid, "size: expected that of the struct, found {}", size);
  }
  std::memset(static_cast<void*>(out), 0, size);
  out->struct_size = size;
  return WriteStruct(out, values, "options");
}

// Does the work of the functions ..._default(struct, size).
template <class T>
kvant_status FillDefault(T* out, size_t size, const T& values) noexcept {
  return Call(nullptr, [&] { return Fill(out, size, values); });
}

}  // namespace kvant::capi
