#include "engine/run/session_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/limits.h"

namespace kvant {
namespace {

template <class... Formats>
constexpr std::array<std::string_view, sizeof...(Formats)> NamesOf(
    cpu::KvFormatTypes<Formats...> /*list*/) {
  return {Formats::kName...};
}

// The names of choices, in the order of their numbers.
template <class Choice>
constexpr std::array<std::string_view, 0> kChoices = {};
template <>
constexpr auto kChoices<KvType> = NamesOf(cpu::KvFormatList());
template <>
constexpr auto kChoices<std::optional<KvType>> = kChoices<KvType>;
template <>
constexpr std::array<std::string_view, 2> kChoices<Offload> = {"none", "attention"};
template <>
constexpr std::array<std::string_view, 3> kChoices<KvDevice> = {"auto", "cuda", "cpu"};
template <>
constexpr std::array<std::string_view, 3> kChoices<Pin> = {"none", "cores", "list"};
template <>
constexpr std::array<std::string_view, 3> kChoices<Numa> = {"none", "distribute", "isolate"};

template <class Value>
constexpr SessionSetting::Kind KindOf() {
  using Kind = SessionSetting::Kind;
  if constexpr (std::is_same_v<Value, bool>) return Kind::kFlag;
  if constexpr (std::is_same_v<Value, uint64_t>) return Kind::kBytes;
  return std::is_integral_v<Value> ? Kind::kNumber : Kind::kChoice;
}

template <auto kInC, auto... kPath>
constexpr SessionSetting::Field FieldOf() {
  using Value = std::remove_cvref_t<decltype(FieldAt(std::declval<SessionOptions&>(), kPath...))>;
  return {.kind = KindOf<Value>(),
          .ours = kWholeField<SessionOptions, kPath...>,
          .in_c = kWholeField<kvant_runner_options, kInC>,
          .choices = kChoices<Value>,
          .may_lack = kIsOptional<Value>};
}

template <auto kType>
Status TakeKvType(std::string_view text, SessionOptions& options) {
  KVANT_ASSIGN(options.*kType, ParseKvType(text));
  return {};
}

using In = kvant_runner_options;
using Of = SessionOptions;

// The option that has this name in both structs.
#define KVANT_SETTING(option) .name = #option, .field = FieldOf<&In::option, &Of::option>()

constexpr SessionSetting kSettings[] = {
    {KVANT_SETTING(threads), .min = 0, .max = kThreadsMax,
     .range = "1 to {1}",  // 0 is the default
     .topic = SessionTopic::kThreads, .flags = "-t,--threads", .help = "Threads", .typed_min = 1},
    {.name = "pin",
     .field = FieldOf<&In::pin, &Of::placement, &ThreadPlacement::pin>(),
     .topic = SessionTopic::kPlacement,
     .flags = "--pin",
     .type = "CPUS",
     .help = "Keep each thread on a CPU of its own: cores (one thread on every core first), or a "
             "list, 0-31,64, or a mask, 0xff; none leaves the choice to the system",
     .fallback = "none",
     .parse = [](auto text, Of& options) { return ParsePin(text, &options.placement); }},
    {.name = "numa",
     .field = FieldOf<&In::numa, &Of::placement, &ThreadPlacement::numa>(),
     .topic = SessionTopic::kPlacement,
     .flags = "--numa",
     .type = "HOW",
     .help = "For machines with several memory nodes. distribute: spread threads and weights over "
             "all nodes, each thread's weights on its own node; isolate: keep all on one node",
     .fallback = "none",
     .parse = [](auto text, Of& options) { return ParseNuma(text, &options.placement); }},
    {KVANT_SETTING(context), .min = 0, .max = kContextMax,
     .range = "1 to {1} positions",  // 0 is the default
     .topic = SessionTopic::kContext, .flags = "-c,--ctx-size",
     .help = "Positions that the sequence may hold; 0 means the default"},
    {KVANT_SETTING(k_type), .topic = SessionTopic::kTypes, .flags = "--cache-type-k,--kv-type-k",
     .type = "TYPE", .help = "Type of the keys alone", .parse = TakeKvType<&Of::k_type>},
    {KVANT_SETTING(v_type), .topic = SessionTopic::kTypes, .flags = "--cache-type-v,--kv-type-v",
     .type = "TYPE", .help = "Type of the values alone", .parse = TakeKvType<&Of::v_type>},
    {KVANT_SETTING(source_k_type)},
    {KVANT_SETTING(source_v_type)},
    {KVANT_SETTING(kv_rotation), .topic = SessionTopic::kRotation, .flags = "--no-kv-rotation",
     .is_of_cache = true},
    {KVANT_SETTING(state_type), .min = static_cast<int64_t>(KvType::kF32),
     .max = static_cast<int64_t>(KvType::kF16), .range = "f32 or f16",
     .topic = SessionTopic::kStates, .flags = "--state-type", .type = "TYPE",
     .help = "For models with recurrent layers: type of the states of their scans, f32 or f16, "
             "which takes half the memory",
     .fallback = "f32", .is_of_cache = true},
    {KVANT_SETTING(state_checkpoints), .min = 0, .max = kStateCheckpointsMax, .range = "{0} to {1}",
     .topic = SessionTopic::kStates, .flags = "--state-checkpoints",
     .help = "For models with recurrent layers: most earlier states to keep of a sequence, so that "
             "a rewind need not begin at the first token",
     .is_of_cache = true},
    {KVANT_SETTING(state_log), .min = 0, .max = kStateLogMax, .range = "{0} to {1} tokens",
     .topic = SessionTopic::kStates, .flags = "--state-log",
     .help = "For models with recurrent layers: keep the state updates of the last N tokens, so "
             "that a rewind over these tokens computes no token again",
     .is_of_cache = true},
    {KVANT_SETTING(offload), .min = static_cast<int64_t>(Offload::kNone),
     .max = static_cast<int64_t>(Offload::kAttention), .range = "none or attention",
     .topic = SessionTopic::kOffload, .flags = "--offload", .type = "WHAT",
     .help = "attention: a CUDA device keeps keys and values and computes attention, the CPU does "
             "the rest; none: the CPU does everything",
     .fallback = "none"},
    {KVANT_SETTING(kv_device), .min = static_cast<int64_t>(KvDevice::kAuto),
     .max = static_cast<int64_t>(KvDevice::kCpu), .range = "cpu, cuda or auto",
     .topic = SessionTopic::kOffload, .flags = "--kv-device", .type = "DEVICE",
     .help = "Memory for keys and values of offloaded layers. cuda: the device's; auto: the "
             "device's, where layers that do not fit stay with the CPU; cpu: the host's, which the "
             "device reads over the bus",
     .fallback = "auto"},
    {KVANT_SETTING(chunk), .min = 1, .range = "at least {0} token", .topic = SessionTopic::kPasses,
     .flags = "--chunk,--ubatch-size",
     .help = "Most tokens of a prompt that are computed together"},
    {KVANT_SETTING(strict), .topic = SessionTopic::kPasses, .flags = "--strict",
     .help = "Compute prompts in the arithmetic of single tokens, which is slower: the results "
             "then have the same bits as if the tokens came one by one"},
    {KVANT_SETTING(kv_cache), .topic = SessionTopic::kPasses, .flags = "--no-kv-cache",
     .help = "Compute the whole sequence anew for every token: slow, for checking the cache. "
             "Attention is then a loop of its own in double precision, so logits differ from those "
             "with the cache, even with --strict and --kv-type f32: by less than 0.0001 for "
             "weights of f16, bf16 or f32, and by up to 0.2 for quantized weights, whose inputs "
             "are rounded to int8. A sampled text may change where two tokens are nearly equally "
             "likely",
     .is_for_debugging = true},
    {KVANT_SETTING(kv_bytes_max), .topic = SessionTopic::kMemory, .flags = "--kv-budget",
     .type = "SIZE",
     .help = "Most memory for the KV cache: 500M, 2GiB ...; if it is too little, the message says "
             "what would fit",
     .fallback = "no limit", .is_of_cache = true},
    {KVANT_SETTING(kv_commit), .topic = SessionTopic::kMemory, .flags = "--kv-prealloc",
     .help = "Take all of the KV cache's memory at the start", .is_of_cache = true},
    {KVANT_SETTING(kv_check), .topic = SessionTopic::kMemory, .flags = "--kv-check",
     .help = "Test the KV cache's invariants after every operation", .is_of_cache = true,
     .is_for_debugging = true},
    {KVANT_SETTING(kv_poison), .topic = SessionTopic::kMemory, .flags = "--kv-poison",
     .help = "Fill freed blocks of the KV cache with NaN", .is_of_cache = true,
     .is_for_debugging = true},
    {KVANT_SETTING(sequences), .min = 1, .max = kSequencesMax, .range = "{0} to {1}"},
    {KVANT_SETTING(prefix_cache), .topic = SessionTopic::kPrefixes, .flags = "--prefix-cache",
     .help = "Reuse the KV cache of earlier sequences that begin with the same tokens",
     .is_of_cache = true},
    {KVANT_SETTING(prefix_bytes_max), .topic = SessionTopic::kPrefixes, .flags = "--prefix-budget",
     .type = "SIZE",
     .help = "Most memory that --prefix-cache may refer to: 500M, 2GiB ...; the least recently "
             "used prefixes are given up",
     .fallback = "no limit", .is_of_cache = true},
};
#undef KVANT_SETTING

// `cancel` and `offload_layers` have no row, and `placement` has two. In C the size and the list of
// CPUs have none.
static_assert(std::size(kSettings) == CountFields<SessionOptions>() - 3 + 2,
              "a field of SessionOptions has no row");
static_assert(std::size(kSettings) == CountFields<kvant_runner_options>() - 3,
              "a field of kvant_runner_options has no row");

}  // namespace

std::span<const SessionSetting> AllSessionSettings() { return kSettings; }

std::string SessionSetting::words() const {
  std::string out(name);
  std::ranges::replace(out, '_', ' ');
  return out;
}

std::string SessionSetting::expected() const { return fmt::format(fmt::runtime(range), min, max); }

Status SessionSetting::Check(const SessionOptions& options) const {
  const int64_t number = field.ours.get(options);
  if (range.empty() || (number >= min && number <= max)) return {};
  const bool is_named = number >= 0 && number < std::ssize(field.choices);
  return MakeError(
      ErrorCode::kInvalid, "{}: expected {}, found {}", words(), expected(),
      is_named ? std::string(field.choices[static_cast<size_t>(number)]) : std::to_string(number));
}

Status SessionSetting::Choose(std::string_view text, SessionOptions& options) const {
  if (parse != nullptr) return parse(text, options);
  for (int64_t number = min; number <= max; ++number) {
    if (text != field.choices[static_cast<size_t>(number)]) continue;
    field.ours.set(options, number);
    return {};
  }
  return MakeError(ErrorCode::kInvalid, "expected {}, found '{}'", expected(), text);
}

}  // namespace kvant
