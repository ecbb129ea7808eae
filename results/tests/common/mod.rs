//! A dozen fixed records for the tests of tables.

// Each test program uses some of them.
#![allow(dead_code)]

pub mod anchors;
pub mod page;
pub mod repository;
pub mod site;

use lra_results::record::*;

/// Returns a scored run of a model on ListOps at the published parameters and with a published
/// recipe, in round figures.
pub fn run(model: &str, seed: u64, accuracy: f64) -> Record {
    let rate = 10.0 + seed as f64;
    Record {
        schema: SCHEMA,
        id: format!("listops-{model}-{seed}"),
        outcome: Outcome::Scored,
        task: Task {
            name: "listops".to_owned(),
            label: "listops".to_owned(),
            source: "generated".to_owned(),
            protocol: "tay2021".to_owned(),
            classes: 10,
            probe: false,
            data_digest: "9b1de5ee2f5b4a2c0011".to_owned(),
            rows: Rows {
                train: 96_000,
                val: 2_000,
                test: 2_000,
            },
            partial: false,
            altered: vec![],
            own: None,
        },
        model: Model {
            name: model.to_owned(),
            variant: String::new(),
            default_variant: None,
            parameters: 104_586,
            masks_padding: true,
            rule_violation: None,
            family: None,
            own: None,
            unrounded: vec![],
        },
        recipe: Recipe {
            name: "tay2021".to_owned(),
            source: "configuration files of 2021".to_owned(),
            published: true,
            overrides: vec![],
            departures: Vec::new(),
            ..Recipe::default()
        },
        seed,
        from: None,
        pretraining: None,
        scores: Some(Scores {
            test_accuracy: Some(accuracy),
            test_loss: Some(1.71),
            val_accuracy: Some(accuracy + 0.005),
            val_loss: Some(1.69),
            train_loss: Some(1.72),
            best_step: Some(4_800),
            steps: 5_000,
            examples_seen: 160_000,
            evaluations: 25,
            ..Scores::default()
        }),
        baselines: vec![
            baseline("majority", 0.1705),
            baseline("first token", 0.3625),
            baseline("bag of tokens", 0.264),
        ],
        speed: Some(Speed {
            steps_per_second: Spread {
                median: rate,
                p10: rate - 1.0,
                p90: rate + 1.0,
            },
            examples_per_second: 32.0 * rate,
            tokens_per_second: 65_536.0 * rate,
            flops_per_step: 2_140_000_000,
            achieved_flops_per_second: 2.14e9 * rate,
            timed_steps: 4_990,
            warmup_steps: 10,
            phases: Phases {
                transfer: 0.1,
                forward: 160.2,
                backward: 290.5,
                optimizer: 40.9,
            },
            overhead_share: 0.011,
            training_seconds: 500.0,
            wall_seconds: 640.0,
        }),
        memory: Some(Memory {
            peak_bytes: (174 + seed) << 20,
            resident_bytes: 229 << 20,
            base_bytes: 12 << 20,
            method: "live heap bytes since the start, counting allocator".to_owned(),
            driver_bytes: None,
        }),
        provenance: Provenance {
            created: "2026-11-21T10:00:00Z".to_owned(),
            command: format!("lra run --task listops --model {model} --seed {seed}"),
            spec_digest: "3f9c2a71d04b7e55".to_owned(),
            precision: "f32".to_owned(),
            device: "cpu".to_owned(),
            threads: 2,
            jobs: Some(1),
            host: Host {
                cpu: "AMD EPYC 9V74".to_owned(),
                instructions: "AVX-512".to_owned(),
                cores: 2,
                memory_bytes: 8 << 30,
                os: "Linux 6.8".to_owned(),
                device: String::new(),
                driver: String::new(),
            },
            versions: Versions {
                lra: "0.1.0".to_owned(),
                candle: "0.11.1".to_owned(),
                rustc: "1.95.0".to_owned(),
                sources: String::new(),
            },
            revision: Some(Revision {
                commit: "ded051b0c4f1".to_owned(),
                dirty: true,
            }),
            accepted_changes: vec![],
        },
    }
}

pub fn baseline(name: &str, accuracy: f64) -> Baseline {
    Baseline {
        name: name.to_owned(),
        accuracy,
    }
}

/// Returns the run made smaller, as the recipe `mini` does.
pub fn small(mut record: Record) -> Record {
    record.task.label = "listops@256".to_owned();
    record.task.protocol = "clean".to_owned();
    record.recipe.name = "mini".to_owned();
    record.recipe.source = "own: a task made smaller".to_owned();
    record.recipe.published = false;
    record
}

/// Returns the run on another task.
pub fn on(mut record: Record, task: &str, source: &str, classes: usize) -> Record {
    record.task.name = task.to_owned();
    record.task.label = task.to_owned();
    record.task.source = source.to_owned();
    record.task.classes = classes;
    record.task.data_digest = format!("{task}-{source}-digest");
    record.baselines = vec![
        baseline("majority", 1.0 / classes as f64),
        baseline("bag of tokens", 0.31),
    ];
    record
}

/// Returns the run, ended early.
pub fn ended(mut record: Record, outcome: Outcome) -> Record {
    record.outcome = outcome;
    record.scores = None;
    record.speed = None;
    record.memory = None;
    record
}

/// Three models on two tasks: seeds, a failure to learn, a divergence, memory that did not suffice.
pub fn dozen() -> Vec<Record> {
    let divergence = Outcome::Diverged {
        step: 812,
        reason: "the loss is NaN".to_owned(),
    };
    let no_room = Outcome::OutOfMemory {
        reason: "9.5 GiB asked for, 7.8 GiB there".to_owned(),
    };
    vec![
        run("performer", 0, 0.3845),
        run("performer", 1, 0.3745),
        run("performer", 2, 0.3795),
        run("bag", 0, 0.1710),
        run("bag", 1, 0.1700),
        run("transformer", 0, 0.3700),
        run("transformer", 1, 0.3600),
        ended(run("transformer", 2, 0.0), divergence),
        on(run("performer", 0, 0.4210), "image", "official", 10),
        on(run("performer", 1, 0.4190), "image", "official", 10),
        ended(
            on(run("transformer", 0, 0.0), "image", "official", 10),
            no_room,
        ),
        on(run("bag", 0, 0.3100), "image", "official", 10),
    ]
}
