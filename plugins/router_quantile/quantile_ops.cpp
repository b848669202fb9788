// Shapes of the ops of quantile balancing.
#include "quantile_ops.h"

namespace {

void check_scores(kb::Infer& s, uint32_t first, int64_t experts) {  // scores, cutoff, document
  const kb_type &scores = s.in(first, 2, "scores"), &cutoff = s.in(first + 1, 2, "cutoff");
  const kb_type& document = s.in(first + 2, 1, "document");
  if (scores.dtype != KB_F32 && scores.dtype != KB_F64)
    kb::fail("scores must be f32 or f64 but got ", kb::dtype_name(scores.dtype), "; widen them first");
  s.dtype(cutoff, scores.dtype, "cutoff");
  s.dtype(document, KB_I32, "document");
  s.same(scores.shape[1], experts, "experts of scores");
  s.same(cutoff.shape[0], scores.shape[0], "tokens of cutoff");
  s.same(cutoff.shape[1], 1, "width of cutoff");
  s.same(document.shape[0], scores.shape[0], "tokens of document");
}
void check_bias(kb::Infer& s, uint32_t i, int64_t experts) {
  s.same(s.in(i, 1, "bias").shape[0], experts, "experts of bias");
}
void check_active(int64_t active, int64_t experts) {
  if (active < 1 || active >= experts) kb::fail("active must be in [1, ", experts - 1, "] but got ", active);
}
void check_single(kb::Infer& s, uint32_t i, const char* what) {
  const kb_type& t = s.in(i, 1, what);
  s.dtype(t, KB_I32, what);
  s.same(t.shape[0], 1, what);
}

}  // namespace

void QuantileCount::infer(kb::Infer& s) const {
  const kb_type& counts = s.in(0, 2, "counts");
  s.dtype(counts, KB_I32, "counts");
  check_scores(s, 1, counts.shape[0]);
  check_bias(s, 4, counts.shape[0]);
  s.dtype(s.in(4, 1, "bias"), s.in(1, 2, "scores").dtype, "bias");
  s.like(counts);
  s.in_place(0, 0);
}

void QuantileEstimate::infer(kb::Infer& s) const {
  const kb_type& counts = s.in(0, 2, "counts");
  s.dtype(counts, KB_I32, "counts");
  check_bias(s, 1, counts.shape[0]);
  check_active(active, counts.shape[0]);
  s.like(s.in(1, 1, "bias"));
}

void QuantileAppend::infer(kb::Infer& s) const {
  const kb_type& margins = s.in(0, 2, "margins");
  check_single(s, 1, "filled");
  check_scores(s, 2, margins.shape[1]);
  s.dtype(margins, s.in(2, 2, "scores").dtype, "margins");
  s.like(margins);
  s.like(s.in(1, 1, "filled"));
  s.in_place(0, 0);
  s.in_place(1, 1);
}

void QuantileExact::infer(kb::Infer& s) const {
  const kb_type& margins = s.in(0, 2, "margins");
  check_single(s, 1, "filled");
  check_single(s, 2, "total");
  check_bias(s, 3, margins.shape[1]);
  s.dtype(s.in(3, 1, "bias"), margins.dtype, "bias");
  check_active(active, margins.shape[1]);
  s.like(s.in(3, 1, "bias"));
}

void ExpertLoad::infer(kb::Infer& s) const {
  const kb_type &load = s.in(0, 1, "load"), &ids = s.in(1, 2, "ids"), &document = s.in(2, 1, "document");
  s.dtype(load, KB_I32, "load");
  s.dtype(ids, KB_I32, "ids");
  s.dtype(document, KB_I32, "document");
  s.same(document.shape[0], ids.shape[0], "tokens of document");
  s.like(load);
  s.in_place(0, 0);
}
