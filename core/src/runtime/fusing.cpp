#include "runtime/fusing.h"

#include <atomic>
#include <cstdio>

#include "graph/graph.h"
#include "kitbash/fused.h"

namespace kitbash {

bool can_fuse(Device& device) {
  const auto& kernels = device.registry().kernels("fused", device.kind());
  if (kernels.empty()) return false;
  // The least that there is: one step on one number.
  kb::FusedProgram p;
  p.stride = {{1}}, p.steps = {{kb::fused_step("exp"), KB_F32, 0, -1, 1, 0}}, p.out = {1};
  const std::vector<double> flat = p.flat();
  const kb_attr attr{"program", KB_FLOATS, uint32_t(flat.size()), {.fs = flat.data()}};
  kb_tensor t{};
  t.type = make_type(KB_F32, {1});
  kb_call c{};
  c.struct_size = KB_STRUCT_SIZE(kb_call, device);
  c.attr = &attr, c.n_attr = 1, c.in = &t, c.n_in = 1, c.out = &t, c.n_out = 1, c.device = &device.table();
  kb_error why{};
  for (const auto& k : kernels)
    if (!k.table->supports || !k.table->supports(&c, &why)) return true;
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    std::fprintf(stderr, "note: pointwise ops run one by one on %s: %s\n", device_name(device.kind()), why.message);
  return false;
}

}  // namespace kitbash
