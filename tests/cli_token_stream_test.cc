// What goes to stdout, and when: whole UTF-8 sequences, one line after the other.
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/token_stream.h"

namespace culet::cli {
namespace {

TEST(CompleteUtf8, HoldsBackWhatMayGoOn) {
  const std::pair<std::string, std::size_t> cases[] = {
      {"", 0},
      {"ab", 2},
      {"a\xc3", 1},  // of two
      {"a\xc3\xa9", 3},
      {"\xe2\x82", 0},  // of three
      {"\xe2\x82\xac", 3},
      {"x\xf0\x9f\x98", 1},  // of four
      {"x\xf0\x9f\x98\x80", 5},
      {"\x80\x80\x80\x80", 4},  // no beginning: as it is
      {"\xff", 1},
      {"\xc3\xc3", 1},  // the first is none, the second may be
      {std::string("\0a", 2), 2},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(CompleteUtf8(text), bytes) << text;
}

// stdout in a file while one is alive.
class Captured {
 public:
  Captured() { testing::internal::CaptureStdout(); }
  std::string Text() { return testing::internal::GetCapturedStdout(); }
};

TEST(TokenStream, TextsComeLineByLineInOrder) {
  TokenStream stream = TokenStream::OfTexts({"p=", "q="});
  const auto said = [&](const auto& say) {
    Captured captured;
    say();
    return captured.Text();
  };
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(1, 'x').ok()); }), "p=");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(0, 0xc3).ok()); }), "");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(0, 0xa9).ok()); }), "\xc3\xa9");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(0, 300).ok()); }), "<300>");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(0, '\n', true).ok()); }), "");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.End(0).ok()); }), "\nq=x");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.Add(1, 0xe2).ok()); }), "");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.EndAll().ok()); }), "\xe2\n");
  EXPECT_EQ(said([&] { EXPECT_TRUE(stream.EndAll().ok()); }), "");
}

TEST(TokenStream, NumbersHaveCommas) {
  TokenStream stream = TokenStream::OfNumbers(2);
  Captured captured;
  EXPECT_TRUE(stream.Add(0, 5).ok());
  EXPECT_TRUE(stream.Add(1, 7).ok());
  EXPECT_TRUE(stream.Add(0, 2, true).ok());
  EXPECT_TRUE(stream.End(1).ok());
  EXPECT_TRUE(stream.End(0).ok());
  EXPECT_EQ(captured.Text(), "5,2\n7\n");
}

}  // namespace
}  // namespace culet::cli
