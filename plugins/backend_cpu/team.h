// team.h: the process's one thread team. It is libgomp's, which oneDNN uses too: a second team would fight for the
// cores.
#pragma once
#include <cstdint>

#include "kitbash/abi.h"

namespace kb::cpu {

// Cores this process may run on, at least 1.
int32_t usable_cores();

// Makes the calling thread's OpenMP regions (oneDNN's too) use `threads` workers. Cheap when nothing changes.
void use_threads(int32_t threads);

// kb_device.parallel: [0, n) in at most `threads` equal pieces of at least `grain`, a fixed function of (n, grain,
// threads), so that equal thread counts give equal bits. An exception of body is rethrown here after all pieces are
// done.
void parallel(const void* team, int64_t n, int64_t grain,
              void (*body)(void*, int64_t begin, int64_t end, int32_t thread), void* arg);

// The kb_backend table.
const kb_backend* backend_table();

}  // namespace kb::cpu
