// A stream of several lanes: document k is of lane k mod n, however the micro-batches are cut.
#include <algorithm>
#include <functional>

#include "fixture.h"

namespace kitbash::test {
namespace {

// A sample of n bytes that its first letter names; the digits after it tell where in it a piece is from.
std::string lettered(char letter, int n) {
  std::string t;
  for (int i = 0; i < n; ++i) t += i ? char('0' + i % 10) : letter;
  return t;
}
// Ragged: empty ones, short ones, just around a context of 16, some of several, one of ten.
const std::map<std::string, std::vector<int>> kRagged{
    {"a", {160, 1, 0, 3, 14, 15, 16, 0, 33}}, {"b", {50, 1, 15, 0}}, {"c", {3, 97}}};
std::map<char, std::string> ragged(Data& d) {
  std::map<char, std::string> by_letter;
  char letter = 'A';
  for (const auto& [source, lengths] : kRagged) {
    std::vector<std::string> texts;
    for (const int n : lengths) {
      texts.push_back(lettered(letter, n));
      if (n) by_letter[letter] = texts.back();
      ++letter;
    }
    d.source(source, texts);
  }
  return by_letter;
}

struct Document {
  std::vector<int32_t> tokens, target;
};
std::vector<Document> read_documents(DataStream& s, const StreamOptions& o, int batches) {
  std::vector<Document> r;
  for (int i = 0; i < batches; ++i) {
    const MicroBatch b = s.next();
    expect_well_formed(b, o);
    for (size_t k = 0; k + 1 < b.cu.size(); ++k)
      r.push_back({{b.tokens.begin() + b.cu[k], b.tokens.begin() + b.cu[k + 1]},
                   {b.target.begin() + b.cu[k], b.target.begin() + b.cu[k + 1]}});
  }
  return r;
}
struct Begun {
  std::string text;
  bool whole = false;
};
// The samples in the order in which they were begun. In each lane every token but bos must be the target of one position.
std::vector<Begun> samples_of(const std::vector<Document>& documents, size_t n) {
  std::vector<Begun> all;
  std::vector<std::vector<int32_t>> tokens(n), target(n);
  std::vector<size_t> open(n, SIZE_MAX);
  for (size_t k = 0; k < documents.size(); ++k) {
    const size_t lane = k % n;
    for (const int32_t t : documents[k].target)
      if (t >= 0) target[lane].push_back(t);
    for (size_t i = 1; i < documents[k].tokens.size(); ++i) {
      const int32_t t = documents[k].tokens[i];
      tokens[lane].push_back(t);
      if (open[lane] == SIZE_MAX) open[lane] = all.size(), all.emplace_back();
      Begun& sample = all[open[lane]];
      if (t == kEos)
        sample.whole = true, open[lane] = SIZE_MAX;
      else
        sample.text += char(t);
    }
  }
  for (size_t lane = 0; lane < n; ++lane) {
    if (open[lane] != SIZE_MAX && !target[lane].empty())
      target[lane].pop_back();  // its last token aims at what comes next
    EXPECT_EQ(target[lane], tokens[lane]) << lane;
  }
  return all;
}

TEST(StreamLanes, NothingIsDroppedAndNothingCountsTwice) {
  Data d;
  const auto by_letter = ragged(d);
  for (const bool join : {true, false})
    for (const int64_t micro : {16, 40, 64})
      for (const int64_t documents : {2, 1000}) {
        d.config.join = join;
        const StreamOptions o = options(16, micro, documents);
        std::map<int64_t, std::string> order;  // of the samples' letters
        for (const int64_t n : {1, 4}) {
          d.config.interleave = n;
          DataStream s = d.open(o);
          const auto samples = samples_of(read_documents(s, o, 300), size_t(n));
          int64_t cut = 0;
          for (const Begun& b : samples) {
            const std::string& all = by_letter.at(b.text[0]);
            ASSERT_EQ(b.text, b.whole ? all : all.substr(0, b.text.size()));
            cut += !b.whole;
            order[n] += b.text[0];
          }
          ASSERT_EQ(cut, int64_t(s.position().open.size()));
          // Every epoch of a source has all of it.
          char first = 'A';
          for (const auto& [source, lengths] : kRagged) {
            const char end = char(first + char(lengths.size()));
            std::string of, want;
            for (const char c : order[n])
              if (c >= first && c < end) of += c;
            for (const auto& [c, text] : by_letter)
              if (c >= first && c < end) want += c;
            ASSERT_GT(of.size(), 2 * want.size());
            for (size_t i = 0; i + want.size() <= of.size(); i += want.size()) {
              std::string epoch = of.substr(i, want.size());
              std::sort(epoch.begin(), epoch.end());
              ASSERT_EQ(epoch, want) << source << " " << i;
            }
            first = end;
          }
        }
        const size_t both = std::min(order[1].size(), order[4].size());
        EXPECT_EQ(order[1].substr(0, both), order[4].substr(0, both));
      }
}
TEST(StreamLanes, AnyPositionBringsBackTheRest) {
  Data d;
  ragged(d);
  d.config.interleave = 4;
  for (const bool join : {true, false}) {
    d.config.join = join;
    const StreamOptions o = options(16, 40);
    DataStream s = d.open(o);
    std::vector<DataPosition> at;
    std::vector<MicroBatch> batches;
    size_t most = 0;
    while (at.size() < 150) {
      at.push_back(s.position());
      batches.push_back(s.next());
      most = std::max(most, at.back().open.size());
    }
    EXPECT_EQ(most, 4u);
    EXPECT_GT(at.back().drawn.at("a"), 2 * 9);  // over the ends of epochs
    for (size_t i = 0; i < at.size(); ++i) {
      DataStream again = d.open(o);
      again.seek(at[i]);
      for (size_t k = i; k < std::min(i + 20, at.size()); ++k) {
        ASSERT_EQ(again.position(), at[k]);
        ASSERT_TRUE(same(again.next(), batches[k])) << join << " " << i << " " << k;
      }
      s.seek(at[i]);
      ASSERT_TRUE(same(s.next(), batches[i]));
    }
  }
}
TEST(StreamLanes, PiecesOfALongSampleAreApart) {
  Data d;
  auto texts = words(60, 'b', 20);
  texts.push_back(std::string(160, 'A'));
  d.source("a", texts);
  for (const bool join : {true, false})
    for (const int64_t n : {1, 4}) {
      d.config.join = join, d.config.interleave = n;
      DataStream s = d.open(options(16, 40));
      std::vector<int64_t> pieces;
      for (int64_t k = 0, seen = 0; seen < 160;)
        for (const auto& t : documents_of(s.next())) {
          const int64_t here = std::count(t.begin(), t.end(), 'A');
          if (here && seen < 160) pieces.push_back(k);
          seen += here, ++k;
        }
      ASSERT_GE(pieces.size(), 11u);
      for (size_t i = 1; i < pieces.size(); ++i) EXPECT_EQ(pieces[i] - pieces[i - 1], n);
    }
}
TEST(StreamLanes, TheHeldOutSplitHasOne) {
  Data d;
  d.source("a", {"x"}, words(23, 'a', 40));
  StreamOptions o = options(8, 20);
  o.split = "held_out";
  DataStream one = d.open(o);
  d.config.interleave = 4;
  DataStream four = d.open(o);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(same(one.next(), four.next()));
}
TEST(StreamLanes, ABrokenPositionIsRefusedInWords) {
  Data d;
  ragged(d);
  d.config.interleave = 2;
  StreamOptions o = options(16, 40);
  o.mix = {{"a", 1}};
  DataStream s = d.open(o);
  const DataPosition good{5, {{"a", 3}, {"b", 2}}, 1, {{0, {"a", 1, 4}}, {1, {"b", 1, 1}}}};
  const auto why = [&](const std::function<void(DataPosition&)>& change) -> std::string {
    DataPosition p = good;
    change(p);
    try {
      s.seek(p);
    } catch (const kb::Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(s.position(), good);
  EXPECT_EQ(
      why([](auto& p) { p.turn = 2; }),
      "[data] the position must be within 2 lanes but its turn is at lane 2; set interleave to what it was when the "
      "position was saved");
  EXPECT_EQ(why([](auto& p) { p.turn = -1; }),
            "[data] the position must count lanes from 0 but its turn is at lane -1");
  EXPECT_EQ(
      why([](auto& p) {
        p.open[7] = {"a", 2, 1};
      }),
      "[data] the position must be within 2 lanes but a sample is open in lane 7; set interleave to what it was when "
      "the position was saved");
  EXPECT_EQ(why([](auto& p) { p.open[0].offset = 0; }),
            "[data] an open sample must have used a token but lane 0 is at token 0 of 'a'");
  EXPECT_EQ(why([](auto& p) { p.open[0].number = 3; }),
            "[data] an open sample must be among the 3 drawn from 'a' but lane 0 is in number 3");
  EXPECT_EQ(why([](auto& p) { p.open[0].source = "c"; }),
            "[data] an open sample must be among the 0 drawn from 'c' but lane 0 is in number 1");
  EXPECT_EQ(why([](auto& p) { p.open[0] = p.open[1]; }),
            "[data] a sample must be open in one lane but number 1 of 'b' is open in lanes 0 and 1");
  EXPECT_EQ(why([](auto& p) { p.drawn["b"] = 1; }),
            "[data] the position must have the sum of its sources, 4, as draws but has 5");
  EXPECT_EQ(s.position(), good);  // a refused one changes nothing
}
TEST(StreamLanes, AnOpenSampleIsOfASourceWithTheSplit) {
  Data d;
  d.source("a", {"x"}, {"held"});
  d.source("b", {"x"});
  StreamOptions o = options(16, 40);
  o.split = "held_out";
  DataStream s = d.open(o);
  try {
    s.seek({1, {{"b", 1}}, 0, {{0, {"b", 0, 1}}}});
    FAIL() << "no error";
  } catch (const kb::Error& e) {
    EXPECT_STREQ(e.what(), "[data] lane 0 is in source 'b', which has no samples in the split 'held_out'");
  }
}

}  // namespace
}  // namespace kitbash::test
