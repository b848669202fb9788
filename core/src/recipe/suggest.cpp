#include "recipe/suggest.h"

#include <algorithm>

namespace kitbash {

int edit_distance(const std::string& a, const std::string& b) {
  const size_t n = a.size(), m = b.size();
  std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
  for (size_t i = 0; i <= n; ++i) d[i][0] = int(i);
  for (size_t j = 0; j <= m; ++j) d[0][j] = int(j);
  for (size_t i = 1; i <= n; ++i)
    for (size_t j = 1; j <= m; ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[n][m];
}

std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  // Never as many edits as the name has letters: that would be another word.
  int best = std::min(std::max(2, int(name.size() / 3)), int(name.size()) - 1) + 1;
  std::string found;
  for (const auto& c : candidates) {
    if (c == name) continue;
    const int d = edit_distance(name, c);
    if (d < best || (d == best && !found.empty() && c < found)) best = d, found = c;
  }
  return found;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string n = nearest(name, candidates);
  return n.empty() ? "" : "; did you mean '" + n + "'?";
}

std::string did_you_mean_or_list(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string near = did_you_mean(name, candidates);
  if (!near.empty() || candidates.empty() || candidates.size() > 12) return near;
  std::string s = "; there are: ";
  for (size_t i = 0; i < candidates.size(); ++i) s += (i ? ", " : "") + candidates[i];
  return s;
}

}  // namespace kitbash
