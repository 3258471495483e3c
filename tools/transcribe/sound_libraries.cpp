#include "tools/transcribe/sound_libraries.h"

#include <dlfcn.h>

namespace kvant::tools {
namespace {

class SoundLibrary {
 public:
  SoundLibrary(const char* file, const char* package)
      : file_(file), package_(package), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}

  template <class Function>
  SoundLibrary& Find(const char* name, Function* function) {
    void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    *function = reinterpret_cast<Function>(found);
    complete_ = complete_ && found != nullptr;
    return *this;
  }

  Status Check() const {
    if (complete_) return {};
    return MakeError(ErrorCode::kNotSupported,
                     "sound files are read by libsndfile and libsoxr, and {} is {}; on Debian, "
                     "'apt install {}' installs it",
                     file_, handle_ == nullptr ? "not there" : "too old", package_);
  }

 private:
  const char* file_;
  const char* package_;
  void* handle_;  // never closed
  bool complete_ = true;
};

}  // namespace

Result<const SndfileFunctions*> OpenSndfile() {
  static SndfileFunctions functions;
  static const Status status = SoundLibrary("libsndfile.so.1", "libsndfile1")
                                   .Find("sf_open_fd", &functions.open_fd)
                                   .Find("sf_readf_float", &functions.read)
                                   .Find("sf_error", &functions.error)
                                   .Find("sf_strerror", &functions.error_text)
                                   .Find("sf_close", &functions.close)
                                   .Check();
  if (!status.ok()) return status.error();
  return &functions;
}

Result<const SoxrFunctions*> OpenSoxr() {
  static SoxrFunctions functions;
  static const Status status = SoundLibrary("libsoxr.so.0", "libsoxr0")
                                   .Find("soxr_create", &functions.create)
                                   .Find("soxr_process", &functions.process)
                                   .Find("soxr_delete", &functions.destroy)
                                   .Find("soxr_quality_spec", &functions.quality)
                                   .Check();
  if (!status.ok()) return status.error();
  return &functions;
}

}  // namespace kvant::tools
