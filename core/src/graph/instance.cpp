#include "graph/instance.h"

#include <cstring>

#include "kitbash/error.h"

namespace kitbash {

OwnedAttrs::OwnedAttrs(const kb_attr* a, uint32_t n) {
  auto keep = [&](const void* from, size_t bytes) {
    memory_.push_back(std::make_unique<char[]>(bytes ? bytes : 1));
    if (bytes) std::memcpy(memory_.back().get(), from, bytes);
    return memory_.back().get();
  };
  for (uint32_t i = 0; i < n; ++i) {
    kb_attr k = a[i];
    k.name = keep(a[i].name, std::strlen(a[i].name) + 1);
    if (k.kind == KB_TEXT) k.v.s = keep(a[i].v.s, std::strlen(a[i].v.s) + 1);
    if (k.kind == KB_INTS) k.v.is = reinterpret_cast<const int64_t*>(keep(a[i].v.is, k.count * sizeof(int64_t)));
    if (k.kind == KB_FLOATS) k.v.fs = reinterpret_cast<const double*>(keep(a[i].v.fs, k.count * sizeof(double)));
    attrs_.push_back(k);
  }
}

Instance::~Instance() {
  if (self && table) table->destroy(self);
}

namespace {

kb_attr to_attr(const FieldInfo& f, const FieldValue& v) {
  kb_attr a{};
  a.name = f.name.c_str();
  a.count = 1;
  if (auto b = std::get_if<bool>(&v)) a.kind = KB_INT, a.v.i = *b;
  if (auto i = std::get_if<int64_t>(&v)) {
    if (f.type == "float")
      a.kind = KB_FLOAT, a.v.f = double(*i);
    else
      a.kind = KB_INT, a.v.i = *i;
  }
  if (auto d = std::get_if<double>(&v)) a.kind = KB_FLOAT, a.v.f = *d;
  if (auto s = std::get_if<std::string>(&v)) a.kind = KB_TEXT, a.v.s = s->c_str();
  if (auto is = std::get_if<std::vector<int64_t>>(&v))
    a.kind = KB_INTS, a.count = uint32_t(is->size()), a.v.is = is->data();
  if (auto fs = std::get_if<std::vector<double>>(&v))
    a.kind = KB_FLOATS, a.count = uint32_t(fs->size()), a.v.fs = fs->data();
  return a;
}

}  // namespace

std::unique_ptr<Instance> create_instance(const ComponentConfig& c, Registry& registry, const kb_host* host) {
  auto made = std::make_unique<Instance>();
  made->config = &c;
  made->table = &registry.component(*c.info);
  for (const auto& [slot, child] : c.children) made->children[slot] = create_instance(*child, registry, host);
  std::vector<kb_attr> attrs;
  for (size_t i = 0; i < c.values.size(); ++i) attrs.push_back(to_attr(c.info->fields[i], c.values[i]));
  kb_error e{};
  if (int rc = made->table->create(host, attrs.data(), uint32_t(attrs.size()), &made->self, &e); rc) {
    const std::string at = c.where.text();
    throw kb::Error("[" + c.info->id() + (at.empty() ? "" : " (" + at + ")") + "] " + e.message, uint32_t(rc));
  }
  return made;
}

}  // namespace kitbash
