# SPDX-License-Identifier: Apache-2.0
"""Layers saved as programs, and the predictor that runs them."""

import os

import numpy as np
import paddle
import pytest
from model_check import NEW, OLD, check, examples
from paddle import inference, static
from paddle.static import InputSpec

# ---- layers


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(1, 4, 3, padding=1)
        self.norm = paddle.nn.BatchNorm2D(4)
        self.pool = paddle.nn.MaxPool2D(2, 2)
        self.drop = paddle.nn.Dropout(0.5)
        self.fc = paddle.nn.Linear(4 * 3 * 3, 5)

    def forward(self, image):
        x = self.pool(paddle.nn.functional.relu(self.norm(self.conv(image))))
        return self.fc(self.drop(paddle.flatten(x, 1)))


def trained_net():
    paddle.seed(3)
    layer = Net()
    image = paddle.randn([4, 1, 6, 6])
    for _ in range(3):
        layer(image)  # moves the running means
    return layer, image


@pytest.fixture
def eager_mode():
    paddle.disable_static()


def test_a_layer_is_saved_and_loaded(eager_mode, tmp_path):
    layer, image = trained_net()
    path = str(tmp_path / "net")
    with pytest.raises(ValueError, match="input_spec"):
        paddle.jit.save(layer, path)
    weight = layer.conv.weight
    paddle.jit.save(layer, path, input_spec=[InputSpec([None, 1, 6, 6], "float32")])
    assert layer.training and layer.conv.weight is weight
    names = ["net.pdiparams", "net.pdiparams.info", "net.pdmodel"]
    assert sorted(os.listdir(tmp_path)) == names
    layer.eval()
    wanted = layer(image).numpy()
    loaded = paddle.jit.load(path)
    assert isinstance(loaded, paddle.jit.TranslatedLayer)
    np.testing.assert_allclose(loaded(image).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert loaded(image[:2]).shape == [2, 5]
    with pytest.raises(ValueError, match="takes 1 inputs"):
        loaded(image, image)
    twin = Net()
    twin.set_state_dict(loaded.state_dict())
    twin.eval()
    np.testing.assert_array_equal(twin(image).numpy(), wanted)
    predictor = inference.create_predictor(
        inference.Config(path + ".pdmodel", path + ".pdiparams")
    )
    got = predictor.run([image.numpy()])
    np.testing.assert_allclose(got[0].numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_loaded_layer_is_trained_on(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()  # as the loaded one: dropout and batch norm of evaluation
    path = str(tmp_path / "net")
    paddle.jit.save(layer, path, input_spec=[InputSpec([None, 1, 6, 6], "float32")])
    loaded = paddle.jit.load(path)
    loaded.train()
    losses = []
    for net in (layer, loaded):
        sgd = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        losses.append([])
        for _ in range(4):
            loss = paddle.mean(net(image) ** 2)
            loss.backward()
            sgd.step()
            sgd.clear_grad()
            losses[-1].append(float(loss))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
    # The executor sees the new values.
    loaded.eval()
    np.testing.assert_allclose(
        loaded(image).numpy(), layer(image).numpy(), rtol=1e-4, atol=1e-5
    )


def test_to_static(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()
    wanted = layer(image).numpy()
    marked = paddle.jit.to_static(layer, input_spec=[InputSpec([None, 1, 6, 6])])
    np.testing.assert_array_equal(marked(image).numpy(), wanted)
    types = [op.type for op in marked.forward.main_program.global_block().ops]
    assert any(t.startswith("conv2d") for t in types)
    paddle.jit.save(marked, str(tmp_path / "net"))
    loaded = paddle.jit.load(str(tmp_path / "net"))
    np.testing.assert_allclose(loaded(image).numpy(), wanted, rtol=1e-5, atol=1e-6)

    @paddle.jit.to_static(input_spec=[InputSpec([None, 3], name="a")])
    def double(a):
        return a * 2 + 1

    np.testing.assert_array_equal(double(paddle.ones([1, 3])).numpy(), [[3, 3, 3]])
    paddle.jit.save(double, str(tmp_path / "double"))
    loaded = paddle.jit.load(str(tmp_path / "double"))
    np.testing.assert_array_equal(loaded(paddle.ones([1, 3])).numpy(), [[3, 3, 3]])

    class Marked(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = paddle.nn.Linear(3, 2)

        @paddle.jit.to_static(input_spec=[InputSpec([None, 3])])
        def forward(self, x):
            return self.fc(x), x

    assert paddle.jit.not_to_static(double) is double
    layer = Marked()
    x = paddle.rand([2, 3])
    wanted = layer(x)
    paddle.jit.save(layer, str(tmp_path / "marked"))
    got = paddle.jit.load(str(tmp_path / "marked"))(x)
    check(got, [w.numpy() for w in wanted])


def test_a_traced_layer(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()
    wanted, traced = paddle.jit.TracedLayer.trace(layer, [image])
    np.testing.assert_allclose(
        traced([image])[0].numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6
    )
    path = str(tmp_path / "net")
    traced.save_inference_model(path, feed=[0], fetch=[0])
    exe = static.Executor(paddle.CPUPlace())
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(path, exe)
        got = exe.run(program, feed={feeds[0]: image.numpy()}, fetch_list=fetches)
    check(got, [wanted.numpy()])


# ---- the predictor


def test_wrong_use_of_a_predictor():
    with pytest.raises(ValueError, match="names no model"):
        inference.create_predictor(inference.Config())
    with pytest.raises(TypeError, match="takes a Config"):
        inference.create_predictor("net")
    with pytest.raises(FileNotFoundError):
        inference.create_predictor(inference.Config("absent.pdmodel", "absent"))
    predictor = inference.create_predictor(inference.Config(str(NEW / "mlp")))
    assert isinstance(predictor, inference.Predictor)
    with pytest.raises(RuntimeError, match="'x' has no value"):
        predictor.run()
    with pytest.raises(KeyError, match="no input 'y'"):
        predictor.get_input_handle("y")
    with pytest.raises(ValueError, match="takes 1 inputs"):
        predictor.run([])


def test_predictors_share_parameters():
    inputs, outputs = examples(NEW / "cnn")
    pool = inference.PredictorPool(inference.Config(str(NEW / "cnn")), 2)
    for i in range(2):
        check(pool.retrive(i).run([inputs["image"]]), outputs)
    assert pool.retrive(0)._scope is pool.retrive(1)._scope
    handle = pool.retrive(0).get_input_handle("image")
    assert handle.shape() == [3, 1, 12, 12]
    assert handle.type() is inference.DataType.FLOAT32
    assert inference.get_num_bytes_of_data_type(handle.type()) == 4


def test_a_model_from_memory():
    inputs, outputs = examples(NEW / "embedding")
    program = (NEW / "embedding.pdmodel").read_bytes()
    params = (NEW / "embedding.pdiparams").read_bytes()
    config = inference.Config()
    config.set_model_buffer(program, len(program), params, len(params))
    assert config.model_from_memory()
    predictor = inference.create_predictor(config)
    names = predictor.get_input_names()
    check(predictor.run([inputs[name] for name in names]), outputs)


def test_a_predictor_over_sequences():
    inputs, outputs = examples(OLD / "sequence")
    config = inference.Config(str(OLD / "sequence"))
    predictor = inference.create_predictor(config)
    handle = predictor.get_input_handle("words")
    handle.copy_from_cpu(inputs["words"])
    handle.set_lod([inputs["words.lod"].tolist()])
    predictor.run()
    names = predictor.get_output_names()
    check([predictor.get_output_handle(n).copy_to_cpu() for n in names], outputs)


def test_settings_are_kept():
    config = inference.Config("a.pdmodel", "a.pdiparams")
    assert (config.prog_file(), config.params_file()) == ("a.pdmodel", "a.pdiparams")
    config.set_cpu_math_library_num_threads(2)
    assert config.cpu_math_library_num_threads() == 2
    config.enable_mkldnn()
    assert config.mkldnn_enabled()
    config.switch_ir_optim(False)
    assert not config.ir_optim()
    config.enable_use_gpu(100, 0)
    assert config.use_gpu() and config.gpu_device_id() == 0
    config.disable_gpu()
    assert not config.use_gpu()
    config.set_prog_file("b.pdmodel")
    config.set_params_file("b.pdiparams")
    assert (config.prog_file(), config.params_file()) == ("b.pdmodel", "b.pdiparams")
    for wish in ("memory_optim", "profile"):
        assert not getattr(config, f"{wish}_enabled")()
        getattr(config, f"enable_{wish}")()
        assert getattr(config, f"{wish}_enabled")()
    config.disable_glog_info()
    assert config.glog_info_disabled() and config.is_valid()
    assert not config.tensorrt_engine_enabled() and not config.use_xpu()
    assert config.pass_builder().all_passes() == []


def test_the_older_interface_to_programs_of_functions():
    translator = paddle.jit.ProgramTranslator.get_instance()
    assert translator is paddle.jit.ProgramTranslator()
    assert translator.get_output(lambda a, b: a + b, 1, b=2) == 3
    doubled = translator.get_func(lambda x: x * 2)
    np.testing.assert_array_equal(doubled(paddle.ones([2])).numpy(), [2.0, 2.0])
    main, _, inputs, outputs = translator.get_program(
        lambda x: x * 2, paddle.ones([3, 2])
    )
    assert main.global_block().ops[-1].output_arg_names == [outputs[0].name]
    assert len(inputs) == 1
    with pytest.raises(TypeError, match="give x by position"):
        translator.get_program(lambda x: x, x=paddle.ones([1]))
    with pytest.raises(TypeError, match="no argument 'input_specs'"):
        paddle.jit.to_static(lambda x: x, input_specs=[])
