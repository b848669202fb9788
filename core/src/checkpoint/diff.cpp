#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/read.h"
#include "checkpoint/verify.h"
#include "kitbash/op.h"

namespace kitbash {
namespace {

using Lines = std::vector<std::string>;

// Elements [from, from + n) of a tensor, wherever they lie.
class TensorReader {
 public:
  TensorReader(const Manifest& m, const TensorRecord& t) : t_(t), width_(int64_t(dtype_bytes(t.dtype))) {
    for (const PieceRecord& p : t.pieces)
      if (!files_[p.file]) files_[p.file] = std::make_unique<InputFile>(m.info.path + "/" + p.file);
  }
  void read(int64_t from, int64_t n, char* to) const {
    for (const PieceRecord& p : t_.pieces) {
      const int64_t end = p.global_offset + p.bytes / width_;
      const int64_t a = std::max(from, p.global_offset), b = std::min(from + n, end);
      if (a >= b) continue;
      files_.at(p.file)->read(p.file_offset + (a - p.global_offset) * width_, to + (a - from) * width_,
                              (b - a) * width_);
    }
  }

 private:
  const TensorRecord& t_;
  int64_t width_;
  std::map<std::string, std::unique_ptr<InputFile>> files_;
};

bool same_digests(const TensorRecord& a, const TensorRecord& b) {
  return std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                    [](const auto& x, const auto& y) {
                      return x.global_offset == y.global_offset && x.bytes == y.bytes && x.digest == y.digest;
                    });
}

void compare_values(const Manifest& ma, const TensorRecord& a, const Manifest& mb, const TensorRecord& b, Lines& out) {
  if (same_digests(a, b)) return;
  constexpr int64_t kStep = 1 << 16;
  const int64_t width = int64_t(dtype_bytes(a.dtype)), n = a.elements();
  const TensorReader ra(ma, a), rb(mb, b);
  std::vector<char> xa(size_t(kStep * width)), xb(xa.size());
  int64_t differ = 0, not_finite = 0, worst_at = -1;
  double worst = -1;
  for (int64_t from = 0; from < n; from += kStep) {
    const int64_t k = std::min(kStep, n - from);
    ra.read(from, k, xa.data());
    rb.read(from, k, xb.data());
    for (int64_t i = 0; i < k; ++i) {
      if (std::memcmp(xa.data() + i * width, xb.data() + i * width, size_t(width)) == 0) continue;
      ++differ;
      const double d = std::fabs(read_element(xa.data(), a.dtype, i) - read_element(xb.data(), b.dtype, i));
      if (!std::isfinite(d))
        ++not_finite;
      else if (d > worst)
        worst = d, worst_at = from + i;
    }
  }
  if (!differ) return;
  std::string s = kb::text("tensor ", a.name, ": ", differ, " of ", n, " elements differ");
  if (worst_at >= 0) s += kb::text(", by at most ", worst, " (element ", worst_at, ")");
  if (not_finite) s += kb::text(", ", not_finite, " of them by no finite number");
  out.push_back(s);
}

void compare_tensors(const Manifest& a, const Manifest& b, Lines& out) {
  std::map<std::string, const TensorRecord*> in_b;
  for (const TensorRecord& t : b.tensors) in_b[t.name] = &t;
  for (const TensorRecord& t : a.tensors) {
    const auto at = in_b.find(t.name);
    if (at == in_b.end()) {
      out.push_back("tensor " + t.name + ": only in the first");
      continue;
    }
    const TensorRecord& u = *at->second;
    if (t.shape != u.shape || t.dtype != u.dtype)
      out.push_back("tensor " + t.name + ": " + record_text(t) + " against " + record_text(u));
    else if (t.life != u.life)
      out.push_back(kb::text("tensor ", t.name, ": ", life_name(t.life), " against ", life_name(u.life)));
    else
      compare_values(a, t, b, u, out);
    in_b.erase(at);
  }
  for (const auto& [name, unused] : in_b) out.push_back("tensor " + name + ": only in the second");
}

template <class T>
void compare(const std::string& what, const T& a, const T& b, Lines& out) {
  if (a == b) return;
  std::ostringstream s;
  s.precision(17);
  s << what << ": " << a << " against " << b;
  out.push_back(s.str());
}

void compare_window(const std::string& what, const std::vector<double>& a, const std::vector<double>& b, Lines& out) {
  // By bits: a NaN equals itself here.
  const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
  if (!same) out.push_back(kb::text(what, ": differ (", a.size(), " against ", b.size(), " values)"));
}

void compare_maps(const std::string& what, const auto& a, const auto& b, Lines& out) {
  for (const auto& [key, v] : a) {
    const auto at = b.find(key);
    if (at == b.end())
      out.push_back(kb::text(what, " ", key, ": only in the first"));
    else
      compare(kb::text(what, " ", key), v, at->second, out);
  }
  for (const auto& [key, unused] : b)
    if (!a.count(key)) out.push_back(kb::text(what, " ", key, ": only in the second"));
}

std::map<int64_t, std::string> open_lanes(const DataPosition& p) {
  std::map<int64_t, std::string> r;
  for (const auto& [lane, s] : p.open)
    r[lane] = kb::text("sample ", s.number, " of ", s.source, " from token ", s.offset);
  return r;
}

void compare_positions(const CheckpointInfo& x, const CheckpointInfo& y, Lines& out) {
  const TrainPosition &a = x.position, &b = y.position;
  compare("position step", a.step, b.step, out);
  compare("position stage", a.stage, b.stage, out);
  compare("position stage_step", a.stage_step, b.stage_step, out);
  compare("position tokens", a.tokens, b.tokens, out);
  compare("position stage_tokens", a.stage_tokens, b.stage_tokens, out);
  compare("position skipped", a.skipped, b.skipped, out);
  compare("position rollbacks", a.rollbacks, b.rollbacks, out);
  compare("position refused in a row", a.refused_in_a_row, b.refused_in_a_row, out);
  compare_window("position recent losses", a.recent_loss, b.recent_loss, out);
  compare_window("position recent norms", a.recent_norm, b.recent_norm, out);
  compare("position data draws", a.data.draws, b.data.draws, out);
  compare_maps("position data drawn of", a.data.drawn, b.data.drawn, out);
  compare("position data turn", a.data.turn, b.data.turn, out);
  compare_maps("position data lane", open_lanes(a.data), open_lanes(b.data), out);
  if (std::bit_cast<uint64_t>(x.loss) != std::bit_cast<uint64_t>(y.loss)) {
    std::ostringstream s;
    s.precision(17);
    s << "loss: " << x.loss << " against " << y.loss;
    out.push_back(s.str());
  }
}

}  // namespace

// By longest common subsequence, as `diff` prints them.
std::vector<std::string> diff_recipes(const std::string& a, const std::string& b) {
  if (a == b) return {};
  const Lines x = split(a, '\n'), y = split(b, '\n');
  if (x.size() * y.size() > 25'000'000) return {kb::text("differs (", x.size(), " against ", y.size(), " lines)")};
  Lines out;
  std::vector<std::vector<int>> common(x.size() + 1, std::vector<int>(y.size() + 1, 0));
  for (size_t i = x.size(); i-- > 0;)
    for (size_t j = y.size(); j-- > 0;)
      common[i][j] = x[i] == y[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  for (size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    if (i < x.size() && j < y.size() && x[i] == y[j])
      ++i, ++j;
    else if (i < x.size() && (j == y.size() || common[i + 1][j] >= common[i][j + 1]))
      out.push_back("- " + x[i++]);
    else
      out.push_back("+ " + y[j++]);
  }
  return out;
}

std::vector<std::string> diff_checkpoints(const std::string& a, const std::string& b) {
  const Manifest x = verified_manifest(a), y = verified_manifest(b);
  Lines out;
  compare_positions(x.info, y.info, out);
  compare("recipe name", x.info.recipe_name, y.info.recipe_name, out);
  compare("seed", x.info.recipe_seed, y.info.recipe_seed, out);
  compare_maps("plugin", x.info.plugins, y.info.plugins, out);
  for (const std::string& line : diff_recipes(x.info.recipe, y.info.recipe)) out.push_back("recipe " + line);
  compare_tensors(x, y, out);
  return out;
}

}  // namespace kitbash
