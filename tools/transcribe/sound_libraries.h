// libsndfile, which reads sound files, and libsoxr, which resamples sound. The program opens both
// when the first sound file is read: nothing else needs them, and packages for any system cannot
// count on them.
//
// Thread-safety: each is opened once; the functions are those of the libraries.
#pragma once

#include <sndfile.h>
#include <soxr.h>

#include "base/result.h"

namespace kvant::tools {

struct SndfileFunctions {
  decltype(&sf_open_fd) open_fd = nullptr;
  decltype(&sf_readf_float) read = nullptr;
  decltype(&sf_error) error = nullptr;
  decltype(&sf_strerror) error_text = nullptr;
  decltype(&sf_close) close = nullptr;
};

struct SoxrFunctions {
  decltype(&soxr_create) create = nullptr;
  decltype(&soxr_process) process = nullptr;
  decltype(&soxr_delete) destroy = nullptr;
  decltype(&soxr_quality_spec) quality = nullptr;
};

// kNotSupported where the library is absent or lacks a function, with what installs it.
Result<const SndfileFunctions*> OpenSndfile();
Result<const SoxrFunctions*> OpenSoxr();

}  // namespace kvant::tools
