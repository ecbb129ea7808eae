//! Suggestions for names of public code, misspellings and labels.

use std::collections::BTreeSet;

use serde_json::Value;

use super::aliases::WORDS;
use super::*;
use crate::recipe;
use crate::spec::RunRequest;

fn told(kind: &str, name: &str) -> String {
    match kind {
        "published source" => source(name).err().unwrap().to_string(),
        "task" => {
            let found = find(kind, name, datasets::TASKS, |it| it.info().name);
            found.err().unwrap().to_string()
        }
        "model" => {
            let found = find(kind, name, models::registry(), |it| it.name);
            found.err().unwrap().to_string()
        }
        _ => {
            let found = find(kind, name, recipe::RECIPES, |(name, _)| name);
            found.err().unwrap().to_string()
        }
    }
}

#[test]
fn names_of_public_code_lead_to_those_here() {
    for (kind, name, to) in [
        ("task", "imdb", "text"),
        ("task", "IMDB", "text"),
        ("task", "doc_matching", "retrieval"),
        ("task", "lra_imdb", "text"),
        ("task", "imdb-classification", "text"),
        ("task", "lra-imdb-classification", "text"),
        ("task", "aan", "retrieval"),
        ("task", "matching", "retrieval"),
        ("task", "lra-retrieval", "retrieval"),
        ("task", "new_aan_pairs", "retrieval"),
        ("task", "CIFAR-10", "image"),
        ("task", "cifar_grayscale", "image"),
        ("task", "lra_cifar", "image"),
        ("task", "lra-cifar-classification", "image"),
        ("task", "cifar", "image"),
        ("task", "lra_listops", "listops"),
        ("task", "listops-1000", "listops"),
        ("task", "List-Ops", "listops"),
        ("task", "pathfinder32", "pathfinder"),
        ("task", "pathfinder32-curv_contour_length_14", "pathfinder"),
        (
            "task",
            "lra-pathfinder-curv_contour_length_14",
            "pathfinder",
        ),
        ("task", "path", "pathfinder"),
        ("task", "pf128", "pathx"),
        ("task", "lra_pf128", "pathx"),
        ("task", "cifar-2d", "image"),
        ("task", "text_4k", "text"),
        ("task", "path-x", "pathx"),
        ("task", "PATH_X", "pathx"),
        ("task", "pathfinder128", "pathx"),
        ("task", "word_problem", "state_tracking"),
        ("task", "zoology", "mqar"),
        ("task", "associative_recall", "mqar"),
        ("task", "Selective-Copying", "selective_copy"),
        ("task", "needle_in_a_haystack", "needle"),
        ("model", "mega_lra_listop", "mega"),
        ("model", "softmax", "transformer"),
        ("model", "ssd", "mamba2"),
        ("model", "mamba-2", "mamba2"),
        ("model", "vanilla", "transformer"),
        ("model", "full", "transformer"),
        ("model", "Full_Attention", "transformer"),
        ("model", "linear_transformer", "linear"),
        ("model", "linear-attention", "linear"),
        ("model", "big_bird", "bigbird"),
        ("model", "performer_fast", "performer"),
        ("model", "performer-256", "performer"),
        ("model", "nystrom-64", "nystromformer"),
        ("model", "Nyströmformer", "nystromformer"),
        ("model", "sparse_transformer", "sparse"),
        ("model", "sinkhorn-transformer", "sinkhorn"),
        ("model", "transformer-xl", "transformer_xl"),
        ("model", "s4-legs", "s4"),
        ("model", "mlp-mixer", "mlp_mixer"),
        ("model", "lsta", "long_short"),
        ("model", "reformer-2", "reformer"),
        ("model", "luna_lra_imdb", "luna"),
        ("model", "flash_lra_imdb", "gau"),
        ("model", "transformer_lra_imdb", "transformer"),
        ("model", "tno2d", "tnn"),
        ("model", "hgrn1d", "hgrn"),
        ("model", "hgrn2d", "hgrn"),
        ("model", "hgrn2_1d", "hgrn2"),
        ("model", "hgrn2_2d", "hgrn2"),
        ("model", "transformer_cosformer", "cosformer"),
        ("model", "cosformer_attn", "cosformer"),
        ("recipe", "tay2021long", "tay2021"),
        ("recipe", "ma2022mega", "mega"),
        ("recipe", "s4d", "s4"),
        ("recipe", "liquid_s4", "liquid-s4"),
        ("recipe", "default", "mini"),
        ("recipe", "laptop", "mini"),
    ] {
        let told = told(kind, name);
        let hint = format!("did you mean '{to}'");
        assert!(told.contains(&hint), "{kind} {name}: {told}");
    }
    assert!(told("model", "s4-fout").contains("HiPPO-LegS"));
    for (name, setting) in [
        (
            "nystrom-128",
            "nystromformer with --set model.landmarks=128",
        ),
        (
            "Nyströmformer-64",
            "nystromformer with --set model.landmarks=64",
        ),
        ("performer-256", "performer with --set model.features=256"),
        ("linformer-256", "linformer with --set model.rank=256"),
        ("luna-16", "luna with --set model.length=16"),
        ("reformer-2", "reformer with --set model.rounds=2"),
    ] {
        let told = told("model", name);
        assert!(told.contains(setting), "{told}");
    }
    for (name, setting) in SIZES {
        let mut registry = models::registry().iter();
        let model = registry.find(|it| it.name == *name).unwrap();
        let key = setting.strip_prefix("model.").unwrap();
        assert!(model.defaults()[key].is_u64(), "{name} {setting}");
    }
    assert!(told("recipe", "laptop").contains("replaced laptop"));
    assert!(told("task", "pathfinder64").contains("--set data.size=64"));
    let both = "--set data.size=64 --set data.difficulty=easy";
    assert!(told("task", "pathfinder64_easy").contains(both));
    assert!(told("task", "pf256").contains("--set data.size=256"));
    assert!(told("task", "parity").contains("--set data.group=parity"));
}

/// Each with what its name says of the task and the model.
#[test]
fn configurations_of_public_code_lead_to_the_recipe_of_their_code_base() {
    for (name, recipe, note) in [
        ("s4-lra-listops", "s4", "--task listops --model s4"),
        ("s4-lra-imdb", "s4", "--task text --model s4"),
        ("s4-lra-cifar", "s4", "--task image --model s4"),
        ("s4-lra-aan", "s4", "--task retrieval --model s4"),
        ("s4-lra-pathx", "s4", "--task pathx --model s4"),
        ("lra/s4-listops", "s4", "--task listops --model s4"),
        ("s4-cifar", "s4", "--task image --model s4"),
        ("s4d-cifar", "s4", "--task image --model s4d"),
        ("lra/s4d-imdb", "s4", "--task text --model s4d"),
        ("lra/long-conv-lra-listops", "long-conv", "--task listops"),
        ("s5-lra", "s5", "--model s5"),
        ("lra_s5_listops", "s5", "--task listops --model s5"),
        ("mega_lra_imdb", "mega", "--task text --model mega"),
        ("mega_lra_pf128", "mega", "--task pathx --model mega"),
        ("mega_lra_listop", "mega", "--task listops --model mega"),
        ("luna-lra", "luna", "--model luna"),
        ("sgconv_lra", "sgconv", "--model sgconv"),
        ("xiong", "nystromformer", ""),
        ("paper", "tay2021", ""),
        ("original", "tay2021", ""),
        ("transformer_base", "tay2021", "--model transformer"),
        ("performer_base", "tay2021", "--model performer"),
        ("transformer_base.py", "tay2021", "--model transformer"),
        ("lra_config.py", "nystromformer", ""),
        ("run_lra_cifar", "s5", "--task image"),
        ("tay", "tay2021", "tay2021-paper what its appendix says"),
        ("s4-lra-pathx-small", "s4", "--task pathx --model s4"),
        ("s4-lra-pathx-small", "s4", "those of the variant 'small'"),
        ("v3-s4-aan", "s4", "--task retrieval --model s4"),
        ("s4-lra-aan-new", "s4", "--task retrieval --model s4"),
        ("experiment=lra/s4-lra-imdb", "s4", "--task text --model s4"),
        ("experiment=s4-cifar", "s4", "--task image --model s4"),
        (
            "configs/experiment/lra/old/v3-s4-imdb-small.yaml",
            "s4",
            "--task text --model s4",
        ),
        (
            "lra_benchmarks/listops/configs/transformer_base.py",
            "tay2021",
            "--task listops --model transformer",
        ),
        (
            "lra_benchmarks/matching/configs/sinkhorn_transformer_base.py",
            "tay2021",
            "--task retrieval --model sinkhorn",
        ),
        (
            "lra_benchmarks/image/configs/pathfinder64/transformer_base.py",
            "tay2021",
            "--task pathfinder --set data.size=64 --model transformer",
        ),
        (
            "lra_benchmarks/text_classification/configs/base_tc_config.py",
            "tay2021",
            "--task text",
        ),
        ("HazyResearch/safari", "long-conv", ""),
    ] {
        let told = told("recipe", name);
        let hint = format!("did you mean '{recipe}'");
        assert!(
            told.contains(&hint) && told.contains(note),
            "{name}: {told}"
        );
    }
    for (name, model) in [
        ("bigbird", "bigbird"),
        ("linear_transformer", "linear"),
        ("linformer", "linformer"),
        ("local", "local"),
        ("longformer", "longformer"),
        ("performer", "performer"),
        ("reformer", "reformer"),
        ("sinkhorn", "sinkhorn"),
        ("sinkhorn_transformer", "sinkhorn"),
        ("sparse_transformer", "sparse"),
        ("synthesizer", "synthesizer"),
        ("transformer", "transformer"),
    ] {
        let told = told("recipe", &format!("{name}_base.py"));
        let hint = "did you mean 'tay2021' or 'tay2021-paper'";
        let note = format!("with --model {model};");
        assert!(told.contains(hint) && told.contains(&note), "{told}");
    }
    for name in [
        "imdb",
        "zzz-listops",
        "transformer",
        "zzz_base",
        "transformer_tlb_base",
        "lra_benchmarks/listops/configs/transformer_tlb_base.py",
        "s9-lra",
    ] {
        let told = told("recipe", name);
        assert!(!told.contains("did you mean"), "{name}: {told}");
    }
}

#[test]
fn recipes_with_other_digits_are_other_recipes() {
    for name in [
        "hgrn",
        "hgrn1",
        "hgrn3",
        "tay2022",
        "tay202",
        "tay2022-paper",
        "s6",
        "s44",
        "mega2",
        "lru2",
        "liquid-s5",
        "liquid-s",
    ] {
        let told = told("recipe", name);
        assert!(!told.contains("did you mean"), "{name}: {told}");
    }
    for (name, to) in [
        ("tay2020", "tay2021"),
        ("hgnr2", "hgrn2"),
        ("tay2021-pape", "tay2021-paper"),
        ("HGRN-2", "hgrn2"),
    ] {
        let told = told("recipe", name);
        assert!(told.contains(&format!("did you mean '{to}'")), "{told}");
    }
}

#[test]
fn lists_that_are_given_as_commands_lead_to_the_command_that_has_them() {
    for word in [
        "tasks", "models", "recipes", "settings", "setting", "settngs", "options", "sources",
    ] {
        let found = command(word, "", &["list", "run", "report", "repro"]);
        assert_eq!(found, Some(("list", "")), "{word}");
    }
}

#[test]
fn what_is_like_nothing_is_answered_with_a_command_alone() {
    for (kind, name) in [
        ("task", "zzz"),
        ("task", "speech-commands"),
        ("task", "wikitext"),
        ("model", "zzz"),
        ("model", "ccnn"),
        ("model", "xlnet"),
        ("model", "s3"),
        ("model", "resnet"),
        ("model", "mamba3"),
        ("model", "mamba-3"),
        ("model", "s4nd"),
        ("task", "cifar100"),
        ("task", "cifar-100"),
        ("recipe", "megatron"),
        ("published source", "wikitext"),
        ("published source", "x"),
        ("published source", "retnet"),
    ] {
        let list = match kind {
            "published source" => "published".to_owned(),
            kind => format!("{kind}s"),
        };
        let command = format!("unknown {kind} '{name}'; `lra list {list}` names them all");
        assert_eq!(told(kind, name), command);
    }
}

#[test]
fn names_are_found_in_any_case() {
    let model = find("model", "Mega", models::registry(), |it| it.name);
    assert_eq!(model.unwrap().name, "mega");
    let task = find("task", "ListOps", datasets::TASKS, |it| it.info().name);
    assert_eq!(task.unwrap().info().name, "listops");
    assert_eq!(source("Mega").unwrap().alias, "mega");
    let request = RunRequest {
        task: "Toy",
        model: "Linear",
        recipe: "Smoke",
        source: None,
        protocol: datasets::Protocol::Clean,
        seed: 0,
        assignments: &[],
    };
    let cell = request.resolve().unwrap().spec.cell;
    assert_eq!(
        [cell.task, cell.model, cell.recipe],
        ["toy", "linear", "smoke"],
        "records have the names of the registries"
    );
}

#[test]
fn misspelt_names_are_answered_with_the_nearest_ones() {
    let plural =
        "unknown model 'performers'; did you mean 'performer'? (`lra list models` names them all)";
    assert_eq!(told("model", "performers"), plural);
    for (name, to) in [
        ("perfomer", "performer"),
        ("linfromer", "linformer"),
        ("chordmixr", "chordmixer"),
        ("perform", "performer"),
    ] {
        let told = told("model", name);
        assert!(told.contains(&format!("did you mean '{to}'")), "{told}");
        assert!(told.matches('\'').count() <= 8, "three at most: {told}");
    }
    let beginning = told("model", "lin");
    for to in ["linear", "linformer", "linoss"] {
        assert!(beginning.contains(to), "{beginning}");
    }
    assert!(!beginning.contains("lion"), "{beginning}");
}

#[test]
fn labels_of_reduced_tasks_are_explained_as_settings() {
    for (label, settings) in [
        ("text@512", "--set data.max_length=512"),
        ("imdb@512", "--set data.max_length=512"),
        ("imdb@512", "'imdb@512' is text@512, the label of text"),
        (
            "listops@256",
            "--set data.max_length=256 --set data.min_length=64",
        ),
        (
            "retrieval@2000-decoded",
            "--set data.max_length=2000 --set data.decode=true",
        ),
        ("image@256", "--set data.max_length=256"),
        (
            "pathfinder@64-hard",
            "--set data.size=64 --set data.difficulty=hard",
        ),
        ("pathfinder@32-easy-n5000", "--set data.train=5000"),
        ("pathx@n1000", "--set data.train=1000"),
        ("toy@64", "--set data.max_length=64"),
        ("listops@64-dense", "--set data.max_length=64"),
        ("listops@64-dense", "--set data.dense=true"),
        (
            "retrieval@256-anagrams",
            "--set data.max_length=256 --set data.topics=anagrams",
        ),
        (
            "pathfinder@32-easy-n50-5to9-dense",
            "--set data.min_dashes=5 --set data.max_dashes=9 --set data.dense=true",
        ),
        ("mqar@512", "--set data.max_length=512"),
        (
            "text@512-permute7",
            "--set data.max_length=512 --set data.permute=7",
        ),
        ("image@permute7", "--set data.permute=7"),
        (
            "state_tracking@s5-512-whole",
            "--set data.group=s5 --set data.max_length=512 --set data.dense=false",
        ),
        ("listops@2000*", "at its published length"),
        (
            "listops@64*",
            "--set data.max_length=64 --set data.min_length=16 and other settings",
        ),
        ("mqar@64*", "mqar@64*' is the label of mqar"),
        ("toy@32", "at its own length, with other settings"),
    ] {
        let told = told("task", label);
        assert!(told.contains(settings), "{label}: {told}");
    }
    assert!(!told("task", "mqar@64*").contains("published length"));
    for label in ["text@nonsense", "pathx@64-hard", "toy@"] {
        let told = told("task", label);
        assert!(
            told.contains("the label of a task with other settings"),
            "{told}"
        );
    }
    assert!(!told("task", "zzz@512").contains("did you mean"));
    for name in ["lra", "long_range_arena"] {
        let told = told("task", name);
        assert!(
            told.contains("this is the benchmark, not one of its tasks"),
            "{told}"
        );
    }
    assert!(told("model", "imdb").contains("the name of a task"));
}

/// Returns the paths of all settings, and of those that take a word.
fn settings_of(task: &str, model: &str) -> [Vec<String>; 2] {
    let request = RunRequest {
        task,
        model,
        recipe: "smoke",
        source: None,
        protocol: datasets::Protocol::Clean,
        seed: 0,
        assignments: &[],
    };
    let spec = serde_json::to_value(request.resolve().unwrap().spec).unwrap();
    let sections = spec.as_object().unwrap().iter();
    let settings = sections.flat_map(|(section, keys)| {
        let keys = keys.as_object().into_iter().flatten();
        keys.map(move |(key, value): (&String, &Value)| (format!("{section}.{key}"), value))
    });
    let settings: Vec<(String, &Value)> = settings.collect();
    let of = |words: bool| {
        let some = settings
            .iter()
            .filter(|(_, value)| !words || value.is_string());
        some.map(|(key, _)| key.clone()).collect()
    };
    [of(false), of(true)]
}

#[test]
fn settings_of_public_configurations_lead_to_those_here() {
    let told = |model: &str, path: &str| {
        let known = settings_of("text", model);
        let [known, words] = known.each_ref().map(|paths| {
            let paths = paths.iter();
            paths.map(String::as_str).collect::<Vec<_>>()
        });
        unknown_setting(path, &known, &words)
    };
    for (model, path, to) in [
        ("linear", "lr", "train.learning_rate"),
        ("linear", "train.lr", "train.learning_rate"),
        ("linear", "learning-rate", "train.learning_rate"),
        ("linear", "optimizer.weight_decay", "train.weight_decay"),
        ("linear", "batch_size", "train.batch"),
        ("linear", "warmup_steps", "train.warmup"),
        ("linear", "max_length", "data.max_length"),
        ("linear", "n_layers", "block.layers"),
        ("linear", "num_layers", "block.layers"),
        ("linear", "model.d_model", "block.dim"),
        ("linear", "num_heads", "block.heads"),
        ("linear", "dropout", "block.dropout"),
        ("linear", "train.Steps", "train.steps"),
        ("linear", "TRAIN.STEPS", "train.steps"),
        ("linear", "Train.LR", "train.learning_rate"),
        ("linear", "num_training_steps", "train.steps"),
        ("linear", "total_num_update", "train.steps"),
        ("linear", "position_embedding_type", "embed.positions"),
        ("linear", "random_seed", "--seed"),
        ("s4d", "d_state", "model.state"),
        ("nystromformer", "num_landmarks", "model.landmarks"),
        ("performer", "model.featrues", "model.features"),
        ("linear", "classifier_pool", "head.pooling"),
        ("linear", "clip_grad_norm", "train.clip"),
        ("longformer", "window_size", "model.window"),
        ("linear", "hidden_size", "block.dim"),
        ("linear", "num_hidden_layers", "block.layers"),
        ("linear", "num_attention_heads", "block.heads"),
        ("linear", "intermediate_size", "block.mlp_dim"),
        ("linear", "hidden_dropout_prob", "block.dropout"),
        ("linear", "max_grad_norm", "train.clip"),
        ("linear", "train_batch_size", "train.batch"),
        ("linear", "max_seq_len", "data.max_length"),
        ("linear", "data.length", "data.max_length"),
        ("linear", "model.dropout", "block.dropout"),
        ("linear", "emb_dim", "block.dim"),
        ("linear", "mlp_dim", "block.mlp_dim"),
        ("linear", "qkv_dim", "block.qkv_dim"),
        ("bigbird", "block_size", "model.block"),
        ("mega", "chunk_size", "model.chunk"),
        ("s4d", "layer.d_state", "model.state"),
        ("linear", "learning_pos_emb", "embed.positions"),
        ("linear", "save_checkpoints", "train.checkpoint_every"),
        ("linear", "tied_weights", "block.share"),
        ("linear", "transformer_dropout", "block.dropout"),
        ("linear", "decoder.mode", "head.pooling"),
        ("mega", "truncation_length", "model.taps"),
        ("mega", "act_dropout", "model.hidden_dropout"),
        ("linear", "act_dropout", "block.dropout"),
        ("hgrn2", "model.expand_ratio", "model.head_width"),
        ("mamba", "model.expand_ratio", "model.expand"),
        ("lru", "d_hidden", "model.state"),
        ("linear", "d_hidden", "block.dim"),
        ("mamba", "d_inner", "model.expand"),
        ("linear", "d_inner", "block.mlp_dim"),
        ("mamba", "conv_kernel", "model.taps"),
        ("multires", "depth", "model.levels"),
        ("linear", "depth", "block.layers"),
        ("hyena", "emb_dim", "model.positions"),
        ("s5", "activation_fn", "model.gate"),
        ("linear", "activation_fn", "block.activation"),
        ("mamba2", "headdim", "model.head_width"),
        ("linear", "head_dim", "block.qkv_dim"),
        ("s5", "clip_eigs", "model.clip"),
        ("rtf", "num_a", "model.shared"),
        ("sgconv", "kernel_dim", "model.kernel"),
        ("sgconv", "init_scale", "model.first_scale"),
        ("long_conv", "lam", "model.squash"),
        ("chordmixer", "track_size", "model.track"),
        ("chordmixer", "n_warmup_steps", "train.warmup"),
        ("chordmixer", "mlp_dropout", "block.dropout"),
        ("tnn", "tno_gamma", "model.gamma"),
        ("tnn", "expand_ratio_tno", "model.expand"),
        ("tnn", "expand_ratio_glu", "block.mlp_dim"),
        ("tnn", "tno_dpb_dim", "model.rpe_dim"),
        ("tnn", "gtu_gamma", "model.gamma"),
        ("tnn", "expand_ratio_gtu", "model.expand"),
        ("tnn", "gtu_dpb_dim", "model.rpe_dim"),
        ("linoss", "linoss_discretization", "model.scheme"),
        ("linoss", "ssm_dim", "model.state"),
        ("multires", "kernel_size", "model.kernel"),
        ("multires", "indep_res_init", "model.wide_skip"),
        ("ponet", "segment_num", "model.segments"),
        ("mra", "approx_mode", "model.mode"),
        ("mra", "initial_prior_first_n_blocks", "model.first"),
        ("mra", "initial_prior_diagonal_n_blocks", "model.diagonal"),
        ("gla", "gate_logit_normalizer", "model.temper"),
        ("gla", "gate_low_rank_dim", "model.rank"),
        ("deltanet", "allow_neg_eigval", "model.negative"),
        ("deltanet", "conv_size", "model.taps"),
    ] {
        let told = told(model, path);
        assert!(
            told.contains(&format!("did you mean '{to}'")),
            "{path}: {told}"
        );
    }
    assert!(told("chordmixer", "hidden_size").contains("block.mlp_dim"));
    // What takes a word is no number.
    for path in ["kernel_dim", "kernel_size", "kernel_lr"] {
        let told = told("performer", path);
        assert!(!told.contains("did you mean 'model.kernel'"), "{told}");
        assert!(!told.contains("performer,"), "{told}");
    }
    for assignment in ["dt_global=true", "opt_config=standard"] {
        let told = refused("toy", "s5", assignment);
        assert!(told.contains("did you mean 'train.groups'"), "{told}");
    }
    let none = told("linear", "zzz.zzz");
    assert!(
        none.contains("the sections of settings are") && !none.contains("did you mean"),
        "{none}"
    );
    assert!(told("linear", "zzz").contains("the sections of settings are"));
    for section in ["train", "block"] {
        let told = told("linear", &format!("{section}.zzz"));
        let number = format!("section {section} has ");
        let list = format!(" settings; `lra list settings {section}` names them all");
        assert!(told.contains(&number) && told.ends_with(&list), "{told}");
    }
    let head = told("linear", "head.zzz");
    assert!(head.contains("the settings of section head are"), "{head}");
    for path in ["TRAIN.STEPS", "Train.Steps"] {
        let told = told("linear", path);
        assert!(told.ends_with("; did you mean 'train.steps'?"), "{told}");
    }
    for path in ["num_training_steps", "total_num_update", "total_iters"] {
        let told = told("linear", path);
        assert!(told.contains("else train.schedule_steps"), "{told}");
    }
    for (assignment, to) in [
        ("scheduler.num_training_steps=5", "train.schedule_steps"),
        ("lr_scheduler.total_num_update=5", "train.schedule_steps"),
        ("scheduler.T_max=5", "train.schedule_steps"),
        ("Pretrain.Steps=5", "pretrain.steps"),
        ("Pretrain.LR=0.1", "pretrain.learning_rate"),
    ] {
        let told = refused("toy", "linear", assignment);
        let end = format!("did you mean '{to}'?");
        assert!(told.ends_with(&end), "{told}");
    }
    for (path, of) in [
        ("d_state", "this is model.state of the models "),
        ("layer.d_state", "this is model.state of the models "),
        ("num_classes", "the task itself has it"),
        ("model.vocab_size", "the task itself has it"),
        ("model.state", "this is model.state of the models "),
        (
            "model.features",
            "this is model.features of the models performer, rfa",
        ),
        ("window_size", "this is model."),
        ("num_landmarks", "this is model.landmarks of the models "),
        (
            "data.difficulty",
            "this is data.difficulty of the task pathfinder",
        ),
        ("truncation_length", "this is model.taps of the models "),
        ("model.pool", "lra has no down-sampling"),
        ("model.layer.mode", "`--model s4d` for diag"),
        ("end_learning_rate", "linear and cosine end at 0"),
        (
            "model.rank",
            "in S4's files `rank` is that of the correction",
        ),
        ("top_k", "2 in the model moe and 1 in switch"),
        ("kernel_size", "this is model.kernel of the models "),
        ("scan", "the sections of settings are"),
        ("kernel_lr", "the sections of settings are"),
    ] {
        let told = told("linear", path);
        assert!(
            told.contains(of) && !told.contains("did you mean"),
            "{path}: {told}"
        );
    }
}

/// Returns the error of a run of `toy` with this assignment.
fn refused(task: &str, model: &str, assignment: &str) -> String {
    let request = RunRequest {
        task,
        model,
        recipe: "smoke",
        source: None,
        protocol: datasets::Protocol::Clean,
        seed: 0,
        assignments: &[assignment.to_owned()],
    };
    request.resolve().err().unwrap().to_string()
}

#[test]
fn words_of_public_configurations_lead_to_those_here() {
    for (task, assignment, to) in [
        ("toy", "block.norm=RMS", "rms"),
        ("toy", "block.norm=rmsnorm", "rms"),
        ("toy", "block.norm=LayerNorm", "layer"),
        ("toy", "block.norm=BatchNorm1d", "batch"),
        ("toy", "block.norm=None", "none"),
        ("toy", "block.norm_place=prenorm", "pre"),
        ("toy", "block.activation=ReLU", "relu"),
        ("toy", "block.activation=GELU", "gelu"),
        ("toy", "block.activation=swish", "silu"),
        ("toy", "block.activation=rleu", "relu"),
        ("toy", "train.optimizer=AdamW", "adamw"),
        ("toy", "train.optimizer=Adam", "adamw"),
        ("toy", "train.schedule=cosine_with_warmup", "cosine"),
        ("toy", "train.precision=fp32", "f32"),
        ("toy", "head.pooling=CLS", "cls"),
        ("toy", "head.pooling=MEAN", "mean"),
        ("toy", "head.pooling=avg", "mean"),
        ("toy", "embed.positions=sinusoidal", "sinusoid"),
        ("toy", "model.variant=Paper", "paper"),
        ("toy", "model.kernel=FAVOR", "favor"),
        ("pathfinder", "data.difficulty=Hard", "hard"),
    ] {
        let told = refused(task, "performer", assignment);
        let (key, word) = assignment.split_once('=').unwrap();
        let start = format!("unknown value of {key} '{word}'; did you mean '{to}'?");
        assert!(told.contains(&start), "{assignment}: {told}");
    }
    for (assignment, hint, note) in [
        (
            "train.schedule=plateau",
            "did you mean 'constant'?",
            "no schedule lowers the rate when",
        ),
        (
            "train.schedule=ReduceLROnPlateau",
            "did you mean 'constant'?",
            "no schedule lowers the rate when",
        ),
        (
            "embed.positions=absolute",
            "did you mean 'learned' or 'sinusoid'?",
            "learned in BERT's code",
        ),
        (
            "train.precision=amp",
            "did you mean 'bf16'?",
            "there is no fp16",
        ),
        ("embed.positions=relative_key", "is set by block.bias", ""),
    ] {
        let told = refused("toy", "performer", assignment);
        assert!(told.contains(hint) && told.contains(note), "{told}");
    }
    let none = refused("toy", "performer", "block.norm=zzz");
    assert!(
        none.starts_with("block.norm = \"zzz\" is none of its values: layer, rms, "),
        "{none}"
    );
}

/// Returns the values of a setting that holds a word, as the error for an unknown one lists them.
fn words_of(task: &str, model: &str, key: &str) -> Vec<String> {
    let told = refused(task, model, &format!("{key}=zzzz"));
    let (_, words) = told.split_once("none of its values: ").unwrap();
    words.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_alias_leads_to_one_name_that_there_is() {
    let tasks: Vec<&str> = datasets::TASKS.iter().map(|it| it.info().name).collect();
    let models: Vec<&str> = models::registry().iter().map(|it| it.name).collect();
    let recipes: Vec<&str> = recipe::RECIPES.iter().map(|(name, _)| *name).collect();
    let mut settings: BTreeSet<String> = BTreeSet::new();
    for task in &tasks {
        settings.extend(settings_of(task, "transformer")[0].clone());
    }
    for model in &models {
        settings.extend(settings_of("listops", model)[0].clone());
    }
    // Settings that a specification leaves out while they are off.
    settings.extend(["train.groups", "train.bucket"].map(str::to_owned));
    settings.extend(["steps", "batch", "learning_rate"].map(|it| format!("pretrain.{it}")));
    settings.extend(flags().map(str::to_owned));
    settings.extend(["train.optimizer", "train.schedule_steps"].map(str::to_owned));
    let mut words: BTreeSet<String> = BTreeSet::new();
    for key in [
        "block.norm",
        "block.norm_place",
        "block.activation",
        "block.ffn",
        "block.gate",
        "block.residual",
        "block.bias",
        "train.optimizer",
        "train.schedule",
        "train.precision",
        "train.select",
        "train.decay",
        "head.pooling",
        "embed.positions",
        "pretrain.kind",
    ] {
        words.extend(words_of("toy", "performer", key));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let sources = published::sources().iter();
    let sources: Vec<&str> = sources.flat_map(|it| [it.alias, it.key]).collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    for (aliases, known) in [
        (TASKS, tasks),
        (MODELS, models),
        (RECIPES, recipes),
        (SETTINGS, settings),
        (SOURCES, sources),
        (WORDS, words),
    ] {
        let mut seen = BTreeSet::new();
        for alias in aliases {
            assert!(
                alias.to.iter().all(|to| known.contains(to)),
                "{:?}",
                alias.to
            );
            for name in alias.names {
                assert!(seen.insert(fold(name)), "{name} stands twice");
                let own = known.iter().find(|known| fold(known) == fold(name));
                assert!(own.is_none_or(|own| alias.to.contains(own)), "{name}");
            }
        }
    }
}

/// Another setting, another version or another data set keeps the name that it has elsewhere.
#[test]
fn names_of_others_are_translated_only_where_they_mean_the_same() {
    for (kind, name, here) in [
        ("task", "IMDB", Some("text")),
        ("task", "pathfinder32", Some("pathfinder")),
        ("task", "pathfinder32-easy", None),
        ("task", "curv_baseline", None),
        ("task", "cifar-2d", None),
        ("task", "cifar100", None),
        ("task", "lra_imdb", Some("text")),
        ("task", "lra-listops", Some("listops")),
        ("task", "lra_aan", Some("retrieval")),
        ("model", "S4D-Lin", Some("s4d")),
        ("model", "S4D-Inv", None),
        ("model", "s4d-legs", None),
        ("model", "Linear Transformer", Some("linear")),
        ("model", "S4D", Some("s4d")),
        ("model", "rwkv", None),
        ("model", "mamba3", None),
        ("model", "nystrom-64", None),
        ("model", "reformer-2", None),
        ("model", "hgrn2_2d", None),
    ] {
        assert_eq!(called(kind, name), here, "{kind} {name}");
    }
}
