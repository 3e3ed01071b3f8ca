#include "api/spec/advice.h"

#include <string.h>

/* Names of nanoGPT, torchtitan, transformers' Trainer, Lightning, DeepSpeed, Megatron and PyTorch, lower case. Names
 * that a spec has elsewhere by the same name need no row: api/codec finds them. */
static const struct row {
    const char *says;
    const char *names[16]; /* up to NULL */
} ROWS[] = {
    { "the learning rate belongs to the optimizer, as in train.optimizer.adamw.lr",
      { "lr", "learning_rate", "max_lr", "base_lr", "peak_lr" } },
    { "the lowest learning rate belongs to the schedule, as in train.learning_rate_schedule.cosine.min_lr",
      { "min_lr", "min_learning_rate", "lr_min", "eta_min", "final_lr" } },
    { "this belongs to the optimizer, as in train.optimizer.adamw.weight_decay", { "weight_decay", "wd" } },
    { "this belongs to the optimizer, as train.optimizer.adamw.beta1 and beta2",
      { "beta1", "beta2", "betas", "adam_beta1", "adam_beta2" } },
    { "this belongs to the optimizer, as in train.optimizer.sgd.momentum", { "momentum", "nesterov" } },
    { "this belongs to the optimizer, as in train.optimizer.adamw.eps", { "eps", "epsilon", "adam_epsilon" } },
    { "the optimizer is train.optimizer, for example `optimizer: sgd` below train",
      { "optim", "optimizer_type", "optimizer_name", "adam", "adamw", "sgd", "lion", "muon", "adafactor" } },
    { "the schedule is train.learning_rate_schedule, for example `learning_rate_schedule: cosine` below train",
      { "scheduler", "lr_scheduler", "lr_schedule", "lr_scheduler_type", "schedule", "decay_lr", "lr_decay_style" } },
    { "warm-up belongs to the schedule, as in train.learning_rate_schedule.cosine.warmup_steps",
      { "warmup_steps", "warmup", "warmup_iters", "num_warmup_steps", "lr_warmup_steps", "warmup_ratio" } },
    { "the samples of a step are train.global_batch, those of one pass on a rank train.micro_batch",
      { "batch_size", "batch", "train_batch_size", "total_batch_size", "global_batch_size", "effective_batch_size" } },
    { "the samples of one pass on a rank are train.micro_batch; those of a step are train.global_batch",
      { "micro_batch_size", "per_device_train_batch_size", "per_device_batch_size", "device_batch_size",
        "train_micro_batch_size_per_gpu", "local_batch_size", "microbatch", "microbatch_size" } },
    { "leave it out: a rank makes global_batch / micro_batch / parallel.data passes a step",
      { "gradient_accumulation_steps", "grad_accum", "grad_accum_steps", "accumulate_grad_batches",
        "gradient_accumulation", "accumulation_steps" } },
    { "training is counted in optimizer steps: give train.steps, epochs x samples / global_batch",
      { "epochs", "epoch", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs" } },
    { "the number of optimizer steps is train.steps",
      { "max_steps", "num_steps", "n_steps", "max_iters", "iters", "train_steps", "total_steps", "num_train_steps",
        "training_steps", "train_iters", "iterations" } },
    { "the number of blocks is `layers` of the model, as in model.gpt.layers",
      { "layers", "num_layers", "n_layer", "n_layers", "num_hidden_layers", "depth", "blocks" } },
    { "the number of attention heads is `heads` of the model, as in model.gpt.heads",
      { "heads", "num_heads", "n_head", "n_heads", "num_attention_heads", "nhead" } },
    { "the heads of keys and values are model.llama.kv_heads",
      { "num_key_value_heads", "n_kv_heads", "n_kv_head", "num_kv_heads" } },
    { "the size of the residual stream is `width` of the model, as in model.gpt.width",
      { "width", "hidden_size", "n_embd", "d_model", "dim", "embed_dim", "embedding_dim", "model_dim", "embed_size" } },
    { "the size of the feed-forward is model.llama.hidden or model.vit.hidden; a gpt has 4 x width",
      { "intermediate_size", "ffn_dim", "mlp_dim", "d_ff", "ffn_hidden_size", "feedforward_dim", "n_inner" } },
    { "the tokens of a sample are `context` of the model, as in model.gpt.context",
      { "context", "seq_len", "seq_length", "sequence_length", "block_size", "max_seq_len", "max_length",
        "context_length", "max_position_embeddings", "n_positions", "n_ctx", "max_seq_length" } },
    { "the rows of the embedding are `vocabulary` of the model, as in model.gpt.vocabulary; the default is the "
      "tokenizer's",
      { "vocabulary", "vocab_size", "vocab", "n_vocab" } },
    { "dropout belongs to the model, as in model.gpt.dropout",
      { "dropout", "dropout_rate", "dropout_prob", "attn_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop" } },
    { "gradients are clipped by train.clip_norm (the default is 1, and none with sgd) and train.clip_value",
      { "grad_clip", "max_grad_norm", "gradient_clipping", "clip_grad_norm", "grad_norm_clip", "max_norm",
        "gradient_clip_val", "clip_grad" } },
    { "this is a field of a sweep, which `trainyard sweep create` takes",
      { "job", "parameters", "search", "max_parallel", "max_failures" } },
    { "write train.precision: fp16", { "fp16", "half", "float16" } },
    { "write train.precision: bf16", { "bf16", "bfloat16" } },
    { "the precision is train.precision: fp32, bf16 or fp16", { "dtype", "mixed_precision", "amp", "param_dtype" } },
    { "recomputation is train.recompute: selective or block",
      { "gradient_checkpointing", "activation_checkpointing", "activation_checkpoint", "checkpoint_activations" } },
    { "the ranks are parallel.data x parallel.pipeline, and a rank has a GPU with resources.accelerator: cuda",
      { "gpus", "num_gpus", "n_gpus", "world_size", "devices", "ranks", "nproc_per_node", "num_processes", "nodes",
        "num_nodes", "workers", "num_workers" } },
    { "data-parallel ranks are parallel.data", { "dp", "data_parallel", "data_parallel_size", "dp_size" } },
    { "stages of a pipeline are parallel.pipeline",
      { "pp", "pipeline_parallel", "pipeline_parallel_size", "pp_size", "stages", "pipeline_model_parallel_size" } },
    { "there is no tensor parallelism; parallel.pipeline and parallel.zero divide a large model",
      { "tp", "tensor_parallel", "tensor_parallel_size", "tp_size", "tensor_model_parallel_size" } },
    { "sharding is parallel.zero: 1 (optimizer states), 2 (and gradients) or 3 (and parameters)",
      { "zero_stage", "fsdp", "deepspeed", "zero_optimization", "sharding", "sharding_strategy" } },
    { "the device is resources.accelerator: cpu or cuda", { "device", "device_type" } },
    { "evaluation is train.eval.every (steps) and train.eval.batches",
      { "eval_every", "eval_steps", "eval_interval", "eval_iters", "evaluation_strategy", "eval_strategy",
        "val_check_interval", "eval_freq", "validation_every" } },
    { "checkpoints are checkpoint.every (steps), checkpoint.keep_last and checkpoint.directory",
      { "save_every", "save_steps", "save_interval", "checkpoint_every", "checkpoint_interval", "save_total_limit",
        "output_dir", "out_dir", "checkpoint_dir", "save_dir", "save_strategy" } },
    { "the data are data.text.files, data.tokens, data.images, data.idx, data.reconstruction or data.mixture",
      { "dataset", "datasets", "train_data", "data_path", "data_dir", "dataset_path", "train_file", "dataset_name",
        "files" } },
    { "weights to start from are train.init_from; a job resumes from its own checkpoints automatically",
      { "resume_from_checkpoint", "resume", "pretrained", "init_checkpoint", "load_checkpoint", "checkpoint_path",
        "pretrained_model_name_or_path" } },
    { "the tokenizer is data.text.tokenizer", { "tokenizer_path", "tokenizer_name" } },
};

const char *spec_advice(const char *name) {
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++)
        for (size_t i = 0; i < sizeof ROWS[r].names / sizeof *ROWS[r].names && ROWS[r].names[i]; i++)
            if (strcmp(ROWS[r].names[i], name) == 0)
                return ROWS[r].says;
    return NULL;
}

const char *spec_advice_row(size_t row) { return row < sizeof ROWS / sizeof *ROWS ? ROWS[row].says : NULL; }
