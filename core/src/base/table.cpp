#include "base/table.h"

#include <algorithm>

#include "base/text.h"
#include "kitbash/error.h"

namespace kitbash {

Table::Table(std::vector<std::string> headers, std::string align)
    : headers_(std::move(headers)), align_(std::move(align)) {}

void Table::row(std::vector<std::string> cells) {
  if (cells.size() > headers_.size())
    kb::fail("[table] a row must have at most ", headers_.size(), " cells but got ", cells.size());
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(const std::string& indent) const {
  std::vector<size_t> width(headers_.size());
  auto widen = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], code_points(cells[i]));
  };
  widen(headers_);
  for (const auto& r : rows_) widen(r);

  std::string out;
  auto print = [&](const std::vector<std::string>& cells) {
    std::string line = indent;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string fill(width[i] - code_points(cells[i]), ' ');
      const bool right = i < align_.size() && align_[i] == 'r';
      if (i) line += "  ";
      line += right ? fill + cells[i] : cells[i] + fill;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  if (std::any_of(headers_.begin(), headers_.end(), [](const std::string& h) { return !h.empty(); })) print(headers_);
  for (const auto& r : rows_) print(r);
  return out;
}

}  // namespace kitbash
