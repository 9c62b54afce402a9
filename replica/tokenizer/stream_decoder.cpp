#include "replica/tokenizer/stream_decoder.h"

#include "replica/tokenizer/utf8.h"

namespace replica {

void StreamDecoder::feed(std::string_view bytes, std::string& text) {
    std::string joined;
    if (!pending_.empty()) {
        joined = pending_;
        joined.append(bytes);
        bytes = joined;
        pending_.clear();
    }
    std::size_t position = 0;
    while (position < bytes.size()) {
        const Utf8Step step = decode_utf8(bytes, position);
        if (step.status == Utf8Status::kIncomplete) {
            pending_ = bytes.substr(position);
            return;
        }
        if (step.status == Utf8Status::kWhole) {
            text.append(bytes.substr(position, step.length));
        } else {
            append_utf8(kReplacementCharacter, text);
        }
        position += step.length;
    }
}

void StreamDecoder::finish(std::string& text) {
    if (!pending_.empty()) append_utf8(kReplacementCharacter, text);
    pending_.clear();
}

}  // namespace replica
