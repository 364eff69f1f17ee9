//! `holdfast data verify`: every byte of a data directory is read, every item and message is decoded, and what items refer to must be there.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use holdfast_storage::{Identity, Inspection, Unreadable};

use super::{DONE, FAILED, Place, Refused, counted, in_words};
use crate::journal::decode_message;
use crate::journal::lines::Survey;

/// So many places of a file are told one by one.
const PLACES_MAX: usize = 10;

pub(super) fn run(place: &Place) -> Result<u8, Refused> {
    let identity = place.take()?;
    let inspection = Inspection::open(&identity.journal_dir()).map_err(Refused::failed)?;
    let survey = Survey::of(&inspection.recovered);
    let mut findings = Findings::default();
    findings.of_journal(&inspection);
    findings.of_items(&inspection, &survey);
    let is_damaged = !findings.places.is_empty();
    // A reader that has gone away wants no more output.
    let _ = print(&identity, &inspection, &survey, &findings, &mut io::stdout().lock());
    Ok(if is_damaged { FAILED } else { DONE })
}

fn print(
    identity: &Identity,
    inspection: &Inspection,
    survey: &Survey,
    findings: &Findings,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (file, places) in &findings.places {
        for (offset, what) in places.iter().take(PLACES_MAX) {
            writeln!(out, "{file}, byte {offset}: {what}")?;
        }
        if places.len() > PLACES_MAX {
            writeln!(out, "{file}: {} more places like these", places.len() - PLACES_MAX)?;
        }
    }
    let journal = &inspection.journal;
    if let Some(torn) = &journal.torn {
        writeln!(
            out,
            "{}, byte {}: {} (no damage: a crash leaves that, and nobody was told that it is kept)",
            in_journal(&torn.file),
            torn.offset,
            torn.what
        )?;
    }
    if survey.ended > 0 {
        writeln!(
            out,
            "{} that had ended and will be dropped at the next start",
            counted(survey.ended, "session", "sessions")
        )?;
    }
    if survey.copies > 0 {
        writeln!(out, "{} of sessions of other nodes", counted(survey.copies, "copy", "copies"))?;
    }
    let own = own_files(identity);
    writeln!(
        out,
        "{}: {}: {}, {}, {}; {}",
        identity.dir().display(),
        if findings.places.is_empty() { "good" } else { "DAMAGED" },
        counted(journal.files + own.len() as u64, "file", "files"),
        counted(journal.bytes + own.iter().sum::<u64>(), "byte", "bytes"),
        counted(journal.report.records, "record", "records"),
        in_words(&survey.counts),
    )
}

/// Sizes of the files beside the journal, which were read when the directory was taken.
fn own_files(identity: &Identity) -> Vec<u64> {
    let files = ["format", "node.id"].iter().filter_map(|name| std::fs::metadata(identity.dir().join(name)).ok());
    files.map(|metadata| metadata.len()).collect()
}

pub(super) fn in_journal(file: &str) -> String {
    format!("journal/{file}")
}

/// What is damaged, by file.
#[derive(Debug, Default)]
struct Findings {
    places: BTreeMap<String, Vec<(u64, String)>>,
}

impl Findings {
    fn add(&mut self, file: &str, offset: u64, what: impl Into<String>) {
        self.places.entry(in_journal(file)).or_default().push((offset, what.into()));
    }

    fn of_journal(&mut self, inspection: &Inspection) {
        for damage in inspection.journal.report.damage.iter().chain(&inspection.journal.harmless) {
            self.add(&damage.file, damage.offset, damage.what);
        }
    }

    fn of_items(&mut self, inspection: &Inspection, survey: &Survey) {
        for fault in &survey.faults {
            let (file, offset) = inspection.place(fault.owner, fault.item).unwrap_or_default();
            self.add(&file, offset, format!("{} (item {} of owner {})", fault.what, fault.item, fault.owner.0));
        }
        let mut read = HashSet::new();
        for (owner, items) in &inspection.recovered.owners {
            for item in items.iter().filter(|item| item.body.is_some_and(|body| read.insert(body))) {
                let what = match inspection.body(*owner, item.item) {
                    Ok(Some(bytes)) if decode_message(&bytes).is_some() => continue,
                    Ok(_) => "a message in a form that this program does not know".to_owned(),
                    Err(Unreadable::Damaged(damage)) => {
                        self.add(&damage.file, damage.offset, damage.what);
                        continue;
                    }
                    Err(Unreadable::Io { source, .. }) => source.to_string(),
                };
                let (file, offset) = inspection.place(*owner, item.item).unwrap_or_default();
                self.add(&file, offset, what);
            }
        }
    }
}
