// SPDX-License-Identifier: Apache-2.0

// Trains a small network to tell noisy pictures of shapes apart, in one process
// or in many. The pictures are drawn here, so nothing has to be fetched:
//
//   build/release/bin/train_cnn
//   fleetrun --nproc_per_node 2 build/release/bin/train_cnn
//
// The batch is shared out among the processes, so that both learn the same. The
// weights go to a file that Python opens: paddle.load("shapes.pdparams").

#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <unistd.h>

#include <torch/torch.h>

#include "fleet/collectives.h"
#include "fleet/distributed_model.h"
#include "fleet/distributed_sampler.h"

namespace {

using torch::Tensor;

constexpr int kSize = 24;
constexpr int kNumShapes = 5;

struct Flags {
  int epochs = 3;
  int pictures = 3000;
  int batch_size = 64;  // of all ranks together
  std::string save = "shapes.pdparams";
};

// Whether the point (u, v), seen from the middle, is in a shape of radius r.
bool Inside(int shape, float u, float v, float r) {
  const float distance = std::hypot(u, v);
  const float box = std::max(std::abs(u), std::abs(v));
  switch (shape) {
    case 0:  // disc
      return distance < r;
    case 1:  // ring
      return std::abs(distance - r) < 1.5f;
    case 2:  // frame
      return std::abs(box - r * 0.85f) < 1.3f;
    case 3:  // cross
      return std::min(std::abs(u), std::abs(v)) < 1.5f && box < r;
    default:  // saltire
      return std::abs(std::abs(u) - std::abs(v)) < 1.8f && box < r * 0.8f;
  }
}

// Pictures with their labels; the same seed draws the same.
class Shapes : public torch::data::Dataset<Shapes> {
 public:
  Shapes(int count, unsigned seed)
      : pictures_(torch::empty({count, 1, kSize, kSize})),
        labels_(torch::empty({count}, torch::kLong)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> place(9, 15), radius(4.5f, 8);
    std::normal_distribution<float> noise(0, 0.15f);
    float* pixel = pictures_.data_ptr<float>();
    for (int i = 0; i < count; ++i) {
      const int shape = static_cast<int>(random() % kNumShapes);
      labels_[i] = shape;
      const float x = place(random), y = place(random), r = radius(random);
      for (int p = 0; p < kSize * kSize; ++p) {
        const bool inside = Inside(shape, p % kSize - x, p / kSize - y, r);
        *pixel++ = (inside ? 0.4f : 0.0f) - 0.1f + noise(random);
      }
    }
  }

  torch::data::Example<> get(size_t i) override {
    return {pictures_[static_cast<int64_t>(i)],
            labels_[static_cast<int64_t>(i)]};
  }
  std::optional<size_t> size() const override { return pictures_.size(0); }

  const Tensor& pictures() const { return pictures_; }
  const Tensor& labels() const { return labels_; }

 private:
  Tensor pictures_, labels_;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(fleet::Job& job)
      : conv1(torch::nn::Conv2dOptions(1, 12, 3).padding(1)),
        norm1(job, 12),
        conv2(torch::nn::Conv2dOptions(12, 24, 3).padding(1)),
        norm2(job, 24),
        classify(24 * 6 * 6, kNumShapes) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("classify", classify);
  }

  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    return classify(x.flatten(1));
  }

  torch::nn::Conv2d conv1;
  fleet::SyncBatchNorm norm1;
  torch::nn::Conv2d conv2;
  fleet::SyncBatchNorm norm2;
  torch::nn::Linear classify;
};
TORCH_MODULE(Net);

// One line that grows on a terminal; elsewhere one for every epoch.
void ShowProgress(int done, int total, bool end_of_epoch, float loss,
                  double seconds) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (!terminal && !end_of_epoch) return;
  constexpr int kWidth = 28;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) {
    bar += i < kWidth * done / total ? "█" : "·";
  }
  std::printf("%s%s %d/%d  loss %.3f  %.1f steps/s%s", terminal ? "\r" : "",
              bar.c_str(), done, total, loss, done / seconds,
              terminal && done < total ? "" : "\n");
  std::fflush(stdout);
}

// The share of pictures that get their right name.
double Evaluate(Net net, const Shapes& data) {
  const torch::NoGradGuard no_grad;
  net->eval();
  Tensor right = net(data.pictures()).argmax(1) == data.labels();
  return right.to(torch::kDouble).mean().item<double>();
}

int Train(fleet::Job& job, const Flags& flags) {
  torch::manual_seed(1);
  const bool first = job.rank() == 0;
  fleet::DistributedModel model(job, Net(job));
  fleet::DistributedOptimizer optimizer(
      job, torch::optim::Adam(model->parameters(), 2e-3));
  auto data = Shapes(flags.pictures, 1).map(torch::data::transforms::Stack<>());
  fleet::DistributedSampler sampler(job, flags.pictures, {.drop_last = true});
  const int steps =
      static_cast<int>(sampler.size()) / (flags.batch_size / job.size());
  auto loader = torch::data::make_data_loader(
      std::move(data), std::move(sampler),
      torch::data::DataLoaderOptions(flags.batch_size / job.size())
          .drop_last(true));
  if (first) {
    std::printf("training on %d pictures, %d ranks over %s\n", flags.pictures,
                job.size(), std::string(job.communicator().backend()).c_str());
  }

  const auto start = std::chrono::steady_clock::now();
  int done = 0;
  for (int epoch = 0; epoch < flags.epochs; ++epoch) {
    for (auto& batch : *loader) {
      Tensor loss = torch::cross_entropy_loss(model(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      const std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - start;
      if (++done, first) {
        ShowProgress(done, steps * flags.epochs, done % steps == 0,
                     loss.item<float>(), spent.count());
      }
    }
  }

  Tensor accuracy = torch::full({1}, Evaluate(Net(model.ptr()), {500, 2}));
  fleet::Status status = fleet::AllReduce(job, accuracy, fleet::ReduceOp::kMin);
  if (status.ok() && first) {
    std::printf("accuracy on 500 pictures never seen: %.3f\n",
                accuracy.item<float>());
    status = fleet::SaveModule(*model, flags.save);
    if (status.ok()) std::printf("saved to %s\n", flags.save.c_str());
  }
  if (!status.ok()) {
    std::fprintf(stderr, "train_cnn: %s\n", status.ToString().c_str());
    return 1;
  }
  return accuracy.item<float>() > 0.8f ? 0 : 2;
}

bool ReadFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--epochs") {
      flags.epochs = std::stoi(argv[i + 1]);
    } else if (name == "--pictures") {
      flags.pictures = std::stoi(argv[i + 1]);
    } else if (name == "--batch-size") {
      flags.batch_size = std::stoi(argv[i + 1]);
    } else if (name == "--save") {
      flags.save = argv[i + 1];
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (!ReadFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: train_cnn [--epochs N] [--pictures N] "
                 "[--batch-size N] [--save FILE]\n");
    return 2;
  }
  auto job = fleet::Job::Init();
  if (!job.ok()) {
    std::fprintf(stderr, "train_cnn: %s\n", job.status().ToString().c_str());
    return 1;
  }
  try {
    const int result = Train(**job, flags);
    if (result != 0) return result;
    return (*job)->Finish().ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_cnn: %s\n", error.what());
    return 1;
  }
}
