// probe_model.h: the probe of a whole recipe: tokens and targets in; loss, logits, gradients and next states out.
#pragma once
#include "probe/probe.h"
#include "runtime/program.h"

namespace kitbash {

std::vector<std::string> probe_model(const ProbeRequest& r, Catalog catalog);

// Shared with the probe of components.
uint32_t probe_dtype(const std::string& name, kb_device_kind device);
ArenaMode probe_arena(const std::string& name);
std::vector<std::string> kernel_lines(const Program& p);

}  // namespace kitbash
