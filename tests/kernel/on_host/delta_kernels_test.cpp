// delta_step and delta_chunk, the device code itself, against the CPU backend in double: sequences
// at the edges of chunks, fresh, carried on, with rows to replay; and the same bits whatever order
// blocks and warps run in.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/delta_step.h"
#include "tests/kernel/delta_net_support.h"
#include "tests/kernel/on_host/fenced.h"
#include "tests/kernel/on_host/grid.h"

extern "C" {
void delta_step_1(kernels::cuda::DeltaStepParams params);
void delta_step_2(kernels::cuda::DeltaStepParams params);
void delta_chunk_prepare(kernels::cuda::DeltaChunkParams params);
void delta_chunk_scan(kernels::cuda::DeltaChunkParams params);
}

namespace kernels::test {
namespace {

using namespace delta_net;

// Three bfloat16 terms leave 5e-6; one term left out would leave 2e-3.
constexpr double kLimit = 2e-5;
constexpr int kClusterBlocks = 2;  // of delta_chunk_scan

/// What a step changes.
struct Memory {
    std::vector<float> state, ring, replay, y;
    bool operator==(const Memory&) const = default;
};

std::vector<float> all_of(const TensorView& view) {
    return {view.as<float>(), view.as<float>() + view.shape[0] * view.row_stride};
}
Memory memory_of(const Runner& runner) {
    return {all_of(runner.state), all_of(runner.conv_ring), all_of(runner.replay), {}};
}

double error_of(const std::vector<float>& values, const std::vector<float>& reference) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        const double d = double{values[i]} - double{reference[i]};
        difference += d * d;
        norm += double{reference[i]} * double{reference[i]};
    }
    return std::sqrt(difference / norm);
}

/// The pieces in one step on device code, over what `before` holds.
class DeviceStep {
public:
    DeviceStep(const Layer& layer, const std::vector<Piece>& pieces, const Memory& before,
               std::uint32_t seed)
        : layer_(layer),
          fused_(layer.form, pieces),
          rows_(fused_.step.descriptor.rows),
          seqs_(fused_.step.descriptor.seqs),
          inputs_(fused_.values),
          state_(before.state),
          ring_(before.ring),
          replay_(before.replay),
          y_(std::vector<float>(static_cast<std::size_t>(rows_ * layer.form.values()),
                                std::numeric_limits<float>::quiet_NaN())),
          seed_(seed) {
        const Step& step = fused_.step;
        // As the backend uploads them: none given means that all commit and nothing is replayed.
        const auto seqs = static_cast<std::size_t>(seqs_);
        commit_.assign(step.commit.begin(), step.commit.end());
        commit_.resize(seqs, 1);
        replay_rows_ = step.replay_rows;
        replay_rows_.resize(seqs, 0);
    }

    Memory run() {
        run_step_kernel();
        run_chunk_kernels();
        return {state_.values(), ring_.values(), replay_.values(), y_.values()};
    }

private:
    using StepKernel = void (*)(cuda::DeltaStepParams);

    cuda::DeltaNetParams net() {
        const Form& f = layer_.form;
        const Step& step = fused_.step;
        cuda::DeltaNetParams p{};
        p.step = {.rows = &rows_, .seqs = &seqs_};
        p.step.row_begin = step.row_begin.data();
        p.step.kv_len_before = step.kv_len_before.data();
        p.step.state_slot = step.state_slot.data();
        p.step.replay_rows = replay_rows_.data();
        p.step.commit = commit_.data();
        p.n_k = f.n_k;
        p.n_v = f.n_v;
        p.state_size = f.size;
        p.conv_kernel = f.conv_kernel;
        p.is_grouped = f.order == HeadOrder::kGrouped;
        p.norm_eps = 1e-6F;
        p.u = inputs_.data();
        p.z = p.u + f.conv_dim();
        p.beta = p.z + f.values();
        p.alpha = p.beta + f.n_v;
        p.u_stride = p.z_stride = p.beta_stride = p.alpha_stride = fused_.width;
        p.conv_w = layer_.conv_w.data();
        p.dt_bias = layer_.dt_bias.data();
        p.a = layer_.a.data();
        p.norm_weight = layer_.norm.data();
        p.state = state_.data();
        p.state_stride = std::int64_t{f.values()} * f.size;
        p.conv_ring = ring_.data();
        p.conv_ring_stride = std::int64_t{f.ring()} * f.conv_dim();
        p.ring = f.ring();
        p.replay = replay_.data();
        p.replay_row = (f.n_k + f.n_v) * f.size + f.n_v;
        p.replay_stride = (1 + f.drafts) * p.replay_row;
        p.y = y_.data();
        p.y_stride = f.values();
        return p;
    }

    void run_step_kernel() {
        const Form& f = layer_.form;
        const cuda::DeltaStepParams p{.net = net(),
                                      .rows_max = cuda::kDeltaStepRows,
                                      .replays_max = 1 + f.drafts,
                                      .y_rows = rows_,
                                      .replays_long = true};
        const int heads = f.n_v / f.n_k;
        const StepKernel kernel = heads == 1 ? delta_step_1 : delta_step_2;
        on_host::run({.x = cuda::kDeltaStepBlocks * f.n_k,
                      .y = seqs_,
                      .threads = heads * cuda::kDeltaStepSize / cuda::kDeltaStepBlocks /
                                 cuda::kDeltaStepColumns * on_host::kWarpLanes,
                      .cluster = cuda::kDeltaStepBlocks,
                      .seed = seed_},
                     [&] { kernel(p); });
    }

    void run_chunk_kernels() {
        constexpr int kSlots = 6;
        const Form& f = layer_.form;
        cuda::DeltaChunkParams p{};
        p.net = net();
        p.slot_bytes = cuda::chunk_slot_bytes(f.n_k, f.n_v);
        on_host::Fenced scratch(
            std::vector<std::uint8_t>(static_cast<std::size_t>(kSlots * p.slot_bytes), 0xFF));
        p.scratch = scratch.data();
        cuda::ChunkWalk walk(fused_.step.row_begin, cuda::kDeltaStepRows, kSlots);
        while (walk.next(p.batch)) {
            on_host::run({.x = f.n_k,
                          .y = p.batch.slots,
                          .threads = cuda::kChunkPrepareThreads,
                          .seed = seed_},
                         [&] { delta_chunk_prepare(p); });
            on_host::run({.x = kClusterBlocks * f.n_v,
                          .y = p.batch.pieces,
                          .threads = cuda::kChunkScanThreads,
                          .cluster = kClusterBlocks,
                          .seed = seed_},
                         [&] { delta_chunk_scan(p); });
        }
    }

    const Layer& layer_;
    FusedStep fused_;
    std::int32_t rows_, seqs_;
    on_host::Fenced<float> inputs_, state_, ring_, replay_, y_;
    std::uint32_t seed_;
    std::vector<std::int32_t> commit_, replay_rows_;
};

/// A carried-on sequence, one that verified four rows, and what a step then asks of them.
struct Scene {
    Layer layer;
    Inputs first, second, third, fourth;
    Runner reference;
    std::vector<Piece> pieces;

    explicit Scene(HeadOrder order)
        : layer({.n_k = 1 + (order == HeadOrder::kGrouped ? 1 : 0),
                 .n_v = 2,
                 .size = cuda::kChunkSize,
                 .order = order}),
          first(layer.form, 80, 1),
          second(layer.form, 80, 2),
          third(layer.form, 264, 3),
          fourth(layer.form, 10, 4),
          reference(layer, {.accumulator = CpuAccumulator::kDouble,
                            .rows = 384,
                            .inputs_max = 8 * cuda::kChunkSize}) {
        reference.run({{.inputs = &first, .rows = 5, .slot = 1},
                       {.inputs = &second, .rows = 6, .slot = 2},
                       {.inputs = &fourth, .rows = 7, .slot = 4}});
        reference.run({{.inputs = &second, .begin = 6, .rows = 4, .slot = 2, .commits = false}});
        pieces = {{.inputs = &first, .begin = 5, .rows = 65, .slot = 1},
                  {.inputs = &second, .begin = 8, .rows = 17, .slot = 2, .replay_rows = 2},
                  {.inputs = &fourth, .begin = 7, .rows = 2, .slot = 4},
                  {.inputs = &third, .rows = 264, .slot = 3}};
    }
};

class DeltaKernelsOnHostTest : public testing::TestWithParam<HeadOrder> {};

TEST_P(DeltaKernelsOnHostTest, AgreeWithTheRecurrenceAtTheEdgesOfChunks) {
    Scene scene(GetParam());
    const Memory before = memory_of(scene.reference);
    const Memory device = DeviceStep(scene.layer, scene.pieces, before, 0).run();
    std::vector<float> y;
    for (const std::vector<float>& rows : scene.reference.run(scene.pieces))
        y.insert(y.end(), rows.begin(), rows.end());
    const Memory expected = memory_of(scene.reference);
    EXPECT_LT(error_of(device.y, y), kLimit);
    EXPECT_GT(error_of(device.y, y), 0.0) << "compared with itself";
    EXPECT_LT(error_of(device.state, expected.state), kLimit);
    EXPECT_EQ(device.ring, expected.ring);
    EXPECT_EQ(device.replay, expected.replay) << "no sequence of the step may be taken back";
}

TEST_P(DeltaKernelsOnHostTest, HaveTheSameBitsInWhateverOrderWarpsRunAndCopiesLand) {
    Scene scene(GetParam());
    const Memory before = memory_of(scene.reference);
    const Memory in_order = DeviceStep(scene.layer, scene.pieces, before, 0).run();
    for (const std::uint32_t seed : {1U, 2U})
        EXPECT_TRUE(DeviceStep(scene.layer, scene.pieces, before, seed).run() == in_order)
            << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(HeadOrders, DeltaKernelsOnHostTest,
                         testing::Values(HeadOrder::kTiled, HeadOrder::kGrouped));

}  // namespace
}  // namespace kernels::test
