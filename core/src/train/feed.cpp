#include "train/feed.h"

#include <algorithm>

#include "kitbash/error.h"

namespace kitbash {

namespace {

template <class T>
void put(Program& p, const char* name, const std::vector<T>& v, T rest) {
  const auto in = p.graph().inputs.find(name);
  if (in == p.graph().inputs.end()) return;
  const kb_type& t = p.graph().type(in->second);
  if (int64_t(v.size()) > t.shape[0])
    kb::fail("[", p.graph().name, "] input ", name, " holds ", t.shape[0], " elements but the batch has ", v.size());
  auto fill = [&](auto* to) {
    using E = std::remove_pointer_t<decltype(to)>;
    for (size_t i = 0; i < v.size(); ++i) to[i] = E(v[i]);
    std::fill(to + v.size(), to + t.shape[0], E(rest));
  };
  void* data = p.input(name);
  if (t.dtype == KB_F64)
    fill(static_cast<double*>(data));
  else if (t.dtype == KB_F32)
    fill(static_cast<float*>(data));
  else
    fill(static_cast<int32_t*>(data));
}

}  // namespace

void feed_batch(Program& p, const MicroBatch& b) {
  std::vector<int32_t> position(size_t(b.used)), document(size_t(b.used));
  for (size_t d = 0; d + 1 < b.cu.size(); ++d)
    for (int32_t t = b.cu[d]; t < b.cu[d + 1]; ++t) position[size_t(t)] = t - b.cu[d], document[size_t(t)] = int32_t(d);
  put(p, "tokens", b.tokens, 0);
  put(p, "target", b.target, -1);
  put(p, "loss_weight", b.weight, 0.f);
  put(p, "cu", b.cu, b.cu.back());
  put(p, "position", position, 0);
  put(p, "document", document, -1);
  p.set_extent("tokens", int32_t(b.used));
}

void feed_scalar(Program& p, const char* input, double v) {
  fill_elements(p.input(input), p.graph().type(p.graph().inputs.at(input)).dtype, 1, v);
}

}  // namespace kitbash
