// How cuBLASLt is found, and what is said when it is not: with fakes, and with the toolkit's own.
#include "kernels/cublaslt/lt_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fake_cublaslt.h"
#include "kernels/cublaslt/lt_search.h"

namespace culet::lt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

FakeState& Fake() {
  using Get = FakeState* (*)();
  static const auto get =
      reinterpret_cast<Get>(dlsym(dlopen(CULET_FAKE_CUBLASLT, RTLD_NOW), "culet_fake_cublaslt"));
  return *get();
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "culet_cublaslt_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path Touch(const fs::path& relative) const {
    const fs::path file = path_ / relative;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "no library";
    return file;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<std::string> FilesOf(const std::vector<Place>& places) {
  std::vector<std::string> files;
  for (const Place& place : places) files.push_back(place.file);
  return files;
}

TEST(LtSearch, AnExplicitFileIsTheOnlyPlace) {
  Surroundings surroundings;
  surroundings.explicit_file = "/opt/mine/libcublasLt.so.13";
  surroundings.virtual_env = "/venv";
  const auto places = PlacesOf(surroundings);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].file, "/opt/mine/libcublasLt.so.13");
  EXPECT_EQ(places[0].origin, "CULET_CUBLASLT");
}

TEST(LtSearch, GoesFromTheProcessToPythonToTheLoaderToTheToolkit) {
  const TemporaryFolder folder;
  const fs::path beside = folder.Touch("site/nvidia/cu13/lib/libcublasLt.so.13");
  const fs::path venv12 =
      folder.Touch("venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
  const fs::path venv13 =
      folder.Touch("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const fs::path toolkit = folder.Touch("cuda/lib64/libcublasLt.so.13");
  Surroundings surroundings;
  surroundings.own_file = (folder.path() / "site/culet/libculet.so.0").string();
  surroundings.virtual_env = (folder.path() / "venv").string();
  surroundings.toolkits = {(folder.path() / "nowhere").string(), (folder.path() / "cuda").string()};
  const auto places = PlacesOf(surroundings);
  EXPECT_THAT(FilesOf(places),
              testing::ElementsAre("libcublasLt.so.13", "libcublasLt.so.12", beside.string(),
                                   venv12.string(), venv13.string(), "libcublasLt.so.13",
                                   "libcublasLt.so.12", toolkit.string()));
  EXPECT_TRUE(places[0].mapped_only);
  EXPECT_TRUE(places[1].mapped_only);
  for (std::size_t i = 2; i < places.size(); ++i) EXPECT_FALSE(places[i].mapped_only) << i;
}

TEST(LtSearch, KnowsTheFileThatHoldsCulet) {
  EXPECT_EQ(SurroundingsOfProcess().own_file, fs::canonical("/proc/self/exe").string());
}

TEST(LtLibrary, TakesTheFirstPlaceThatServes) {
  const std::vector<Place> places = {{"libcublasLt.so.no_such", "one mapped", true},
                                     {CULET_FAKE_CUBLASLT_WITHOUT_CHECK, "a broken one", false},
                                     {CULET_FAKE_CUBLASLT, "a good one", false},
                                     {"/never/tried", "the last", false}};
  const auto library = Library::Open(places);
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ((*library)->origin(), "a good one");
  EXPECT_EQ((*library)->file(), CULET_FAKE_CUBLASLT);
  EXPECT_EQ((*library)->version(), 130100u);
  EXPECT_EQ((*library)->version_text(), "13.1.0");
}

TEST(LtLibrary, FindsACopyThatIsMapped) {
  ASSERT_NE(dlopen(CULET_FAKE_CUBLASLT, RTLD_NOW), nullptr);
  const fs::path soname = fs::path(CULET_FAKE_CUBLASLT).filename();
  const std::vector<Place> places = {{soname.string(), "a copy in use", true}};
  const auto library = Library::Open(places);
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ((*library)->file(), CULET_FAKE_CUBLASLT);
}

TEST(LtLibrary, SaysWhatEveryPlaceLacks) {
  const TemporaryFolder folder;
  const fs::path text = folder.Touch("libcublasLt.so.13");
  const fs::path pipe = folder.path() / "pipe";  // opening it would wait for ever
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Fake().version = 110801;
  const std::vector<Place> places = {{text.string(), "a text", false},
                                     {pipe.string(), "a pipe", false},
                                     {CULET_FAKE_CUBLASLT_WITHOUT_CHECK, "a broken one", false},
                                     {CULET_FAKE_CUBLASLT, "an old one", false},
                                     {"libcublasLt.so.no_such", "the loader's path", false}};
  const auto library = Library::Open(places);
  Fake().version = 130100;
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kNotFound);
  const std::string& words = library.status().message();
  EXPECT_THAT(words, HasSubstr("set CULET_CUBLASLT"));
  EXPECT_THAT(words, HasSubstr("a text (" + text.string() + ")"));
  EXPECT_THAT(words, HasSubstr("pipe' is not a regular file"));
  EXPECT_THAT(words, HasSubstr("has no function cublasLtMatmulAlgoCheck"));
  EXPECT_THAT(words, HasSubstr("is version 11.8.1; 12.0.0 is the oldest that serves"));
  EXPECT_THAT(words, HasSubstr("libcublasLt.so.no_such"));
}

TEST(LtLibrary, MakesOneHandleADevice) {
  const std::vector<Place> places = {{CULET_FAKE_CUBLASLT, "a fake", false}};
  const auto library = Library::Open(places);
  ASSERT_TRUE(library.ok());
  const int before = Fake().creates;
  const auto first = (*library)->HandleOf(0), again = (*library)->HandleOf(0),
             other = (*library)->HandleOf(1);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(Fake().creates, before + 2);
  Fake().create_status = kAllocFailed;
  const auto failed = (*library)->HandleOf(2);
  Fake().create_status = kSuccess;
  EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(failed.status().message(), HasSubstr("cublasLtCreate: status 3, the fake fails"));
  EXPECT_TRUE((*library)->HandleOf(2).ok()) << "a failure is not remembered";
}

// The toolkit's own answers without a GPU as far as a version and descriptors.
TEST(LtLibrary, OpensTheToolkitsOwn) {
  std::vector<Place> places;
  for (Place& place : PlacesOf(SurroundingsOfProcess())) {
    if (!place.mapped_only) places.push_back(std::move(place));
  }
  const auto library = Library::Open(places);
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  EXPECT_GE((*library)->version(), kLeastVersion);
  EXPECT_THAT((*library)->file(), HasSubstr("libcublasLt"));
  Operation operation;
  const Functions& f = (*library)->functions();
  EXPECT_EQ(f.MatmulDescInit(&operation, sizeof operation, kCompute32F, kR32F), kSuccess);
  EXPECT_NE(f.MatmulDescInit(&operation, 8, kCompute32F, kR32F), kSuccess);
  EXPECT_THAT((*library)->StatusOf(kNotSupported, "call").message(), HasSubstr("not supported"));
}

}  // namespace
}  // namespace culet::lt
