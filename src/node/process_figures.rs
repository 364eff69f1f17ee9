//! What the system says of the process: memory, processor time, open files. Names are those that every exporter of Prometheus has.
//!
//! Owns nothing; `/proc` is read anew each time. What cannot be read is left out.

use std::fs;

use crate::admin::{Exposition, Kind};

/// What a process has, as far as the system tells.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    cpu_secs: Option<f64>,
    resident_bytes: Option<f64>,
    open_files: Option<f64>,
    open_files_max: Option<f64>,
}

/// Writes the families.
pub(super) fn write(out: &mut Exposition) {
    let Figures { cpu_secs, resident_bytes, open_files, open_files_max } = read();
    let mut single = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            out.single(name, kind, help, value);
        }
    };
    single("process_cpu_seconds_total", Kind::Counter, "Processor time, in seconds.", cpu_secs);
    single("process_resident_memory_bytes", Kind::Gauge, "Resident memory.", resident_bytes);
    single("process_open_fds", Kind::Gauge, "Open files and sockets.", open_files);
    let ratio = open_files.zip(open_files_max).map(|(open, max)| open / max);
    single("open_fds_ratio", Kind::Gauge, "Open files and sockets, as a part of the most there may be.", ratio);
    single("process_max_fds", Kind::Gauge, "Most open files and sockets.", open_files_max);
}

/// Resident memory; 0 where the system does not tell.
pub(super) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let bytes = field(&statm, 1).zip(of_system(libc::_SC_PAGESIZE)).map(|(pages, page)| pages * page);
    bytes.map_or(0, |bytes| bytes as u64)
}

fn read() -> Figures {
    let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    Figures {
        cpu_secs: cpu_ticks(&text("stat")).zip(of_system(libc::_SC_CLK_TCK)).map(|(ticks, tick)| ticks / tick),
        resident_bytes: field(&text("statm"), 1).zip(of_system(libc::_SC_PAGESIZE)).map(|(pages, page)| pages * page),
        // The folder that is read is one of them.
        open_files: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64),
        open_files_max: text("limits").lines().find_map(|line| field(line.strip_prefix("Max open files")?, 0)),
    }
}

fn of_system(name: libc::c_int) -> Option<f64> {
    // SAFETY: sysconf takes a number and returns one.
    let value = unsafe { libc::sysconf(name) };
    (value > 0).then_some(value as f64)
}

/// User and system time. The name of the program, in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    Some(field(behind, 11)? + field(behind, 12)?)
}

fn field(text: &str, number: usize) -> Option<f64> {
    text.split_whitespace().nth(number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        let figures = read();
        assert!(figures.resident_bytes.is_some_and(|bytes| bytes > 1e5), "{figures:?}");
        assert!(figures.cpu_secs.is_some_and(|secs| secs >= 0.0), "{figures:?}");
        assert!(figures.open_files < figures.open_files_max, "{figures:?}");
    }

    #[test]
    fn names_of_programs_may_hold_anything() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 30 12 13";
        assert_eq!(cpu_ticks(stat), Some(42.0));
        assert_eq!(cpu_ticks(""), None);
    }
}
