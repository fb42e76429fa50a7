# SPDX-License-Identifier: Apache-2.0
"""The fields of DistributedStrategy: those of all versions of Paddle from 1.8 to 2.6.

One table says everything about them; distributed_strategy.py gives it behaviour.
"""

from typing import NamedTuple

# What a field is for.
USED = "used"  # has its effect in eager training today
HINT = "hint"  # about speed, never about results; accepted, and may be without effect
SERVER = "server"  # looked at in jobs with parameter servers only
CHANGES = "changes"  # changes results, and is not built yet: refused when set

COLLECTIVE, PS, PIPELINE, HETER = 1, 2, 3, 4
MODES = {"COLLECTIVE": COLLECTIVE, "PS": PS, "PIPELINE": PIPELINE, "HETER": HETER}


class Field(NamedTuple):
    """A default and a use. The type is that of the default; an empty list is one of
    texts, and [0] or [0.0] stand for empty lists of numbers."""

    default: object
    use: str


def _fields(use, **defaults):
    return {name: Field(default, use) for name, default in defaults.items()}


FLAGS = {
    **_fields(HINT, mode=COLLECTIVE),
    **_fields(
        CHANGES,
        amp=False,
        recompute=False,
        localsgd=False,
        dgc=False,
        gradient_merge=False,
        lars=False,
        lamb=False,
        pipeline=False,
        elastic=False,
    ),
    **_fields(HINT, auto=False),  # eager training picks nothing
    **_fields(SERVER, a_sync=True),
    **_fields(
        HINT,
        sync_nccl_allreduce=True,
        nccl_comm_num=1,
        use_hierarchical_allreduce=False,
        hierarchical_allreduce_inter_nranks=1,
    ),
    **_fields(USED, sync_batch_norm=False),
    **_fields(HINT, fuse_all_reduce_ops=True),
    **_fields(USED, fuse_grad_size_in_MB=32, last_comm_group_size_MB=1),
    **_fields(
        HINT,
        fuse_grad_size_in_TFLOPS=50.0,
        fuse_grad_size_in_num=8,
        cudnn_exhaustive_search=True,
        conv_workspace_size_limit=4000,
        cudnn_batchnorm_spatial_persistent=True,
        find_unused_parameters=False,
        without_graph_optimization=False,
        calc_comm_same_stream=False,
        fuse_grad_merge=False,
        split_data=True,
    ),
    **_fields(
        CHANGES,
        adaptive_localsgd=False,
        fp16_allreduce=False,
        sharding=False,
        tensor_parallel=False,
        asp=False,
        qat=False,
        semi_auto=False,
        auto_search=False,
        heter_ccl_mode=False,
    ),
    **_fields(
        SERVER,
        adam_d2sum=False,
        is_fl_ps_mode=False,
        with_coordinator=False,
    ),
}

# Groups of settings. Most belong to the flag of the same name, and are looked at when
# that is on.
CONFIGS = {
    "recompute_configs": dict(
        checkpoints=[],
        enable_offload=False,
        checkpoint_shape=[0],
        enable_tuning=False,
    ),
    "amp_configs": dict(
        init_loss_scaling=32768.0,
        incr_every_n_steps=1000,
        decr_every_n_nan_or_inf=2,
        incr_ratio=2.0,
        decr_ratio=0.8,
        use_dynamic_loss_scaling=True,
        custom_white_list=[],
        custom_black_list=[],
        custom_black_varnames=[],
        use_pure_fp16=False,
        use_fp16_guard=True,
        use_optimizer_fp16=False,
        use_pure_bf16=False,
        use_master_grad=False,
    ),
    "localsgd_configs": dict(k_steps=1, begin_step=1),
    "adaptive_localsgd_configs": dict(init_k_steps=1, begin_step=1),
    "gradient_merge_configs": dict(k_steps=1, avg=True),
    "dgc_configs": dict(rampup_begin_step=0, rampup_step=1, sparsity=[0.0]),
    "lars_configs": dict(
        lars_coeff=0.001,
        lars_weight_decay=0.0005,
        epsilon=0.0,
        exclude_from_weight_decay=[],
    ),
    "lamb_configs": dict(lamb_weight_decay=0.01, exclude_from_weight_decay=[]),
    "sharding_configs": dict(
        sharding_segment_strategy="segment_broadcast_MB",
        segment_broadcast_MB=32.0,
        segment_anchors=[],
        sharding_degree=8,
        mp_degree=1,
        dp_degree=1,
        pp_degree=1,
        hybrid_dp=False,
        gradient_merge_acc_step=1,
        optimize_offload=False,
        optimize_cast=False,
        pp_allreduce_in_optimize=False,
        stage=1,
        offload=False,
        enable_tuning=False,
    ),
    "pipeline_configs": dict(
        micro_batch_size=1,
        accumulate_steps=1,
        schedule_mode="1F1B",
        p2p_cache_shape=True,
        enable_partial_send_recv=True,
    ),
    "tensor_parallel_configs": dict(tensor_parallel_degree=1, tensor_init_seed=-1),
    "hybrid_configs": dict(
        dp_degree=-1,
        mp_degree=1,
        pp_degree=1,
        sharding_degree=1,
        sep_degree=1,
        order=[],
        mp_configs=dict(
            sync_param=False, sync_grad=False, sync_moment=False, sync_mode="broadcast"
        ),
        pp_configs=dict(
            dp_comm_overlap=False,
            sharding_comm_overlap=False,
            delay_scale_loss=False,
            enable_timer=False,
            profiling=False,
            release_gradients=False,
        ),
        sharding_configs=dict(
            tensor_fusion=False,
            accumulate_steps=1,
            comm_overlap=False,
            split_param=False,
        ),
    ),
    "gradient_scale_configs": dict(scale_strategy="avg", scale_gradient=False),
    "qat_configs": dict(
        channel_wise_abs_max=True,
        weight_bits=8,
        activation_bits=8,
        not_quant_pattern=[],
        algo="",
    ),
    "a_sync_configs": dict(
        k_steps=-1,
        max_merge_var_num=1,
        send_queue_size=16,
        independent_recv_thread=False,
        min_send_grad_num_before_recv=1,
        thread_pool_size=1,
        send_wait_times=1,
        runtime_split_send_recv=False,
        launch_barrier=True,
        heter_worker_device_guard="cpu",
        lr_decay_steps=10,
        use_ps_gpu=0,
        use_gpu_graph=0,
        durability="",
    ),
    "trainer_desc_configs": dict(
        dump_fields_path="", dump_fields=[], dump_param=[], stat_var_names=[]
    ),
    "downpour_table_param": dict(
        table_class="MemorySparseTable",
        shard_num=1000,
        accessor_class="CtrCommonAccessor",
        fea_dim=11,
        embedx_dim=8,
        embedx_threshold=10,
        nonclk_coeff=0.1,
        click_coeff=1.0,
        base_threshold=1.5,
        delta_threshold=0.25,
        delta_keep_days=16.0,
        show_click_decay_rate=0.98,
        delete_threshold=0.8,
        delete_after_unseen_days=30.0,
        ssd_unseenday_threshold=1,
        sgd_rule="SparseAdaGradSGDRule",
        naive_learning_rate=0.05,
        adagrad_learning_rate=0.05,
        adagrad_initial_g2sum=3.0,
        adam_learning_rate=0.001,
    ),
    "fs_client_param": dict(uri="", user="", passwd="", hadoop_bin=""),
}

# Texts that take one of a few values, or stay as they are by default.
CHOICES = {("a_sync_configs", "durability"): ("none", "log", "log-sync")}

# Old keys for new ones, which read and write the same value.
KEY_ALIASES = {
    "sharding_configs": {
        "fuse_broadcast_MB": "segment_broadcast_MB",
        "sharding_group_size": "sharding_degree",
    },
    "pipeline_configs": {"micro_batch": "accumulate_steps"},
}
FLAG_ALIASES = {"_fuse_grad_size_in_TFLOPS": "fuse_grad_size_in_TFLOPS"}

BUILD = dict(
    enable_sequential_execution=False,
    fuse_elewise_add_act_ops=False,
    fuse_bn_act_ops=False,
    fuse_relu_depthwise_conv=False,
    fuse_broadcast_ops=False,
    fuse_all_optimizer_ops=False,
    enable_inplace=False,
    enable_backward_optimizer_op_deps=True,
    cache_runtime_context=False,
    fuse_bn_add_act_ops=True,
    enable_auto_fusion=False,
    enable_addto=False,
    fix_op_run_order=False,
    allow_cuda_graph_capture=False,
    reduce_strategy=0,
    gradient_scale_strategy=0,
    memory_optimize=False,
    remove_unnecessary_lock=False,
    sync_batch_norm=False,
    num_trainers=1,
    trainer_id=0,
    trainers_endpoints=[],
)
EXECUTION = dict(
    num_threads=1,
    num_iteration_per_drop_scope=10,
    num_iteration_per_run=1,
    use_thread_barrier=False,
)


def hints():
    """The names of the flags that are hints: about speed, never about results."""
    return sorted(name for name, field in FLAGS.items() if field.use == HINT)
