//! What a run cost: CPU of the broker, of this program and of the rest of the machine, memory, disk; latencies; the line with the result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is measured beside the load itself.
pub struct Subject {
    /// The processes of the broker, which count as one.
    pub broker: Vec<u32>,
    pub folder: Option<PathBuf>,
}

/// The state of processes and folder at one moment.
pub struct Sample {
    at: Instant,
    broker_cpu_s: Option<f64>,
    own_cpu_s: f64,
    machine_cpu_s: f64,
    pub rss_bytes: Option<u64>,
    written_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

impl Subject {
    pub fn sample(&self) -> Sample {
        Sample {
            at: Instant::now(),
            broker_cpu_s: self.sum(|pid| process_cpu_s(&pid.to_string())),
            own_cpu_s: process_cpu_s("self").unwrap_or(0.0),
            machine_cpu_s: machine_cpu_s().unwrap_or(0.0),
            rss_bytes: self.sum(|pid| counter(pid, "status", "VmRSS:")).map(|kib| kib * 1024),
            written_bytes: self.sum(|pid| counter(pid, "io", "write_bytes:")),
            disk_bytes: self.folder.as_deref().map(disk_bytes),
        }
    }

    /// Of all processes, if there are any and each can be asked.
    fn sum<T: std::iter::Sum>(&self, of_process: impl Fn(u32) -> Option<T>) -> Option<T> {
        let sum = self.broker.iter().map(|pid| of_process(*pid)).sum::<Option<T>>();
        sum.filter(|_| !self.broker.is_empty())
    }
}

impl Sample {
    /// Puts what happened from `self` to `end` into the result, with `messages` as the work done.
    pub fn until(&self, end: &Sample, messages: u64, result: &mut Line) {
        let secs = end.at.duration_since(self.at).as_secs_f64();
        let broker = end.broker_cpu_s.zip(self.broker_cpu_s).map(|(end, start)| end - start);
        let own = end.own_cpu_s - self.own_cpu_s;
        let others = end.machine_cpu_s - self.machine_cpu_s - own - broker.unwrap_or(0.0);
        result.number("secs", secs);
        result.number("messages", messages as f64);
        result.number("per_s", messages as f64 / secs);
        if let Some(broker) = broker {
            result.number("broker_cpu_pct", broker / secs * 100.0);
            if broker > 0.0 {
                result.number("per_broker_cpu_s", messages as f64 / broker);
            }
        }
        result.number("tool_cpu_pct", own / secs * 100.0);
        result.number("others_cpu_pct", (others / secs * 100.0).max(0.0));
        if let (Some(start), Some(end)) = (self.written_bytes, end.written_bytes)
            && messages > 0
        {
            result.number("written_bytes_per_message", (end - start) as f64 / messages as f64);
        }
        result.memory(end);
    }
}

fn ticks_per_s() -> f64 {
    // SAFETY: takes and returns a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// CPU seconds of the threads that a process has, to the nanosecond; those of threads that have ended are not in it.
fn process_cpu_s(pid: &str) -> Option<f64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanos = threads.flatten().filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    });
    Some(nanos.sum::<f64>() / 1e9)
}

/// User, nice and system time of all cores.
pub fn machine_cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = stat.lines().next()?.split_whitespace().skip(1).take(3);
    Some(ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / ticks_per_s())
}

fn counter(pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that the files of a folder take on the disk. Files may come and go meanwhile.
pub fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => disk_bytes(&entry.path()),
        Ok(about) => about.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Latencies in buckets 3 % wide.
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

const PARTS_BITS: u32 = 5;

impl Latencies {
    pub fn new() -> Latencies {
        Latencies { buckets: vec![0; (64 << PARTS_BITS) as usize], count: 0 }
    }

    pub fn add(&mut self, ns: u64) {
        let shift = (63 - (ns | 1).leading_zeros()).saturating_sub(PARTS_BITS);
        let bucket = (u64::from(shift) << PARTS_BITS) + (ns >> shift);
        self.buckets[bucket as usize] += 1;
        self.count += 1;
    }

    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (bucket, parts) = (bucket as u64, 1u64 << PARTS_BITS);
                let shift = (bucket >> PARTS_BITS).saturating_sub(1);
                let start = if bucket < 2 * parts { bucket } else { (bucket - (shift << PARTS_BITS)) << shift };
                return start as f64 / 1e6;
            }
        }
        0.0
    }

    pub fn report(&self, name: &str, result: &mut Line) {
        if self.count > 0 {
            result.number(&format!("{name}_p50_ms"), self.quantile_ms(0.5));
            result.number(&format!("{name}_p99_ms"), self.quantile_ms(0.99));
        }
    }
}

/// One line of JSON.
pub struct Line(String);

impl Line {
    pub fn new(scenario: &str) -> Line {
        Line(format!("{{\"scenario\":\"{scenario}\""))
    }

    pub fn number(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            // Writing to a String does not fail.
            let _ = write!(self.0, ",\"{name}\":{value:.4}");
        }
    }

    pub fn memory(&mut self, sample: &Sample) {
        for (name, value) in [("rss_bytes", sample.rss_bytes), ("disk_bytes", sample.disk_bytes)] {
            if let Some(value) = value {
                self.number(name, value as f64);
            }
        }
    }

    pub fn print(self) {
        println!("{}}}", self.0);
    }
}
