#include "engine/capi/border.h"

#include <array>

namespace kvant::capi {
namespace {

// Errors of the calling thread by handle, the latest one at `newest`.
struct Errors {
  static constexpr size_t kCount = 16;
  struct Entry {
    const void* handle = nullptr;
    std::string text;
  };
  std::array<Entry, kCount> entries;
  size_t newest = 0;
};

Errors& ErrorsOfThread() {
  thread_local Errors errors;
  return errors;
}

}  // namespace

kvant_status StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid: return KVANT_INVALID;
    case ErrorCode::kNotSupported: return KVANT_NOT_SUPPORTED;
    case ErrorCode::kOutOfMemory: return KVANT_OUT_OF_MEMORY;
    case ErrorCode::kContextFull: return KVANT_CONTEXT_FULL;
    case ErrorCode::kIo: return KVANT_IO;
    case ErrorCode::kCorrupt: return KVANT_CORRUPT;
    case ErrorCode::kCancelled: return KVANT_CANCELLED;
    case ErrorCode::kBusy: return KVANT_BUSY;
    case ErrorCode::kDeadline: return KVANT_DEADLINE;
  }
  return KVANT_INTERNAL;
}

kvant_status Remember(const void* handle, const Error& error) noexcept {
  try {
    Errors& errors = ErrorsOfThread();
    // One entry for a handle: its older error is overwritten by moving on from there.
    for (Errors::Entry& entry : errors.entries) {
      if (entry.handle == handle) entry = {};
    }
    errors.newest = (errors.newest + 1) % Errors::kCount;
    errors.entries[errors.newest] = {handle, error.message};
  } catch (const std::exception&) {
    // Without memory for the error's text, the code alone is kept.
  }
  return StatusOf(error.code);
}

void Forget(const void* handle) noexcept {
  if (handle == nullptr) return;
  for (Errors::Entry& entry : ErrorsOfThread().entries) {
    if (entry.handle == handle) entry.handle = nullptr;
  }
}

const char* LastError(const void* handle) noexcept {
  const Errors& errors = ErrorsOfThread();
  if (handle == nullptr) return errors.entries[errors.newest].text.c_str();
  for (const Errors::Entry& entry : errors.entries) {
    if (entry.handle == handle) return entry.text.c_str();
  }
  return "";
}

Status Need(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected a pointer, found NULL", name);
}

Result<std::string_view> Text(const char* data, size_t size, std::string_view name) {
  if (size > 0) KVANT_TRY(Need(data, name));
  return data == nullptr ? std::string_view() : std::string_view(data, size);
}

Status CheckChoice(int64_t value, int64_t last, std::string_view name) {
  if (value >= 0 && value <= last) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected 0 to {}, found {}", name, last, value);
}

char* CopyText(std::string_view text) {
  auto* memory = static_cast<char*>(std::malloc(text.size() + 1));
  if (memory == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(memory, text.data(), text.size());
  memory[text.size()] = '\0';
  return memory;
}

Status CheckStruct(const void* given, size_t size, size_t known, std::string_view name) {
  constexpr size_t kSizeMax = 4096;  // no struct of any version is as large
  if (size < sizeof(size_t) || size > kSizeMax) {
    return MakeError(ErrorCode::kInvalid, "{}: expected its size in struct_size, found {}", name,
                     size);
  }
  if (size <= known) return {};
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (std::all_of(bytes + known, bytes + size, [](unsigned char byte) { return byte == 0; })) {
    return {};
  }
  return MakeError(
      ErrorCode::kNotSupported,
      "{}: it has {} bytes, and what lies beyond the {} that this library knows is set", name, size,
      known);
}

}  // namespace kvant::capi

// ---- The calls ----------------------------------------------------------------------------------

using namespace kvant;

const char* kvant_last_error(const void* handle) { return capi::LastError(handle); }

void kvant_free(void* memory) { std::free(memory); }

const char* kvant_status_name(kvant_status status) {
  if (status == KVANT_OK) return "OK";
  if (status == KVANT_INTERNAL) return "INTERNAL";
  for (const ErrorCode code :
       {ErrorCode::kInvalid, ErrorCode::kNotSupported, ErrorCode::kOutOfMemory,
        ErrorCode::kContextFull, ErrorCode::kIo, ErrorCode::kCorrupt, ErrorCode::kCancelled,
        ErrorCode::kBusy, ErrorCode::kDeadline}) {
    if (capi::StatusOf(code) == status) return ErrorCodeName(code);
  }
  return "UNKNOWN";
}
