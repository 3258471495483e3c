#include "engine/quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <span>

#include "base/first_error.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "formats/check_tensors.h"
#include "formats/gguf_resplit.h"
#include "formats/gguf_split.h"
#include "formats/gguf_writer.h"
#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::quantize {
namespace {

namespace fs = std::filesystem;
using formats::GgufFile;
using formats::GgufTensor;
using formats::GgufWriter;
using formats::Quoted;

// Values that a thread takes at a time: enough to hide the cost of taking, and with source, floats
// and blocks still in the second-level cache.
constexpr int64_t kPieceValues = 64 * 1024;

// A tensor and where it goes.
struct Job {
  const TensorPlan* plan;
  size_t index;  // in the output file
};

// The rows of all tensors, handed out in pieces to whoever asks. No piece holds rows of two
// matrices.
class PieceQueue {
 public:
  explicit PieceQueue(std::span<const Job> jobs) : jobs_(jobs) {}

  struct Piece {
    const Job* job = nullptr;  // null when nothing is left
    int64_t row_begin = 0;
    int64_t row_end = 0;
  };
  Piece Take() {
    const std::lock_guard lock(mutex_);
    if (next_job_ == jobs_.size()) return {};
    const Job& job = jobs_[next_job_];
    const GgufTensor& tensor = *job.plan->source;
    const int64_t rows = std::max<int64_t>(1, kPieceValues / std::max<int64_t>(1, tensor.dims[0]));
    const int64_t matrix_end = (next_row_ / tensor.dims[1] + 1) * tensor.dims[1];
    const Piece piece{&job, next_row_, std::min(matrix_end, next_row_ + rows)};
    next_row_ = piece.row_end;
    if (next_row_ == tensor.rows()) {
      next_row_ = 0;
      ++next_job_;
    }
    return piece;
  }

 private:
  std::span<const Job> jobs_;
  std::mutex mutex_;
  size_t next_job_ = 0;
  int64_t next_row_ = 0;
};

formats::GgufValue FileValue(const PlannedEntry& entry) {
  using formats::GgufType;
  formats::GgufValue value{.type = entry.type, .value = {}};
  if (const auto* integer = std::get_if<int64_t>(&entry.change.value)) {
    const bool is_signed = entry.type == GgufType::kInt8 || entry.type == GgufType::kInt16 ||
                           entry.type == GgufType::kInt32 || entry.type == GgufType::kInt64;
    if (is_signed) {
      value.value = *integer;
    } else {
      value.value = static_cast<uint64_t>(*integer);
    }
  } else if (const auto* text = std::get_if<std::string>(&entry.change.value)) {
    value.value = std::string_view(*text);
  } else if (const auto* number = std::get_if<double>(&entry.change.value)) {
    value.value = *number;
  } else {
    value.value = std::get<bool>(entry.change.value);
  }
  return value;
}

void AddMetadata(const GgufFile& file, const QuantizePlan& plan, GgufWriter& writer) {
  for (const auto& [key, value] : file.metadata()) {
    if (!formats::IsSplitKey(key)) writer.AddValue(std::string(key), value);
  }
  for (const PlannedEntry& entry : plan.metadata) {
    writer.AddValue(entry.change.key, FileValue(entry));
  }
}

// A file without its tensors' data: all tensors of the model (shard -1) or the tensors of one
// shard.
Result<GgufWriter> DescribeOutput(const GgufFile& file, const QuantizePlan& plan, int shard) {
  GgufWriter writer(static_cast<uint32_t>(file.alignment()));
  if (shard <= 0) AddMetadata(file, plan, writer);
  if (shard >= 0) {
    formats::AddSplitKeys(writer, static_cast<uint16_t>(shard),
                          static_cast<uint16_t>(file.shards()), plan.tensors.size());
  }
  for (const TensorPlan& planned : plan.tensors) {
    const GgufTensor& tensor = *planned.source;
    if (shard >= 0 && tensor.shard != shard) continue;
    KVANT_TRY(writer.AddTensor(std::string(tensor.name), *planned.format,
                               std::span(tensor.dims, static_cast<size_t>(tensor.n_dims))));
  }
  return writer;
}

// The numbers of the shards that are written, or -1 for all in one file.
std::vector<int> OutputShards(const GgufFile& file, const WriteOptions& options) {
  if (!options.keep_split || file.shards() == 1) return {-1};
  std::vector<int> shards(static_cast<size_t>(file.shards()));
  std::iota(shards.begin(), shards.end(), 0);
  return shards;
}

std::string OutputPath(const GgufFile& file, const std::string& output, int shard) {
  if (shard < 0) return output;
  return formats::SplitPath(output, static_cast<uint32_t>(shard),
                            static_cast<uint32_t>(file.shards()));
}

// Makes pieces of tensors; one per thread.
class PieceEncoder {
 public:
  PieceEncoder(const GgufFile& file, const cpu::KernelTable& kernels, NonFinite non_finite)
      : file_(file), kernels_(kernels), non_finite_(non_finite) {}

  Status Run(const PieceQueue::Piece& piece, const GgufWriter& writer) {
    const TensorPlan& plan = *piece.job->plan;
    const GgufTensor& tensor = *plan.source;
    const int64_t columns = tensor.dims[0];
    const int64_t rows = piece.row_end - piece.row_begin;
    const std::span source(tensor.data + piece.row_begin * tensor.row_bytes(),
                           static_cast<size_t>(rows * tensor.row_bytes()));
    values_.resize(static_cast<size_t>(rows * columns));
    for (int64_t row = 0; row < rows; ++row) {
      kernels_.decode[Index(tensor)](source.data() + row * tensor.row_bytes(),
                                     values_.data() + row * columns, columns);
    }
    KVANT_TRY(CheckFinite(tensor, piece.row_begin));
    std::span<const std::byte> out = source;
    if (!plan.copied()) out = Encode(plan, piece.row_begin, rows);
    const auto row_bytes = static_cast<uint64_t>(plan.format->row_bytes(columns));
    KVANT_TRY(writer.WritePiece(piece.job->index,
                                static_cast<uint64_t>(piece.row_begin) * row_bytes, out));
    file_.mappings()[static_cast<size_t>(tensor.shard)].Release(source);
    return {};
  }

 private:
  static size_t Index(const GgufTensor& tensor) {
    return static_cast<size_t>(quant::FormatIndex(*tensor.format));
  }

  std::span<const std::byte> Encode(const TensorPlan& plan, int64_t row_begin, int64_t rows) {
    const int64_t columns = plan.source->dims[0];
    const int64_t row_bytes = plan.format->row_bytes(columns);
    blocks_.resize(static_cast<size_t>(rows * row_bytes));
    // Weights belong to the columns of a matrix; of several, as for experts, each has its own.
    const int64_t matrix = row_begin / plan.source->dims[1];
    const float* importance =
        plan.importance.empty() ? nullptr : plan.importance.data() + matrix * columns;
    kernels_.encode[static_cast<size_t>(quant::FormatIndex(*plan.format))](
        {.format = plan.format,
         .values = values_.data(),
         .importance = importance,
         .rows = rows,
         .cols = columns,
         .blocks = blocks_.data()});
    return blocks_;
  }

  Status CheckFinite(const GgufTensor& tensor, int64_t row_begin) const {
    if (non_finite_ == NonFinite::kAllowed) return {};
    const int64_t at = formats::FirstNonFinite(values_);
    if (at < 0) return {};
    return MakeError(ErrorCode::kInvalid,
                     "{}: tensor {} holds {} in row {}, column {}: the model is broken "
                     "(--allow-nonfinite quantizes it all the same)",
                     file_.path(), Quoted(tensor.name),
                     formats::NonFiniteName(values_[static_cast<size_t>(at)]),
                     row_begin + at / tensor.dims[0], at % tensor.dims[0]);
  }

  const GgufFile& file_;
  const cpu::KernelTable& kernels_;
  NonFinite non_finite_;
  std::vector<float> values_;
  std::vector<std::byte> blocks_;
};

class ModelWriter {
 public:
  ModelWriter(const GgufFile& file, const QuantizePlan& plan, const WriteOptions& options,
              const cpu::KernelTable& kernels)
      : file_(file), plan_(plan), options_(options), kernels_(kernels), pool_(options.threads) {
    for (const TensorPlan& planned : plan.tensors) bytes_total_ += planned.source->size_bytes;
  }

  // Writes one file, with the tensors of all shards of the source (shard -1) or of one.
  Status Write(const std::string& path, int shard) {
    KVANT_ASSIGN(GgufWriter writer, DescribeOutput(file_, plan_, shard));
    std::vector<Job> jobs;
    for (const TensorPlan& planned : plan_.tensors) {
      if (shard < 0 || planned.source->shard == shard) jobs.push_back({&planned, jobs.size()});
    }
    KVANT_TRY(writer.Begin(path));
    KVANT_TRY(writer.Reserve());
    KVANT_TRY(WriteTensors(jobs, writer));
    return writer.Finish();
  }

 private:
  Status WriteTensors(std::span<const Job> jobs, const GgufWriter& writer) {
    PieceQueue queue(jobs);
    FirstError error;
    pool_.Run([&](const ThreadPool::Member& member) {
      PieceEncoder encoder(file_, kernels_, options_.non_finite);
      while (error.none()) {
        const PieceQueue::Piece piece = queue.Take();
        if (piece.job == nullptr) break;
        const GgufTensor& tensor = *piece.job->plan->source;
        if (member.index == 0) error.Set(Report(tensor.name));
        error.Set(encoder.Run(piece, writer));
        bytes_done_ +=
            static_cast<uint64_t>((piece.row_end - piece.row_begin) * tensor.row_bytes());
      }
    });
    return error.Take();
  }

  Status Report(std::string_view tensor) const {
    if (!options_.on_progress) return {};
    return options_.on_progress({tensor, bytes_done_.load(), bytes_total_});
  }

  const GgufFile& file_;
  const QuantizePlan& plan_;
  const WriteOptions& options_;
  const cpu::KernelTable& kernels_;
  ThreadPool pool_;
  std::atomic<uint64_t> bytes_done_{0};
  uint64_t bytes_total_ = 0;
};

}  // namespace

Result<uint64_t> OutputBytes(const GgufFile& file, const QuantizePlan& plan,
                             const WriteOptions& options) {
  uint64_t bytes = 0;
  for (const int shard : OutputShards(file, options)) {
    KVANT_ASSIGN(GgufWriter writer, DescribeOutput(file, plan, shard));
    KVANT_ASSIGN(const uint64_t of_shard, writer.FileBytes());
    bytes += of_shard;
  }
  return bytes;
}

Status CheckOutput(const GgufFile& file, const std::string& output, const WriteOptions& options) {
  for (const int shard : OutputShards(file, options)) {
    const std::string path = OutputPath(file, output, shard);
    KVANT_TRY(formats::CheckOutputIsNoInput(file, path));
    if (shard >= 0) KVANT_TRY(formats::CheckIsNew(path));
    KVANT_ASSIGN(OutputFile unused, OutputFile::Create(path));
    KVANT_TRY(unused.Reserve(0));
  }
  return {};
}

Result<std::vector<std::string>> WriteQuantized(const GgufFile& file, const QuantizePlan& plan,
                                                const std::string& output,
                                                const WriteOptions& options) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  const std::vector<int> shards = OutputShards(file, options);
  std::vector<std::string> paths;
  for (const int shard : shards) {
    paths.push_back(OutputPath(file, output, shard));
    KVANT_TRY(formats::CheckOutputIsNoInput(file, paths.back()));
    if (shard >= 0) KVANT_TRY(formats::CheckIsNew(paths.back()));
  }
  ModelWriter writer(file, plan, options, *kernels);
  std::error_code error;
  for (size_t i = 0; i < paths.size(); ++i) {
    const Status status = writer.Write(paths[i], shards[i]);
    if (status.ok()) continue;
    for (size_t done = 0; done < i; ++done) fs::remove(paths[done], error);
    return status.error();
  }
  return paths;
}

}  // namespace kvant::quantize
