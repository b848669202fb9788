#include "train/experts.h"

#include <algorithm>

#include "kitbash/op.h"

namespace kitbash {

ExpertLoad expert_load(const Program& apply) {
  ExpertLoad out;
  for (const auto& [name, v] : apply.graph().reports) {
    if (name.size() < 5 || name.compare(name.size() - 5, 5, ".load")) continue;
    const kb_type& t = apply.graph().type(v);
    const int64_t n = kb::elements(t);
    double sum = 0, most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double x = read_element(apply.output(name), t.dtype, i);
      sum += x;
      most = std::max(most, x);
      out.dead += x == 0;
    }
    if (sum > 0 && most * double(n) / sum > out.worst)
      out.worst = most * double(n) / sum, out.where = name.substr(0, name.size() - 5);
  }
  return out;
}

}  // namespace kitbash
