// faults.h: what is wrong with a recipe and what should be said about it, gathered; thrown once, sorted by position.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kitbash/error.h"
#include "recipe/recipe.h"

namespace kitbash {

class Faults {
 public:
  template <class... A>
  void add(const Where& w, const A&... parts) {
    ++told_;
    const std::string message = kb::text(parts...);
    if (said_.insert(w.file + "|" + kb::text(w.line, "|", w.column, "|", message)).second)
      errors_.push_back({w, message});
  }
  // A remark on the key at `w`; told once for a place and topic, even when several layers inherit that key.
  void note(const Where& w, const std::string& topic, const std::string& message);
  void accepts(const std::string& id, const std::string& line) { accepts_[id] = line; }
  void order(const std::string& file) { files_.push_back(file); }  // files and --sets in the order to report them

  bool empty() const { return errors_.empty(); }
  size_t count() const { return told_; }  // rises with every add, also one that was said before
  const std::vector<std::string>& notes() const { return notes_; }
  [[noreturn]] void raise();  // throws RecipeErrors

 private:
  size_t told_ = 0;
  std::vector<RecipeError> errors_;
  std::vector<std::string> notes_, files_;
  std::map<std::string, std::string> accepts_;  // component -> the keys it accepts
  std::set<std::string> said_;
};

}  // namespace kitbash
