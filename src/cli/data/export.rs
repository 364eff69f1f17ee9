//! `holdfast data export`: everything is looked at first, then written line by line; bodies are read when their line is written.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_storage::{Identity, Inspection, ItemId, OwnerId};

use super::verify::in_journal;
use super::{DONE, Place, Refused, counted, in_words};
use crate::journal::decode_message;
use crate::journal::lines::{Begin, FORMAT, Line, Survey, export};
use crate::mqtt::Message;

/// Gathered before it is written.
const BUFFER_BYTES: usize = 256 * 1024;

pub(super) fn run(place: &Place, output: Option<&Path>) -> Result<u8, Refused> {
    let identity = place.take()?;
    let inspection = Inspection::open(&identity.journal_dir()).map_err(Refused::failed)?;
    let survey = Survey::of(&inspection.recovered);
    refuse_damaged(&identity, &inspection, &survey)?;
    match output {
        Some(path) if path.as_os_str() != "-" => {
            let file = Output::create(path)?;
            write(&identity, &inspection, &survey, &file.file)?;
            file.finish()?;
        }
        _ => write(&identity, &inspection, &survey, &io::stdout())?,
    }
    tell(&inspection, &survey);
    Ok(DONE)
}

/// Nothing is left out without a word: where something is missing there is no export.
fn refuse_damaged(identity: &Identity, inspection: &Inspection, survey: &Survey) -> Result<(), Refused> {
    let damage = inspection.journal.report.damage.iter();
    let mut lines: Vec<String> = damage.map(|damage| at(&damage.file, damage.offset, damage.what)).collect();
    lines.extend(survey.faults.iter().map(|fault| {
        let (file, offset) = inspection.place(fault.owner, fault.item).unwrap_or_default();
        at(&file, offset, fault.what)
    }));
    if lines.is_empty() {
        return Ok(());
    }
    Err(Refused::failed(format!(
        "the data directory {} is damaged and is not exported\n{}\nrestore it from a copy; or start a node on a copy of it with on_corruption = \
         \"quarantine\", which keeps what can be read, stop that and export the copy",
        identity.dir().display(),
        lines.join("\n")
    )))
}

fn at(file: &str, offset: u64, what: &str) -> String {
    format!("{}, byte {offset}: {what}", in_journal(file))
}

fn tell(inspection: &Inspection, survey: &Survey) {
    let mut err = io::stderr().lock();
    // It is done, whether or not anybody hears it.
    let _ = writeln!(err, "exported: {}", in_words(&survey.counts));
    if survey.ended > 0 {
        let _ = writeln!(err, "left out: {} that had ended", counted(survey.ended, "session", "sessions"));
    }
    if survey.copies > 0 {
        let _ = writeln!(err, "left out: {} of sessions of other nodes", counted(survey.copies, "copy", "copies"));
    }
    if let Some(torn) = &inspection.journal.torn {
        let _ = writeln!(err, "left out: {}", at(&torn.file, torn.offset, torn.what));
    }
}

fn write(identity: &Identity, inspection: &Inspection, survey: &Survey, to: impl Write) -> Result<(), Refused> {
    let begin = Begin {
        format: FORMAT,
        exported_at: now(),
        node_id: format!("{:032x}", identity.node_id()),
        last_run: inspection.recovered.last_time,
    };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, to);
    let mut read = |owner, item| read(inspection, owner, item);
    export(survey, &inspection.recovered, begin, &mut read, &mut |line| write_line(&mut out, line))?;
    out.flush().map_err(|error| cannot_write(&error))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn read(inspection: &Inspection, owner: OwnerId, item: ItemId) -> Result<Message, Refused> {
    let bytes = inspection.body(owner, item).map_err(|error| incomplete(&in_journal(&error.to_string())))?;
    bytes.and_then(|bytes| decode_message(&bytes)).ok_or_else(|| {
        let (file, offset) = inspection.place(owner, item).unwrap_or_default();
        incomplete(&at(&file, offset, "a message in a form that this program does not know"))
    })
}

fn incomplete(what: &str) -> Refused {
    Refused::failed(format!("{what}\nthe export ends here and is of no use"))
}

fn write_line(out: &mut impl Write, line: &Line) -> Result<(), Refused> {
    let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"));
    written.map_err(|error| cannot_write(&error))
}

fn cannot_write(error: &io::Error) -> Refused {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Refused::failed("nobody reads any more: the export is not complete");
    }
    Refused::failed(format!("the export cannot be written: {error}"))
}

/// A file that gets its name when it is complete, unless it is something else than a file.
pub(super) struct Output {
    pub(super) file: File,
    path: PathBuf,
    unfinished: Option<PathBuf>,
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Output, Refused> {
        let in_place = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let unfinished = (!in_place).then(|| {
            let mut name = OsString::from(path);
            name.push(".new");
            PathBuf::from(name)
        });
        let at = unfinished.as_deref().unwrap_or(path);
        let mut options = File::options();
        // Who may read the data directory alone may read this.
        options.write(true).create(!in_place).truncate(!in_place).mode(0o600);
        let file = options.open(at).map_err(|error| Refused::failed(format!("{}: {error}", at.display())))?;
        Ok(Output { file, path: path.to_owned(), unfinished })
    }

    pub(super) fn finish(mut self) -> Result<(), Refused> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let finished = self.file.sync_all().and_then(|()| std::fs::rename(&unfinished, &self.path));
        let finished = finished.and_then(|()| File::open(folder)?.sync_all());
        finished.map_err(|error| Refused::failed(format!("{}: {error}", self.path.display())))
    }
}

impl Drop for Output {
    /// Nothing that is not complete is left.
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = std::fs::remove_file(unfinished);
        }
    }
}
