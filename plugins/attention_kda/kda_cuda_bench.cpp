// Times of the CUDA kernels of `kda` and `kda_backward`, as a whole and by launcher, and their accuracy on the operands of a
// layer: unit q and k, g = -5 sigmoid(exp(A) z), beta = sigmoid(z).
#include <cstdio>

#include "chunk_cuda.h"
#include "kda_test_case.h"
#include "kernels_cuda.h"
#include "tests/support/device_call.h"

namespace kda::test {
namespace {
using cuda::Chunks;

struct Shape {
  const char* what;
  std::vector<double> cu;
  int64_t H, D;
  bool slow;  // token by token too
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Cheap pseudo-random operands: a few hundred million numbers.
struct Pool {
  std::vector<float> unit;  // [-1, 1]
  size_t at = 0;
  Pool() : unit(1 << 20) {
    uint64_t state = 88172645463325252ull;
    for (float& f : unit)
      state ^= state << 13, state ^= state >> 7, state ^= state << 17, f = float(state >> 40) * (2.f / 16777216.f) - 1;
  }
  float next() {
    if (++at >= unit.size()) at = size_t((unit[at / 3 % 1000] + 1) * 5000);
    return unit[at];
  }
};

struct Bench {
  std::vector<std::unique_ptr<kbtest::DeviceBytes>> memory;
  cuda::Problem p{};
  Chunks c{};
  void* make(int64_t bytes) {
    memory.push_back(std::make_unique<kbtest::DeviceBytes>(size_t(bytes)));
    return memory.back()->data();
  }
  // n numbers of f, which repeat after some millions.
  template <class T, class F>
  T* fill(int64_t n, F&& f) {
    const int64_t made = std::min(n, int64_t(1) << 23);
    std::vector<T> host(static_cast<size_t>(made));
    for (T& x : host) x = f();
    T* d = static_cast<T*>(make(n * int64_t(sizeof(T))));
    for (int64_t at = 0; at < n; at += made)
      KB_CUDA_OK(cudaMemcpy(d + at, host.data(), size_t(std::min(made, n - at)) * sizeof(T), cudaMemcpyHostToDevice));
    return d;
  }
  explicit Bench(const Shape& s) {
    Pool pool;
    p.tokens = int64_t(s.cu.back()), p.heads = s.H, p.documents = int64_t(s.cu.size()) - 1, p.K = p.V = s.D;
    p.scale = float(1 / std::sqrt(double(s.D))), p.bf16 = true;
    const int64_t n = p.tokens * s.H * s.D, rows = p.tokens * s.H;
    const auto norm = float(std::sqrt(3.0 / double(s.D)));
    auto half = [&](float scale) { return [&pool, scale] { return kbtest::to_bf16(double(scale * pool.next())); }; };
    p.q = fill<uint16_t>(n, half(norm)), p.k = fill<uint16_t>(n, half(norm)), p.v = fill<uint16_t>(n, half(1.7f)),
    p.d_o = fill<uint16_t>(n, half(1.7f));
    p.g = fill<float>(n, [&] { return -2.5f * (1 - pool.next()); });
    p.beta = fill<float>(rows, [&] { return 0.5f * (1 + pool.next()); });
    size_t border = 0;
    p.cu = fill<int32_t>(int64_t(s.cu.size()), [&] { return int32_t(s.cu[border++]); });
    p.o = make(2 * n), p.dq = make(2 * n), p.dk = make(2 * n), p.dv = make(2 * n),
    p.dg = static_cast<float*>(make(4 * n));
    p.dbeta = static_cast<float*>(make(4 * rows));
    const int64_t chunks = cuda::chunk_bound(p) * p.heads;
    c.records = static_cast<unsigned char*>(make(chunks * cuda::record_bytes(s.D)));
    c.states = make(chunks * s.D * s.D * 2), c.dstates = make(chunks * s.D * s.D * 2);
    c.values = make(2 * n), c.dvalues = p.dv;
    c.segments = cuda::segments_in(p, make(cuda::segment_bytes(p)));
    KB_CUDA_OK(cudaDeviceSynchronize());
  }
};

template <class F>
double time(const Shape& s, const char* what, double bytes, F&& f) {
  try {
    const double ms = kbtest::median_ms([&] { KB_CUDA_OK(f()); }, 10, 2);
    std::printf("%-20s %-22s %8.3f ms  %6.0f GB/s\n", s.what, what, ms, bytes / ms * 1e-6);
    std::fflush(stdout);
    return ms;
  } catch (const kb::Error& e) {
    std::printf("%-20s %-22s %s\n", s.what, what, e.what());
    return 0;
  }
}

void bench(const Shape& s) {
  Bench b(s);
  const cudaStream_t stream = kbtest::cuda_stream();
  const double n = double(b.p.tokens * b.p.heads * b.p.K), least = n * (4 * 2 + 4);
  const double record = double(cuda::record_bytes(s.D)) * double(b.p.tokens / 64 * s.H);
  if (s.slow) time(s, "recurrent", least, [&] { return cuda::recurrent(b.p, stream); });
  for (bool dense : {true, false}) {
    time(s, dense ? "prepare" : "prepare rescaled", n * 8 + record,
         [&] { return cuda::chunk_prepare(b.p, dense, b.c, stream); });
    time(s, dense ? "kda chunk" : "kda chunk-rescaled", least, [&] {
      cuda::chunk_prepare(b.p, dense, b.c, stream), cuda::chunk_starts(b.p, b.c, stream);
      return cuda::chunk_forward(b.p, b.c, stream);
    });
  }
  time(s, "starts of segments", record * 0.62, [&] { return cuda::chunk_starts(b.p, b.c, stream); });
  time(s, "forward walk", n * 4 + record, [&] { return cuda::chunk_forward(b.p, b.c, stream); });
  if (b.c.segments.at) {
    Chunks uncut = b.c;
    uncut.segments = {};
    time(s, "forward walk, uncut", n * 4 + record, [&] { return cuda::chunk_forward(b.p, uncut, stream); });
    time(s, "sweep, uncut", n * (2 + 2 + 4) + record * 0.62, [&] { return cuda::chunk_sweep(b.p, uncut, stream); });
    time(s, "reverse, uncut", n * (2 + 2 + 4) + record, [&] { return cuda::chunk_reverse(b.p, uncut, stream); });
  }
  time(s, "sweep", n * (2 + 2 + 4) + record * 0.62, [&] { return cuda::chunk_sweep(b.p, b.c, stream); });
  time(s, "reverse", n * (2 + 2 + 4) + record, [&] { return cuda::chunk_reverse(b.p, b.c, stream); });
  for (bool dense : {true, false}) {
    time(s, dense ? "gradient" : "gradient rescaled", n * (7 * 2 + 4 + 2 * 4 + 4),
         [&] { return cuda::chunk_gradient(b.p, dense, b.c, stream); });
    time(s, dense ? "backward chunk" : "backward rescaled", n * (7 * 2 + 2 * 4), [&] {
      cuda::chunk_prepare(b.p, dense, b.c, stream), cuda::chunk_starts(b.p, b.c, stream);
      cuda::chunk_sweep(b.p, b.c, stream), cuda::chunk_reverse(b.p, b.c, stream);
      return cuda::chunk_gradient(b.p, dense, b.c, stream);
    });
  }
}

// One token of each of `sequences`, continuing states in place.
void decode(int64_t sequences, int64_t heads, int64_t D) {
  std::vector<double> cu;
  for (int64_t i = 0; i <= sequences; ++i) cu.push_back(double(i));
  Bench b({"decode", cu, heads, D, true});
  int32_t next = 0;
  b.p.slot = b.fill<int32_t>(sequences, [&] { return next++; });
  b.p.state = b.fill<float>(sequences * heads * D * D, [] { return 0.5f; });
  b.p.s0 = b.p.state;
  time({"decode", cu, heads, D, true}, kb::text(sequences, " sequences, H=", heads).c_str(),
       double(sequences * heads * D * D * 8), [&] { return cuda::recurrent(b.p, kbtest::cuda_stream()); });
}

template <class Kernel>
void accuracy(const char* gate) {
  constexpr bool forward = std::is_same_v<typename Kernel::Op, KdaOp>;
  const bool softplus = gate[0] == 's';
  Operands x =
      make({.H = 2, .K = 128, .V = 128, .cu = {0, 512}, .s0 = false, .range_low = softplus ? -INFINITY : -5}, KB_F32);
  x.q = convert(x.q, KB_BF16), x.k = convert(x.k, KB_BF16), x.v = convert(x.v, KB_BF16),
  x.d_o = convert(x.d_o, KB_BF16);
  x.d_state = kbtest::absent();
  const Array z = kbtest::normal(KB_F32, kb::shape_of(x.g.type), 7),
              b = kbtest::normal(KB_F32, kb::shape_of(x.beta.type), 8);
  Array slope = z;  // dg / dz
  for (int64_t i = 0; i < x.g.size(); ++i) {
    const double a = std::exp(i / 128 % 2 ? 0.7 : 0.2), at = z.at(i) + 0.5, s = sigmoid(softplus ? at : a * at);
    x.g.set(i, softplus ? -a * std::log1p(std::exp(at)) : -5 * s);
    slope.set(i, softplus ? -a * s : -5 * s * (1 - s) * a);
  }
  for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, sigmoid(b.at(i)));
  const auto want = expected<Kernel>(x);
  std::vector<Array> got;
  if (forward)
    got = {x.v, kbtest::array(KB_F32, {1, 2, 128, 128})};
  else
    got = {x.q, x.k, x.v, x.g, x.beta, kbtest::array(KB_F32, {1, 2, 128, 128})};
  try {
    kbtest::run_device(kb::kernel_table<Kernel>(), scale_of(x), forward ? forward_inputs(x) : backward_inputs(x), got);
  } catch (const kb::Error& e) {
    std::printf("%s %s: %s\n", Kernel::name, gate, e.what());
    return;
  }
  std::printf("accuracy, %s gate, %s %s:", gate, forward ? "kda" : "kda_backward", Kernel::name);
  const char* names[2][6] = {{"dq", "dk", "dv", "dg", "dbeta", "ds0"}, {"o", "state"}};
  for (size_t i = 0; i < want.size(); ++i) {
    std::printf(" %s %.3f %%", names[forward][i], 100 * kbtest::relative_error(got[i], want[i]));
    if (!forward && i == 3) {
      Array w = want[i], y = got[i];
      for (int64_t j = 0; j < w.size(); ++j) w.set(j, w.at(j) * slope.at(j)), y.set(j, y.at(j) * slope.at(j));
      std::printf(" dz %.3f %%", 100 * kbtest::relative_error(y, w));
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace kda::test

int main(int argc, char** argv) {  // any argument: the two shapes that matter most
  using namespace kda::test;
  if (!kbtest::have_device()) return std::puts("there is no CUDA device"), 0;
  (void)argv;
  for (const char* gate : {"bounded", "softplus"}) {
    accuracy<kda::cuda::Chunk>(gate), accuracy<kda::cuda::ChunkRescaled>(gate);
    accuracy<kda::cuda::ChunkBackward>(gate), accuracy<kda::cuda::ChunkRescaledBackward>(gate);
  }
  std::vector<double> packed, one{0, 8192};
  for (int i = 0; i <= 4; ++i) packed.push_back(8192 * i);
  std::vector<double> room = packed;  // as a trainer gives it: room for 64 documents, of which four are used
  while (room.size() < 65) room.push_back(32768);
  std::vector<Shape> shapes{{"T=8192 H=96", one, 96, 128, false}, {"T=4x8192 H=8 of 64", room, 8, 128, false}};
  if (argc < 2) {
    shapes.push_back({"T=8192 H=32", one, 32, 128, true});
    shapes.push_back({"T=4x8192 H=8", packed, 8, 128, false});
    shapes.push_back({"T=65536 H=32", {0, 65536}, 32, 128, false});
    shapes.push_back({"T=65536 H=16", {0, 65536}, 16, 128, false});
    shapes.push_back({"T=65536 H=8", {0, 65536}, 8, 128, false});
    shapes.push_back({"T=8192 H=8", one, 8, 128, false});
    shapes.push_back({"T=131072 H=96", {0, 131072}, 96, 128, false});
  }
  for (const Shape& s : shapes) bench(s);
  kda::test::decode(64, 32, 128), kda::test::decode(1, 32, 128);
}
