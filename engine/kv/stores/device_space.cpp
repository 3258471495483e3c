#include "engine/kv/stores/device_space.h"

#include <algorithm>

#include "base/result.h"

namespace kvant::kv {
namespace {

// Thread blocks of a copy: enough of them to keep the device's memory busy with a single one.
constexpr int64_t kCopyParts = 32;
constexpr size_t kRangesMin = 64;

}  // namespace

void DeviceSpace::RunCopies() {
  if (copies_.empty()) return;
  Changed();
  Do([this](cuda::Device& device) { return LaunchCopies(device); });
  copies_.clear();
}

Status DeviceSpace::LaunchCopies(cuda::Device& device) {
  const size_t bytes = copies_.size() * sizeof(cuda::CopyRange);
  if (ranges_.bytes() < bytes) {
    // The old ranges may still be read by copies under way.
    KVANT_TRY(device.Wait(cuda::Stream::kWork));
    KVANT_ASSIGN(ranges_,
                 device.Allocate(cuda::MemoryKind::kDevice,
                                 std::max(2 * bytes, kRangesMin * sizeof(cuda::CopyRange))));
  }
  KVANT_TRY(device.Upload(cuda::Stream::kWork, ranges_.address(), copies_.data(), bytes));
  // The list is pageable memory, which the driver may read until here.
  KVANT_TRY(device.Wait(cuda::Stream::kWork));
  return device.Copy({ranges_.pointer<const cuda::CopyRange>()},
                     {static_cast<int64_t>(copies_.size()), kCopyParts, 1});
}

}  // namespace kvant::kv
