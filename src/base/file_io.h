// Whole files: read with a bound, replaced atomically.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"

namespace culet {

/// open(2), mode 0666 for a new file, that never gives a descriptor of stdin, stdout or stderr:
/// what the process prints must not land in the file. -1 with errno.
int OpenFile(const std::string& path, int flags) noexcept;

/// Why dlopen must not be given the name: it would wait for ever for a pipe's writer. Empty for a
/// regular file, for what is not there, and for a name without a folder, which is searched for.
std::string WhyNoLibrary(const std::string& name);

/// The names in a folder, in no order, "." and ".." among them; none where it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

/// Writes `text` to `fd`, and takes what was written from its beginning. False with errno, before
/// all is written: EFBIG beyond the process's limit of a file's size, EPIPE without a reader; their
/// signals, SIGXFSZ and SIGPIPE, do not reach the process, and how it handles them stays as it was.
bool WriteAll(int fd, std::string_view& text) noexcept;

/// The bytes of a regular file; nothing when there is none.
/// Errors: DATA_LOSS (a folder, a device, more than `max_bytes`), IO.
Result<std::optional<std::string>> ReadFile(const std::string& path, std::size_t max_bytes);

/// The file that `path` finally names, through symbolic links, whether or not it exists.
/// Errors: IO for a circle of links.
Result<std::string> FollowLinks(const std::string& path);

/// Makes the folder of a file, and those above it. Errors: IO.
Status MakeFolderOf(const std::string& path);

/// Puts `text` in the place of the file, keeping its permissions, so that a reader or a crash at
/// any moment finds the whole old or the whole new text: temporary file in the same folder, fsync,
/// rename, fsync of the folder. First removes what writers that were killed left behind.
/// Requires: the folder; the lock that all writers of `path` take; `path` is no symbolic link.
/// Errors: IO, and the file is as before.
Status ReplaceFile(const std::string& path, std::string_view text);

/// Whether ReplaceFile could begin: makes its temporary file and removes it. Requires, Errors: as
/// ReplaceFile.
Status CheckReplaceFile(const std::string& path);

}  // namespace culet
