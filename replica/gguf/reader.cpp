#include "replica/gguf/reader.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>

#include "replica/gguf/file_bytes.h"
#include "replica/gguf/header.h"
#include "replica/gguf/header_bytes.h"

namespace replica {
namespace {

/// One file, opened and checked by itself.
struct OpenPart {
    InputFile file;
    MappedBytes data;
    std::vector<std::byte> header_memory;  // what the entries view
    GgufHeader header;
};

GgufResult<OpenPart> open_part(const std::filesystem::path& path, const GgufOptions& options) {
    GgufResult<InputFile> file = InputFile::open(path);
    if (!file) return tl::unexpected(file.error());
    HeaderBytes bytes(*file);
    GgufResult<GgufHeader> header = parse_header(bytes, options);
    if (!header) return tl::unexpected(header.error());
    GgufResult<MappedBytes> data = options.data == GgufData::kMap
                                       ? MappedBytes::map(*file)
                                       : MappedBytes::copy(*file, header->data_start);
    if (!data) return tl::unexpected(data.error());
    // Rule 16: had the file shrunk since its size was taken, the mapping would reach past its end.
    if (GgufResult<void> unchanged = file->check_unchanged(); !unchanged)
        return tl::unexpected(unchanged.error());
    for (GgufTensor& tensor : header->tensors)
        tensor.data = data->at(tensor.file_offset);
    return OpenPart{std::move(*file), std::move(*data), bytes.release(), std::move(*header)};
}

GgufError split_error(const std::filesystem::path& path, std::string why, std::string fix) {
    return {GgufErrorKind::kMalformed, path.string() + ": split model", std::move(why),
            std::move(fix)};
}

/// "-00002-of-00005.gguf"
std::string split_suffix(std::uint32_t number, std::uint32_t count) {
    char text[48];
    std::snprintf(text, sizeof(text), "-%05u-of-%05u.gguf", number, count);
    return text;
}

/// The split keys of one part.
struct SplitKeys {
    std::uint32_t no = 0;
    std::uint32_t count = 1;
};

GgufResult<SplitKeys> split_keys_of(const std::filesystem::path& path, const GgufHeader& header) {
    const GgufMetadata metadata(path.string(), header.entries);
    const GgufResult<std::uint32_t> no = metadata.get_u32_or("split.no", 0);
    if (!no) return tl::unexpected(no.error());
    const GgufResult<std::uint32_t> count = metadata.get_u32_or("split.count", 1);
    if (!count) return tl::unexpected(count.error());
    if (*count > kGgufPartsMax) {
        return tl::unexpected(metadata.error_about(
            "split.count", "is " + std::to_string(*count) + ", at most " +
                               std::to_string(kGgufPartsMax) + " parts are allowed"));
    }
    // 0 parts: some writers leave the key at 0 in files that are not split.
    return SplitKeys{*no, std::max(*count, 1U)};
}

/// Opens parts 2..count that belong to `first`, appending them to `parts`.
GgufResult<void> open_other_parts(const GgufOptions& options, std::uint32_t count,
                                  std::vector<OpenPart>& parts) {
    const std::filesystem::path first = parts.front().file.path();
    const std::string name = first.filename().string();
    const std::string suffix = split_suffix(1, count);
    if (!name.ends_with(suffix)) {
        return tl::unexpected(split_error(
            first,
            "is part 1 of " + std::to_string(count) + ", but its name does not end in " + suffix,
            "give all parts the names they were published with"));
    }
    const std::string prefix = name.substr(0, name.size() - suffix.size());
    for (std::uint32_t no = 1; no < count; ++no) {
        const std::filesystem::path path =
            first.parent_path() / (prefix + split_suffix(no + 1, count));
        GgufResult<OpenPart> part = open_part(path, options);
        if (!part) return tl::unexpected(part.error());
        const GgufResult<SplitKeys> keys = split_keys_of(path, part->header);
        if (!keys) return tl::unexpected(keys.error());
        if (keys->no != no || keys->count != count) {
            return tl::unexpected(split_error(path,
                                              "says it is part " + std::to_string(keys->no + 1) +
                                                  " of " + std::to_string(keys->count) +
                                                  ", expected part " + std::to_string(no + 1) +
                                                  " of " + std::to_string(count),
                                              "fetch all parts of the same release again"));
        }
        parts.push_back(std::move(*part));
    }
    return {};
}

/// Opens `path` and, when it is the first of several, the other parts.
GgufResult<std::vector<OpenPart>> open_parts(const std::filesystem::path& path,
                                             const GgufOptions& options) {
    GgufResult<OpenPart> first = open_part(path, options);
    if (!first) return tl::unexpected(first.error());
    const GgufResult<SplitKeys> keys = split_keys_of(path, first->header);
    if (!keys) return tl::unexpected(keys.error());
    if (keys->no != 0) {
        return tl::unexpected(split_error(
            path, "is part " + std::to_string(keys->no + 1) + " of " + std::to_string(keys->count),
            "open the first part, *" + split_suffix(1, keys->count)));
    }
    std::vector<OpenPart> parts;
    parts.push_back(std::move(*first));
    if (keys->count > 1) {
        if (GgufResult<void> opened = open_other_parts(options, keys->count, parts); !opened)
            return tl::unexpected(opened.error());
    }
    return parts;
}

}  // namespace

struct GgufFile::State {
    std::vector<OpenPart> open_parts;
    std::vector<GgufPart> parts;
    GgufMetadata metadata;
    std::vector<GgufTensor> tensors;
    std::vector<std::size_t> by_name;  // indices into tensors, sorted by name
    std::uint64_t tensor_bytes = 0;

    GgufResult<void> check_totals() const;
};

/// Names are unique over all parts, and their number is the announced one.
GgufResult<void> GgufFile::State::check_totals() const {
    const std::filesystem::path& path = parts.front().path;
    const auto same_name = [&](std::size_t a, std::size_t b) {
        return tensors[a].name == tensors[b].name;
    };
    if (const auto twice = std::ranges::adjacent_find(by_name, same_name); twice != by_name.end()) {
        return tl::unexpected(split_error(
            path, "tensor " + printable(tensors[*twice].name) + " occurs in more than one part",
            "fetch all parts of the same release again"));
    }
    const bool is_split = parts.size() > 1;
    if (!is_split && !metadata.contains("split.tensors.count")) return {};
    const GgufResult<std::uint64_t> announced = metadata.get_u64("split.tensors.count");
    if (!announced) return tl::unexpected(announced.error());
    if (*announced != tensors.size() && (is_split || *announced != 0)) {
        return tl::unexpected(split_error(path,
                                          "has " + std::to_string(tensors.size()) +
                                              " tensors in all parts, " +
                                              std::to_string(*announced) + " were announced",
                                          "fetch all parts of the same release again"));
    }
    return {};
}

GgufResult<GgufFile> GgufFile::open(const std::filesystem::path& path, GgufOptions options) {
    GgufResult<std::vector<OpenPart>> opened = open_parts(path, options);
    if (!opened) return tl::unexpected(opened.error());

    auto state = std::make_unique<State>();
    state->open_parts = std::move(*opened);
    for (OpenPart& part : state->open_parts) {
        for (GgufTensor& tensor : part.header.tensors) {
            tensor.part = state->parts.size();
            state->tensor_bytes += tensor.bytes;
            state->tensors.push_back(std::move(tensor));
        }
        state->parts.push_back({.path = part.file.path(),
                                .bytes = part.file.size(),
                                .data_start = part.header.data_start,
                                .version = part.header.version,
                                .alignment = part.header.alignment});
    }
    state->metadata =
        GgufMetadata(path.string(), std::move(state->open_parts.front().header.entries));
    state->by_name.resize(state->tensors.size());
    std::iota(state->by_name.begin(), state->by_name.end(), std::size_t{0});
    std::ranges::sort(state->by_name, {},
                      [&](std::size_t i) -> const std::string& { return state->tensors[i].name; });
    if (GgufResult<void> checked = state->check_totals(); !checked)
        return tl::unexpected(checked.error());
    return GgufFile(std::move(state));
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const GgufMetadata& GgufFile::metadata() const {
    return state_->metadata;
}
std::span<const GgufTensor> GgufFile::tensors() const {
    return state_->tensors;
}
std::span<const GgufPart> GgufFile::parts() const {
    return state_->parts;
}
std::uint64_t GgufFile::tensor_bytes() const {
    return state_->tensor_bytes;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
    const auto name_at = [&](std::size_t i) -> std::string_view { return state_->tensors[i].name; };
    const auto found = std::ranges::lower_bound(state_->by_name, name, {}, name_at);
    if (found == state_->by_name.end() || name_at(*found) != name) return nullptr;
    return &state_->tensors[*found];
}

GgufResult<const GgufTensor*> GgufFile::get_tensor(std::string_view name) const {
    if (const GgufTensor* tensor = find_tensor(name)) return tensor;
    return tl::unexpected(GgufError{GgufErrorKind::kMissing,
                                    path().string() + ": tensor " + printable(name),
                                    "is required and absent", "convert the model again"});
}

GgufResult<void> GgufFile::check_unchanged() const {
    for (const OpenPart& part : state_->open_parts) {
        if (GgufResult<void> unchanged = part.file.check_unchanged(); !unchanged) return unchanged;
    }
    return {};
}

std::string GgufTensor::shape_text() const {
    std::string text = "[";
    for (int i = 0; i < rank; ++i)
        text += (i > 0 ? ", " : "") + std::to_string(ne[static_cast<std::size_t>(i)]);
    return text + "]";
}

}  // namespace replica
