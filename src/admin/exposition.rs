//! The text format of Prometheus, version 0.0.4: families of samples, each with its help and type. Every name has the prefix `holdfast_`, but for those that
//! every program has, which begin with `process_`.
//!
//! Labels are few and their values bounded: names of nodes, listeners, reasons; never a client id, a user name or a topic.

use std::fmt::Write as _;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
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
}

impl Exposition {
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

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
        let _ = writeln!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {}", kind.word());
        self
    }

    /// A family with one sample.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let _ = write!(self.text, "{}{}", prefix(self.family), self.family);
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

    /// The whole text.
    pub fn finish(self) -> String {
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
