# SPDX-License-Identifier: Apache-2.0
"""Trains a program that tells glad sentences from sad ones, and saves it. Sentences have
different numbers of words; they are made up here, so nothing has to be fetched:

    python examples/python/train_words.py
"""

import argparse
import tempfile

import numpy as np
import paddle
from paddle import static
from paddle.fluid import create_lod_tensor, layers
from progress import Progress

WORDS = 200  # the first quarter sounds glad, the second sad, the others say nothing


def sentences(count, seed):
    """Lists of words, each with 1 if it is glad."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        glad = int(rng.integers(2))
        telling = rng.integers(50, size=rng.integers(1, 4)) + (0 if glad else 50)
        others = rng.integers(50, WORDS, size=rng.integers(3, 15))
        yield rng.permutation(np.concatenate([telling, others])), glad


def network(words, label):
    """Each word is a vector, a sentence their mean."""
    vectors = layers.embedding(words, [WORDS, 16])
    mean = layers.sequence_pool(vectors, "average")
    share = static.nn.fc(mean, 2, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(share, label))
    return share, loss


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--sentences", type=int, default=6400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    paddle.enable_static()
    paddle.seed(1)
    words = static.data("words", [None, 1], "int64", lod_level=1)
    label = static.data("label", [None, 1], "int64")
    share, loss = network(words, label)
    area, _, _ = static.auc(share, label)
    test = static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(0.01).minimize(loss)

    loader = paddle.io.DataLoader.from_generator([words, label], capacity=8)
    loader.set_sample_generator(lambda: sentences(args.sentences, 1), args.batch)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    bar = Progress(args.epochs * (args.sentences // args.batch))
    for _ in range(args.epochs):
        for feed in loader():
            cost, auc = executor.run(feed=feed, fetch_list=[loss, area])
            bar.step(loss=cost[0], auc=auc[0])

    unseen = list(sentences(1000, 2))
    lengths = [len(sentence) for sentence, _ in unseen]
    rows = np.concatenate([sentence for sentence, _ in unseen]).reshape(-1, 1)
    fed = create_lod_tensor(rows, [lengths], paddle.CPUPlace())
    feed = {"words": fed, "label": np.array([[glad] for _, glad in unseen])}
    (shares,) = executor.run(test, feed=feed, fetch_list=[share.name])
    right = shares.argmax(1) == feed["label"][:, 0]
    print(f"right on sentences never seen: {right.mean():.3f}")

    with tempfile.TemporaryDirectory() as folder:
        static.save_inference_model(f"{folder}/words", [words], [share], executor)
        program, feeds, fetches = static.load_inference_model(
            f"{folder}/words", executor
        )
        (again,) = executor.run(program, feed={feeds[0]: fed}, fetch_list=fetches)
    print(f"the saved model differs by {abs(again - shares).max():.1e}")


if __name__ == "__main__":
    main()
