#include <filesystem>

#include "recipe/check.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

using Type = RecipeNode::Type;
constexpr int kDeepest = 32;  // slots within slots; only a circle of defaults comes near

std::vector<std::string> names_of(const ComponentInfo& c) {
  std::vector<std::string> r;
  for (const auto& f : c.fields) r.push_back(f.name);
  return r;
}

bool same_type(const FieldInfo& a, const FieldInfo& b) { return a.type == b.type && a.kind == b.kind; }

// Would the value do for the key, by its type alone?
bool fits(const FieldInfo& f, const RecipeNode& n) {
  if (f.type == "slot") return n.is(Type::table) || n.is(Type::text);
  FieldInfo any = f;
  any.lo = -std::numeric_limits<double>::infinity(), any.hi = -any.lo;
  any.choices.clear();
  Faults ignored;
  FieldValue v;
  return check_value(any, n, ignored, v);
}

}  // namespace

const ComponentInfo* Checker::find(const std::string& kind, const std::string& name, const Where& w) const {
  try {
    if (const auto* c = source.find(kind, name)) return c;
    const auto names = source.names(kind);
    if (names.empty())
      return faults.add(w, "there is no ", kind, " '", name, "': no installed plugin provides any ", kind), nullptr;
    if (name.rfind(kind + ".", 0) == 0 && source.find(kind, name.substr(kind.size() + 1)))
      return faults.add(w, "there is no ", kind, " '", name, "'; write '", name.substr(kind.size() + 1), "'"), nullptr;
    for (const auto& other : source.kinds())
      if (other != kind && source.find(other, name))
        return faults.add(w, "there is no ", kind, " '", name, "': '", name, "' is of kind ", other,
                          did_you_mean_or_list(name, names)),
               nullptr;
    faults.add(w, "there is no ", kind, " '", name, "'", did_you_mean_or_list(name, names));
  } catch (const kb::Error& e) {  // two plugins provide it
    faults.add(w, e.what());
  }
  return nullptr;
}

// The key was written beside another `use`. It stays if the new component has one of that name and type; else it is
// dropped with a note.
bool Checker::survives_switch(const ComponentInfo& now, const std::string& key, const RecipeNode& value,
                              const std::string& old_name, const std::string& path) const {
  const FieldInfo* f = field_named(now.fields, key);
  if (f) {
    const ComponentInfo* old = nullptr;
    try {
      old = source.find(now.kind, old_name);
    } catch (const kb::Error&) {  // provided twice: judge by the value
    }
    const FieldInfo* was = old ? field_named(old->fields, key) : nullptr;
    if (was ? same_type(*was, *f) : fits(*f, value)) return true;
  }
  faults.note(value.key, now.id() + " " + key,
              kb::text(path, ": '", key, "' is dropped: ", now.id(),
                       f ? kb::text(" wants ", f->type == "slot" ? "a component of kind " + f->kind : f->type, " there")
                         : std::string(" has no such key")));
  return false;
}

// The nodes given for the component's keys, parallel to its fields.
std::vector<const RecipeNode*> Checker::match(const ComponentInfo& c, const RecipeNode& table, const std::string& path,
                                              const std::string& standard) const {
  std::vector<const RecipeNode*> given(c.fields.size());
  std::vector<std::string> called(c.fields.size());
  const auto take = [&](const FieldInfo& f, const RecipeNode& child, const std::string& name) {
    const size_t i = size_t(&f - c.fields.data());
    if (given[i])
      faults.add(child.key, "'", called[i], "' and '", name, "' are the same key of ", c.id());
    else
      given[i] = &child, called[i] = name;
  };
  for (const auto& [name, child] : table.keys) {
    if (name == "use") continue;
    const std::string beside = child.beside.value_or(standard);
    const FieldInfo* f = field_named(c.fields, name);
    if (!f)
      for (const auto& x : c.fields)
        if (!x.was.empty() && x.was == name) f = &x;
    if (!(f && f->was == name) && beside != c.name && !survives_switch(c, name, child, beside, path)) continue;
    if (f) {
      if (f->name != name)
        faults.note(child.key, "was", kb::text(path, ": '", name, "' is now called '", f->name, "'"));
      take(*f, child, name);
      continue;
    }
    faults.add(child.key, c.id(), " has no key '", name, "'", did_you_mean(name, names_of(c)));
    std::string list;
    for (const auto& n : names_of(c)) list += (list.empty() ? " " : ", ") + n;
    faults.accepts(c.id(), kb::text(c.id(), c.plugin ? kb::text(" ", c.plugin->version, " from ", c.plugin->path) : "",
                                    list.empty() ? std::string(" accepts no keys") : " accepts:" + list));
  }
  return given;
}

std::unique_ptr<ComponentConfig> Checker::filled_slot(const ComponentInfo& c, const FieldInfo& f,
                                                      const RecipeNode* given, const Where& missing_at,
                                                      const std::string& path, int depth) const {
  const std::string* standard = f.fallback ? std::get_if<std::string>(&*f.fallback) : nullptr;
  const size_t before = faults.count();
  auto child = slot(f.kind, given, path + "." + f.name, standard ? *standard : "", depth + 1);
  if (!child && !f.optional && faults.count() == before)
    faults.add(given ? given->where : missing_at, c.id(), " needs '", f.name, "' (a component of kind ", f.kind,
               "): ", f.doc);
  return child;
}

std::unique_ptr<ComponentConfig> Checker::slot(const std::string& kind, const RecipeNode* node, const std::string& path,
                                               const std::string& standard, int depth) const {
  RecipeNode made;
  if (!node) {
    if (standard.empty()) return nullptr;
    node = &made;
  } else if (node->is(Type::text)) {
    made = as_slot(*node);
    node = &made;
  } else if (!node->is(Type::table)) {
    faults.add(node->where, "'", path.substr(path.rfind('.') + 1), "' wants a component of kind ", kind,
               " (a name, or { use = NAME }) but got ", type_name(node->type));
    return nullptr;
  }
  const RecipeNode* use = node->find("use");
  if (use && !use->text()) {
    faults.add(use->where, "'use' wants string but got ", type_name(use->type));
    return nullptr;
  }
  const std::string name = use ? *use->text() : standard;
  if (name.empty()) {
    for (const auto& [key, child] : node->keys)
      if (key != "use") {
        faults.add(node->where, "'", path.substr(path.rfind('.') + 1), "' needs 'use' (string): a component of kind ",
                   kind);
        break;
      }
    return nullptr;
  }
  const Where at = use ? use->where : node->where;
  if (depth > kDeepest) {
    faults.add(at, path, " is ", depth, " slots deep: the defaults of its components go round in a circle");
    return nullptr;
  }
  const ComponentInfo* c = find(kind, name, at);
  if (!c) return nullptr;

  auto made_config = std::make_unique<ComponentConfig>();
  made_config->info = c;
  made_config->where = node->where;
  const auto given = match(*c, *node, path, standard);
  for (size_t i = 0; i < c->fields.size(); ++i) {
    const FieldInfo& f = c->fields[i];
    FieldValue v = empty_value(f);
    if (f.type == "slot") {
      auto child = filled_slot(*c, f, given[i], at, path, depth);
      v = child ? child->info->name : std::string();
      if (child) made_config->children[f.name] = std::move(child);
    } else if (given[i]) {
      check_value(f, *given[i], faults, v);
      auto* p = f.type == "path" ? std::get_if<std::string>(&v) : nullptr;
      if (p && p->empty() && f.required)
        faults.add(given[i]->where, c->id(), " needs '", f.name, "' (string) but it is empty: ", f.doc);
      if (p && !p->empty()) {
        namespace fs = std::filesystem;
        const std::string& file = given[i]->where.file;
        const fs::path base = given[i]->where.line > 0 ? fs::path(file).parent_path() : fs::path(folder);
        std::error_code none;
        const fs::path whole = fs::absolute(base / *p, none);
        *p = (none ? base / *p : whole).lexically_normal().string();
      }
    } else if (f.required) {
      faults.add(at, c->id(), " needs '", f.name, "' (", f.type == "text" || f.type == "path" ? "string" : f.type,
                 "): ", f.doc);
    }
    made_config->values.push_back(std::move(v));
  }
  return made_config;
}

}  // namespace kitbash
