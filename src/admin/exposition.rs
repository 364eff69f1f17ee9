//! The text format of Prometheus, version 0.0.4, or OpenMetrics 1.0 for who asks for that: families of samples, each with its help and type. Every name has the prefix `holdfast_`, but for those that
//! every program has, which begin with `process_`.
//!
//! Labels are few and their values bounded: names of nodes, listeners, reasons; never a client id, a user name or a topic.

use std::fmt::Write as _;

use crate::metrics::{BOUNDS_US, Histogram};

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Families, as text. A label that all of them share is given once.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    /// The name of the family that samples are of.
    family: &'static str,
    /// `node="name"`, perhaps empty.
    shared: String,
    is_open: bool,
}

impl Exposition {
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";
    pub const OPEN_CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// One in the format that a request accepts, by its header `Accept`.
    pub fn accepted_by(accept: &str) -> Exposition {
        Exposition { is_open: accept.contains("application/openmetrics-text"), ..Exposition::default() }
    }

    pub fn content_type(&self) -> &'static str {
        if self.is_open { Self::OPEN_CONTENT_TYPE } else { Self::CONTENT_TYPE }
    }

    /// The label `node` of all samples that follow.
    pub fn set_node(&mut self, name: &str) {
        self.shared.clear();
        write_label(&mut self.shared, "node", name);
    }

    /// Begins a family. `name` is without the prefix; a counter's ends in `_total`. `help` is one line.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> &mut Self {
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        self.family = name;
        // Writing to a String does not fail.
        let prefix = prefix(name);
        let counted = name.strip_suffix("_total").filter(|_| self.is_open && kind == Kind::Counter);
        let name = counted.unwrap_or(name);
        let _ = writeln!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {}", kind.word());
        self
    }

    /// A family with one sample.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.write("", labels, value)
    }

    fn write(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let _ = write!(self.text, "{}{}{suffix}", prefix(self.family), self.family);
        let mut all = self.shared.clone();
        for (name, value) in labels {
            write_label(&mut all, name, value);
        }
        if !all.is_empty() {
            let _ = write!(self.text, "{{{all}}}");
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    /// Samples of the histogram that was begun last, summed over several of one kind.
    pub fn histogram<'h>(&mut self, labels: &[(&str, &str)], each: impl Iterator<Item = &'h Histogram>) -> &mut Self {
        let (mut counts, mut sum_us) = ([0_u64; BOUNDS_US.len() + 1], 0_u64);
        for (more, us) in each.map(Histogram::read) {
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            sum_us += us;
        }
        let mut below = 0;
        for (count, bound) in counts.iter().zip(BOUNDS_US.map(Some).into_iter().chain([None])) {
            below += count;
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
            self.write("_bucket", &[labels, &[("le", bound.as_str())][..]].concat(), below as f64);
        }
        self.write("_sum", labels, sum_us as f64 / 1e6);
        self.write("_count", labels, below as f64)
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.is_open {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

fn prefix(name: &str) -> &'static str {
    if name.starts_with("process_") { "" } else { "holdfast_" }
}

fn write_label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    let _ = write!(out, "{name}=\"");
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_all_that_is_shorter_and_openmetrics_has_an_end() {
        let (one, other) = (Histogram::default(), Histogram::default());
        [10, 20_000].into_iter().for_each(|us| one.observe_us(us));
        other.observe_us(20_000_000);
        let mut out = Exposition::accepted_by("text/html, application/openmetrics-text;version=1.0.0");
        assert_eq!(out.content_type(), Exposition::OPEN_CONTENT_TYPE);
        out.family("a_seconds", Kind::Histogram, "Times.").histogram(&[("stage", "x")], [&one, &other].into_iter());
        out.family("b_total", Kind::Counter, "Things.").sample(&[], 1.0);
        let text = out.finish();
        assert!(text.starts_with("# HELP holdfast_a_seconds Times.\n# TYPE holdfast_a_seconds histogram\n"), "{text}");
        for line in [
            "holdfast_a_seconds_bucket{stage=\"x\",le=\"0.000025\"} 1\n",
            "holdfast_a_seconds_bucket{stage=\"x\",le=\"0.05\"} 2\n",
            "holdfast_a_seconds_bucket{stage=\"x\",le=\"+Inf\"} 3\nholdfast_a_seconds_sum{stage=\"x\"} 20.02001\n",
            "holdfast_a_seconds_count{stage=\"x\"} 3\n",
            "# TYPE holdfast_b counter\nholdfast_b_total 1\n# EOF\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(Exposition::accepted_by("*/*").content_type(), Exposition::CONTENT_TYPE);
    }

    #[test]
    fn families_have_help_type_and_labels() {
        let mut out = Exposition::default();
        out.set_node("n\"1\\\n");
        out.family("a_total", Kind::Counter, "Things.").sample(&[("reason", "x")], 3.0).sample(&[], 0.5);
        out.single("b", Kind::Gauge, "Others.", 18_446_744_073_709_551_615_u64 as f64);
        assert_eq!(
            out.finish(),
            "# HELP holdfast_a_total Things.\n# TYPE holdfast_a_total counter\n\
             holdfast_a_total{node=\"n\\\"1\\\\\\n\",reason=\"x\"} 3\nholdfast_a_total{node=\"n\\\"1\\\\\\n\"} 0.5\n\
             # HELP holdfast_b Others.\n# TYPE holdfast_b gauge\nholdfast_b{node=\"n\\\"1\\\\\\n\"} 18446744073709552000\n"
        );
        let mut out = Exposition::default();
        out.single("c", Kind::Gauge, "Without a node.", 1.0);
        out.single("process_d", Kind::Gauge, "Of every program.", 2.0);
        assert!(
            out.finish()
                .contains("\nholdfast_c 1\n# HELP process_d Of every program.\n# TYPE process_d gauge\nprocess_d 2\n")
        );
    }
}
