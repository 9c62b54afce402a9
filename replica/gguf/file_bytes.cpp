#include "replica/gguf/file_bytes.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace replica {
namespace {

/// Size of a regular file, or an error.
GgufResult<std::uint64_t> size_of(int descriptor, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0)
        return tl::unexpected(io_error(path, "cannot read its size", errno));
    if (!S_ISREG(status.st_mode)) {
        return tl::unexpected(GgufError{GgufErrorKind::kIo, path.string(), "is no regular file",
                                        "give the path of a .gguf file"});
    }
    return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

GgufError io_error(const std::filesystem::path& path, const std::string& doing, int error_number,
                   std::string fix) {
    return {GgufErrorKind::kIo, path.string(),
            doing + ": " + std::generic_category().message(error_number), std::move(fix)};
}

GgufResult<InputFile> InputFile::open(const std::filesystem::path& path) {
    // O_NONBLOCK: a FIFO must not make us wait for a writer; regular files do not care.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        const int error_number = errno;
        return tl::unexpected(
            io_error(path, "cannot open", error_number,
                     error_number == ENOENT ? "check the path" : "check the file's permissions"));
    }
    InputFile file(path, descriptor, 0);
    const GgufResult<std::uint64_t> size = size_of(descriptor, path);
    if (!size) return tl::unexpected(size.error());
    file.size_ = *size;
    return file;
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

GgufResult<void> InputFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        const ssize_t got =
            ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tl::unexpected(io_error(path_, "cannot read", errno));
        if (got == 0) {
            return tl::unexpected(GgufError{
                GgufErrorKind::kIo, path_.string(),
                "ends at byte " + std::to_string(offset) + ", it was longer when it was opened",
                "wait until the file is complete"});
        }
        offset += static_cast<std::uint64_t>(got);
        into = into.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

GgufResult<void> InputFile::check_unchanged() const {
    const GgufResult<std::uint64_t> now = size_of(descriptor_, path_);
    if (!now) return tl::unexpected(now.error());
    if (*now != size_) {
        return tl::unexpected(GgufError{GgufErrorKind::kIo, path_.string(),
                                        "changed its size from " + std::to_string(size_) + " to " +
                                            std::to_string(*now) + " bytes while in use",
                                        "replace model files by renaming, never in place"});
    }
    return {};
}

GgufResult<MappedBytes> MappedBytes::map(const InputFile& file) {
    void* base = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (base == MAP_FAILED) return tl::unexpected(io_error(file.path(), "cannot map", errno));
    return MappedBytes(static_cast<std::byte*>(base), file.size(), 0);
}

GgufResult<MappedBytes> MappedBytes::copy(const InputFile& file, std::uint64_t offset) {
    const std::uint64_t bytes = file.size() - offset;
    if (bytes == 0) return MappedBytes();
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return tl::unexpected(io_error(file.path(), "no memory for a copy", errno));
    MappedBytes copied(static_cast<std::byte*>(base), bytes, offset);
    if (GgufResult<void> read = file.read_at(offset, {copied.base_, bytes}); !read)
        return tl::unexpected(read.error());
    return copied;
}

MappedBytes::~MappedBytes() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace replica
