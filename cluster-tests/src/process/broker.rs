//! One broker process: its addresses, its log, and its end.
//!
//! The process is a child of a thread of its own, which reads the log to its end. It dies with that thread's process
//! whatever happens: no test run leaves a broker behind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tempfile::TempDir;

use super::{Installation, Line, Log, Setup, program};
use crate::transport::{PATIENCE, Transport};

/// A broker under test.
pub struct Broker {
    addresses: HashMap<String, SocketAddr>,
    client_config: Option<Arc<ClientConfig>>,
    salt: u16,
    log: Log,
    process: Option<Process>,
}

struct Process {
    child: Mutex<Child>,
    folder: PathBuf,
    /// The folder goes with the broker, unless it belongs to an [`Installation`].
    _own: Option<TempDir>,
}

impl Broker {
    /// The broker that all tests of this binary share: default configuration, listeners `tcp` and `ws`.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| Self::foreign().unwrap_or_else(|| Self::start(Setup::new())))
    }

    /// Whether the tests run against a broker that they did not start.
    pub fn is_foreign() -> bool {
        std::env::var_os("HOLDFAST_TEST_ADDR").is_some()
    }

    fn foreign() -> Option<Self> {
        let read = |name: &str| Some(std::env::var(name).ok()?.parse().expect("an address like 127.0.0.1:1883"));
        let tcp = read("HOLDFAST_TEST_ADDR")?;
        let websocket = read("HOLDFAST_TEST_WS_ADDR").unwrap_or(tcp);
        Some(Self {
            addresses: HashMap::from([("tcp".to_owned(), tcp), ("ws".to_owned(), websocket)]),
            client_config: None,
            salt: salt(),
            log: Log::default(),
            process: None,
        })
    }

    /// Starts a broker and waits until each listener has said its address.
    pub(super) fn start(setup: Setup) -> Self {
        let listeners = setup.listener_count();
        let (config, folder, authority) = setup.write();
        let log = Log::default();
        let child = spawn(&config, &[], log.clone());
        let process = Process { child: Mutex::new(child), folder: folder.path().to_owned(), _own: Some(folder) };
        let mut broker = Self::of(process, log);
        broker.client_config = authority.map(|authority| authority.client_config(None));
        broker.with_addresses(listeners, PATIENCE)
    }

    /// Starts a broker on an installation and waits for nothing.
    pub(super) fn run(on: &Installation) -> Self {
        let log = Log::default();
        let child = spawn(&on.config(), on.environment(), log.clone());
        Self::of(Process { child: Mutex::new(child), folder: on.folder().to_owned(), _own: None }, log)
    }

    fn of(process: Process, log: Log) -> Self {
        Self { addresses: HashMap::new(), client_config: None, salt: salt(), log, process: Some(process) }
    }

    /// Waits until the broker says that it is ready; by then it has said its addresses.
    pub(super) fn until_ready(self, listeners: usize, patience: Duration) -> Self {
        let is_ready = |line: &Line| line.field("event").as_deref() == Some("ready");
        assert!(self.log.wait(0, patience, is_ready).is_some(), "not ready in {patience:?}:\n{}", self.log.text());
        self.with_addresses(listeners, PATIENCE)
    }

    pub(super) fn with_addresses(mut self, count: usize, patience: Duration) -> Self {
        let mut position = 0;
        while self.addresses.len() < count {
            let is_address = |line: &Line| line.field("event").as_deref() == Some("listening");
            let Some(line) = self.log.wait(position, patience, is_address) else {
                panic!("the broker did not say {count} addresses:\n{}", self.log.text());
            };
            position = 1 + self.log.since(0).iter().position(|there| there.text == line.text).unwrap_or(position);
            let (name, address) = (line.field("listener"), line.field("address"));
            if let (Some(name), Some(Ok(address))) = (name, address.map(|text| text.parse())) {
                self.addresses.insert(name, address);
            }
        }
        self
    }

    /// The address of the admin port, which is open before anything else.
    ///
    /// # Panics
    /// When the broker does not say it.
    pub fn admin(&self) -> SocketAddr {
        let line = self.log.wait(0, PATIENCE, |line| line.field("event").as_deref() == Some("admin"));
        let address = line.and_then(|line| line.field("address")).and_then(|text| text.parse().ok());
        address.unwrap_or_else(|| panic!("the broker did not say where its admin port is:\n{}", self.log.text()))
    }

    /// The address of a listener by its name.
    ///
    /// # Panics
    /// When there is none.
    pub fn listener(&self, name: &str) -> SocketAddr {
        *self.addresses.get(name).unwrap_or_else(|| panic!("no listener {name} in {:?}", self.addresses))
    }

    /// The address of the listener for a transport (`tcp`, `tls`, `ws`, `wss`).
    pub fn address(&self, transport: Transport) -> SocketAddr {
        self.listener(match transport {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::WebSocket => "ws",
            Transport::SecureWebSocket => "wss",
        })
    }

    /// What clients of this broker's TLS listeners trust.
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.client_config.clone()
    }

    /// A number that differs from run to run, for names on brokers that outlive one.
    pub fn salt(&self) -> u16 {
        self.salt
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a broker that this test started")
    }

    /// The folder of the configuration file.
    pub fn folder(&self) -> &Path {
        &self.process().folder
    }

    pub fn pid(&self) -> u32 {
        self.process().child.lock().expect("no holder panics").id()
    }

    /// Sends a signal (`libc::SIGTERM`, `libc::SIGHUP`, …).
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.pid()).expect("a process id");
        // SAFETY: kill takes no pointers, and the child has not been waited for, so the id is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "the broker is gone");
    }

    /// Whether the process is still there.
    pub fn is_running(&self) -> bool {
        matches!(self.process().child.lock().expect("no holder panics").try_wait(), Ok(None))
    }

    /// SIGTERM, and the exit status, which must come within `patience`.
    ///
    /// # Panics
    /// When the process stays.
    pub fn stop(&self, patience: Duration) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.exit_status(patience)
    }

    /// SIGKILL, and the end of the process.
    pub fn kill(&self) {
        let mut child = self.process().child.lock().expect("no holder panics");
        // It may have ended already; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The exit status of a process that is about to end, which must come within `patience`.
    ///
    /// # Panics
    /// When the process stays.
    pub fn exit_status(&self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            let status = self.process().child.lock().expect("no holder panics").try_wait();
            match status.expect("a child of ours") {
                Some(status) => return status,
                None if Instant::now() > deadline => panic!("the broker does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// The resident memory of the process in bytes.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.pid());
        let text = std::fs::read_to_string(path).expect("a process that runs");
        let pages: u64 = text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("the format of proc(5)");
        pages * 4096
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What a failed test does not know: whether the broker had something to say.
            let lines = self.log.since(0);
            let told = lines.iter().filter(|line| line.contains("\"ERROR\"") || !line.contains("\"level\""));
            told.rev().take(20).collect::<Vec<_>>().iter().rev().for_each(|line| eprintln!("broker: {}", line.text));
        }
        if let Some(process) = &self.process {
            let mut child = process.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // It may have ended already; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the program on a thread that lives as long as it does.
fn spawn(config: &Path, environment: &[(String, OsString)], log: Log) -> Child {
    let mut command = Command::new(program::path());
    // What the tests are told by variables is no configuration of the broker.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOLDFAST_")) {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.arg("serve").arg("--config").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    die_with_parent(&mut command);
    let name =
        config.parent().and_then(Path::file_name).map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let spawned = command.spawn().map(|mut child| {
            let stderr = child.stderr.take();
            (child, stderr)
        });
        let stderr = match spawned {
            Ok((child, stderr)) => {
                let _ = sender.send(Ok(child));
                stderr
            }
            Err(error) => {
                let _ = sender.send(Err(error));
                None
            }
        };
        if let Some(stderr) = stderr {
            log.follow(stderr, &name);
        }
    });
    let child = receiver.recv().expect("the thread answers");
    child.unwrap_or_else(|error| panic!("{} cannot be started: {error}", program::path().display()))
}

/// Lets the kernel kill the process when the thread that starts it ends, which it does only with the process's own end or ours.
fn die_with_parent(command: &mut Command) {
    let set = || {
        // SAFETY: prctl(PR_SET_PDEATHSIG) takes no pointers and is safe between fork and exec.
        let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call and allocates nothing on its successful path.
    unsafe { command.pre_exec(set) };
}

fn salt() -> u16 {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).expect("random bytes");
    u16::from_be_bytes(bytes)
}
