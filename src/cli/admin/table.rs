//! Columns of text, as wide as they need to be.

use std::io::{self, Write};

/// A table that is written in pieces: the head comes once, and columns only grow.
pub(super) struct Table {
    head: Option<Vec<String>>,
    widths: Vec<usize>,
}
impl Table {
    pub fn new(head: &[&str]) -> Table {
        let widths = head.iter().map(|cell| cell.len()).collect();
        Table { head: Some(head.iter().map(|&cell| cell.to_owned()).collect()), widths }
    }

    /// Writes rows, each with as many cells as the head.
    pub fn write(&mut self, out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in self.head.take().iter().chain(rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                line += &format!("{cell:width$}  ");
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A text of somebody else's on a terminal: without what would move its cursor or hide another text.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|character| -> Box<dyn Iterator<Item = char>> {
            if character.is_control() || is_invisible(character) {
                Box::new(character.escape_unicode())
            } else {
                Box::new(std::iter::once(character))
            }
        })
        .collect()
}

/// Marks that change the direction of the text behind them, or have no width.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

/// An optional text.
pub(super) fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), plain)
}

/// A time, in milliseconds since 1970, as `2026-12-01T03:12:00.000Z`.
pub(super) fn utc(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    // Days from 0000-03-01 on, in eras of 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hours, minutes, secs) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{date:02}T{hours:02}:{minutes:02}:{secs:02}.{:03}Z", rest % 1000)
}

/// `1.5 MB`
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value >= 1000.0 {
            value /= 1000.0;
            unit = larger;
        }
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        let mut table = Table::new(&["id", "n"]);
        table.write(&mut out, &[vec!["long".into(), "1".into()], vec!["é".into(), "22".into()]]).unwrap();
        table.write(&mut out, &[vec!["a".into(), "2".into()]]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "id    n\nlong  1\né     22\na     2\n");
    }

    #[test]
    fn what_would_harm_a_terminal_is_shown_as_what_it_is() {
        assert_eq!(plain("a\u{1B}[2J\nb é"), "a\\u{1b}[2J\\u{a}b é");
        assert_eq!(plain("\u{202E}x"), "\\u{202e}x");
        assert_eq!(
            (or_dash(None), or_dash(Some("")), or_dash(Some("x"))),
            ("-".to_owned(), "-".to_owned(), "x".to_owned())
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_796_094_845_006), "2026-12-01T03:14:05.006Z");
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(
            [0, 999, 1000, 1_550_000, 3_000_000_000, u64::MAX].map(bytes),
            ["0 B", "999 B", "1.0 kB", "1.6 MB", "3.0 GB", "18446744.1 TB"]
        );
    }
}
