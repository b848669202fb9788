// Block attention residuals: what a sub-layer reads is a softmax mixture over the finished blocks and the running sum.
// The carry is the finished blocks, then the running sum.
#include "depth_mix.h"
using kb::Value;
using kb::Values;

struct BlockAttnRes : kb::Residual<BlockAttnRes> {
  int64_t block_layers = 4;
  double eps = 1e-5;

  Values begin(kb::Builder&, Value embedding) const { return {embedding}; }

  kb::Entered input(kb::Builder& b, const Values& carry, const kb::Depth& at) const {
    if (at.index) return {mix(b, carry, at.role), carry};
    const int64_t layers = (at.count + 1) / 2, most = DepthMix::kMaxSources - 1;  // blocks beside the running sum
    if ((layers + block_layers - 1) / block_layers > most)
      kb::fail("block_layers must be at least ", (layers + most - 1) / most, " for ", layers, " layers but got ",
               block_layers, ": at most ", most, " blocks can be kept; raise block_layers");
    return {carry[0], carry};  // one source: nothing to mix
  }

  Values output(kb::Builder&, const Values& carry, Value y, const kb::Depth& at) const {
    Values out = carry;
    if (at.index % (2 * block_layers) == 0)
      out.push_back(y);  // the running sum becomes a block, and y starts the next
    else
      out.back() = out.back() + y;
    return out;
  }

  Value end(kb::Builder& b, const Values& carry, int64_t) const { return mix(b, carry, "out"); }

 private:
  Value mix(kb::Builder& b, const Values& sources, const std::string& role) const {
    const int64_t d = sources[0].dim(1);
    Values in = sources;
    in.push_back(b.param((role + "_res_norm").c_str(), b.ones({d}), kb::wide_vector));
    in.push_back(b.param((role + "_res_query").c_str(), b.zeros({d}), kb::wide_vector));  // 0: the mean of the sources
    const Values out = b.emit_n(DepthMix::name, in, {{"eps", eps}});
    if (!b.stateful()) {  // the mean weight of each source, over the tokens in use
      const Value total = b.sum(out[1], 0);
      b.report((role + "_res_weights").c_str(), total / (b.sum(total, 0, true) + 1e-20));
    }
    return out[0];
  }
};
KITBASH_SCHEMA(BlockAttnRes,
               field("block_layers", &Self::block_layers, "layers (attention and ffn) a block").range(1, 1000),
               field("eps", &Self::eps, "of the norm of the sources").range(0, 1))

KITBASH_PLUGIN("residual-block-attnres", "0.1.0", "Apache-2.0", component<BlockAttnRes>("block-attnres"),
               op<DepthMix>(), op<DepthMixBackward>(), kernel<DepthMixCpu>(), kernel<DepthMixBackwardCpu>())
