#include "team.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "kitbash/error.h"

// What `#pragma omp parallel` compiles to under GCC. Called by name so that clang, whose -fopenmp means another runtime
// with a second team, shares libgomp as well.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* arg, unsigned threads, unsigned flags);
void omp_set_num_threads(int);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
}

namespace kb::cpu {
namespace {

struct Region {
  int64_t n, pieces;
  void (*body)(void*, int64_t, int64_t, int32_t);
  void* arg;
  std::exception_ptr* errors;  // [pieces]
};

void work(void* p) {
  const Region& r = *static_cast<const Region*>(p);
  // The runtime may grant fewer workers than asked for; the pieces stay the same.
  const int64_t workers = omp_get_num_threads();
  for (int64_t i = omp_get_thread_num(); i < r.pieces; i += workers) {
    try {
      r.body(r.arg, r.n * i / r.pieces, r.n * (i + 1) / r.pieces, int32_t(i));
    } catch (...) {
      r.errors[i] = std::current_exception();
    }
  }
}

constexpr int32_t kMaxThreads = 1024;
const int32_t* team_of(int32_t threads) {  // a pointer that means `threads`, valid for the process's life
  static const auto* counts = [] {
    static int32_t c[kMaxThreads + 1];
    for (int32_t i = 0; i <= kMaxThreads; ++i) c[i] = i;
    return &c;
  }();
  return *counts + threads;
}

int open_device(int32_t threads, kb_device* out, kb_error* e) {
  return kb::guard("backend-cpu open", e, [&] {
    if (threads < 0 || threads > kMaxThreads)
      kb::fail("[backend-cpu] threads must be between 0 (all cores) and ", kMaxThreads, " but got ", threads);
    if (!threads) threads = std::min(usable_cores(), kMaxThreads);
    use_threads(threads);
    out->kind = KB_CPU;
    out->arch = 0;
    out->threads = threads;
    out->deterministic = 1;
    out->parallel = parallel;
    out->team = team_of(threads);
    out->stream = out->cublas = out->cublaslt = out->cudnn = out->nccl = nullptr;
  });
}

void close_device(kb_device*) {}

}  // namespace

int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, int32_t(std::thread::hardware_concurrency()));  // more cores than cpu_set_t can hold
}

void use_threads(int32_t threads) {
  static thread_local int32_t now = 0;
  if (now == threads) return;
  omp_set_num_threads(threads);
  now = threads;
}

void parallel(const void* team, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t, int32_t), void* arg) {
  if (n <= 0) return;
  const int64_t threads = *static_cast<const int32_t*>(team);
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::max<int64_t>(1, std::min(threads, n / grain));
  if (pieces == 1) return body(arg, 0, n, 0);
  std::exception_ptr errors[kMaxThreads];
  Region r{n, pieces, body, arg, errors};
  GOMP_parallel(work, &r, unsigned(pieces), 0);
  for (int64_t i = 0; i < pieces; ++i)
    if (errors[i]) std::rethrow_exception(errors[i]);
}

const kb_backend* backend_table() {
  static const kb_backend t = [] {
    kb_backend b{};  // works in the host's memory, so nothing after close
    b.struct_size = KB_STRUCT_SIZE(kb_backend, close);
    b.kind = KB_CPU;
    b.open = open_device, b.close = close_device;
    return b;
  }();
  return &t;
}

}  // namespace kb::cpu
