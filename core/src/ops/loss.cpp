// The loss, and collectives.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;

void check_targets(Infer& s, const kb_type& logits) {
  const kb_type &target = s.in(1, 1, "target"), &weight = s.in(2, 1, "weight");
  s.dtype(target, KB_I32, "target");
  s.dtype(weight, kb::wide_of(logits.dtype), "weight");
  s.same(target.shape[0], logits.shape[0], "rows of target");
  s.same(weight.shape[0], logits.shape[0], "rows of weight");
}
struct CrossEntropyOp : kb::ops::CrossEntropy {
  void infer(Infer& s) const {
    const kb_type& logits = s.in(0, 2, "logits");
    check_targets(s, logits);
    s.out({}, kb::wide_of(logits.dtype));
    s.out({logits.shape[0]}, kb::wide_of(logits.dtype), &logits);
  }
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(0))); }
  void gradient(Grad& g) const {
    g.down(0, g.b.emit("cross_entropy_backward", {g.in(0), g.in(1), g.in(2), g.out(1), g.up(0)}));
  }
};
struct CrossEntropyBackwardOp : kb::ops::CrossEntropyBackward {
  void infer(Infer& s) const {
    const kb_type& logits = s.in(0, 2, "logits");
    check_targets(s, logits);
    s.same(s.in(3, 1, "lse").shape[0], logits.shape[0], "rows of lse");
    s.same(kb::elements(s.in(4, "up")), 1, "elements of up");
    s.like(logits);
  }
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(0))); }
};
struct AllReduceOp : kb::ops::AllReduce {
  static constexpr uint32_t traits = KB_COLLECTIVE;
  void infer(Infer& s) const {
    if (!(how == "sum") && !(how == "max")) kb::fail("how must be sum or max but got ", how.view());
    if (!(over == "tokens")) kb::fail("over must be tokens but got ", over.view());
    const kb_type& x = s.in(0, "x");
    kb_type& t = s.like(x);
    if (how == "max") t.lo = x.lo, t.hi = x.hi;
  }
};

}  // namespace

std::vector<const kb_op*> loss_ops() { return op_tables<CrossEntropyOp, CrossEntropyBackwardOp, AllReduceOp>(); }

}  // namespace kitbash
