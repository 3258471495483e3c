// The float GEMM backends of this build. Each library is confined to the calling thread: its own
// threads would break the fixed tiles that make results independent of the thread count.
#include "cpu/float_gemm.h"

#include <cstdlib>

#if KVANT_HAVE_ONEDNN
#include <dlfcn.h>
#include <dnnl.h>

#include <csignal>
#endif
#if KVANT_HAVE_OPENBLAS
#include <cblas.h>

#include "base/result.h"
#endif

// A oneDNN on other threads than OpenMP's cannot be confined to the calling thread.
#if KVANT_HAVE_ONEDNN && (DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP || \
                          DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ)
#define KVANT_USE_ONEDNN 1
#else
#define KVANT_USE_ONEDNN 0
#endif

namespace kvant::cpu {
namespace {

#if KVANT_USE_ONEDNN

// While it lives, OpenMP regions that the calling thread opens have one thread. OpenMP keeps this
// number per thread, so other threads, and what the caller set, are not touched. The functions are
// looked up at run time: oneDNN brings its OpenMP library, our own code is not linked to one.
class SingleOpenMpThread {
 public:
  SingleOpenMpThread() {
    if (Library().get_max_threads == nullptr) return;
    previous_ = Library().get_max_threads();
    Library().set_num_threads(1);
  }
  ~SingleOpenMpThread() {
    if (previous_ > 0) Library().set_num_threads(previous_);
  }
  SingleOpenMpThread(const SingleOpenMpThread&) = delete;
  SingleOpenMpThread& operator=(const SingleOpenMpThread&) = delete;

 private:
  struct OpenMp {
    int (*get_max_threads)();
    void (*set_num_threads)(int);
  };

  static const OpenMp& Library() {
    static const OpenMp library = {
        reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads")),
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))};
    return library;
  }

  int previous_ = 0;
};

// While it lives, the calling thread takes no signals but those that it causes itself; they wait.
// oneDNN's generated kernels let the stack pointer point into a buffer on the heap, and the frame
// of a signal handler would be written over what lies below it.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
      sigdelset(&signals, own);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_;
};

// Row-major out[tokens x rows] = activations[tokens x cols] * transposed weights[rows x cols].
void RunOneDnn(const float* weights, int64_t rows, int64_t cols, const float* activations,
               int64_t activation_stride, int64_t tokens, float* out, int64_t out_stride,
               Store store) {
  const SingleOpenMpThread single_thread;
  const SignalsHeldBack signals_held_back;
  const dnnl_status_t status =
      dnnl_sgemm('N', 'T', tokens, rows, cols, 1.0f, activations, activation_stride, weights, cols,
                 store == Store::kAdd ? 1.0f : 0.0f, out, out_stride);
  KVANT_CHECK(status == dnnl_success);
}

#endif

#if KVANT_HAVE_OPENBLAS

void RunOpenBlas(const float* weights, int64_t rows, int64_t cols, const float* activations,
                 int64_t activation_stride, int64_t tokens, float* out, int64_t out_stride,
                 Store store) {
  // OpenBLAS has one setting for the whole process, none per thread, so this is set once.
  static const bool single_thread = (openblas_set_num_threads(1), true);
  static_cast<void>(single_thread);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(tokens),
              static_cast<blasint>(rows), static_cast<blasint>(cols), 1.0f, activations,
              static_cast<blasint>(activation_stride), weights, static_cast<blasint>(cols),
              store == Store::kAdd ? 1.0f : 0.0f, out, static_cast<blasint>(out_stride));
}

#endif

// Preferred first.
constexpr FloatGemm kBackends[] = {
    {"panels", nullptr, true},
#if KVANT_USE_ONEDNN
    {"onednn", RunOneDnn, false},
#endif
#if KVANT_HAVE_OPENBLAS
    {"openblas", RunOpenBlas, false},
#endif
    {"own", nullptr, false},
};

// Absent from this build unless listed above.
constexpr std::string_view kLibraries[] = {"onednn", "openblas"};

}  // namespace

std::span<const FloatGemm> AllFloatGemms() { return kBackends; }

Result<const FloatGemm*> ChooseFloatGemm(std::string_view name) {
  for (const FloatGemm& backend : kBackends) {
    if (name.empty() || name == backend.name) return &backend;
  }
  for (const std::string_view library : kLibraries) {
    if (name == library) {
      return MakeError(ErrorCode::kNotSupported, "this build has no float GEMM backend '{}'", name);
    }
  }
  return MakeError(ErrorCode::kInvalid,
                   "unknown float GEMM backend '{}', expected panels, onednn, openblas or own",
                   name);
}

Result<const FloatGemm*> ChooseFloatGemmFromEnvironment() {
  const char* name = std::getenv("KVANT_FLOAT_GEMM");
  Result<const FloatGemm*> chosen = ChooseFloatGemm(name != nullptr ? name : "");
  if (chosen.ok()) return chosen;
  return MakeError(chosen.error().code, "KVANT_FLOAT_GEMM: {}", chosen.error().message);
}

}  // namespace kvant::cpu
