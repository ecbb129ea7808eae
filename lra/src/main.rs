//! `lra`: the Long Range Arena benchmark harness. Everything is in the library.

fn main() -> std::process::ExitCode {
    lra::main()
}
