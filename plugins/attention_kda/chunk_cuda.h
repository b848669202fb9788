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
//
// A walk is one chunk after the other, so few documents and heads leave most of the card idle. Documents are then cut into
// segments that are walked at once: since a segment maps the state that enters, S -> M S + E, starts() walks all segments but
// the last from zero for E, those between from the unit matrix for M, and puts together what enters each (Kimi K3 report,
// section 5.1.2, inside one card). The gradient of the state goes the other way, dS -> M^T dS + dE, in reverse().
#pragma once
#include "problem_cuda.h"

namespace kda::cuda {

constexpr int kChunk = 64, kBlock = 16;

// Chunks of all documents lie at numbers cu[d] / 64 + d + (chunk of d): unique, and known without a sum over documents.
inline int64_t chunk_bound(const Problem& p) { return p.tokens / kChunk + p.documents; }

struct Segment {  // of a document: tokens lo .. hi, `place` of `of`; first: number of its first chunk
  int32_t document, place, of, lo, hi, first;
};
// Documents with tokens come first; if any is cut, all segments of these are at most `budget` (segment_budget).
struct Segments {  // at null: documents are not cut
  Segment* at;     // [budget + documents]
  int32_t* count;  // [1]
  // [budget, heads, D (key), D (value)]. ends: E, then what enters the next segment (in reverse: the one before); of a
  // document's last, with slots, the final state until it is delivered. maps: M.
  float *ends, *maps;
};

struct Chunks {            // buffers of a call, in bf16 where nothing else is said
  unsigned char* records;  // [chunk number, head, Record<D>::kSize] bytes: what prepare() makes
  void* states;   // [chunk number, head, D / 64, D (value), 64 (key)], tiles of wgmma: S that enters, transposed
  void* dstates;  // the same of the gradient of the state that leaves
  void* values;   // [tokens, heads, D]: N
  void* dvalues;  // [tokens, heads, D]: dV
  Segments segments;
};
int64_t record_bytes(int64_t D);
int64_t segment_bytes(const Problem& p);               // of all that Segments points to
Segments segments_in(const Problem& p, void* memory);  // lays them out

// dense: log decays of at least -5; else any.
cudaError_t chunk_prepare(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_starts(const Problem& p, const Chunks& c,
                         cudaStream_t stream);  // before forward(), sweep() or reverse()
cudaError_t chunk_forward(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_sweep(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_reverse(const Problem& p, const Chunks& c, cudaStream_t stream);
cudaError_t chunk_gradient(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream);

}  // namespace kda::cuda
