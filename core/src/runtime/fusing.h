// fusing.h: whether a device runs fused nodes.
#pragma once
#include "runtime/device.h"

namespace kitbash {

// Its backend has a kernel for the op "fused" that can be used on this machine. If it has one that cannot, a note says why,
// once in a process, and nodes run one by one.
bool can_fuse(Device& device);

}  // namespace kitbash
