#include <charconv>
#include <cmath>

#include "recipe/check.h"
#include "recipe/keys.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

using Type = RecipeNode::Type;

std::string wanted(const FieldInfo& f) {
  if (f.type == "text" || f.type == "path") return "string";
  if (f.type == "ints") return "array of ints";
  if (f.type == "floats") return "array of floats";
  if (f.type == "texts") return "array of strings";
  if (f.type == "tables") return "array of tables";
  return f.type == "slot" ? "a component of kind " + f.kind : f.type;
}

std::string bound(const FieldInfo& f, double v) {
  if (f.type == "int" || f.type == "ints") return kb::text(int64_t(v));
  return kb::text(v);
}

bool in_range(const FieldInfo& f, double v, const Where& w, const std::string& got, Faults& faults) {
  if (v >= f.lo && v <= f.hi) return true;
  const std::string at = kb::text("'", f.name, "' must be ");
  const std::string but = " but got " + got;
  if (std::isfinite(f.lo) && std::isfinite(f.hi))
    faults.add(w, at, "in [", bound(f, f.lo), ", ", bound(f, f.hi), "]", but);
  else if (std::isfinite(f.lo))
    faults.add(w, at, "at least ", bound(f, f.lo), but);
  else if (std::isfinite(f.hi))
    faults.add(w, at, "at most ", bound(f, f.hi), but);
  else
    faults.add(w, at, "a number", but);
  return false;
}

// An int or a float as a double; an int is welcome where a float is wanted.
bool as_real(const RecipeNode& n, double& v) {
  if (n.is(Type::real)) return v = std::get<double>(n.value), true;
  if (n.is(Type::integer)) return v = double(std::get<int64_t>(n.value)), true;
  return false;
}

bool check_list(const FieldInfo& f, const RecipeNode& n, Faults& faults, FieldValue& out) {
  const bool ints = f.type == "ints";
  std::vector<int64_t> is;
  std::vector<double> fs;
  bool good = true;
  for (const auto& item : n.items) {
    double v = 0;
    if (!as_real(item, v) || (ints && !item.is(Type::integer))) {
      faults.add(item.where, "'", f.name, "' wants ", wanted(f), " but got ", type_name(item.type), " in it");
      good = false;
      continue;
    }
    good = in_range(f, v, item.where, ints ? kb::text(std::get<int64_t>(item.value)) : kb::text(v), faults) && good;
    if (ints)
      is.push_back(std::get<int64_t>(item.value));
    else
      fs.push_back(v);
  }
  if (ints)
    out = std::move(is);
  else
    out = std::move(fs);
  return good;
}

bool check_text(const FieldInfo& f, const RecipeNode& n, Faults& faults, FieldValue& out) {
  const std::string& s = *n.text();
  out = s;
  if (f.choices.empty()) return true;
  std::string list;
  for (const auto& c : f.choices) {
    if (c == s) return true;
    list += (list.empty() ? "'" : ", '") + c + "'";
  }
  faults.add(n.where, "'", f.name, "' must be one of ", list, " but got '", s, "'", did_you_mean(s, f.choices));
  return false;
}

}  // namespace

bool check_value(const FieldInfo& f, const RecipeNode& n, Faults& faults, FieldValue& out) {
  if (f.type == "bool" && n.is(Type::boolean)) return out = n.value, true;
  if (f.type == "int" && n.is(Type::integer)) {
    out = n.value;
    const int64_t v = std::get<int64_t>(n.value);
    return in_range(f, double(v), n.where, kb::text(v), faults);
  }
  double v = 0;
  if (f.type == "float" && as_real(n, v)) {
    out = v;
    return in_range(f, v, n.where, kb::text(v), faults);
  }
  if ((f.type == "text" || f.type == "path") && n.is(Type::text)) return check_text(f, n, faults, out);
  if ((f.type == "ints" || f.type == "floats") && n.is(Type::array)) return check_list(f, n, faults, out);
  if (f.type == "texts" && n.is(Type::array)) {
    for (const auto& item : n.items)
      if (!item.text())
        return faults.add(item.where, "'", f.name, "' wants ", wanted(f), " but got ", type_name(item.type), " in it"),
               false;
    return true;
  }
  if (f.type == "table" && n.is(Type::table)) return true;
  if (f.type == "tables" && n.is(Type::array)) {
    for (const auto& item : n.items)
      if (!item.is(Type::table))
        return faults.add(item.where, "'", f.name, "' wants ", wanted(f), " but got ", type_name(item.type), " in it"),
               false;
    return true;
  }
  faults.add(n.where, "'", f.name, "' wants ", wanted(f), " but got ", type_name(n.type));
  return false;
}

const FieldInfo* field_named(const std::vector<FieldInfo>& fields, const std::string& name) {
  for (const auto& f : fields)
    if (f.name == name) return &f;
  return nullptr;
}

FieldValue empty_value(const FieldInfo& f) {
  if (f.fallback) {
    if (f.type == "float" && std::holds_alternative<int64_t>(*f.fallback))
      return double(std::get<int64_t>(*f.fallback));
    return *f.fallback;
  }
  if (f.type == "bool") return false;
  if (f.type == "int") return int64_t(0);
  if (f.type == "float") return 0.0;
  if (f.type == "ints") return std::vector<int64_t>{};
  if (f.type == "floats") return std::vector<double>{};
  return std::string();
}

std::string number_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buf[40];
  const auto r = std::to_chars(buf, buf + sizeof buf, v);
  std::string s(buf, r.ptr);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

Values::Values(const std::string& key_table_name, const RecipeNode& node, Faults& faults, const std::string& subject)
    : node_(node) {
  const KeyTable& table = key_table(key_table_name);
  std::vector<std::string> names;
  for (const auto& f : table.fields) names.push_back(f.name);
  for (const auto& [name, child] : node.keys)
    if (!field_named(table.fields, name))
      faults.add(child.key, table.owner, " has no key '", name, "'", did_you_mean(name, names));
  for (const auto& f : table.fields) {
    const RecipeNode* given = node.find(f.name);
    if (!given) {
      if (f.required)
        faults.add(node.where, subject.empty() ? table.owner : subject, " needs '", f.name, "' (", wanted(f),
                   "): ", f.doc);
      else if (f.fallback)
        good_[f.name] = *f.fallback;
      continue;
    }
    if (f.type == "slot") continue;
    FieldValue v;
    if (!check_value(f, *given, faults, v)) continue;
    if (const auto* x = std::get_if<double>(&v); x && !std::isfinite(*x))
      faults.add(given->where, "'", f.name, "' must be finite but got ", *x);
    else
      good_[f.name] = v;
  }
}
int64_t Values::integer(const std::string& k) const { return has(k) ? std::get<int64_t>(good_.at(k)) : 0; }
double Values::real(const std::string& k) const { return has(k) ? std::get<double>(good_.at(k)) : 0; }
bool Values::boolean(const std::string& k) const { return has(k) && std::get<bool>(good_.at(k)); }
std::string Values::text(const std::string& k) const {
  return has(k) ? std::get<std::string>(good_.at(k)) : std::string();
}

}  // namespace kitbash
