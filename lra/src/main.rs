//! `lra`: the Long Range Arena benchmark harness.

fn main() {}
