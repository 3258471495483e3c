#include "tools/terminal/transfer_progress.h"

#include <fmt/format.h>

#include "base/result.h"
#include "tools/options/stopwatch.h"

namespace kvant::tools {

Status TransferProgress::Update(uint64_t bytes_done, uint64_t bytes_total, std::string_view what) {
  if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
  if (!status_.enabled()) return {};
  const double seconds = SecondsSince(start_);
  std::string rest;
  if (bytes_done > 0 && seconds > 1) {
    const double speed = static_cast<double>(bytes_done) / seconds;
    rest = fmt::format(", {:.0f} MB/s, {:.0f} s left", speed / 1e6,
                       static_cast<double>(bytes_total - bytes_done) / speed);
  }
  status_.Set(fmt::format("{} {} of {} MB{} ({})", verb_, bytes_done / 1'000'000,
                          bytes_total / 1'000'000, rest, what));
  return {};
}

}  // namespace kvant::tools
