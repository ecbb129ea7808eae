//! The lines that a run prints before it starts: its id, data, model and training.

use datasets::Shape;
use results::Record;

use crate::spec::{PretrainKind, Resolved};

/// Returns the lines; `flops` are those of one example's forward pass.
pub fn lines(draft: &Record, resolved: &Resolved, shape: &Shape, flops: u64) -> Vec<String> {
    let (spec, rows) = (&resolved.spec, draft.task.rows);
    let (block, train) = (&spec.block, &spec.train);
    let task = &draft.task;
    let partial = if task.partial { ", PARTIAL" } else { "" };
    let altered = if task.altered() { ", ALTERED" } else { "" };
    let (number, prefix) = results::scaled(flops as f64);
    let mut lines = vec![
        format!("run        {}", draft.id),
        format!(
            "data       {} ({}, {}{partial}{altered}): {} / {} / {} of up to {}",
            task.label,
            task.source,
            task.protocol,
            results::grouped(rows.train as u64),
            results::grouped(rows.val as u64),
            results::counted(rows.test as u64, "example"),
            length(shape)
        ),
        format!(
            "model      {} ({}): {}, {}, d {}, {}, {} {}FLOP forward per example",
            draft.model.name,
            draft.model.variant,
            results::counted(draft.model.parameters, "parameter"),
            results::counted(block.layers as u64, "block"),
            block.dim,
            results::counted(block.heads as u64, "head"),
            number,
            prefix
        ),
        format!(
            "training   {} of {}, recipe {}{}, seed {}, {} with {}",
            results::counted(train.steps as u64, "update"),
            results::counted(train.batch as u64, "example"),
            draft.recipe.name,
            if draft.recipe.overrides.is_empty() {
                ""
            } else {
                " with overrides"
            },
            draft.seed,
            draft.provenance.device,
            results::counted(draft.provenance.threads as u64, "thread")
        ),
    ];
    if let Some(from) = &draft.from {
        let taken = results::counted(from.taken, "weight");
        lines.push(format!("from       {taken} of {}", from.run));
        let fresh = from.fresh.iter();
        lines.extend(fresh.map(|what| format!("fresh      {what}")));
        let differing = from.differing.iter();
        lines.extend(differing.map(|what| format!("differs    {what}")));
        if !from.unused.is_empty() {
            let unused = from.unused.join(", ");
            lines.push(format!("unused     {unused} of that run"));
        }
    }
    let pretrain = &spec.pretrain;
    let what = match pretrain.kind {
        PretrainKind::None => None,
        PretrainKind::Masked => {
            let percent = (1e4 * pretrain.share).round() / 100.0;
            Some(format!("{percent} % of the tokens hidden"))
        }
        PretrainKind::Next => Some("the next token".to_owned()),
    };
    lines.extend(what.map(|what| {
        let steps = results::counted(pretrain.steps as u64, "update");
        let batch = results::counted(pretrain.batch as u64, "example");
        format!("before     pretraining by {steps} of {batch}: {what}")
    }));
    let split = draft.recipe.split_statistics();
    lines.extend(split.map(|what| {
        format!("statistics {what} (train.micro_batch): scores are not those of the recipe")
    }));
    let forbidden = draft.model.rule_violation.iter();
    lines.extend(forbidden.map(|what| format!("forbidden  {what}")));
    let unrounded = draft.model.unrounded.iter();
    lines.extend(unrounded.map(|place| format!("unrounded  the product of {place}")));
    let departures = draft.recipe.departures.iter();
    lines.extend(departures.map(|what| format!("departs    {what}")));
    lines
}

/// Returns the maximum length of sequences, and that of the test split where it is another one.
fn length(shape: &Shape) -> String {
    let trained = results::counted(shape.train_length as u64, "token");
    match shape.max_length == shape.train_length {
        true => trained,
        false => {
            let tested = results::grouped(shape.max_length as u64);
            format!("{trained}, tested up to {tested}")
        }
    }
}
