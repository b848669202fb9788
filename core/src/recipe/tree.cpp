#include "recipe/tree.h"

#include <toml++/toml.h>
#include <sstream>

#include "recipe/faults.h"

namespace kitbash {
namespace {

Where place(const toml::source_region& r, const std::string& path) {
  return {path, int(r.begin.line), int(r.begin.column)};
}

void note_use(Node& table) {
  const auto use = table.use();
  if (!use) return;
  for (auto& [name, child] : table.keys) child.beside = use;
}

Node convert(const toml::node& n, const std::string& path, int source) {
  Node r;
  r.where = r.key = place(n.source(), path);
  r.source = source;
  if (const auto* t = n.as_table()) {
    r.type = Node::Type::table;
    for (const auto& [k, v] : *t) {
      Node child = convert(v, path, source);
      child.key = place(k.source(), path);
      r.keys.emplace(std::string(k.str()), std::move(child));
    }
    note_use(r);
  } else if (const auto* a = n.as_array()) {
    r.type = Node::Type::array;
    for (const auto& v : *a) r.items.push_back(convert(v, path, source));
  } else if (const auto* b = n.as_boolean()) {
    r.type = Node::Type::boolean, r.value = b->get();
  } else if (const auto* i = n.as_integer()) {
    r.type = Node::Type::integer, r.value = i->get();
  } else if (const auto* f = n.as_floating_point()) {
    r.type = Node::Type::real, r.value = f->get();
  } else if (const auto* s = n.as_string()) {
    r.type = Node::Type::text, r.value = s->get();
  } else {
    r.type = Node::Type::other;
  }
  return r;
}

void set_place(Node& n, const Where& w) {
  n.where = n.key = w;
  for (auto& [name, child] : n.keys) set_place(child, w);
  for (auto& i : n.items) set_place(i, w);
}

}  // namespace

const Node* Node::find(const std::string& name) const {
  const auto i = keys.find(name);
  return i == keys.end() ? nullptr : &i->second;
}
const std::string* Node::text() const { return is(Type::text) ? &std::get<std::string>(value) : nullptr; }
std::optional<std::string> Node::use() const {
  const Node* u = find("use");
  if (!u || !u->text()) return std::nullopt;
  return *u->text();
}
Node Node::table_at(const Where& w, int source) {
  Node n;
  n.key = n.where = w;
  n.source = source;
  return n;
}

const char* type_name(Node::Type t) {
  switch (t) {
    case Node::Type::table:
      return "table";
    case Node::Type::array:
      return "array";
    case Node::Type::boolean:
      return "bool";
    case Node::Type::integer:
      return "int";
    case Node::Type::real:
      return "float";
    case Node::Type::text:
      return "string";
    case Node::Type::other:
      break;
  }
  return "date or time";
}

Node parse_toml(const std::string& text, const std::string& path, int source) {
  try {
    const toml::table t = toml::parse(text, path);
    Node n = convert(t, path, source);
    n.where = n.key = {path, 1, 1};
    return n;
  } catch (const toml::parse_error& e) {
    Faults faults;
    faults.add(place(e.source(), path), std::string(e.description()));
    faults.raise();
  }
}

Node parse_value(const std::string& text, const Where& where, int source) {
  try {
    const toml::table t = toml::parse("v = " + text);
    if (t.size() == 1) {
      Node n = convert(*t.get("v"), where.file, source);
      set_place(n, where);
      return n;
    }
  } catch (const toml::parse_error&) {  // not a TOML value: then a name
  }
  Node n = Node::table_at(where, source);
  n.type = Node::Type::text;
  n.value = text;
  return n;
}

Node as_slot(Node text) {
  Node t = Node::table_at(text.where, text.source);
  t.key = text.key;
  t.beside = text.beside;
  text.beside = *text.text();
  t.keys.emplace("use", std::move(text));
  return t;
}

void merge(Node& base, Node over, int fresh) {
  using Type = Node::Type;
  if (over.is(Type::text) && base.is(Type::table) && base.find("use")) over = as_slot(std::move(over));
  if (base.is(Type::text) && over.is(Type::table)) base = as_slot(std::move(base));
  if (!base.is(Type::table) || !over.is(Type::table)) {
    base = std::move(over);
    return;
  }
  const auto below = base.use(), above = over.use();
  if (above && below && *above != *below && over.find("use")->source == fresh) {
    base = std::move(over);
    return;
  }
  base.beside = over.beside;
  for (auto& [name, child] : over.keys) {
    if (!above) child.beside = below;
    const auto at = base.keys.find(name);
    if (at == base.keys.end())
      base.keys.emplace(name, std::move(child));
    else
      merge(at->second, std::move(child), fresh);
  }
}

}  // namespace kitbash
