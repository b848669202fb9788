// suggest.h: the nearest valid name, for messages.
#pragma once
#include <string>
#include <vector>

namespace kitbash {

// Edits (insert, delete, replace, swap of neighbours) between two names; Damerau-Levenshtein, optimal string alignment.
int edit_distance(const std::string& a, const std::string& b);
// The candidate within max(2, length / 3) edits, the nearest and then the first by name; "" when none is that near: an
// absurd suggestion is worse than none.
std::string nearest(const std::string& name, const std::vector<std::string>& candidates);
// "; did you mean 'x'?", or "" when nothing is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates);
// As above; when nothing is near and the list is short, "; there are: a, b".
std::string did_you_mean_or_list(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace kitbash
