// kvant transcribe: sound files in, texts with times out.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/text/speech_languages.h"
#include "tools/commands.h"
#include "tools/options/model_names.h"
#include "tools/terminal/console.h"
#include "tools/transcribe/sound_file.h"
#include "tools/transcribe/transcribe_options.h"
#include "tools/transcribe/transcript_output.h"

namespace kvant::tools {
namespace {

constexpr HelpText kTranscribeHelp = {
    "MODEL FILE... [OPTIONS]",
    "Writes down what is said in sound files, with a Whisper model and by the rules of\n"
    "openai-whisper. Sound may have any rate, any number of channels and any length; - is "
    "standard\n"
    "input. Segments are shown as they come. With -o a file appears when it is complete.\n"
    "\n"
    "libsndfile and libsoxr read the files (WAV, FLAC, Ogg, Opus, MP3 and more). A file that "
    "cannot\n"
    "be read does not keep the others from being read. Ctrl+C ends the work and keeps the "
    "segments\n"
    "that are done.",
    "  kvant transcribe whisper.gguf talk.mp3\n"
    "  kvant transcribe whisper.gguf talk.mp3 -o talk.srt\n"
    "  kvant transcribe whisper.gguf *.flac --format vtt -o subtitles/\n"
    "  kvant transcribe whisper.gguf talk.wav --language german --translate\n"
    "  ffmpeg -i film.mkv -ar 16000 -ac 1 -f wav - | kvant transcribe whisper.gguf - --format "
    "json\n",
};

// A sound file and where its transcript goes.
struct TranscriptJob {
  std::string sound;
  std::optional<std::string> output;  // nothing: standard output
  TranscriptFormat format = TranscriptFormat::kTxt;
};

bool IsFolder(const std::string& path) {
  std::error_code error;
  return path.ends_with('/') || std::filesystem::is_directory(path, error);
}

// The model's name, and the files.
struct TranscribeWords {
  std::string model;
  std::vector<std::string> sounds;
};

std::optional<int> TakeWords(const CommandLine& line, const ModelGroup& model,
                             TranscribeWords* out) {
  out->sounds = line.positionals();
  if (model.option_path.has_value()) {
    out->model = *model.option_path;
  } else if (!out->sounds.empty()) {
    out->model = out->sounds.front();
    out->sounds.erase(out->sounds.begin());
  }
  if (out->model.empty()) {
    return line.UsageError(
        "no model given: name a GGUF file, as in 'kvant transcribe whisper.gguf talk.mp3'");
  }
  if (out->sounds.empty()) {
    return line.UsageError(fmt::format(
        "no sound file given: name one behind the model, as in 'kvant transcribe {} talk.mp3'",
        Visible(out->model)));
  }
  if (std::ranges::count(out->sounds, "-") > 1) {
    return line.UsageError("standard input (-) is given twice");
  }
  auto path = FindModel(out->model);
  if (!path.ok()) return Fail(path.error());
  out->model = std::move(*path);
  return std::nullopt;
}

// "talk.srt" in the folder for "sounds/talk.mp3".
std::string PathInFolder(const std::string& folder, const std::string& sound,
                         TranscriptFormat format) {
  const std::string stem = sound == "-" ? "stdin" : std::filesystem::path(sound).stem().string();
  return (std::filesystem::path(folder) / (stem + '.' + std::string(TranscriptFormatName(format))))
      .string();
}

Result<std::vector<TranscriptJob>> MakeJobs(const TranscribeCommandOptions& options,
                                            const std::vector<std::string>& sounds) {
  TranscriptFormat format = options.format.value_or(TranscriptFormat::kTxt);
  const bool in_folder = options.output.has_value() && IsFolder(*options.output);
  if (!in_folder && sounds.size() > 1) {
    const bool streams = format == TranscriptFormat::kTxt || format == TranscriptFormat::kJson;
    if (options.output.has_value() || !streams) {
      return MakeError(ErrorCode::kInvalid,
                       "expected -o with a folder, such as -o texts/, for {} sound files, found {}",
                       sounds.size(),
                       options.output.has_value() ? Visible(*options.output) : "none");
    }
  }
  std::vector<TranscriptJob> jobs;
  if (in_folder) {
    std::error_code error;
    std::filesystem::create_directories(*options.output, error);
    if (error) {
      return MakeError(ErrorCode::kIo, "{}: cannot make the folder: {}", Visible(*options.output),
                       error.message());
    }
  } else if (options.output.has_value() && !options.format.has_value()) {
    const std::string ending = std::filesystem::path(*options.output).extension().string();
    const auto named = TranscriptFormatNamed(ending.empty() ? "" : ending.substr(1));
    format = named.value_or(TranscriptFormat::kTxt);
  }
  for (const std::string& sound : sounds) {
    TranscriptJob job{sound, options.output, format};
    if (in_folder) job.output = PathInFolder(*options.output, sound, format);
    for (const TranscriptJob& other : jobs) {
      if (!in_folder || other.output != job.output) continue;
      return MakeError(ErrorCode::kInvalid, "{} and {} would both become {}", Visible(other.sound),
                       Visible(sound), Visible(*job.output));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// The line of progress of a file.
class TranscribeProgress {
 public:
  TranscribeProgress(std::string name, StatusUse use) : name_(std::move(name)), status_(use) {
    status_.Set(name_);
  }

  void Show(double done, double duration) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    const double speed = spent.count() > 0 ? done / spent.count() : 0;
    status_.Set(fmt::format("{}: {} of {}, {:.1f} times as fast as speech", name_, Minutes(done),
                            Minutes(duration), speed));
  }
  void Clear() { status_.Clear(); }

 private:
  static std::string Minutes(double seconds) {
    const std::string clock = ClockText(seconds);
    return clock.substr(0, clock.rfind('.'));
  }

  std::string name_;
  StatusLine status_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class TranscribeRun {
 public:
  TranscribeRun(const TranscribeCommandOptions& options, Transcriber& transcriber,
                ResultStream& stream)
      : options_(options), transcriber_(transcriber), stream_(stream) {}

  // Reads one file. kCancelled after Ctrl+C, with its segments written, and once nobody reads.
  Status Do(const TranscriptJob& job);

 private:
  Status Finish(TranscriptOutput& output, Result<Transcript> transcript);

  const TranscribeCommandOptions& options_;
  Transcriber& transcriber_;
  ResultStream& stream_;
  Transcript done_;  // of the file, so far
};

// After a signal what is there becomes a transcript, if there is anything.
Status TranscribeRun::Finish(TranscriptOutput& output, Result<Transcript> transcript) {
  if (transcript.ok()) return output.Finish(*transcript);
  if (transcript.error().code != ErrorCode::kCancelled || done_.segments.empty()) {
    return transcript.error();
  }
  for (const SpeechSegment& segment : done_.segments) done_.text += segment.text;
  if (!stream_.failed()) KVANT_TRY(output.Finish(done_));
  return transcript.error();
}

Status TranscribeRun::Do(const TranscriptJob& job) {
  KVANT_ASSIGN(const auto sound, SoundFile::Open(job.sound, &CancelFlag()));
  KVANT_ASSIGN(TranscriptOutput output, TranscriptOutput::Create(job.format, job.output, stream_));
  const bool shows = !options_.quiet && (job.output.has_value() || !StdoutIsTerminal());
  TranscribeProgress progress(Visible(sound->name()),
                              shows ? StatusUse::kShown : StatusUse::kHidden);
  done_ = {};
  done_.language = SpeechLanguageCode(options_.language.value_or("en"));
  TranscribeEvents events;
  events.on_language = [&](std::string_view language) {
    done_.language = language;
    if (options_.quiet) return;
    progress.Clear();
    Note(fmt::format("{}: the language is {}", Visible(sound->name()),
                     SpeechLanguageName(language)));
  };
  events.on_segment = [&](const SpeechSegment& segment) {
    done_.segments.push_back(segment);
    progress.Clear();
    return output.Add(segment);
  };
  events.on_progress = [&](double done, double duration) { progress.Show(done, duration); };
  auto transcript = transcriber_.Transcribe(*sound, events);
  progress.Clear();
  if (!sound->broken().empty()) Note(Visible(sound->broken()));
  return Finish(output, std::move(transcript));
}

Result<std::unique_ptr<Transcriber>> OpenTranscriber(const TranscribeCommandOptions& options,
                                                     const std::string& path) {
  StatusLine status(options.quiet ? StatusUse::kHidden : StatusUse::kShown);
  status.Set(fmt::format("loading {}", path));
  KVANT_ASSIGN(auto model, Model::Open(path, options.model.Options()));
  KVANT_ASSIGN(const SessionOptions session, options.session.Options());
  return Transcriber::Create(std::move(model), options.transcribe, session);
}

int RunJobs(const TranscribeCommandOptions& options, const std::vector<TranscriptJob>& jobs,
            Transcriber& transcriber) {
  ResultStream stream;
  TranscribeRun run(options, transcriber, stream);
  int code = kExitDone;
  for (const TranscriptJob& job : jobs) {
    const Status status = run.Do(job);
    if (stream.failed()) break;
    if (status.Is(ErrorCode::kCancelled)) return SignalExitCode();
    if (!status.ok()) {
      (void)Fail(status.error());
      code = kExitFailed;
    }
  }
  return stream.Finish(code);
}

}  // namespace

int TranscribeCommand(CommandLine& line) {
  TranscribeCommandOptions options;
  OptionList list;
  options.Add(list);
  if (const auto code = line.Parse(list, kTranscribeHelp)) return *code;
  if (const Status status = options.Finish(list); !status.ok()) {
    return line.UsageError(status.error().message);
  }
  TranscribeWords words;
  if (const auto code = TakeWords(line, options.model, &words)) return *code;
  const auto jobs = MakeJobs(options, words.sounds);
  if (!jobs.ok()) return Fail(jobs.error());
  const auto transcriber = OpenTranscriber(options, words.model);
  if (!transcriber.ok()) return Fail(transcriber.error());
  return RunJobs(options, *jobs, **transcriber);
}

}  // namespace kvant::tools
