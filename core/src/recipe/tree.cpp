#include "recipe/tree.h"

#include <toml++/toml.h>
#include <cctype>

#include "base/nesting.h"
#include "recipe/faults.h"

namespace kitbash {
namespace {

Where place(const toml::source_region& r, const std::string& path) {
  return {path, int(r.begin.line), int(r.begin.column)};
}

void note_use(RecipeNode& table) {
  const auto use = table.use();
  if (!use) return;
  for (auto& [name, child] : table.keys) child.beside = use;
}

RecipeNode convert(const toml::node& n, const std::string& path, int source) {
  RecipeNode r;
  r.where = r.key = place(n.source(), path);
  r.source = source;
  if (const auto* t = n.as_table()) {
    r.type = RecipeNode::Type::table;
    for (const auto& [k, v] : *t) {
      RecipeNode child = convert(v, path, source);
      child.key = place(k.source(), path);
      r.keys.emplace(std::string(k.str()), std::move(child));
    }
    note_use(r);
  } else if (const auto* a = n.as_array()) {
    r.type = RecipeNode::Type::array;
    for (const auto& v : *a) r.items.push_back(convert(v, path, source));
  } else if (const auto* b = n.as_boolean()) {
    r.type = RecipeNode::Type::boolean, r.value = b->get();
  } else if (const auto* i = n.as_integer()) {
    r.type = RecipeNode::Type::integer, r.value = i->get();
  } else if (const auto* f = n.as_floating_point()) {
    r.type = RecipeNode::Type::real, r.value = f->get();
  } else if (const auto* s = n.as_string()) {
    r.type = RecipeNode::Type::text, r.value = s->get();
  } else {
    r.type = RecipeNode::Type::other;
  }
  return r;
}

void set_place(RecipeNode& n, const Where& w) {
  n.where = n.key = w;
  for (auto& [name, child] : n.keys) set_place(child, w);
  for (auto& i : n.items) set_place(i, w);
}

}  // namespace

const RecipeNode* RecipeNode::find(const std::string& name) const {
  const auto i = keys.find(name);
  return i == keys.end() ? nullptr : &i->second;
}
const std::string* RecipeNode::text() const { return is(Type::text) ? &std::get<std::string>(value) : nullptr; }
std::optional<std::string> RecipeNode::use() const {
  const RecipeNode* u = find("use");
  if (!u || !u->text()) return std::nullopt;
  return *u->text();
}
RecipeNode RecipeNode::table_at(const Where& w, int source) {
  RecipeNode n;
  n.key = n.where = w;
  n.source = source;
  return n;
}

const char* type_name(RecipeNode::Type t) {
  switch (t) {
    case RecipeNode::Type::table:
      return "table";
    case RecipeNode::Type::array:
      return "array";
    case RecipeNode::Type::boolean:
      return "bool";
    case RecipeNode::Type::integer:
      return "int";
    case RecipeNode::Type::real:
      return "float";
    case RecipeNode::Type::text:
      return "string";
    case RecipeNode::Type::other:
      break;
  }
  return "date or time";
}

namespace {
// "Error while parsing array: expected ..." of the parser, in our words.
std::string syntax_message(std::string_view reason) {
  constexpr std::string_view while_parsing = "Error while parsing ";
  std::string what = "it";
  if (const size_t colon = reason.find(": "); reason.starts_with(while_parsing) && colon != reason.npos) {
    what = "its " + std::string(reason.substr(while_parsing.size(), colon - while_parsing.size()));
    reason.remove_prefix(colon + 2);
  }
  std::string message = "the text must be TOML but " + what + " cannot be read: " + std::string(reason);
  const size_t start = message.size() - reason.size();
  if (start < message.size() && std::isupper(static_cast<unsigned char>(message[start])))
    message[start] = char(std::tolower(static_cast<unsigned char>(message[start])));
  for (char& c : message)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return message;
}
}  // namespace

RecipeNode parse_toml(const std::string& text, const std::string& path, int source) {
  if (const auto deep = too_deep(text)) {
    Faults faults;
    faults.add({path, deep->line, deep->column}, deep->message);
    faults.raise();
  }
  try {
    const toml::table t = toml::parse(text, path);
    RecipeNode n = convert(t, path, source);
    n.where = n.key = {path, 1, 1};
    return n;
  } catch (const toml::parse_error& e) {
    Faults faults;
    faults.add(place(e.source(), path), syntax_message(e.description()));
    faults.raise();
  }
}

RecipeNode parse_value(const std::string& text, const Where& where, int source) {
  try {
    const toml::table t = toml::parse("v = " + text);
    if (t.size() == 1) {
      RecipeNode n = convert(*t.get("v"), where.file, source);
      set_place(n, where);
      return n;
    }
  } catch (const toml::parse_error&) {  // not a TOML value: then a name
  }
  RecipeNode n = RecipeNode::table_at(where, source);
  n.type = RecipeNode::Type::text;
  n.value = text;
  return n;
}

RecipeNode as_slot(RecipeNode text) {
  RecipeNode t = RecipeNode::table_at(text.where, text.source);
  t.key = text.key;
  t.beside = text.beside;
  text.beside = *text.text();
  t.keys.emplace("use", std::move(text));
  return t;
}

void merge(RecipeNode& base, RecipeNode over, int fresh) {
  using Type = RecipeNode::Type;
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
