//! `holdfast data import`: lines are read, judged and written into a data directory that becomes one when all of them were good.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_storage::{Audience, Entry, ItemId, OwnerId, State, Storage, Unborn};
use parking_lot::{Condvar, Mutex};

use super::{DONE, Refused, in_words};
use crate::journal::lines::Import;

/// So many bytes of lines are written together.
const CHUNK_BYTES: usize = 1024 * 1024;
/// No line is longer: the largest packet in base64, and a bit.
const LINE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// So many errors are printed.
const ERRORS_MAX: usize = 100;

pub(super) fn run(file: &Path, dir: Option<&Path>, dry_run: bool) -> Result<u8, Refused> {
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin { PathBuf::from("(standard input)") } else { file.to_owned() };
    let unborn = match dir {
        Some(dir) if dry_run => Unborn::look(dir).map(|()| None),
        Some(dir) => Unborn::begin(dir).map(Some),
        None => Ok(None),
    };
    let unborn = unborn.map_err(Refused::failed)?;
    let opened: io::Result<Box<dyn BufRead>> = if is_stdin {
        Ok(Box::new(io::stdin().lock()))
    } else {
        File::open(file).map(|file| Box::new(BufReader::with_capacity(CHUNK_BYTES, file)) as _)
    };
    let read = opened.map_err(|error| Refused::failed(format!("{}: {error}", name.display()))).and_then(|mut lines| {
        let mut filling = Filling::new(unborn.as_ref().map(Unborn::journal_dir));
        read(&name, &mut lines, &mut filling)
    });
    match (read, unborn) {
        (Ok(import), None) => say(&format!("{}: good; would import {}", name.display(), in_words(&import.counts()))),
        (Ok(import), Some(unborn)) => {
            let identity = unborn.finish().map_err(Refused::failed)?;
            say(&format!("{}: imported {}", identity.dir().display(), in_words(&import.counts())));
        }
        (Err(refused), None) => return Err(refused),
        (Err(refused), Some(unborn)) => {
            // The next import removes what is left, and no node starts on it.
            let _ = unborn.abandon();
            return Err(refused);
        }
    }
    Ok(DONE)
}

fn say(text: &str) {
    // A reader that has gone away wants no more output.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Reads all lines and hands on what they give. With one error nothing more is written, and reading goes on to find all others.
fn read(name: &Path, lines: &mut dyn BufRead, filling: &mut Filling) -> Result<Import, Refused> {
    let mut import = Import::default();
    let (mut line, mut entries, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut errors = Errors::new(name);
    while next_line(lines, &mut line).map_err(|error| Refused::failed(format!("{}: {error}", name.display())))? {
        errors.line += 1;
        if let Err(what) = import.line(&line, &mut entries) {
            errors.add(&what);
        }
        let Some(last_run) = import.last_run() else { break };
        bytes += line.len();
        if !errors.texts.is_empty() {
            entries.clear();
        } else if bytes >= CHUNK_BYTES {
            filling.write(last_run, &mut entries)?;
            bytes = 0;
        }
    }
    if errors.texts.is_empty()
        && let Err(what) = import.finish()
    {
        errors.line += 1;
        errors.add(&what);
    }
    if !errors.texts.is_empty() {
        return Err(errors.refuse());
    }
    if !entries.is_empty() {
        filling.write(import.last_run().unwrap_or(0), &mut entries)?;
    }
    filling.close()?;
    Ok(import)
}

/// The next line without its end; false when there is none.
fn next_line(lines: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = lines.take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == LINE_BYTES_MAX {
        return Err(io::Error::other("a line is longer than any that was exported"));
    }
    Ok(read > 0)
}

/// What is wrong with the file.
struct Errors<'a> {
    name: &'a Path,
    line: u64,
    texts: Vec<String>,
    more: u64,
}

impl<'a> Errors<'a> {
    fn new(name: &'a Path) -> Errors<'a> {
        Errors { name, line: 0, texts: Vec::new(), more: 0 }
    }

    fn add(&mut self, what: &str) {
        if self.texts.len() < ERRORS_MAX {
            self.texts.push(format!("{}:{}: {what}", self.name.display(), self.line));
        } else {
            self.more += 1;
        }
    }

    fn refuse(mut self) -> Refused {
        if self.more > 0 {
            self.texts.push(format!("and {} more errors", self.more));
        }
        self.texts.push("nothing was imported".to_owned());
        Refused { code: super::FAILED, text: self.texts.join("\n") }
    }
}

/// The journal that is being made; `None`: nothing is to be written.
struct Filling {
    dir: Option<PathBuf>,
    storage: Option<Storage>,
    told: Arc<Told>,
}

impl Filling {
    fn new(dir: Option<PathBuf>) -> Filling {
        Filling { dir, storage: None, told: Arc::default() }
    }

    /// Writes the entries, and comes back when they are on disk. `time` is what the journal is to have as its last.
    fn write(&mut self, time: u64, entries: &mut Vec<Entry>) -> Result<(), Refused> {
        let Some(dir) = &self.dir else {
            entries.clear();
            return Ok(());
        };
        let storage = match &self.storage {
            Some(storage) => storage,
            None => self.storage.insert(start(dir, time, &self.told).map_err(Refused::failed)?),
        };
        let submission = storage.submit(0, entries, true);
        let mut news = self.told.news.lock();
        loop {
            if let Some(why) = &news.failing {
                let why = why.clone();
                drop(news);
                // It has threads that write to the directory, which is about to be removed.
                let _ = storage.close();
                return Err(Refused::failed(format!("nothing was imported: {why}")));
            }
            if news.kept >= submission {
                return Ok(());
            }
            self.told.changed.wait(&mut news);
        }
    }

    fn close(&mut self) -> Result<(), Refused> {
        self.storage.take().map_or(Ok(()), |storage| storage.close().map_err(Refused::failed))
    }
}

impl Drop for Filling {
    /// After an error: the threads end before the files go.
    fn drop(&mut self) {
        if let Some(storage) = self.storage.take() {
            let _ = storage.close();
        }
    }
}

fn start(dir: &Path, time: u64, told: &Arc<Told>) -> anyhow::Result<Storage> {
    let options = holdfast_storage::Options { journal: Default::default(), sources: 1, lazy: Duration::ZERO };
    let opened = Storage::open(dir, options)?;
    Ok(Storage::start(opened, told.clone(), Arc::new(move || time))?)
}

/// What the storage says.
#[derive(Default)]
struct Told {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    kept: u64,
    failing: Option<String>,
}

impl Audience for Told {
    fn kept(&self, _source: usize, submission: u64) {
        self.news.lock().kept = submission;
        self.changed.notify_all();
    }

    fn loaded(&self, _source: usize, _ticket: u64, _bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>) {}

    fn state(&self, state: State) {
        if let State::Failing(why) = state {
            self.news.lock().failing = Some(why);
            self.changed.notify_all();
        }
    }
}
