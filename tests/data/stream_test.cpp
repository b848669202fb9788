// The stream of micro-batches: what is in it, and that any position brings back the rest.
#include "data/stream.h"

#include <algorithm>

#include "fixture.h"

namespace kitbash::test {
namespace {

// Every text token and eos of an epoch is a target exactly once.
TEST(Stream, NothingIsDroppedAndNothingCountsTwice) {
  Data d;
  const auto texts = words(23, 'a', 40);
  d.source("a", {"x"}, texts);
  for (const bool join : {true, false})
    for (const int64_t context : {2, 3, 8, 64})
      for (const int64_t micro : {int64_t(64), context + 1}) {
        if (micro < context) continue;
        d.config.join = join;
        StreamOptions o = options(context, micro);
        o.split = "held_out";
        DataStream s = d.open(o);
        std::vector<int32_t> got, want;
        std::string in_order;
        for (MicroBatch b = s.next(); b.used; b = s.next()) {
          expect_well_formed(b, o);
          for (const int32_t t : b.target)
            if (t >= 0) got.push_back(t);
          for (const int32_t t : b.tokens)
            if (t != kBos) in_order += t == kEos ? '|' : char(t);
        }
        std::string text;
        for (const auto& t : texts) text += t + "|";
        EXPECT_EQ(in_order, text);
        for (const char c : text) want.push_back(c == '|' ? kEos : c);
        // Where a document ends between two samples, the first token of the next is the target of its bos: all are there.
        EXPECT_EQ(got, want) << join << " " << context << " " << micro;
        EXPECT_EQ(s.next().used, 0);
      }
}
TEST(Stream, JoinedDocumentsFillTheContextExactly) {
  Data d;
  d.source("a", words(50, 'a', 30));
  DataStream s = d.open(options(16, 64));
  for (int i = 0; i < 20; ++i) {
    const MicroBatch b = s.next();
    EXPECT_EQ(b.cu, (std::vector<int32_t>{0, 16, 32, 48, 64}));
  }
}
TEST(Stream, WithoutJoinOnlySamplesLongerThanTheContextAreCut) {
  Data d;
  d.config.join = false;
  d.source("a", {"x"}, {"abcdefghij", "kl", "mnopqrs"});
  StreamOptions o = options(6, 10);
  o.split = "held_out";
  DataStream s = d.open(o);
  std::vector<std::string> documents;
  for (MicroBatch b = s.next(); b.used; b = s.next())
    for (const auto& t : documents_of(b)) documents.push_back(t);
  EXPECT_EQ(documents, (std::vector<std::string>{"|abcde", "|fghij", "||", "|kl|", "|mnopq", "|rs|"}));
}
TEST(Stream, TheOrderOfOneLaneStays) {
  Data d;
  d.source("a", {"abcdefghijklmnopqrst", "uv", "", "wxyz"});
  d.source("b", {"012345", "6789"});
  for (const bool join : {true, false}) {
    d.config.join = join;
    DataStream s = d.open(options(8, 20));
    std::vector<std::string> documents;
    while (documents.size() < 14)
      for (const auto& t : documents_of(s.next())) documents.push_back(t);
    documents.resize(14);
    const std::vector<std::string> joined{"|uv|6789", "||012345", "||01",     "|2345|ab", "|cdefghi",
                                          "|jkl",     "|mnopqrs", "|t|wxyz|", "|678",     "|9|wxyz|",
                                          "|6789|01", "|234",     "|5|abcde", "|fghijkl"};
    const std::vector<std::string> apart{"|uv|",     "|6789|",   "|012345|", "|012345|", "|abcdefg",
                                         "|hijklmn", "|opqrst|", "|wxyz|",   "|6789|",   "|wxyz|",
                                         "|6789|",   "|012345|", "|abcdefg", "|hijklmn"};
    EXPECT_EQ(documents, join ? joined : apart);
  }
}
TEST(Stream, BoundsTheDocuments) {
  Data d;
  d.config.join = false;
  d.source("a", {"ab"});
  EXPECT_EQ(d.open(options(8, 64, 3)).next().documents, 3);
}
TEST(Stream, AnyPositionBringsBackTheRest) {
  Data d;
  d.source("a", words(13, 'a', 25));
  d.source("b", words(7, 'b', 50));
  for (const bool join : {true, false}) {
    d.config.join = join;
    const StreamOptions o = options(16, 32);
    DataStream s = d.open(o);
    std::vector<DataPosition> at;
    std::vector<MicroBatch> batches;
    while (s.position().drawn.count("a") == 0 || s.position().drawn.at("a") < 3 * 13) {  // over the ends of epochs
      at.push_back(s.position());
      batches.push_back(s.next());
      expect_well_formed(batches.back(), o);
    }
    for (size_t i = 0; i < at.size(); ++i) {
      DataStream again = d.open(o);
      again.seek(at[i]);
      for (size_t k = i; k < std::min(i + 12, at.size()); ++k) {
        ASSERT_EQ(again.position(), at[k]);
        ASSERT_TRUE(same(again.next(), batches[k])) << join << " " << i << " " << k;
      }
      s.seek(at[i]);
      ASSERT_TRUE(same(s.next(), batches[i]));
    }
  }
}
TEST(Stream, AnEpochHasEverySampleOnceAndTheNextAnotherOrder) {
  Data d;
  const auto texts = words(20, 'a', 3);
  d.source("a", texts);
  d.config.join = false;
  DataStream s = d.open(options(64, 64, 1));
  std::vector<std::string> first, second;
  for (int i = 0; i < 40; ++i) {
    const MicroBatch b = s.next();
    (i < 20 ? first : second).emplace_back(b.tokens.begin() + 1, b.tokens.end() - 1);
  }
  EXPECT_NE(first, second);
  EXPECT_NE(first, texts);
  auto sorted = texts;
  for (auto* v : {&first, &second, &sorted}) std::sort(v->begin(), v->end());
  EXPECT_EQ(first, sorted);
  EXPECT_EQ(second, sorted);
  const auto notes = s.notices();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "source 'a' begins epoch 2 after 20 samples");
}
TEST(Stream, TheMixIsOfTokens) {
  Data d;
  d.source("short", std::vector<std::string>(100, std::string(9, 's')));
  d.source("long", std::vector<std::string>(100, std::string(99, 'l')));
  StreamOptions o = options(64, 640);
  o.mix = {{"short", 3}, {"long", 1}};
  DataStream s = d.open(o);
  double of_short = 0, all = 0;
  for (int i = 0; i < 200; ++i)
    for (const int32_t t : s.next().tokens) of_short += t == 's', all += t == 's' || t == 'l';
  // With eos 10 and 100 tokens a sample, 9 and 99 of them letters: 0.75 * 0.9 / (0.75 * 0.9 + 0.25 * 0.99).
  EXPECT_NEAR(of_short / all, 0.732, 0.01);
}
TEST(Stream, AStageWithAnotherMixGoesOnFromTheSamePosition) {
  Data d;
  d.source("a", words(13, 'a', 60));
  d.source("b", words(7, 'b', 60));
  StreamOptions o = options(8, 8);
  o.mix = {{"a", 1}};
  DataStream one = d.open(o);
  while (one.position().open.empty()) one.next();
  o.mix = {{"b", 1}};
  o.context = o.micro_tokens = 256;
  DataStream two = d.open(o);
  two.seek(one.position());
  const MicroBatch b = two.next();
  EXPECT_EQ(b.tokens[1], 'a');  // what was left of the sample at hand
  EXPECT_EQ(b.target[0], -1);   // it was a target of the batch before
  EXPECT_GT(std::count(b.tokens.begin(), b.tokens.end(), 'b'), 0);
}
TEST(Stream, OddSamplesAreNotices) {
  Data d;
  d.source("a", {"", "ok", "bad \xff"});
  DataStream s = d.open(options(8, 8));
  for (int i = 0; i < 10; ++i) s.next();
  std::string all;
  for (const auto& n : s.notices()) all += n + "\n";
  EXPECT_NE(all.find("source 'a' sample 0 is empty; left out"), std::string::npos) << all;
  EXPECT_NE(all.find("source 'a' sample 2 is no valid UTF-8 from byte 4 on; kept as bytes"), std::string::npos) << all;
  EXPECT_TRUE(s.notices().empty());
}
TEST(Stream, WhatCannotBeReadIsAnError) {
  Data d;
  d.source("a", {"x"});
  StreamOptions o = options(8, 8);
  o.split = "held_out";
  EXPECT_THROW(d.open(o), kb::Error);
  EXPECT_THROW(d.open(options(1, 8)), kb::Error);
  EXPECT_THROW(d.open(options(8, 4)), kb::Error);
  o = options(8, 8);
  o.mix = {{"b", 1}};
  EXPECT_THROW(d.open(o), kb::Error);
  d.source("a", {"", ""});
  DataStream s = d.open(options(8, 8));
  EXPECT_THROW(s.next(), kb::Error);
  d.source("b", {"abc"});
  DataStream t = d.open(options(8, 8));
  EXPECT_THROW(t.seek({2, {{"b", 1}}, 0, {}}), kb::Error);
  EXPECT_THROW(t.seek({0, {}, 0, {{0, {"b", 0, 1}}}}), kb::Error);
  t.seek({1, {{"b", 1}}, 0, {{0, {"b", 0, 40}}}});
  EXPECT_THROW(t.next(), kb::Error);  // the sample has four tokens
}

}  // namespace
}  // namespace kitbash::test
