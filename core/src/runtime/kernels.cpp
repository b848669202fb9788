#include "runtime/kernels.h"

#include <algorithm>
#include <cstdlib>

#include "kitbash/op.h"

namespace kitbash {

NodeCall::NodeCall(const Graph& g, const Node& n, const kb_device* device) {
  for (ValueId v : n.in) in.push_back({nullptr, v ? g.type(v) : kb_type{}, {}});
  for (ValueId v : n.out) out.push_back({nullptr, g.type(v), {}});
  for (auto* list : {&in, &out})
    for (kb_tensor& t : *list) {
      int64_t step = 1;
      for (int d = t.type.rank - 1; d >= 0; --d) t.stride[d] = step, step *= t.type.shape[d];
    }
  call.struct_size = KB_STRUCT_SIZE(kb_call, device);
  call.attr = n.attr, call.n_attr = n.n_attr;
  call.in = in.data(), call.n_in = uint32_t(in.size());
  call.out = out.data(), call.n_out = uint32_t(out.size());
  call.device = device;
  for (size_t o = 0; o < n.base.size(); ++o)
    if (n.base[o]) call.accumulate |= 1u << o;
}

namespace {
// For finding out which kernel is at fault: names, separated by commas, that are not chosen.
bool left_out(const std::string& name) {
  const char* v = std::getenv("KITBASH_WITHOUT_KERNELS");
  return v && ("," + std::string(v) + ",").find("," + name + ",") != std::string::npos;
}
}  // namespace

namespace {
// The first that takes the node; its `kernel` is null when none does.
Choice find_kernel(const Graph& g, const Node& n, Device& device) {
  const NodeCall c(g, n, &device.table());
  Choice out;
  for (const auto& k : device.registry().kernels(n.op->name, device.kind())) {
    kb_error why{};
    if (left_out(k.table->name)) {
      out.declined += std::string(k.table->name) + ": left out by KITBASH_WITHOUT_KERNELS; ";
    } else if ((c.call.accumulate & ~k.table->accumulates) != 0) {
      out.declined += std::string(k.table->name) + ": cannot accumulate; ";
    } else if (k.table->supports && k.table->supports(&c.call, &why)) {
      out.declined += std::string(k.table->name) + ": " + why.message + "; ";
    } else {
      out.kernel = k.table;
      out.provider = k.provider;
      break;
    }
  }
  return out;
}
}  // namespace

const kb_kernel* kernel_of(const Graph& g, const Node& n, Device& device) { return find_kernel(g, n, device).kernel; }

Choice choose_kernel(const Graph& g, const Node& n, Device& device) {
  Choice out = find_kernel(g, n, device);
  if (out.kernel) return out;
  const NodeCall c(g, n, &device.table());
  std::string operands;
  for (const auto& t : c.in)
    operands += (operands.empty() ? "" : ", ") + (t.type.dtype ? type_text(t.type) : std::string("none"));
  throw kb::Error(g.describe(n) + "(" + operands + "): no kernel can run it on the " +
                      (device.kind() == KB_CPU ? "cpu" : "cuda") +
                      " device: " + (out.declined.empty() ? "none is known" : out.declined),
                  KB_UNSUPPORTED);
}

bool can_accumulate(const Graph& g, const Node& n, uint32_t output, Registry& registry, kb_device_kind kind,
                    const kb_device* device) {
  const auto& all = registry.kernels(n.op->name, kind);
  if (all.empty() ||
      !std::all_of(all.begin(), all.end(), [&](const auto& k) { return k.table->accumulates >> output & 1; }))
    return false;
  if (!device) return true;
  const NodeCall c(g, n, device);
  return std::any_of(all.begin(), all.end(), [&](const auto& k) {
    kb_error why{};
    return !left_out(k.table->name) && (!k.table->supports || !k.table->supports(&c.call, &why));
  });
}

}  // namespace kitbash
