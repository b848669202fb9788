// schema.h: a component is its own configuration: its public data members are the recipe keys. KITBASH_SCHEMA names them
// once; that one list fills the object, checks ranges, and is rendered at compile time into the manifest section, which
// `kitbash check` and `kitbash plugin inspect` read without running plugin code. The attributes of an op are declared the
// same way with KITBASH_ATTRS.
#pragma once
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "kitbash/error.h"

namespace kb {

// ---- types of keys; all literal, so that defaults are constexpr -------------------------------------------------------
struct Text {
  char buf[256] = {};
  constexpr Text() = default;
  constexpr Text(const char* s) {
    for (int i = 0; s && s[i] && i < 255; ++i) buf[i] = s[i];
  }
  constexpr std::string_view view() const { return buf; }
  constexpr bool operator==(std::string_view s) const { return view() == s; }
};
struct Path : Text {  // resolved by the host against the folder of the recipe
  using Text::Text;
};
struct Slot {  // a child component; `use` is the name of what fills it, empty for none
  Text use;
  const char* slot = "";  // its name in this component
  constexpr Slot() = default;
  constexpr Slot(const char* name) : use(name) {}
  explicit operator bool() const { return use.buf[0] != 0; }
};
template <class E, int N = 16>
struct List {
  E at[N] = {};
  int n = 0;
  constexpr List() = default;
  constexpr List(std::initializer_list<E> l) {
    for (E e : l) at[n++] = e;
  }
};

// ---- one key ------------------------------------------------------------------------------------------------------------
template <class T, class M>
struct Field {
  const char *name, *doc;
  M T::*member;
  const char* kind = nullptr;  // slot: kind of the child
  double lo = -std::numeric_limits<double>::infinity(), hi = std::numeric_limits<double>::infinity();
  std::array<const char*, 8> choices{};
  const char* old = nullptr;
  bool needed = false, may_be_empty = false, is_flat = false;

  constexpr Field range(double a, double b) const {  // inclusive
    Field f = *this;
    f.lo = a, f.hi = b;
    return f;
  }
  constexpr Field was(const char* n) const {  // an older name, accepted with a warning
    Field f = *this;
    f.old = n;
    return f;
  }
  constexpr Field required() const {
    Field f = *this;
    f.needed = true;
    return f;
  }
  constexpr Field optional() const {  // a slot that may be left empty
    Field f = *this;
    f.may_be_empty = true;
    return f;
  }
  constexpr Field flat() const {  // a slot whose parameters are named as the parent's own
    Field f = *this;
    f.is_flat = true;
    return f;
  }
  template <class... C>
  constexpr Field one_of(C... c) const {
    static_assert(sizeof...(C) <= 8, "at most eight choices");
    Field f = *this;
    f.choices = {c...};
    return f;
  }
};
template <class T, class M>
constexpr Field<T, M> field(const char* n, M T::*m, const char* doc) {
  return {n, doc, m};
}
template <class T>
constexpr Field<T, Slot> slot(const char* n, Slot T::*m, const char* kind, const char* doc) {
  return {n, doc, m, kind};
}

template <class T>
struct Schema {  // no keys, unless KITBASH_SCHEMA says otherwise
  static constexpr auto fields() { return std::tuple<>(); }
};
#define KITBASH_SCHEMA(T, ...)             \
  template <>                              \
  struct kb::Schema<T> {                   \
    using Self = T;                        \
    static constexpr auto fields() {       \
      using kb::field;                     \
      using kb::slot;                      \
      return std::make_tuple(__VA_ARGS__); \
    }                                      \
  };

// ---- rendering the manifest: run twice, to count and to fill -------------------------------------------------------------
struct Sink {
  char* out = nullptr;
  size_t n = 0;
  constexpr void put(std::string_view s) {
    for (char c : s) {
      if (out) out[n] = c;
      ++n;
    }
  }
  constexpr void quote(std::string_view s) {
    put("\"");
    for (char c : s) {
      if (c == '"' || c == '\\') put("\\");
      const char one[2] = {c, 0};
      put(c == '\n' ? std::string_view("\\n") : std::string_view(one, 1));
    }
    put("\"");
  }
  constexpr void num(int64_t v) {
    char d[24]{};
    int k = 0;
    uint64_t u = v < 0 ? 0 - uint64_t(v) : uint64_t(v);
    if (v < 0) put("-");
    do d[k++] = char('0' + u % 10);
    while (u /= 10);
    while (k) put(std::string_view(&d[--k], 1));
  }
  constexpr void num(double v) {  // ten significant digits; constexpr, so by hand
    if (v != v) return put("nan");
    if (v < 0) put("-"), v = -v;
    if (v > 1.7e308) return put("inf");
    if (v == 0) return put("0.0");
    int e = 0;
    double m = v;
    for (; m >= 10; ++e) m /= 10;
    for (; m < 1; --e) m *= 10;
    auto u = uint64_t(m * 1e9 + 0.5);
    if (u >= 10000000000ull) u /= 10, ++e;
    int digits = 9;
    for (; digits > 1 && u % 10 == 0; --digits) u /= 10;
    char d[12]{};
    for (int i = digits; i >= 0; --i) d[i] = char('0' + u % 10), u /= 10;
    put(std::string_view(d, 1));
    put(".");
    put(std::string_view(d + 1, size_t(digits)));
    if (e) put("e"), num(int64_t(e));
  }
};
constexpr void line(Sink& s, const char* k, std::string_view v) {
  s.put(k);
  s.put(" = ");
  s.quote(v);
  s.put("\n");
}

template <class M>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<M, bool>)
    return "bool";
  else if constexpr (std::is_integral_v<M>)
    return "int";
  else if constexpr (std::is_floating_point_v<M>)
    return "float";
  else if constexpr (std::is_same_v<M, Slot>)
    return "slot";
  else if constexpr (std::is_same_v<M, Path>)
    return "path";
  else if constexpr (std::is_same_v<M, Text>)
    return "text";
  else
    return std::is_integral_v<std::decay_t<decltype(M{}.at[0])>> ? "ints" : "floats";
}

template <class M>
constexpr void render(Sink& s, const M& v) {
  if constexpr (std::is_same_v<M, bool>)
    s.put(v ? "true" : "false");
  else if constexpr (std::is_integral_v<M>)
    s.num(int64_t(v));
  else if constexpr (std::is_floating_point_v<M>)
    s.num(double(v));
  else if constexpr (std::is_same_v<M, Slot>)
    s.quote(v.use.view());
  else if constexpr (std::is_base_of_v<Text, M>)
    s.quote(v.view());
  else {
    s.put("[");
    for (int i = 0; i < v.n; ++i) {
      if (i) s.put(", ");
      render(s, v.at[i]);
    }
    s.put("]");
  }
}

template <class T, class M>
constexpr void describe(Sink& s, const Field<T, M>& f) {
  s.put("[[component.field]]\n");
  line(s, "name", f.name);
  line(s, "type", type_name<M>());
  line(s, "doc", f.doc);
  if (!f.needed) {
    constexpr T fresh{};
    s.put("default = ");
    render(s, fresh.*f.member);
    s.put("\n");
  }
  if (f.kind) line(s, "kind", f.kind);
  if (f.lo > -1.7e308) s.put("min = "), s.num(f.lo), s.put("\n");
  if (f.hi < 1.7e308) s.put("max = "), s.num(f.hi), s.put("\n");
  if (f.choices[0]) {
    s.put("choices = [");
    for (size_t i = 0; i < f.choices.size() && f.choices[i]; ++i) {
      if (i) s.put(", ");
      s.quote(f.choices[i]);
    }
    s.put("]\n");
  }
  if (f.old) line(s, "was", f.old);
  if (f.needed) s.put("required = true\n");
  if (f.may_be_empty) s.put("optional = true\n");
  if (f.is_flat) s.put("flat = true\n");
}

// ---- filling an object from the host's values (checked by the host, in the order of the manifest) -----------------------
template <class M>
void assign(M& m, const kb_attr& a) {
  if constexpr (std::is_base_of_v<Text, M>) {
    if (const size_t n = std::strlen(a.v.s); n > 255)
      fail("'", a.name, "' must have at most 255 bytes but has ", n, "; shorten it (a path counts from the root)");
    m = M(a.v.s);
  } else if constexpr (std::is_floating_point_v<M>) {
    m = M(a.v.f);
  } else if constexpr (std::is_arithmetic_v<M>) {
    m = M(a.v.i);
  } else {
    if (a.count > sizeof m.at / sizeof m.at[0])
      fail("'", a.name, "' has ", a.count, " elements; there is room for ", sizeof m.at / sizeof m.at[0]);
    m.n = int(a.count);
    for (int i = 0; i < m.n; ++i) {
      if constexpr (std::is_integral_v<std::decay_t<decltype(m.at[0])>>)
        m.at[i] = a.v.is[i];
      else
        m.at[i] = a.v.fs[i];
    }
  }
}
template <class T, class M>
void fill_field(T& t, const Field<T, M>& f, const kb_attr& a) {
  if constexpr (std::is_same_v<M, Slot>) {
    assign((t.*f.member).use, a);
    (t.*f.member).slot = f.name;
  } else {
    assign(t.*f.member, a);
  }
}
template <class T>
void fill_object(T& t, const kb_attr* a, uint32_t n) {
  constexpr auto fields = Schema<T>::fields();
  constexpr size_t want = std::tuple_size_v<decltype(fields)>;
  if (n != want) fail("got ", n, " keys; the manifest lists ", want);
  std::apply(
      [&](const auto&... f) {
        uint32_t i = 0;
        (fill_field(t, f, a[i++]), ...);
        (void)i;
      },
      fields);
}

}  // namespace kb
