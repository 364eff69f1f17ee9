//! The habits of the code, held by a test: who may import whom, what the pure modules may not name, how long functions and files
//! may be, module docs, names that say nothing, and no unfinished work. The lists of exceptions may only shrink: one that is not needed any more is an error as well.
//!
//! It reads sources as text, formatted by rustfmt. Read first: `source.rs`.

mod layers;
mod lengths;
mod names;
mod source;

/// Fails with all findings at once.
#[track_caller]
fn none(findings: Vec<String>, rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
