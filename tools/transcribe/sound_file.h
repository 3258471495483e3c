// A sound file as a stream of samples: what libsndfile reads (WAV, AIFF, FLAC, Ogg, Opus, MP3 and
// more), its channels mixed to one, resampled to the rate that models hear.
//
// Memory does not depend on the file's length. A pipe is copied to a temporary file first, because
// sound is read twice. Errors name the file. Thread-safety: one thread at a time per object.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/speech.h"
#include "tools/transcribe/sound_libraries.h"

namespace kvant::tools {

class SoundFile final : public SoundSource {
 public:
  // "-" is standard input. kIo where the file cannot be read; kNotSupported for a format that
  // libsndfile does not know, with the command that converts it; kCorrupt for impossible numbers;
  // kCancelled if the flag ends the copying of a pipe.
  static Result<std::unique_ptr<SoundFile>> Open(const std::string& path,
                                                 const std::atomic<bool>* cancel = nullptr);
  ~SoundFile() override;
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  Result<size_t> Read(std::span<float> samples) override;
  Status Rewind() override;

  const std::string& name() const { return name_; }  // for messages
  // Not empty once the file has turned out to be broken: what was read before is its sound.
  const std::string& broken() const { return broken_; }

 private:
  explicit SoundFile(std::string path);
  Status OpenFile(const std::atomic<bool>* cancel);
  Status Begin();
  void Close();
  Status Refill();
  Status Resample();
  Error Unreadable(std::string_view reason) const;

  std::string path_;
  std::string name_;
  const SndfileFunctions* sndfile_ = nullptr;
  const SoxrFunctions* soxr_ = nullptr;
  int fd_ = -1;
  SNDFILE* file_ = nullptr;
  soxr_t resampler_ = nullptr;  // null: the file has the rate already
  int channels_ = 1;
  double frames_ = 0;  // read so far, for messages
  int rate_ = 0;
  std::vector<float> frames_in_;  // as in the file, channels side by side
  std::vector<float> mono_;       // mixed
  std::vector<float> ready_;      // resampled
  size_t next_ = 0;               // of these, the first that nobody has taken
  bool ended_ = false;            // the file
  bool flushed_ = false;          // the resampler, too
  std::string broken_;
};

}  // namespace kvant::tools
