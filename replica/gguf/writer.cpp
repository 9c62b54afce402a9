#include "replica/gguf/writer.h"

#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/quant/format.h"
#include "replica/gguf/file_bytes.h"
#include "replica/gguf/reader.h"

namespace replica {
namespace {

std::uint64_t padded(std::uint64_t bytes) {
    return (bytes + kGgufAlignmentDefault - 1) / kGgufAlignmentDefault * kGgufAlignmentDefault;
}

class ByteSink {
public:
    template <class T>
    void append(T value) {
        append_bytes(std::as_bytes(std::span(&value, 1)));
    }
    void append_string(std::string_view text) {
        append(std::uint64_t{text.size()});
        append_bytes(std::as_bytes(std::span(text)));
    }
    void append_bytes(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> take() { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

std::vector<std::byte> encode_header(const GgufKeyValues& key_values,
                                     std::span<const GgufTensorSpec> tensors) {
    ByteSink sink;
    sink.append_bytes(std::as_bytes(std::span("GGUF", 4)));
    sink.append(std::uint32_t{3});
    sink.append(std::uint64_t{tensors.size()});
    sink.append(key_values.count());
    sink.append_bytes(key_values.bytes());
    std::uint64_t offset = 0;
    for (const GgufTensorSpec& tensor : tensors) {
        assert(!tensor.name.empty() && tensor.name.size() <= kGgufTensorNameBytesMax);
        assert(!tensor.ne.empty() && tensor.ne.size() <= 4);
        sink.append_string(tensor.name);
        sink.append(static_cast<std::uint32_t>(tensor.ne.size()));
        for (const std::int64_t ne : tensor.ne)
            sink.append(static_cast<std::uint64_t>(ne));
        sink.append(static_cast<std::uint32_t>(tensor.dtype));
        sink.append(offset);
        offset += padded(tensor.bytes());
    }
    std::vector<std::byte> header = sink.take();
    if (!tensors.empty()) header.resize(padded(header.size()));
    return header;
}

GgufResult<void> write_at(const std::filesystem::path& path, int descriptor, std::uint64_t offset,
                          std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t put =
            ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0)
            return tl::unexpected(io_error(path, "cannot write", errno, "check the free space"));
        offset += static_cast<std::uint64_t>(put);
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

}  // namespace

template <class T>
void GgufKeyValues::append(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void GgufKeyValues::append_string(std::string_view text) {
    append(std::uint64_t{text.size()});
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void GgufKeyValues::begin(std::string_view key, GgufType type) {
    assert(!key.empty() && key.size() <= kGgufKeyBytesMax);
    append_string(key);
    append(static_cast<std::uint32_t>(type));
    ++count_;
}

void GgufKeyValues::set_u32(std::string_view key, std::uint32_t value) {
    begin(key, GgufType::kU32);
    append(value);
}
void GgufKeyValues::set_i32(std::string_view key, std::int32_t value) {
    begin(key, GgufType::kI32);
    append(value);
}
void GgufKeyValues::set_u16(std::string_view key, std::uint16_t value) {
    begin(key, GgufType::kU16);
    append(value);
}
void GgufKeyValues::set_f32(std::string_view key, float value) {
    begin(key, GgufType::kF32);
    append(value);
}
void GgufKeyValues::set_bool(std::string_view key, bool value) {
    begin(key, GgufType::kBool);
    append(static_cast<std::uint8_t>(value ? 1 : 0));
}
void GgufKeyValues::set_string(std::string_view key, std::string_view value) {
    begin(key, GgufType::kString);
    append_string(value);
}

void GgufKeyValues::set_strings(std::string_view key, std::span<const std::string> values) {
    begin(key, GgufType::kArray);
    append(static_cast<std::uint32_t>(GgufType::kString));
    append(std::uint64_t{values.size()});
    for (const std::string& value : values)
        append_string(value);
}

void GgufKeyValues::set_i32s(std::string_view key, std::span<const std::int32_t> values) {
    begin(key, GgufType::kArray);
    append(static_cast<std::uint32_t>(GgufType::kI32));
    append(std::uint64_t{values.size()});
    for (const std::int32_t value : values)
        append(value);
}

void GgufKeyValues::set_copy(const GgufEntry& entry) {
    begin(entry.key, entry.type);
    if (entry.type == GgufType::kArray) {
        append(static_cast<std::uint32_t>(entry.element_type));
        append(entry.count);
    }
    bytes_.insert(bytes_.end(), entry.bytes.begin(), entry.bytes.end());
}

std::int64_t GgufTensorSpec::elements() const {
    std::int64_t product = 1;
    for (const std::int64_t size : ne)
        product *= size;
    return product;
}

std::uint64_t GgufTensorSpec::bytes() const {
    return static_cast<std::uint64_t>(kernels::row_bytes(dtype, ne[0]) * (elements() / ne[0]));
}

std::uint64_t gguf_data_bytes(std::span<const GgufTensorSpec> tensors) {
    std::uint64_t sum = 0;
    for (const GgufTensorSpec& tensor : tensors)
        sum += padded(tensor.bytes());
    return sum;
}

struct GgufWriter::State {
    std::filesystem::path path;       // the target
    std::filesystem::path temporary;  // empty once renamed
    int descriptor = -1;
    std::vector<GgufTensorSpec> tensors;
    std::vector<std::uint64_t> starts;  // of each tensor's data in the file
    std::uint64_t file_bytes = 0;
    std::uint64_t bytes_expected = 0;
    std::atomic<std::uint64_t> bytes_written = 0;

    ~State() {
        if (descriptor >= 0) ::close(descriptor);
        if (!temporary.empty()) ::unlink(temporary.c_str());
    }
};

GgufWriter::GgufWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;
GgufWriter::~GgufWriter() = default;

std::span<const GgufTensorSpec> GgufWriter::tensors() const {
    return state_->tensors;
}
std::uint64_t GgufWriter::file_bytes() const {
    return state_->file_bytes;
}

GgufResult<GgufWriter> GgufWriter::create(const std::filesystem::path& path,
                                          const GgufKeyValues& key_values,
                                          std::vector<GgufTensorSpec> tensors) {
    // A rename would turn a device or a pipe into a file of ours.
    std::error_code none;
    const std::filesystem::file_status there = std::filesystem::status(path, none);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
        return tl::unexpected(GgufError{GgufErrorKind::kIo, path.string(),
                                        "it exists and is no regular file",
                                        "give the name of a file to write"});
    }
    const std::vector<std::byte> header = encode_header(key_values, tensors);
    auto state = std::make_unique<State>();
    state->path = path;
    state->file_bytes = header.size();
    for (const GgufTensorSpec& tensor : tensors) {
        state->starts.push_back(state->file_bytes);
        state->file_bytes += padded(tensor.bytes());
        state->bytes_expected += tensor.bytes();
    }
    state->tensors = std::move(tensors);

    std::string temporary = path.string() + ".XXXXXX";
    state->descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (state->descriptor < 0)
        return tl::unexpected(io_error(path, "cannot create", errno, "check folder and rights"));
    state->temporary = temporary;
    // Reserving everything now makes a full disk an error at once and not after the work.
    const int full = ::posix_fallocate(state->descriptor, 0, static_cast<off_t>(state->file_bytes));
    if (full != 0) {
        return tl::unexpected(
            io_error(path, "cannot reserve " + std::to_string(state->file_bytes) + " bytes", full,
                     "free some space"));
    }
    if (GgufResult<void> put = write_at(state->temporary, state->descriptor, 0, header); !put)
        return tl::unexpected(put.error());
    return GgufWriter(std::move(state));
}

GgufResult<void> GgufWriter::write(std::size_t tensor, std::uint64_t offset,
                                   std::span<const std::byte> bytes) {
    assert(tensor < state_->tensors.size());
    const std::uint64_t size = state_->tensors[tensor].bytes();
    assert(offset <= size && bytes.size() <= size - offset && "inside the tensor");
    state_->bytes_written += bytes.size();
    return write_at(state_->path, state_->descriptor, state_->starts[tensor] + offset, bytes);
}

GgufResult<void> GgufWriter::finish() {
    assert(state_->bytes_written == state_->bytes_expected && "every byte is written once");
    const mode_t mask = ::umask(0);  // mkostemp makes private files; give it the usual mode
    ::umask(mask);
    ::fchmod(state_->descriptor, 0666 & ~mask);
    if (::fsync(state_->descriptor) != 0)
        return tl::unexpected(io_error(state_->path, "cannot write", errno, "check the disk"));
    if (::rename(state_->temporary.c_str(), state_->path.c_str()) != 0)
        return tl::unexpected(io_error(state_->path, "cannot put in place", errno));
    state_->temporary.clear();
    return {};
}

}  // namespace replica
