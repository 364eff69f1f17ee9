//! Single values of a file: what is expected, what was found, and what is within bounds.
//!
//! Each function says what is wrong in words that follow `key: `. None of them shows the value.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use super::suggest;
use super::units::{parse_duration, parse_size, show_duration};

/// Longest path, in bytes: what Linux takes.
const PATH_BYTES_MAX: usize = 4096;

const DURATION: &str = "a duration such as \"25s\" (units: ms, s, m, h, d, w)";
const SIZE: &str = "a size in bytes such as 65536, \"64KiB\" or \"2MB\"";

/// "expected this, found that". Shows no value: it might be a secret in the wrong place.
pub(super) fn expected(what: &str, found: &DeValue<'_>) -> String {
    let kind = match found {
        DeValue::Boolean(_) => "true or false",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
        DeValue::String(_) => "another string",
    };
    // A string where no string is expected is not "another" one.
    let kind = if kind == "another string" && !what.contains('"') { "a string" } else { kind };
    format!("expected {what}, found {kind}")
}

/// `true` or `false`.
pub(super) fn parse_bool(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| expected("true or false", value))
}

/// A whole number that is not negative.
pub(super) fn parse_integer(value: &DeValue<'_>) -> Result<u64, String> {
    let integer = value.as_integer().ok_or_else(|| expected("a whole number", value))?;
    u64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| "expected a whole number that is not negative and not huge".to_owned())
}

/// A whole number within bounds.
pub(super) fn integer_within<T>(value: &DeValue<'_>, bounds: &RangeInclusive<T>) -> Result<T, String>
where
    T: Copy + PartialOrd + Display + TryFrom<u64>,
{
    within(parse_integer(value)?, bounds)
}

/// A size in bytes within bounds: a whole number, or a string with a unit.
pub(super) fn size_within<T>(value: &DeValue<'_>, bounds: &RangeInclusive<T>) -> Result<T, String>
where
    T: Copy + PartialOrd + Display + TryFrom<u64>,
{
    let bytes = match value.as_str() {
        Some(text) => parse_size(text),
        None => parse_integer(value).ok(),
    };
    within(bytes.ok_or_else(|| expected(SIZE, value))?, bounds)
}

/// A number within bounds, with or without a fraction.
pub(super) fn float_within(value: &DeValue<'_>, bounds: &RangeInclusive<f64>) -> Result<f64, String> {
    let whole = value.as_integer().filter(|integer| integer.radix() == 10);
    let text = value.as_float().map(|float| float.as_str()).or(whole.map(|integer| integer.as_str()));
    let number: f64 = text.and_then(|text| text.parse().ok()).ok_or_else(|| expected("a number", value))?;
    // A NaN is within no bounds.
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(format!("must be from {} to {}", bounds.start(), bounds.end()))
}

/// A path, relative to `dir` if it is relative.
pub(super) fn parse_path(value: &DeValue<'_>, dir: &Path) -> Result<PathBuf, String> {
    let text = parse_text(value, PATH_BYTES_MAX)?;
    if text.contains('\0') {
        return Err("a path cannot hold U+0000".to_owned());
    }
    Ok(dir.join(text))
}

/// A string that is neither empty nor too long.
pub(super) fn parse_text(value: &DeValue<'_>, bytes_max: usize) -> Result<String, String> {
    let text = value.as_str().ok_or_else(|| expected("a string", value))?;
    if text.is_empty() || text.len() > bytes_max {
        return Err(format!("must have from 1 to {bytes_max} bytes"));
    }
    Ok(text.to_owned())
}

/// One of a few words.
pub(super) fn parse_choice<T: Copy>(value: &DeValue<'_>, choices: &[(&'static str, T)]) -> Result<T, String> {
    let words = || choices.iter().map(|(word, _)| *word);
    let all = words().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    let text = value.as_str().ok_or_else(|| format!("expected one of {all}"))?;
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*choice);
    }
    Err(match suggest::nearest(text, words()) {
        Some(word) => format!("expected one of {all}; did you mean \"{word}\"?"),
        None => format!("expected one of {all}"),
    })
}

/// A duration within bounds: a string with a unit, or a zero.
pub(super) fn duration_within(value: &DeValue<'_>, bounds: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let duration = match value.as_str() {
        Some(text) => parse_duration(text),
        None => parse_integer(value).ok().filter(|number| *number == 0).map(|_| Duration::ZERO),
    };
    let duration = duration.ok_or_else(|| expected(DURATION, value))?;
    if bounds.contains(&duration) {
        return Ok(duration);
    }
    Err(format!("must be from {} to {}", show_duration(*bounds.start()), show_duration(*bounds.end())))
}

fn within<T>(number: u64, bounds: &RangeInclusive<T>) -> Result<T, String>
where
    T: Copy + PartialOrd + Display + TryFrom<u64>,
{
    T::try_from(number)
        .ok()
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| format!("must be from {} to {}", bounds.start(), bounds.end()))
}
