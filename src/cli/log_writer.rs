//! Where log lines go: a thread that may wait for whoever reads the log, so that a shard does not. A pipe that nobody empties would stop every
//! client of the node otherwise.
//!
//! Invariants: handing over a line never waits; at most [`LINES_MAX`] wait; what finds no place is counted, and the log says so later.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for the reader of the log.
const LINES_MAX: usize = 4_096;

/// How long the end of the process waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

enum Item {
    Line(Vec<u8>),
    /// Answered when everything before has been written.
    Mark(SyncSender<()>),
}

/// Takes lines; a copy takes them for the same thread.
#[derive(Clone)]
pub(super) struct LogWriter {
    items: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

impl LogWriter {
    /// Starts the thread that writes to `sink`.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(sink: impl Write + Send + 'static) -> io::Result<LogWriter> {
        let (items, waiting) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = LogWriter { items, lost: lost.clone() };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(sink, &waiting, &lost))?;
        Ok(writer)
    }

    /// Waits until what was logged so far is written, but not for ever.
    pub fn finish(&self) {
        let deadline = Instant::now() + LAST_LINES;
        let (mark, written) = sync_channel(1);
        let mut item = Item::Mark(mark);
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = self.items.try_send(item) {
            if Instant::now() >= deadline {
                return;
            }
            item = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

fn write_all(mut sink: impl Write, items: &Receiver<Item>, lost: &AtomicU64) {
    while let Ok(item) = items.recv() {
        match item {
            // Nowhere is left to say that the log cannot be written.
            Item::Line(line) => drop(sink.write_all(&line)),
            // Whoever asked may have stopped waiting.
            Item::Mark(written) => drop(written.try_send(())),
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => warn!(event = "log", lines, "log lines were left out: the log is not read fast enough"),
        }
    }
}

impl Write for LogWriter {
    /// `bytes` are a whole line: the formatter writes each event at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.items.try_send(Item::Line(bytes.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A sink that takes a line only when it is told to.
    struct Held(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_reads_holds_up_nobody() {
        let (go, held) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        let mut writer = LogWriter::start(Held(held, out)).unwrap();
        for _ in 0..3 * LINES_MAX {
            writer.write_all(b"line\n").unwrap();
        }
        assert!(writer.lost.load(Ordering::Relaxed) >= LINES_MAX as u64);
        drop(go);
        writer.finish();
        assert!(lines.try_iter().count() >= LINES_MAX);
    }
}
