// plugin.h: what an author includes. A plugin is one list of components, ops and kernels; KITBASH_PLUGIN turns it into C
// tables behind one exported function, and into the manifest section that the host reads without running any plugin code.
#pragma once
#include "kitbash/kinds/all.h"
#include "kitbash/op.h"

namespace kb {

// A kind's base class gives `kind`, and `static void serve(const T&, Builder&)` (graph) or `static const void* service()`.
template <class T>
const kb_component* component_table(const char* name) {
  static kb_component t{};
  t.struct_size = KB_STRUCT_SIZE(kb_component, service);
  t.kind = T::kind;
  t.name = name;
  t.create = [](const kb_host*, const kb_attr* a, uint32_t n, void** self, kb_error* e) {
    return guard("create", e, [&] {
      auto made = std::make_unique<T>();
      fill_object(*made, a, n);
      if constexpr (requires { made->check(); }) made->check();  // cross-field rules; fail() to refuse
      *self = made.release();
    });
  };
  t.destroy = [](void* s) { delete static_cast<T*>(s); };
  if constexpr (requires(const T& x, Builder& b) { T::serve(x, b); })
    t.build = [](const void* s, kb_build* c, kb_error* e) {
      return guard(T::kind, e, [&] {
        Builder b(c->host, c->builder, c);
        const T& self = *static_cast<const T*>(s);
        if (c->mode != KB_UPDATE) return T::serve(self, b);
        if constexpr (requires { self.update(b); }) self.update(b);  // any component may have one
        b.result({});
      });
    };
  if constexpr (requires { T::service(); }) t.service = T::service();
  return &t;
}

template <class T>
struct ComponentPart {
  const char* name;
};
template <class O>
struct OpPart {};
template <class K>
struct KernelPart {};
template <class T>
constexpr ComponentPart<T> component(const char* name) {
  return {name};
}
template <class O>
constexpr OpPart<O> op() {
  return {};
}
template <class K>
constexpr KernelPart<K> kernel() {
  return {};
}

template <class T>
constexpr void describe(Sink& s, ComponentPart<T> p) {
  s.put("[[component]]\n");
  line(s, "kind", T::kind);
  line(s, "name", p.name);
  std::apply([&](const auto&... f) { (describe(s, f), ...); }, Schema<T>::fields());
}
template <class O>
constexpr void describe(Sink& s, OpPart<O>) {
  s.put("[[op]]\n");
  line(s, "name", O::name);
}
template <class K>
constexpr void describe(Sink& s, KernelPart<K>) {
  s.put("[[kernel]]\n");
  line(s, "op", K::Op::name);
  line(s, "name", K::name);
  line(s, "device", K::device == KB_CPU ? "cpu" : "cuda");
}

template <class F>
consteval auto manifest(F f) {
  constexpr size_t N = [] {
    Sink s;
    F{}(s);
    return s.n;
  }();
  std::array<char, N> a{};
  Sink s{a.data(), 0};
  f(s);
  return a;
}

struct Tables {
  std::vector<const kb_component*> components;
  std::vector<const kb_op*> ops;
  std::vector<const kb_kernel*> kernels;
};
template <class T>
void add(Tables& t, ComponentPart<T> p) {
  t.components.push_back(component_table<T>(p.name));
}
template <class O>
void add(Tables& t, OpPart<O>) {
  t.ops.push_back(op_table<O>());
}
template <class K>
void add(Tables& t, KernelPart<K>) {
  t.kernels.push_back(kernel_table<K>());
}

}  // namespace kb

// The newest ABI minor whose features the plugin cannot do without; raise it before the include.
#ifndef KITBASH_NEEDS_MINOR
#define KITBASH_NEEDS_MINOR 0
#endif

// EXT: the extension function of kb_plugin, or nullptr.
#define KITBASH_PLUGIN_WITH(EXT, id, version, license, ...)                                                     \
  static constexpr auto kb_parts() {                                                                            \
    using kb::component;                                                                                        \
    using kb::kernel;                                                                                           \
    using kb::op;                                                                                               \
    return std::make_tuple(__VA_ARGS__);                                                                        \
  }                                                                                                             \
  extern "C" __attribute__((visibility("default"), used, section("kitbash"))) constexpr auto kitbash_manifest = \
      kb::manifest([](kb::Sink& s) {                                                                            \
        s.put("kitbash = "), s.num(int64_t(KB_ABI_MAJOR));                                                      \
        s.put("\nneeds = "), s.num(int64_t(KITBASH_NEEDS_MINOR));                                               \
        s.put("\nbuilt_minor = "), s.num(int64_t(KB_ABI_MINOR)), s.put("\n");                                   \
        kb::line(s, "plugin", id), kb::line(s, "version", version), kb::line(s, "license", license);            \
        kb::line(s, "built_with", __VERSION__);                                                                 \
        std::apply([&](auto... p) { (kb::describe(s, p), ...); }, kb_parts());                                  \
      });                                                                                                       \
  extern "C" KB_EXPORT const kb_plugin* kitbash_plugin_v1(void) {                                               \
    static const kb::Tables t = [] {                                                                            \
      kb::Tables x;                                                                                             \
      std::apply([&](auto... p) { (kb::add(x, p), ...); }, kb_parts());                                         \
      return x;                                                                                                 \
    }();                                                                                                        \
    static const kb_plugin p{KB_STRUCT_SIZE(kb_plugin, extension),                                              \
                             KB_ABI_MAJOR,                                                                      \
                             KB_ABI_MINOR,                                                                      \
                             KITBASH_NEEDS_MINOR,                                                               \
                             t.components.data(),                                                               \
                             uint32_t(t.components.size()),                                                     \
                             t.ops.data(),                                                                      \
                             uint32_t(t.ops.size()),                                                            \
                             t.kernels.data(),                                                                  \
                             uint32_t(t.kernels.size()),                                                        \
                             nullptr,                                                                           \
                             EXT};                                                                              \
    return &p;                                                                                                  \
  }
#define KITBASH_PLUGIN(id, version, license, ...) KITBASH_PLUGIN_WITH(nullptr, id, version, license, __VA_ARGS__)
