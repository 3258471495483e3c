#include "tools/transcribe/sound_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kvant::tools {
namespace {

constexpr size_t kFramesAtOnce = 1 << 14;
constexpr int kRateMin = 1000;
constexpr int kRateMax = 1'000'000;
constexpr int kChannelsMax = 1024;  // libsndfile's own limit

// A shell reads the word as it is.
std::string ShellWord(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Error ErrnoError(const std::string& name, std::string_view what) {
  return MakeError(ErrorCode::kIo, "{}: cannot {}: {}", name, what, std::strerror(errno));
}

// A file without a name, which goes when it is closed.
int OpenTemporary() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder == nullptr || *folder == '\0' ? "/tmp" : folder);
  path += "/kvant-sound-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

Status WriteAll(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t count = write(fd, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError("temporary file of sound", "write");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return {};
}

Status Copy(int from, int to, const std::string& name, const std::atomic<bool>* cancel) {
  std::string buffer(size_t{1} << 18, '\0');
  while (true) {
    const ssize_t count = read(from, buffer.data(), buffer.size());
    if (cancel != nullptr && cancel->load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(name, "read");
    if (count == 0) return {};
    KVANT_TRY(WriteAll(to, buffer.data(), static_cast<size_t>(count)));
  }
}

// A descriptor that can be read twice, in place of `fd`, which is closed.
Result<int> Seekable(int fd, const std::string& name, const std::atomic<bool>* cancel) {
  struct stat about {};
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) return fd;
  const int copy = OpenTemporary();
  if (copy < 0) {
    const Error error = ErrnoError("temporary file of sound", "make");
    close(fd);
    return error;
  }
  const Status copied = Copy(fd, copy, name, cancel);
  close(fd);
  if (copied.ok()) return copy;
  close(copy);
  return copied.error();
}

// A number that is none counts as silence, and nothing is louder than full scale.
float Sane(float sample) {
  if (std::isnan(sample)) return 0;
  return std::clamp(sample, -1.0f, 1.0f);
}

}  // namespace

SoundFile::SoundFile(std::string path)
    : path_(std::move(path)), name_(path_ == "-" ? "standard input" : path_) {}

SoundFile::~SoundFile() {
  Close();
  if (fd_ >= 0) close(fd_);
}

void SoundFile::Close() {
  if (file_ != nullptr) sndfile_->close(file_);
  if (resampler_ != nullptr) soxr_->destroy(resampler_);
  file_ = nullptr;
  resampler_ = nullptr;
}

Result<std::unique_ptr<SoundFile>> SoundFile::Open(const std::string& path,
                                                   const std::atomic<bool>* cancel) {
  std::unique_ptr<SoundFile> file(new SoundFile(path));
  KVANT_ASSIGN(file->sndfile_, OpenSndfile());
  KVANT_ASSIGN(file->soxr_, OpenSoxr());
  KVANT_TRY(file->OpenFile(cancel));
  KVANT_TRY(file->Begin());
  return file;
}

Status SoundFile::OpenFile(const std::atomic<bool>* cancel) {
  const int fd = path_ == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                              : open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(name_, "open");
  struct stat about {};
  if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
    close(fd);
    return MakeError(ErrorCode::kIo, "{}: expected a sound file, found a folder", name_);
  }
  KVANT_ASSIGN(fd_, Seekable(fd, name_, cancel));
  return {};
}

Error SoundFile::Unreadable(std::string_view reason) const {
  const bool is_pipe = path_ == "-";
  const std::string command =
      is_pipe ? std::string("ffmpeg -i FILE -ar 16000 -ac 1 -f wav - | kvant transcribe MODEL -")
              : fmt::format("ffmpeg -i {0} -ar 16000 -ac 1 {0}.wav", ShellWord(path_));
  return MakeError(ErrorCode::kNotSupported,
                   "{}: libsndfile cannot read it ({}); if it is sound, this converts it: {}",
                   name_, reason, command);
}

// From the first sample on.
Status SoundFile::Begin() {
  Close();
  if (lseek(fd_, 0, SEEK_SET) != 0) return ErrnoError(name_, "read twice");
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return ErrnoError(name_, "open");
  SF_INFO about{};
  file_ = sndfile_->open_fd(fd, SFM_READ, &about, SF_TRUE);
  if (file_ == nullptr) return Unreadable(sndfile_->error_text(nullptr));
  channels_ = about.channels;
  rate_ = about.samplerate;
  if (channels_ < 1 || channels_ > kChannelsMax || rate_ < kRateMin || rate_ > kRateMax) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: expected 1 to {} channels of {} to {} samples a second, found {} of {}",
                     name_, kChannelsMax, kRateMin, kRateMax, channels_, rate_);
  }
  if (rate_ != kSoundRate) {
    const soxr_quality_spec_t quality = soxr_->quality(SOXR_HQ, SOXR_ROLLOFF_NONE);
    soxr_error_t error = nullptr;
    resampler_ = soxr_->create(rate_, static_cast<double>(kSoundRate), 1, &error, nullptr, &quality,
                               nullptr);
    if (resampler_ == nullptr) {
      return MakeError(ErrorCode::kNotSupported, "{}: libsoxr cannot resample {} Hz: {}", name_,
                       rate_, error == nullptr ? "unknown" : error);
    }
  }
  frames_ = 0;
  ready_.clear();
  next_ = 0;
  ended_ = flushed_ = false;
  return {};
}

Status SoundFile::Rewind() { return Begin(); }

// Reads and mixes some frames.
Status SoundFile::Refill() {
  const auto channels = static_cast<size_t>(channels_);
  frames_in_.resize(kFramesAtOnce * channels);
  const sf_count_t read = sndfile_->read(file_, frames_in_.data(), kFramesAtOnce);
  const auto count = static_cast<size_t>(std::max<sf_count_t>(read, 0));
  ended_ = count < kFramesAtOnce;
  frames_ += static_cast<double>(count);
  if (ended_ && sndfile_->error(file_) != SF_ERR_NO_ERROR && broken_.empty()) {
    broken_ = fmt::format("{}: broken behind second {:.1f} ({}); what comes before is read", name_,
                          frames_ / rate_, sndfile_->error_text(file_));
  }
  mono_.resize(count);
  for (size_t frame = 0; frame < count; ++frame) {
    float sum = 0;
    for (size_t i = 0; i < channels; ++i) sum += Sane(frames_in_[frame * channels + i]);
    mono_[frame] = sum / static_cast<float>(channels_);
  }
  return Resample();
}

Status SoundFile::Resample() {
  ready_.clear();
  next_ = 0;
  if (resampler_ == nullptr) {
    std::swap(ready_, mono_);
    flushed_ = ended_;
    return {};
  }
  const double ratio = static_cast<double>(kSoundRate) / rate_;
  const size_t room = static_cast<size_t>(kFramesAtOnce * ratio) + 1024;
  size_t taken = 0;
  while (true) {
    const bool flush = taken == mono_.size();
    if (flush && !ended_) return {};
    const size_t before = ready_.size();
    ready_.resize(before + room);
    size_t in = 0;
    size_t out = 0;
    const soxr_error_t error =
        soxr_->process(resampler_, flush ? nullptr : mono_.data() + taken, mono_.size() - taken,
                       &in, ready_.data() + before, room, &out);
    ready_.resize(before + out);
    taken += in;
    if (error != nullptr) {
      return MakeError(ErrorCode::kCorrupt, "{}: libsoxr cannot resample: {}", name_, error);
    }
    if (flush && out < room) break;
  }
  flushed_ = true;
  return {};
}

Result<size_t> SoundFile::Read(std::span<float> samples) {
  size_t done = 0;
  while (done < samples.size()) {
    if (next_ == ready_.size()) {
      if (flushed_) break;
      KVANT_TRY(Refill());
      continue;
    }
    const size_t count = std::min(samples.size() - done, ready_.size() - next_);
    std::copy_n(ready_.begin() + static_cast<ptrdiff_t>(next_), count,
                samples.begin() + static_cast<ptrdiff_t>(done));
    next_ += count;
    done += count;
  }
  return done;
}

}  // namespace kvant::tools
