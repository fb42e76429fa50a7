# SPDX-License-Identifier: Apache-2.0
"""Models that real Paddle saved run here, and train on."""

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from model_check import NEW, OLD, check, examples, exe, static_mode
from paddle import inference, static
from paddle.static import InputSpec

assert static_mode and exe  # fixtures


@pytest.mark.parametrize("name", ["mlp", "cnn", "embedding", "traced"])
def test_models_of_paddle_2_6(static_mode, exe, name):
    inputs, outputs = examples(NEW / name)
    program, feeds, fetches = static.load_inference_model(str(NEW / name), exe)
    assert set(feeds) == set(inputs)
    check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)


@pytest.mark.parametrize("name", ["mlp", "cnn", "embedding"])
def test_models_of_paddle_1_8(static_mode, exe, name):
    inputs, outputs = examples(OLD / name)
    program, feeds, fetches = fluid.io.load_inference_model(str(OLD / name), exe)
    assert set(feeds) == set(inputs)
    check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)
    program, feeds, fetches = fluid.io.load_inference_model(
        str(OLD / f"{name}_combined"), exe, "model", "params"
    )
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(
            str(OLD / f"{name}_combined"),
            exe,
            model_filename="model",
            params_filename="params",
        )
        check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)


@pytest.mark.parametrize("combined", [False, True])
def test_sequences_of_paddle_1_8(static_mode, exe, combined):
    inputs, outputs = examples(OLD / "sequence")
    offsets = inputs.pop("words.lod")
    words = fluid.create_lod_tensor(
        inputs["words"], [np.diff(offsets).tolist()], fluid.CPUPlace()
    )
    files = ("model", "params") if combined else ()
    folder = OLD / ("sequence_combined" if combined else "sequence")
    program, feeds, fetches = fluid.io.load_inference_model(str(folder), exe, *files)
    assert feeds == ["words"]
    check(exe.run(program, feed={"words": words}, fetch_list=fetches), outputs)


def test_training_goes_on_where_paddle_2_6_stopped(static_mode, exe):
    with np.load(NEW / "training.npz") as arrays:
        wanted = dict(arrays)
    program = paddle.load(str(NEW / "training.pdmodel"))
    static.load(program, str(NEW / "training"), exe)
    feed = {"x": wanted["x"], "y": wanted["y"]}
    loss = [op for op in program.global_block().ops if op.type == "reduce_mean"]
    name = loss[0].output("Out")[0]
    losses = [exe.run(program, feed=feed, fetch_list=[name])[0] for _ in range(3)]
    np.testing.assert_allclose(
        np.ravel(losses), np.ravel(wanted["losses"]), rtol=1e-5, atol=1e-6
    )
    after = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
    np.testing.assert_allclose(after, wanted["after"], rtol=1e-5, atol=1e-6)


def test_a_layer_of_paddle_2_6(exe):
    inputs, outputs = examples(NEW / "traced")
    layer = paddle.jit.load(str(NEW / "traced"))
    check([layer(paddle.to_tensor(inputs["image"]))], outputs)
    assert "conv.weight" in layer.state_dict()
    assert layer._input_spec() == [InputSpec([-1, 1, 12, 12], "float32", "image")]


def test_a_predictor_for_every_layout():
    inputs, outputs = examples(OLD / "mlp")
    for config in (
        inference.Config(str(OLD / "mlp")),
        inference.Config(
            str(OLD / "mlp_combined" / "model"), str(OLD / "mlp_combined" / "params")
        ),
        inference.Config(str(NEW / "mlp")),
        inference.Config(str(NEW / "mlp.pdmodel"), str(NEW / "mlp.pdiparams")),
    ):
        config.disable_gpu()
        config.enable_memory_optim()
        predictor = inference.create_predictor(config)
        assert predictor.get_input_names() == ["x"]
        handle = predictor.get_input_handle("x")
        handle.reshape([5, 6])
        handle.copy_from_cpu(inputs["x"])
        assert predictor.run()
        names = predictor.get_output_names()
        got = [predictor.get_output_handle(name).copy_to_cpu() for name in names]
        expected = (
            outputs if "paddle_1_8" in config.summary() else examples(NEW / "mlp")[1]
        )
        check(got, expected)
