// conv.cu: a thread owns four neighbouring channels (or one) and walks down a piece of the tokens with the last
// inputs in registers; the weights stay there too. Taps other than 4 take a plain kernel that reads every input anew.
#include "conv_cuda.h"
#include "element.cuh"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 128, kTaps = 4, kPast = kTaps - 1;
constexpr int kAhead = 8;   // tokens that are loaded before the first of them is used
constexpr int kVector = 4;  // channels of a thread: with 8 of bf16 too few threads fit
// Tokens are cut in pieces, a thread's share, so that about this many threads run.
constexpr int64_t kManyThreads = 132 * 1024;
constexpr int64_t kMostForward = 64;
constexpr int64_t kLeastTokens = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Walker {  // over tokens, in order
  const int32_t* cu;
  int count, d;    // documents, the present one
  int begin, end;  // of the present one
  __device__ Walker(const Documents& docs, int64_t t) : cu(docs.cu) {
    int n = int(docs.bound) + 1;
    if (docs.in_use && *docs.in_use < n) n = *docs.in_use;
    count = n > 0 ? n - 1 : 0;
    int from = 0, to = count + 1;  // the first entry above t
    while (from < to) {
      const int mid = (from + to) / 2;
      if (cu[mid] <= t)
        from = mid + 1;
      else
        to = mid;
    }
    d = from - 1;
    place();
  }
  __device__ void place() {
    begin = d >= 0 && d < count ? cu[d] : INT32_MAX;
    end = d >= 0 && d < count ? cu[d + 1] : INT32_MAX;
  }
  __device__ bool inside() const { return d >= 0 && d < count; }
  // To token t, which may be in a later document. True when it is.
  __device__ bool to(int64_t t) {
    if (t < end) return false;
    while (d < count && t >= cu[d + 1]) ++d;
    place();
    return true;
  }
};

template <class T>
struct Past {  // what lies before a document
  const T* state;
  const int32_t* slot;
  int64_t slots;
  // back: 1 is the input just before the document
  template <int V>
  __device__ void read(int d, int64_t back, int64_t past, int64_t channels, int64_t c, float (&f)[V]) const {
    const int64_t at = !state ? 0 : slot ? slot[d] : d;
    if (!state || at < 0 || at >= slots) {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = state ? NAN : 0.0f;
      return;
    }
    load(state + (at * past + past - back) * channels + c, f);
  }
};

// Those of channels c .. c + V: neighbours in w [channels, taps], which is aligned where V is not 1.
template <int V>
__device__ inline void read_weights(Floats w, int64_t c, float (&weight)[kTaps][V]) {
  float flat[V * kTaps];
  if constexpr (V == 1) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) flat[j] = w[c * kTaps + j];
  } else if (w.dtype == KB_BF16) {
    load(static_cast<const Bf16*>(w.at) + c * kTaps, flat);
  } else {
    load(static_cast<const float*>(w.at) + c * kTaps, flat);
  }
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
#pragma unroll
    for (int k = 0; k < V; ++k) weight[j][k] = flat[k * kTaps + j];
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    forward(const T* x, Floats w, Past<T> past, Documents docs, T* y, int64_t tokens, int64_t channels, int64_t each) {
  const int64_t c = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (c >= channels) return;
  const int64_t begin = blockIdx.y * each, end = begin + each < tokens ? begin + each : tokens;
  float weight[kTaps][V], old[kPast][V];  // old: oldest first
  read_weights(w, c, weight);
  Walker at(docs, begin);
  const auto look_back = [&](int64_t t) {
    if (!at.inside()) return;
#pragma unroll
    for (int j = 0; j < kPast; ++j) {
      const int64_t from = t - kPast + j;
      if (from >= at.begin)
        load(x + from * channels + c, old[j]);
      else
        past.read(at.d, at.begin - from, kPast, channels, c, old[j]);
    }
  };
  look_back(begin);
  for (int64_t first = begin; first < end; first += kAhead) {
    Pack<T, V> ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i < end) ahead[i].read(x + (first + i) * channels + c);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t t = first + i;
      if (t >= end) break;
      if (at.to(t)) look_back(t);
      float now[V];
      ahead[i].get(now);
      float sum[V];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        sum[k] = 0;
        if (at.inside()) {
#pragma unroll
          for (int j = 0; j < kPast; ++j) sum[k] = fmaf(weight[j][k], old[j][k], sum[k]);
          sum[k] = fmaf(weight[kPast][k], now[k], sum[k]);
        }
#pragma unroll
        for (int j = 0; j + 1 < kPast; ++j) old[j][k] = old[j + 1][k];
        old[kPast - 1][k] = now[k];
      }
      store(y + t * channels + c, sum);
    }
  }
}

// dx[t] = sum over i of w[taps - 1 - i] dy[t + i]; dw[j] += x[t - taps + 1 + j] dy[t], both inside the document of t.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) backward(const T* x, Floats w, const T* dy, Documents docs, T* dx,
                                                     float* part, int64_t tokens, int64_t channels, int64_t each) {
  const int64_t c = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (c >= channels) return;
  const int64_t begin = blockIdx.y * each, end = begin + each < tokens ? begin + each : tokens;
  float weight[kTaps][V], total[kTaps][V], old[kPast][V], next[kTaps][V];  // next: dy[t], dy[t + 1], ..
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
#pragma unroll
    for (int k = 0; k < V; ++k) {
      total[j][k] = next[j][k] = 0;
      if (j < kPast) old[j][k] = 0;
    }
  read_weights(w, c, weight);
  Walker at(docs, begin);
  const auto read = [&](const T* p, int64_t t, float(&f)[V]) {
    if (at.inside() && t >= at.begin && t < at.end && t < tokens) {
      load(p + t * channels + c, f);
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = 0;
    }
  };
  const auto look_around = [&](int64_t t) {
#pragma unroll
    for (int j = 0; j < kPast; ++j) read(x, t - kPast + j, old[j]), read(dy, t + j, next[j]);
  };
  look_around(begin);
  for (int64_t first = begin; first < end; first += kAhead) {
    Pack<T, V> ahead_x[kAhead], ahead_dy[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < end) ahead_x[i].read(x + (first + i) * channels + c);
      if (first + i + kPast < tokens)
        ahead_dy[i].read(dy + (first + i + kPast) * channels + c);
      else
        ahead_dy[i].clear();
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t t = first + i;
      if (t >= end) break;
      if (at.to(t)) look_around(t);
      float now[V], sum[V];
      ahead_x[i].get(now), ahead_dy[i].get(next[kPast]);
      const bool inside = at.inside(), later = t + kPast < at.end;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (!inside) now[k] = next[0][k] = 0;  // what is no document's counts nothing
        if (!later || !inside) next[kPast][k] = 0;
        sum[k] = 0;
#pragma unroll
        for (int j = 0; j < kTaps; ++j) sum[k] = fmaf(weight[kTaps - 1 - j][k], next[j][k], sum[k]);
#pragma unroll
        for (int j = 0; j < kPast; ++j) total[j][k] = fmaf(old[j][k], next[0][k], total[j][k]);
        total[kPast][k] = fmaf(now[k], next[0][k], total[kPast][k]);
#pragma unroll
        for (int j = 0; j + 1 < kPast; ++j) old[j][k] = old[j + 1][k];
        old[kPast - 1][k] = now[k];
#pragma unroll
        for (int j = 0; j + 1 < kTaps; ++j) next[j][k] = next[j + 1][k];
      }
      if (dx) store(dx + t * channels + c, sum);
    }
  }
  if (!part) return;
  part += (int64_t(blockIdx.y) * channels + c) * kTaps;
#pragma unroll
  for (int k = 0; k < V; ++k)
#pragma unroll
    for (int j = 0; j < kTaps; ++j) part[k * kTaps + j] = total[j][k];
}

// ---- any number of taps, an output a thread
template <class T>
__global__ void __launch_bounds__(kThreads) plain_forward(const T* x, Floats w, Past<T> past, Documents docs, T* y,
                                                          int64_t tokens, int64_t channels, int taps) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, t = i / channels, c = i - t * channels;
  if (t >= tokens) return;
  const Walker at(docs, t);
  float sum = 0;
  for (int j = 0; at.inside() && j < taps; ++j) {
    const int64_t from = t - taps + 1 + j;
    float f[1];
    if (from >= at.begin)
      load(x + from * channels + c, f);
    else
      past.read(at.d, at.begin - from, taps - 1, channels, c, f);
    sum = fmaf(w[c * taps + j], f[0], sum);
  }
  y[i] = narrow<T>(sum);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_dx(Floats w, const T* dy, Documents docs, T* dx, int64_t tokens, int64_t channels, int taps) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, t = i / channels, c = i - t * channels;
  if (t >= tokens) return;
  const Walker at(docs, t);
  float sum = 0;
  for (int j = 0; at.inside() && j < taps && t + j < at.end; ++j)
    sum = fmaf(w[c * taps + taps - 1 - j], widen(dy[(t + j) * channels + c]), sum);
  dx[i] = narrow<T>(sum);
}
template <class T>
__global__ void __launch_bounds__(kThreads) plain_dw(const T* x, const T* dy, Documents docs, float* part,
                                                     int64_t tokens, int64_t channels, int taps, int64_t each) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, j = i / channels, c = i - j * channels;
  if (j >= taps) return;
  const int64_t begin = blockIdx.y * each, end = begin + each < tokens ? begin + each : tokens;
  Walker at(docs, begin);
  float sum = 0;
  for (int64_t t = begin; t < end; ++t) {
    at.to(t);
    const int64_t from = t - taps + 1 + j;
    if (at.inside() && from >= at.begin) sum = fmaf(widen(x[from * channels + c]), widen(dy[t * channels + c]), sum);
  }
  part[(blockIdx.y * channels + c) * taps + j] = sum;
}

// A thread a document and channel; rows ascend, so that an old row is read before it is overwritten.
template <class T>
__global__ void __launch_bounds__(kThreads)
    state_kernel(const T* x, Documents docs, const int32_t* slot, int64_t slots, T* now, int64_t channels, int past) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, d = i / channels, c = i - d * channels;
  int64_t n = docs.bound + 1;
  if (docs.in_use && *docs.in_use < n) n = *docs.in_use;
  if (d + 1 >= n) return;
  const int64_t begin = docs.cu[d], length = docs.cu[d + 1] - begin, at = slot ? slot[d] : d;
  if (length <= 0 || at < 0 || at >= slots) return;
  T* row = now + at * past * channels + c;
  for (int j = 0; j < past; ++j) {
    const int64_t from = length - past + j;
    row[j * channels] = from >= 0 ? x[(begin + from) * channels + c] : row[(past + from) * channels];
  }
}

template <class F>
void with_type(uint32_t dtype, F&& f) {
  if (dtype == KB_BF16)
    f.template operator()<Bf16>();
  else
    f.template operator()<float>();
}
bool all_aligned(const void* a, const void* b, const void* c) {
  return (uintptr_t(a) | uintptr_t(b) | uintptr_t(c)) % 16 == 0;
}
dim3 grid_of(int64_t channels, int v, int64_t pieces) {
  return dim3(unsigned(ceil_div(channels / v, kThreads)), unsigned(pieces));
}
int64_t piece(const ConvSizes& z) { return ceil_div(z.tokens, conv_parts(z)); }

}  // namespace

void short_conv(const ConvSizes& z, const Documents& d, const void* x, const void* w, const ConvState& state, void* y,
                cudaStream_t s) {
  if (z.tokens * z.channels == 0) return;
  with_type(z.dtype, [&]<class T>() {
    const Past<T> past{static_cast<const T*>(state.at), state.slot, state.slots};
    const auto* px = static_cast<const T*>(x);
    auto* py = static_cast<T*>(y);
    const Floats pw{w, z.w_type};
    const int64_t share = ceil_div(z.tokens * ceil_div(z.channels, kVector), kManyThreads * kAhead) * kAhead;
    const int64_t each = share < kMostForward ? share : kMostForward, pieces = ceil_div(z.tokens, each);
    if (z.taps != kTaps || pieces > 65535)
      plain_forward<<<unsigned(ceil_div(z.tokens * z.channels, kThreads)), kThreads, 0, s>>>(
          px, pw, past, d, py, z.tokens, z.channels, int(z.taps));
    else if (z.channels % kVector == 0 && all_aligned(x, y, state.at) && all_aligned(w, w, w))
      forward<T, kVector>
          <<<grid_of(z.channels, kVector, pieces), kThreads, 0, s>>>(px, pw, past, d, py, z.tokens, z.channels, each);
    else
      forward<T, 1>
          <<<grid_of(z.channels, 1, pieces), kThreads, 0, s>>>(px, pw, past, d, py, z.tokens, z.channels, each);
  });
}

void conv_state(const ConvSizes& z, const Documents& d, const void* x, const ConvState& state, void* now,
                cudaStream_t s) {
  const int64_t n = d.bound * z.channels;
  if (n == 0 || z.taps < 2) return;
  with_type(z.dtype, [&]<class T>() {
    state_kernel<<<unsigned(ceil_div(n, kThreads)), kThreads, 0, s>>>(
        static_cast<const T*>(x), d, state.slot, state.slots, static_cast<T*>(now), z.channels, int(z.taps - 1));
  });
}

int64_t conv_parts(const ConvSizes& z) {
  const int64_t across = ceil_div(z.channels, kVector);
  const int64_t most = ceil_div(z.tokens, kLeastTokens), want = kManyThreads / (across ? across : 1);
  const int64_t n = want < most ? want : most;
  return n < 1 ? 1 : n > 65535 ? 65535 : n;
}

void short_conv_backward(const ConvSizes& z, const Documents& d, const void* x, const void* w, const void* dy, void* dx,
                         float* part, cudaStream_t s) {
  if (z.channels == 0) return;
  const int64_t pieces = conv_parts(z), each = piece(z);
  with_type(z.dtype, [&]<class T>() {
    const auto *px = static_cast<const T*>(x), *pdy = static_cast<const T*>(dy);
    auto* pdx = static_cast<T*>(dx);
    const Floats pw{w, z.w_type};
    if (z.taps != kTaps) {
      if (dx && z.tokens)
        plain_dx<<<unsigned(ceil_div(z.tokens * z.channels, kThreads)), kThreads, 0, s>>>(pw, pdy, d, pdx, z.tokens,
                                                                                          z.channels, int(z.taps));
      if (part)
        plain_dw<<<dim3(unsigned(ceil_div(z.channels * z.taps, kThreads)), unsigned(pieces)), kThreads, 0, s>>>(
            px, pdy, d, part, z.tokens, z.channels, int(z.taps), each);
    } else if (z.channels % kVector == 0 && all_aligned(x, dy, dx) && all_aligned(w, w, w)) {
      backward<T, kVector><<<grid_of(z.channels, kVector, pieces), kThreads, 0, s>>>(px, pw, pdy, d, pdx, part,
                                                                                     z.tokens, z.channels, each);
    } else {
      backward<T, 1>
          <<<grid_of(z.channels, 1, pieces), kThreads, 0, s>>>(px, pw, pdy, d, pdx, part, z.tokens, z.channels, each);
    }
  });
}

}  // namespace kb::cuda::element
