// schedule: a plain function of (step, steps) -> factor on the stage's learning rate. No graph.
#pragma once
#include "kitbash/builder.h"

namespace kb {

template <class T>
struct Schedule {  // T: double at(int64_t step, int64_t steps) const, step in [0, steps)
  static constexpr const char* kind = "schedule";
  static const void* service() {
    static const kb_schedule s{KB_STRUCT_SIZE(kb_schedule, at), [](const void* p, int64_t i, int64_t n) -> double {
                                 return static_cast<const T*>(p)->at(i, n);
                               }};
    return &s;
  }
};

}  // namespace kb
