// table.h: aligned columns for a terminal. Two blanks between columns, no lines, nothing after the last cell.
#pragma once
#include <string>
#include <vector>

namespace kitbash {

class Table {
 public:
  // `align` has one letter a column: 'l' left, 'r' right; missing letters mean left. No headers: only rows are printed.
  explicit Table(std::vector<std::string> headers, std::string align = "");
  void row(std::vector<std::string> cells);  // fewer cells than columns: the rest is empty; more: kb::Error
  size_t rows() const { return rows_.size(); }
  std::string text(const std::string& indent = "") const;  // every line ends with \n

 private:
  std::vector<std::string> headers_;
  std::string align_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kitbash
