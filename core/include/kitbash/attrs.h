// attrs.h: attributes of ops. An op is a struct whose data members are its attributes; KITBASH_ATTRS lists them once, in
// their ABI order (append only), and the SDK decodes them for infer, cost, gradient and kernels alike.
#pragma once
#include <initializer_list>
#include <vector>

#include "kitbash/schema.h"

namespace kb {

struct Shape {  // up to eight sizes; negative indices count from the end
  int64_t at[KB_MAX_RANK] = {};
  int n = 0;
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> l) {
    for (auto v : l) at[n++] = v;
  }
  constexpr int64_t operator[](int i) const { return at[i < 0 ? i + n : i]; }
  constexpr int64_t& operator[](int i) { return at[i < 0 ? i + n : i]; }
  constexpr int64_t size() const {
    int64_t s = 1;
    for (int i = 0; i < n; ++i) s *= at[i];
    return s;
  }
};
struct Doubles {  // a list of any length, owned by the node
  const double* at = nullptr;
  uint32_t n = 0;
};

struct Attr : kb_attr {  // {"scale", 0.5}, {"axis", 1}, {"shape", shape}: for emit()
  Attr(const char* k, double f) : kb_attr{k, KB_FLOAT, 1, {.f = f}} {}
  Attr(const char* k, int64_t i) : kb_attr{k, KB_INT, 1, {.i = i}} {}
  Attr(const char* k, int i) : Attr(k, int64_t(i)) {}
  Attr(const char* k, bool b) : Attr(k, int64_t(b)) {}
  Attr(const char* k, const char* s) : kb_attr{k, KB_TEXT, 1, {.s = s}} {}
  Attr(const char* k, const Shape& s) : kb_attr{k, KB_INTS, uint32_t(s.n), {.is = s.at}} {}
  Attr(const char* k, const std::vector<double>& v) : kb_attr{k, KB_FLOATS, uint32_t(v.size()), {.fs = v.data()}} {}
};
using Attrs = std::initializer_list<Attr>;

template <class O, class M>
struct AttrField {
  const char* name;
  M O::*member;
};
template <class O, class M>
constexpr AttrField<O, M> attr(const char* name, M O::*m) {
  return {name, m};
}
template <class O>
struct OpAttrs {
  static constexpr auto list() { return std::tuple<>(); }
};
#define KITBASH_ATTRS(O, ...)              \
  template <>                              \
  struct kb::OpAttrs<O> {                  \
    using Self = O;                        \
    static constexpr auto list() {         \
      using kb::attr;                      \
      return std::make_tuple(__VA_ARGS__); \
    }                                      \
  };

// An op that derives its attributes from another struct (the core's base ops do) says so with `using Attributes`.
template <class O>
constexpr auto op_attrs() {
  if constexpr (requires { typename O::Attributes; })
    return OpAttrs<typename O::Attributes>::list();
  else
    return OpAttrs<O>::list();
}

inline void decode(double& m, const kb_attr& a) { m = a.v.f; }
inline void decode(int64_t& m, const kb_attr& a) { m = a.v.i; }
inline void decode(bool& m, const kb_attr& a) { m = a.v.i != 0; }
inline void decode(Text& m, const kb_attr& a) { m = Text(a.v.s); }
inline void decode(Doubles& m, const kb_attr& a) { m = {a.v.fs, a.count}; }
inline void decode(Shape& m, const kb_attr& a) {
  if (a.count > KB_MAX_RANK) fail("'", a.name, "' must have at most ", KB_MAX_RANK, " sizes but got ", a.count);
  m.n = int(a.count);
  for (int i = 0; i < m.n; ++i) m.at[i] = a.v.is[i];
}

// The op's struct with its attributes filled in; the host always passes all of them, in declared order.
template <class O>
O read_attrs(const kb_attr* a, uint32_t n) {
  O op{};
  constexpr auto list = op_attrs<O>();
  constexpr size_t want = std::tuple_size_v<decltype(list)>;
  if (n < want) fail("op got ", n, " attributes but declares ", want);
  std::apply(
      [&](const auto&... f) {
        uint32_t i = 0;
        (decode(op.*f.member, a[i++]), ...);
        (void)i;
      },
      list);
  return op;
}

inline kb_attr default_attr(const char* n, double v) { return {n, KB_FLOAT, 1, {.f = v}}; }
inline kb_attr default_attr(const char* n, int64_t v) { return {n, KB_INT, 1, {.i = v}}; }
inline kb_attr default_attr(const char* n, bool v) { return {n, KB_INT, 1, {.i = v}}; }
inline kb_attr default_attr(const char* n, const Text& v) { return {n, KB_TEXT, 1, {.s = v.buf}}; }
inline kb_attr default_attr(const char* n, const Shape& v) { return {n, KB_INTS, uint32_t(v.n), {.is = v.at}}; }
inline kb_attr default_attr(const char* n, const Doubles& v) { return {n, KB_FLOATS, v.n, {.fs = v.at}}; }

}  // namespace kb
