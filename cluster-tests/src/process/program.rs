//! Where the program under test is: `HOLDFAST_BIN`, or built once for each test run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the program.
///
/// # Panics
/// When it cannot be built.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("HOLDFAST_BIN").map_or_else(build, PathBuf::from))
}

/// The program, without what the tests are told by variables: it would take `HOLDFAST_ROUNDS` for its configuration.
pub fn command() -> Command {
    let mut command = Command::new(path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOLDFAST_")) {
        command.env_remove(name);
    }
    command
}

/// Builds with the profile and into the target folder of the running test, so that nothing is compiled twice.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    // target/PROFILE/deps/TEST
    let profile_dir = test.parent().and_then(Path::parent).expect("a test below its target folder");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "holdfast", "--bin", "holdfast", "--profile", profile])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder"))
        .output()
        .expect("cargo can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "holdfast cannot be built:\n{errors}");
    profile_dir.join("holdfast")
}
