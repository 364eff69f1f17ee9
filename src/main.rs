fn main() -> std::process::ExitCode {
    holdfast::cli::main()
}
