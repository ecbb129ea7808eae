//! Text form of an expression: an indented tree, each operator with its value.

use std::collections::HashMap;

use super::evaluate::{Closed, walk};
use super::vocabulary::{TOKENS, Token};

/// Depth below which operators are left out. No generated tree is that deep, but arbitrary bytes
/// may be.
const DEEPEST: usize = 64;

/// Returns the tree, one operator a line, digits that follow each other on one line; below it the
/// answer.
pub(super) fn to_text(tokens: &[u8], label: u8) -> String {
    let mut values = HashMap::new();
    let remember = |list: Closed| {
        values.insert(list.opened, list.value);
    };
    let value = match walk(tokens.iter().map(|&stored| Token::new(stored)), remember) {
        Ok(value) => value,
        Err(problem) => return format!("{}\nnot an expression: {problem}\n", spell(tokens)),
    };
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut depth = 0;
    let mut in_digits = false;
    for (position, token) in tokens
        .iter()
        .filter_map(|&stored| Token::new(stored))
        .enumerate()
    {
        match token {
            Token::Open(_) => {
                let name = TOKENS[usize::from(tokens[position])].trim_start_matches('[');
                lines.push((depth, format!("{name} = {}", values[&position])));
                depth += 1;
            }
            Token::Close => depth -= 1,
            Token::Digit(digit) => match lines.last_mut() {
                Some((_, line)) if in_digits => line.push_str(&format!(" {digit}")),
                _ => lines.push((depth, digit.to_string())),
            },
        }
        in_digits = matches!(token, Token::Digit(_));
    }
    let mut text = connect(&lines);
    text.push_str(&format!("answer: {value}"));
    if value != label {
        text.push_str(&format!(", but the label is {label}"));
    }
    text.push('\n');
    text
}

/// Draws the branches of a list of (depth, line), from the last line up.
fn connect(lines: &[(usize, String)]) -> String {
    // For each depth, true if a later line belongs to the branch there.
    let mut continues = [false; DEEPEST + 1];
    let mut drawn = Vec::with_capacity(lines.len());
    for (depth, line) in lines.iter().rev() {
        if *depth > DEEPEST {
            continue;
        }
        let mut text = String::new();
        for (level, &more) in continues.iter().enumerate().take(depth + 1).skip(1) {
            text.push_str(match (level == *depth, more) {
                (true, true) => "├─ ",
                (true, false) => "└─ ",
                (false, true) => "│  ",
                (false, false) => "   ",
            });
        }
        continues[*depth] = true;
        continues[depth + 1..].fill(false);
        drawn.push(format!("{text}{line}\n"));
    }
    drawn.reverse();
    if lines.iter().any(|(depth, _)| *depth > DEEPEST) {
        drawn.push(format!("(what lies deeper than {DEEPEST} is left out)\n"));
    }
    drawn.concat()
}

/// Returns the tokens as text.
fn spell(tokens: &[u8]) -> String {
    let words: Vec<_> = tokens
        .iter()
        .map(|&stored| TOKENS.get(usize::from(stored)).copied().unwrap_or("?"))
        .collect();
    words.join(" ")
}
