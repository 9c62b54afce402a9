#include "replica/gguf/header.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/quant/format.h"
#include "replica/gguf/value.h"

namespace replica {
namespace {

constexpr std::uint64_t kFixedPartBytes = 24;  // magic, version, two counts
constexpr std::uint64_t kEntryBytesMin = 13;   // key length, one byte of key, type
constexpr std::uint64_t kTensorBytesMin = 25;  // name length, one byte, rank, type, offset

/// An entry whose key and value are offsets still, since the bytes may move.
struct EntryPlace {
    std::uint64_t key_at, key_length;
    GgufType type, element_type;
    std::uint64_t count;
    std::uint64_t value_at, value_end;
};

bool is_value_type(std::uint32_t type) {
    return type <= static_cast<std::uint32_t>(GgufType::kF64);
}

void skip_values(HeaderCursor& cursor, GgufType type, std::uint64_t count) {
    if (type == GgufType::kString) {
        for (std::uint64_t i = 0; i < count && !cursor.has_failed(); ++i)
            cursor.read_string(kGgufStringBytesMax);
        return;
    }
    const std::byte* values = cursor.take(count * fixed_size_of(type));  // count is bounded below
    if (values == nullptr || type != GgufType::kBool) return;
    if (std::any_of(values, values + count, [](std::byte b) { return b > std::byte{1}; }))
        cursor.fail("a bool that is neither 0 nor 1");
}

EntryPlace parse_entry(HeaderCursor& cursor) {
    EntryPlace entry{};
    cursor.enter("key");
    const std::string_view key = cursor.read_string(kGgufKeyBytesMax);
    entry.key_length = key.size();
    entry.key_at = cursor.position() - key.size();
    if (!cursor.has_failed() && key.empty()) cursor.fail("the key is empty");
    cursor.enter("key " + printable(key));

    auto type = cursor.read<std::uint32_t>();
    if (!is_value_type(type)) {
        cursor.fail("unknown value type " + std::to_string(type));
        return entry;
    }
    entry.type = entry.element_type = static_cast<GgufType>(type);
    entry.count = 1;
    if (entry.type == GgufType::kArray) {
        type = cursor.read<std::uint32_t>();
        entry.count = cursor.read<std::uint64_t>();
        if (!is_value_type(type) || static_cast<GgufType>(type) == GgufType::kArray) {
            cursor.fail("array of element type " + std::to_string(type) +
                        (is_value_type(type) ? ": arrays of arrays are not allowed" : ", unknown"));
            return entry;
        }
        entry.element_type = static_cast<GgufType>(type);
        const std::uint64_t least =
            entry.element_type == GgufType::kString ? 8 : fixed_size_of(entry.element_type);
        if (entry.count > cursor.remaining() / least) {
            cursor.fail("array of " + std::to_string(entry.count) + " elements, the file has " +
                        std::to_string(cursor.remaining()) + " bytes left");
            return entry;
        }
    }
    entry.value_at = cursor.position();
    skip_values(cursor, entry.element_type, entry.count);
    entry.value_end = cursor.position();
    return entry;
}

void parse_shape(HeaderCursor& cursor, GgufTensor& tensor) {
    const auto rank = cursor.read<std::uint32_t>();
    if (rank > tensor.ne.size()) {
        cursor.fail(std::to_string(rank) + " dimensions, at most 4 are allowed");
        return;
    }
    tensor.rank = static_cast<int>(rank);
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < rank; ++i) {
        const auto ne = cursor.read<std::uint64_t>();
        if (cursor.has_failed()) return;
        if (ne == 0 || !std::in_range<std::int64_t>(ne) ||
            __builtin_mul_overflow(elements, static_cast<std::int64_t>(ne), &elements)) {
            cursor.fail("dimension " + std::to_string(i) + " is " + std::to_string(ne) +
                        ": every dimension and their product must be within 1..2^63-1");
            return;
        }
        tensor.ne[i] = static_cast<std::int64_t>(ne);
    }
}

void parse_type(HeaderCursor& cursor, const GgufOptions& options, GgufTensor& tensor) {
    tensor.type_id = cursor.read<std::uint32_t>();
    if (cursor.has_failed()) return;
    const kernels::Format* format = kernels::find_format(tensor.type_id);
    if (format == nullptr) {
        cursor.fail("type " + std::to_string(tensor.type_id) + " is unknown or was removed");
        return;
    }
    if (format->block_bytes == 0 || (!format->supported && !options.allow_unsupported_types)) {
        cursor.fail(GgufErrorKind::kUnsupported,
                    "type " + std::string(format->name) + " is not supported",
                    "use a file with IQ4_XS, IQ4_NL, Q4_K, Q5_K, Q6_K, Q8_0 or BF16 weights");
        return;
    }
    if (format->supported) tensor.dtype = static_cast<kernels::DType>(tensor.type_id);
    if (tensor.ne[0] % format->block_values != 0) {
        cursor.fail("rows of " + std::to_string(tensor.ne[0]) + " values are no whole blocks of " +
                    std::to_string(format->block_values) + " (" + std::string(format->name) + ")");
        return;
    }
    std::int64_t bytes = 0;
    const std::int64_t blocks = tensor.elements() / format->block_values;
    if (__builtin_mul_overflow(blocks, std::int64_t{format->block_bytes}, &bytes))
        cursor.fail("its size does not fit 63 bits");
    tensor.bytes = static_cast<std::uint64_t>(bytes);
}

GgufTensor parse_tensor(HeaderCursor& cursor, const GgufOptions& options) {
    GgufTensor tensor;
    cursor.enter("tensor");
    tensor.name = cursor.read_string(kGgufTensorNameBytesMax);
    if (cursor.has_failed()) return tensor;
    cursor.enter("tensor " + printable(tensor.name));
    if (tensor.name.empty()) cursor.fail("the name is empty");
    if (tensor.name.find('\0') != std::string::npos) cursor.fail("the name has a NUL byte");
    parse_shape(cursor, tensor);
    if (!cursor.has_failed()) parse_type(cursor, options, tensor);
    tensor.file_offset = cursor.read<std::uint64_t>();  // from data_start; place_tensors adds it
    return tensor;
}

/// The first name that occurs twice in the sorted range, or nullptr. Sorting, since a hash table
/// would let a hostile file choose its collisions.
const std::string_view* first_duplicate(std::vector<std::string_view>& names) {
    std::ranges::sort(names);
    const auto found = std::ranges::adjacent_find(names);
    return found == names.end() ? nullptr : &*found;
}

void check_names(HeaderCursor& cursor, const GgufHeader& header) {
    std::vector<std::string_view> names;
    for (const GgufEntry& entry : header.entries)
        names.push_back(entry.key);
    cursor.enter("keys");
    if (const std::string_view* twice = first_duplicate(names))
        cursor.fail("key " + printable(*twice) + " occurs twice");
    names.clear();
    for (const GgufTensor& tensor : header.tensors)
        names.push_back(tensor.name);
    cursor.enter("tensors");
    if (const std::string_view* twice = first_duplicate(names))
        cursor.fail("tensor " + printable(*twice) + " occurs twice");
}

void read_alignment(HeaderCursor& cursor, GgufHeader& header) {
    const auto found =
        std::ranges::find(header.entries, std::string_view("general.alignment"), &GgufEntry::key);
    if (found == header.entries.end()) return;
    cursor.enter("key general.alignment");
    if (found->type != GgufType::kU32) {
        cursor.fail("must be of type u32, is " + type_text(*found));
        return;
    }
    header.alignment = std::get<std::uint64_t>(number_at(found->type, found->bytes.data()));
    if (!std::has_single_bit(header.alignment) || header.alignment < kGgufAlignmentMin ||
        header.alignment > kGgufAlignmentMax) {
        cursor.fail("is " + std::to_string(header.alignment) + ", must be a power of two from " +
                    std::to_string(kGgufAlignmentMin) + " to " + std::to_string(kGgufAlignmentMax));
    }
}

/// Finds the data section, and every tensor a place of its own inside it.
void place_tensors(HeaderCursor& cursor, std::uint64_t file_size, GgufHeader& header) {
    cursor.enter("tensor data");
    if (!align_up(cursor.position(), header.alignment, header.data_start)) {
        cursor.fail("its start does not fit 64 bits");
        return;
    }
    if (header.tensors.empty()) {
        header.data_start = std::min(header.data_start, file_size);
        return;
    }
    if (header.data_start > file_size) {
        cursor.fail("begins at byte " + std::to_string(header.data_start) + ", the file has " +
                    std::to_string(file_size));
        return;
    }
    const std::uint64_t data_bytes = file_size - header.data_start;
    for (const GgufTensor& tensor : header.tensors) {
        cursor.enter("tensor " + printable(tensor.name));
        const std::string at = "offset " + std::to_string(tensor.file_offset);
        if (tensor.file_offset % header.alignment != 0)
            cursor.fail(at + " is no multiple of the alignment " +
                        std::to_string(header.alignment));
        if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset) {
            cursor.fail(at + " with " + std::to_string(tensor.bytes) +
                        " bytes reaches past the data section of " + std::to_string(data_bytes) +
                        " bytes");
        }
        if (cursor.has_failed()) return;
    }
    std::vector<std::size_t> order(header.tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return header.tensors[i].file_offset; });
    for (std::size_t k = 1; k < order.size(); ++k) {
        const GgufTensor& before = header.tensors[order[k - 1]];
        const GgufTensor& after = header.tensors[order[k]];
        if (before.file_offset + before.bytes > after.file_offset) {
            cursor.enter("tensor " + printable(after.name));
            cursor.fail("its data overlaps that of tensor " + printable(before.name));
            return;
        }
    }
    for (GgufTensor& tensor : header.tensors)
        tensor.file_offset += header.data_start;
}

struct Counts {
    std::uint64_t tensors, entries;
};

/// Magic, version and counts.
Counts parse_fixed_part(HeaderCursor& cursor, GgufHeader& header) {
    if (cursor.remaining() < kFixedPartBytes) {
        cursor.fail("a GGUF file has at least 24 bytes, this one has " +
                    std::to_string(cursor.remaining()));
        return {};
    }
    if (const std::byte* magic = cursor.take(4); std::memcmp(magic, "GGUF", 4) != 0) {
        cursor.fail(GgufErrorKind::kMalformed, "does not begin with \"GGUF\"",
                    "give the path of a .gguf model file");
        return {};
    }
    header.version = cursor.read<std::uint32_t>();
    if ((header.version & 0xffffU) == 0) {
        cursor.fail(GgufErrorKind::kUnsupported, "is in big-endian byte order (wrong endianness)",
                    "convert the model for little-endian machines");
    } else if (header.version != 2 && header.version != 3) {
        cursor.fail(GgufErrorKind::kUnsupported,
                    "is of GGUF version " + std::to_string(header.version) + ", we read 2 and 3",
                    "convert the model again with a current converter");
    }
    Counts counts{};
    counts.tensors = cursor.read<std::uint64_t>();
    counts.entries = cursor.read<std::uint64_t>();
    const auto check = [&](std::uint64_t count, std::uint64_t least, std::uint64_t limit,
                           const char* things) {
        if (count > cursor.remaining() / least || count > limit) {
            cursor.fail("announces " + std::to_string(count) + " " + things +
                        ", more than the file can hold or our limit of " + std::to_string(limit));
        }
    };
    check(counts.entries, kEntryBytesMin, kGgufKeysMax, "keys");
    check(counts.tensors, kTensorBytesMin, kGgufTensorsMax, "tensors");
    return counts;
}

}  // namespace

bool align_up(std::uint64_t value, std::uint64_t alignment, std::uint64_t& aligned) {
    assert(std::has_single_bit(alignment));
    if (value > std::numeric_limits<std::uint64_t>::max() - (alignment - 1)) return false;
    aligned = (value + alignment - 1) & ~(alignment - 1);
    return true;
}

GgufResult<GgufHeader> parse_header(HeaderBytes& bytes, const GgufOptions& options) {
    HeaderCursor cursor(bytes);
    GgufHeader header;
    const Counts counts = parse_fixed_part(cursor, header);
    std::vector<EntryPlace> places;
    for (std::uint64_t i = 0; i < counts.entries && !cursor.has_failed(); ++i)
        places.push_back(parse_entry(cursor));
    for (std::uint64_t i = 0; i < counts.tensors && !cursor.has_failed(); ++i)
        header.tensors.push_back(parse_tensor(cursor, options));

    if (!cursor.has_failed()) {  // from here on the bytes stay where they are
        for (const EntryPlace& place : places) {
            const auto* key = reinterpret_cast<const char*>(bytes.data() + place.key_at);
            header.entries.push_back(
                {.key = {key, static_cast<std::size_t>(place.key_length)},
                 .type = place.type,
                 .element_type = place.element_type,
                 .count = place.count,
                 .bytes = {bytes.data() + place.value_at, bytes.data() + place.value_end}});
        }
        check_names(cursor, header);
        if (!cursor.has_failed()) read_alignment(cursor, header);
        if (!cursor.has_failed()) place_tensors(cursor, bytes.file_size(), header);
    }
    if (cursor.has_failed()) return tl::unexpected(cursor.take_error());
    return header;
}

}  // namespace replica
