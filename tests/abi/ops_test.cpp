// Names, attributes (name, kind, order) and defaults of the base ops, against ops.golden. A plugin compiled today
// relies on all of them. A new op adds a line; a new attribute is appended to its line; nothing else may change.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "kitbash/ops.h"

namespace {

namespace o = kb::ops;
template <class... O>
struct Ops {};
// All of them; `lists_every_op_of_the_header` finds one that is left out.
using All =
    Ops<o::Affine, o::Exp, o::Log, o::Sigmoid, o::Tanh, o::Softplus, o::Rsqrt, o::Sqrt, o::Sin, o::Cos, o::Erf,
        o::Floor, o::IsFinite, o::Detach, o::Cast, o::Add, o::Sub, o::Mul, o::Div, o::Minimum, o::Maximum, o::Less,
        o::Sum, o::Amax, o::SumTo, o::SquareSum, o::Softmax, o::Matmul, o::RmsNorm, o::RmsNormBackward, o::Reshape,
        o::Permute, o::Slice, o::Unslice, o::Concat, o::Broadcast, o::Copy, o::Gather, o::ScatterAdd, o::Take,
        o::Untake, o::Topk, o::Fill, o::Vector, o::Iota, o::Normal, o::Uniform, o::ShortConv, o::ShortConvBackward,
        o::Attention, o::AttentionBackward, o::CacheAppend, o::AttentionCached, o::ExpertSort, o::Dispatch, o::Combine,
        o::GroupedLinear, o::GroupedOuter, o::CrossEntropy, o::CrossEntropyBackward, o::AllReduce, o::Fused>;

std::string shown(const kb_attr& a) {
  std::ostringstream s;
  s << a.name << ":";
  switch (a.kind) {
    case KB_INT:
      s << "int=" << a.v.i;
      break;
    case KB_FLOAT:
      s << "float=" << a.v.f;
      break;
    case KB_TEXT:
      s << "text=" << a.v.s;
      break;
    case KB_INTS:
      s << "ints=" << a.count;
      break;  // the default is always the empty list
    case KB_FLOATS:
      s << "floats=" << a.count;
      break;
    default:
      s << "kind " << a.kind;
  }
  return s.str();
}

template <class O>
std::string line() {
  std::string s = O::name;
  [[maybe_unused]] static const O defaults{};
  std::apply([&](const auto&... f) { ((s += " " + shown(kb::default_attr(f.name, defaults.*f.member))), ...); },
             kb::OpAttrs<O>::list());
  return s;
}
template <class... O>
std::vector<std::string> lines(Ops<O...>) {
  return {line<O>()...};
}

std::string content(const char* path) {
  std::ifstream f(path);
  return {std::istreambuf_iterator<char>(f), {}};
}

TEST(BaseOps, have_their_golden_names_and_attributes) {
  std::vector<std::string> golden;
  std::istringstream f(content(KITBASH_OPS_GOLDEN));
  for (std::string l; std::getline(f, l);)
    if (!l.empty() && l[0] != '#') golden.push_back(l);
  const std::vector<std::string> now = lines(All{});
  for (size_t i = 0; i < std::max(now.size(), golden.size()); ++i)
    EXPECT_EQ(i < now.size() ? now[i] : "(none)", i < golden.size() ? golden[i] : "(none)") << "line " << i + 1;
}

TEST(BaseOps, lists_every_op_of_the_header) {
  const std::string header = content(KITBASH_OPS_FILE);
  const std::regex op("(KB_PLAIN_OP\\(\\w+, |name = )\"([a-z0-9_]+)\"");
  std::vector<std::string> in_header;
  for (std::sregex_iterator it(header.begin(), header.end(), op), end; it != end; ++it) in_header.push_back((*it)[2]);
  std::vector<std::string> listed;
  for (const std::string& l : lines(All{})) listed.push_back(l.substr(0, l.find(' ')));
  EXPECT_EQ(listed, in_header);
}

// A kernel reads what the SDK encodes: every attribute comes back through read_attrs at its place.
TEST(BaseOps, decode_what_they_encode) {
  const int64_t shape[] = {3, 4};
  const kb_attr fill[] = {
      {"shape", KB_INTS, 2, {.is = shape}}, {"value", KB_FLOAT, 1, {.f = 2.5}}, {"dtype", KB_INT, 1, {.i = KB_F64}}};
  const auto f = kb::read_attrs<o::Fill>(fill, 3);
  EXPECT_EQ(f.shape.size(), 12);
  EXPECT_EQ(f.value, 2.5);
  EXPECT_EQ(f.dtype, KB_F64);
  EXPECT_THROW(kb::read_attrs<o::Fill>(fill, 2), kb::Error);
}

}  // namespace
