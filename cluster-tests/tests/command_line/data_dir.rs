//! Where a node keeps its data that was not told.
//!
//! Such a node opens the ports that everybody knows, if they are free. So these tests take one of them first, and end a node that came up all
//! the same, because somebody else had the port and gave it free.

use std::sync::{OnceLock, mpsc};

use super::*;

/// The program in an environment where `variables` say who the user is.
fn program(args: &[&str], variables: &[(&str, &Path)]) -> Child {
    let mut command = program_command();
    command.args(args).env_remove("HOME").env_remove("XDG_DATA_HOME").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program can be started")
}

/// The exit code of a program that ends by itself, and what it said.
fn run_as(args: &[&str], variables: &[(&str, &Path)]) -> (Option<i32>, String) {
    let mut child = program(args, variables);
    let status = ended(&mut child);
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (status.code(), said)
}

/// What a node says until it has ended, which is what should become of it, or is ready.
fn start_as(args: &[&str], variables: &[(&str, &Path)]) -> String {
    static PORT: OnceLock<Option<TcpListener>> = OnceLock::new();
    PORT.get_or_init(|| TcpListener::bind("127.0.0.1:1883").ok());
    let mut child = program(args, variables);
    let log = BufReader::new(child.stderr.take().expect("a pipe"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut said = String::new();
    let deadline = Instant::now() + PATIENCE;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        said += &format!("{line}\n");
        if line.contains(r#""event":"ready""#) {
            break;
        }
    }
    // It may have ended already; then there is nothing to kill.
    let _ = child.kill();
    let _ = child.wait();
    said
}

#[test]
fn without_a_file_it_is_the_data_folder_of_the_user() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let data_home = home.path().join("data home");
    for (variables, expected) in [
        (vec![("HOME", home.path())], home.path().join(".local/share/holdfast")),
        (vec![("HOME", home.path()), ("XDG_DATA_HOME", &data_home)], data_home.join("holdfast")),
    ] {
        let (code, said) = run_as(&["config", "check"], &variables);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("mqtt://127.0.0.1:1883  anonymous"), "{said}");
        assert!(said.contains("ws://127.0.0.1:8083/mqtt  anonymous"), "{said}");
        assert!(said.contains("admin  http://127.0.0.1:18083\n"), "{said}");
        assert!(said.ends_with(&format!("  data in {}\n", expected.display())), "{said}");
        assert!(!expected.exists(), "to look is not to make");

        let said = start_as(&["serve"], &variables);
        assert!(said.contains(&format!("the node keeps its data in {}", expected.display())), "{said}");
        assert!(expected.join("node.id").exists(), "made before the ports are opened: {said}");
    }
}

#[test]
fn a_user_without_a_folder_is_told_what_to_do() {
    for args in [&[][..], &["serve"], &["config", "check"]] {
        let (code, said) = run_as(args, &[]);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains("HOME is not set") && said.contains("--ephemeral"), "{said}");
    }
    // A file where the folder should be.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = folder.path().join("home");
    std::fs::write(&home, "").expect("the temporary folder can be written");
    let (code, said) = run_as(&["serve"], &[("HOME", &home)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the data directory cannot be used") && said.contains("--ephemeral"), "{said}");
}

#[test]
fn an_ephemeral_node_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket");
    let file = write(
        folder.path(),
        &format!("[admin]\nbind = 'off'\n[node]\ndata_dir = 'data'\n[[listener]]\nbind = '{address}'\n"),
    );
    for args in [&["serve", "--ephemeral"][..], &["serve", "--ephemeral", &file]] {
        let said = start_as(args, &[("HOME", folder.path())]);
        assert!(said.contains("has this port") || said.contains("ready"), "{said}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        assert_eq!(left.len(), 1, "the configuration file alone: {left:?}");
    }
    assert_eq!(run_as(&["serve", &file], &[]).0, Some(1));
    assert!(folder.path().join("data/node.id").exists());
}
