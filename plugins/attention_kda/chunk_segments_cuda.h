// chunk_segments_cuda.h: launchers of what cuts documents and puts their segments together (chunk_cuda.h).
#pragma once
#include "chunk_cuda.h"

namespace kda::cuda {

// Fills `at` and `count`, on the device, where alone the documents' lengths are known.
cudaError_t cut_documents(const Problem& p, const Segments& s, cudaStream_t stream);
// ends[i] <- what leaves segment i of a cut document, from E of every one and M: from the first on, or in reverse from the last.
cudaError_t put_together(const Problem& p, const Segments& s, bool reverse, cudaStream_t stream);

}  // namespace kda::cuda
