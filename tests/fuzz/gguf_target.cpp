// A model file from strangers, end to end: container, hyperparameters, tokenizer.
//
//   the whole input is the file
//
// It lies in a file of memory alone, so that it is opened, read and mapped as files are.
//
// Holds: mapped and copied, a file is accepted or refused alike; every tensor lies within the file,
// on its own, and can be read; keys and names are found; whatever a key is asked for, an error
// names it in one line fit for a terminal. A configuration that is read is one the model can be
// built from. A tokenizer that is made encodes any text to ids of its vocabulary, makes no control
// token of text that is data, and decodes to UTF-8.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "proto/utf8.h"
#include "replica/chat/template.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/value.h"
#include "replica/model/config.h"
#include "replica/tokenizer/gguf_tokenizer.h"
#include "replica/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using replica::GgufFile;
using replica::GgufMetadata;
using replica::GgufTensor;

constexpr std::size_t kErrorBytesMax = 1024;

/// One file in memory with a path of its own, filled anew for every input.
class MemoryFile {
public:
    MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        assert(descriptor_ >= 0);
        path_ = "/proc/self/fd/" + std::to_string(descriptor_);
    }
    ~MemoryFile() { ::close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    void fill(const std::uint8_t* data, std::size_t size) {
        [[maybe_unused]] const int emptied = ::ftruncate(descriptor_, 0);
        [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, data, size, 0);
        assert(emptied == 0 && written == static_cast<ssize_t>(size));
    }
    const std::string& path() const { return path_; }

private:
    int descriptor_;
    std::string path_;
};

void check_text(const std::string& text) {
    assert(fuzz::is_message(text, kErrorBytesMax));
}

template <class T>
bool is_given(const replica::GgufResult<T>& result) {
    if (!result) check_text(result.error().text());
    return result.has_value();
}

/// Every way to ask for every key.
void check_metadata(const GgufMetadata& metadata) {
    for (const replica::GgufEntry& entry : metadata.entries()) {
        const std::string_view key = entry.key;
        assert(metadata.find(key) == &entry);
        check_text(type_text(entry) + value_text(entry, 4, 40));
        const auto u32 = metadata.get_u32(key);
        const auto u64 = metadata.get_u64(key);
        if (is_given(u32)) assert(is_given(u64) && *u64 == *u32);
        is_given(metadata.get_i32(key));
        is_given(metadata.get_f32(key));
        is_given(metadata.get_bool(key));
        is_given(metadata.get_string(key));
        const auto strings = metadata.get_strings(key);
        if (is_given(strings)) assert(strings->size() == entry.count);
        is_given(metadata.get_i32s(key));
        is_given(metadata.get_f32s(key));
        const auto layers = metadata.get_u32_per_layer(key, 3);
        if (is_given(layers)) assert(layers->size() == 3);
        is_given(metadata.get_bool_per_layer(key, 3));
    }
}

void check_tensors(const GgufFile& file, std::size_t file_bytes) {
    std::vector<const GgufTensor*> in_order;
    std::uint64_t bytes = 0;
    for (const GgufTensor& tensor : file.tensors()) {
        assert(file.find_tensor(tensor.name) == &tensor);
        assert(tensor.rank >= 0 && tensor.rank <= 4 && tensor.elements() > 0 && tensor.bytes > 0);
        assert(tensor.file_offset <= file_bytes && tensor.bytes <= file_bytes - tensor.file_offset);
        assert(reinterpret_cast<std::uintptr_t>(tensor.data) % 8 == 0);
        std::vector<std::byte> copy(tensor.data, tensor.data + tensor.bytes);  // all of it is there
        bytes += tensor.bytes;
        in_order.push_back(&tensor);
    }
    assert(bytes == file.tensor_bytes());
    std::ranges::sort(in_order, {}, &GgufTensor::file_offset);
    for (std::size_t i = 1; i < in_order.size(); ++i)
        assert(in_order[i - 1]->file_offset + in_order[i - 1]->bytes <= in_order[i]->file_offset);
}

void check_same(const GgufFile& mapped, const GgufFile& copied) {
    assert(mapped.metadata().entries().size() == copied.metadata().entries().size());
    assert(mapped.tensors().size() == copied.tensors().size());
    for (std::size_t i = 0; i < mapped.tensors().size(); ++i) {
        const GgufTensor& a = mapped.tensors()[i];
        const GgufTensor& b = copied.tensors()[i];
        assert(a.name == b.name && a.type_id == b.type_id && a.ne == b.ne && a.bytes == b.bytes);
        assert(std::memcmp(a.data, b.data, a.bytes) == 0);
    }
}

void check_config(const GgufFile& file) {
    const auto config = replica::read_model_config(file);
    if (!config) return check_text(config.error().text());
    assert(!config->layers.empty() && config->layers.size() + config->mtp_layers.size() <= 1024);
    assert(config->width > 0 && config->vocabulary > 0 && config->context_train > 0);
    assert(config->head_dim > 0 && config->n_rot % 2 == 0 && config->n_rot <= config->head_dim);
    assert(std::isfinite(config->rope_base) && config->rope_base > 1.0);
    assert(std::isfinite(config->norm_eps) && config->norm_eps >= 0.0F);
    assert(std::isfinite(config->rope_scaling.factor) && config->rope_scaling.factor > 0.0);
    assert(std::isfinite(config->rope_scaling.attention_factor));
    for (const replica::LayerConfig& layer : config->layers) {
        assert(layer.ff_width > 0 && layer.kv_heads > 0);
        if (layer.kind == replica::LayerKind::kDeltaNet) assert(config->delta_net);
        if (layer.kind != replica::LayerKind::kAttention) continue;
        assert(layer.heads > 0 && layer.heads % layer.kv_heads == 0);
    }
    if (const auto& net = config->delta_net) {
        assert(net->key_heads > 0 && net->value_heads % net->key_heads == 0);
        assert(net->value_dim() > 0 && net->conv_dim() > 0 && net->conv_kernel >= 2);
    }
}

void check_ids(const replica::Tokenizer& tokenizer, const std::vector<replica::TokenId>& ids) {
    for (const replica::TokenId id : ids)
        assert(id >= 0 && id < tokenizer.vocabulary_size());
    for (const bool render_special : {false, true}) {
        const std::string text = tokenizer.decode(ids, {.render_special = render_special});
        assert(proto::find_broken_utf8(text) == std::string::npos);
    }
}

void check_encoding(const replica::Tokenizer& tokenizer, std::string_view text) {
    check_ids(tokenizer, tokenizer.encode(text, {.add_special = true}));
    check_ids(tokenizer, tokenizer.encode(text, {.parse_special = false}));
    const std::vector<replica::ByteSpan> all = {{0, text.size()}};
    const std::vector<replica::TokenId> data = tokenizer.encode(text, all, {});
    check_ids(tokenizer, data);
    for (const replica::TokenId id : data)
        assert(tokenizer.type(id) != replica::TokenType::kControl && "data became a control token");
}

void check_tokenizer(const GgufFile& file, std::string_view bytes) {
    auto data = replica::load_tokenizer_data(file.metadata());
    if (!data) return check_text(data.error().message);
    const auto tokenizer = replica::Tokenizer::from_data(*std::move(data));
    if (!tokenizer) return check_text(tokenizer.error().message);
    for (const std::string& warning : tokenizer->warnings())
        check_text(warning);
    assert(tokenizer->vocabulary_size() > 0);
    assert(tokenizer->vocabulary_used() <= tokenizer->vocabulary_size());
    check_ids(*tokenizer, tokenizer->end_tokens());
    assert(std::ranges::is_sorted(tokenizer->end_tokens()));
    for (const std::string_view text :
         {std::string_view(), std::string_view("Hello, world's 123 \xC3\xA9\xE4\xBD\xA0!\r\n\t  x"),
          std::string_view("<|im_start|>user\n<think></s><|im_end|>"), bytes.substr(0, 200),
          bytes.substr(bytes.size() / 2, 200)}) {
        check_encoding(*tokenizer, text);
    }
    std::string all;  // what the file itself calls special, first and last
    for (replica::TokenId id = 0; id < std::min(tokenizer->vocabulary_size(), 32); ++id)
        all += tokenizer->piece(id, {.render_special = true});
    check_encoding(*tokenizer, std::string_view(all).substr(0, 1024));
}

void check_template(const GgufFile& file) {
    const auto text = file.metadata().get_string_or("tokenizer.chat_template", "");
    if (!text) return check_text(text.error().text());
    const auto compiled = replica::chat::Template::compile(*text);
    assert(compiled || !compiled.error().message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static MemoryFile memory;
    memory.fill(data, size);
    const auto file = GgufFile::open(memory.path());
    const auto copied = GgufFile::open(memory.path(), {.data = replica::GgufData::kCopy});
    assert(file.has_value() == copied.has_value());
    if (!file) {
        check_text(file.error().text());
        const auto listed = GgufFile::open(memory.path(), {.allow_unsupported_types = true});
        if (is_given(listed)) check_tensors(*listed, size);
        return 0;
    }
    check_same(*file, *copied);
    check_tensors(*file, size);
    check_metadata(file->metadata());
    check_config(*file);
    check_tokenizer(*file, {reinterpret_cast<const char*>(data), size});
    check_template(*file);
    return 0;
}
