#include "recipe/faults.h"

#include <algorithm>
#include <tuple>

namespace kitbash {

void Faults::note(const Where& w, const std::string& topic, const std::string& message) {
  if (said_.insert("note|" + kb::text(w.file, "|", w.line, "|", w.column, "|", topic)).second)
    notes_.push_back("note: " + message);
}

void Faults::raise() {
  const auto rank = [&](const RecipeError& e) {
    const auto at = std::find(files_.begin(), files_.end(), e.where.file) - files_.begin();
    return std::make_tuple(at, e.where.line, e.where.column);
  };
  std::stable_sort(errors_.begin(), errors_.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  RecipeErrors r{errors_, {}};
  for (const auto& [id, line] : accepts_) r.notes.push_back("note: " + line);
  throw r;
}

std::string Where::text() const {
  if (file.empty()) return "";
  return line > 0 ? kb::text(file, ":", line) : file;
}

std::string RecipeError::text() const {
  if (where.file.empty()) return "error: " + message;
  if (where.line <= 0) return kb::text(where.file, ": error: ", message);
  return kb::text(where.file, ":", where.line, ":", where.column, ": error: ", message);
}

std::string RecipeErrors::text() const {
  std::string s;
  for (const auto& e : errors) s += e.text() + "\n";
  for (const auto& n : notes) s += "  " + n + "\n";
  return s;
}

}  // namespace kitbash
