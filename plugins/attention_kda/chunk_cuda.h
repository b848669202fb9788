// chunk_cuda.h: launchers of the chunk kernels: bf16, K = V = 64 or 128, on tensor cores. Chunks have 64 tokens, in
// sub-blocks of 16. Notation as on the CPU (chunk-inl.h): G the running sum of g inside a chunk, c = exp(G),
//   K+ = k c,  Q+ = scale q c,  Kr = k exp(G_last - G),  M_rj = sum k_r k_j exp(G_r - G_j) (j < r),  P_rj with scale q_r (j <= r)
//   A = (I + diag(beta) M)^-1,  N = A diag(beta) (V - K+ S)   ("new values": what the delta rule writes),
//   O = Q+ S + P N,  S <- c_last S + Kr^T N
// prepare() computes all but N, O and S for every chunk at once; forward() walks the chunks of a document in order. For the
// backward, with dS the gradient of the state that leaves a chunk:
//   dN = P^T dO + Kr dS,  dV = (A diag(beta))^T dN,  dS <- c_last dS + Q+^T dO - K+^T dV
// sweep() walks forward keeping S and N, reverse() walks backward keeping dS and dV, gradient() does the rest for every
// chunk at once.
#pragma once
#include "problem_cuda.h"

namespace kda::cuda {

constexpr int kChunk = 64, kBlock = 16;

// Chunks of all documents lie at numbers cu[d] / 64 + d + (chunk of d): unique, and known without a sum over documents.
inline int64_t chunk_bound(const Problem& p) { return p.tokens / kChunk + p.documents; }

struct Chunks {            // buffers of a call, in bf16 where nothing else is said
  unsigned char* records;  // [chunk number, head, Record<D>::kSize] bytes: what prepare() makes
  void* states;   // [chunk number, head, D / 64, D (value), 64 (key)], tiles of wgmma: S that enters, transposed
  void* dstates;  // the same of the gradient of the state that leaves
  void* values;   // [tokens, heads, D]: N
  void* dvalues;  // [tokens, heads, D]: dV
};
int64_t record_bytes(int64_t D);

// dense: log decays of at least -5; else any.
cudaError_t chunk_prepare(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_forward(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_sweep(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_reverse(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_gradient(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream);

}  // namespace kda::cuda
