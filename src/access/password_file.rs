//! A file of users and hashed passwords, in mosquitto's format: one `user:hash` for each line, `#` begins a comment line.
//!
//! The lines are kept as they are, in their order, so that editing one user ([`PasswordFile::set`], [`PasswordFile::remove`]) leaves the
//! rest of the file alone, comments included.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;

use super::password_hash::{HashKind, PasswordHash};

/// Largest file that is read, in bytes: about 500,000 users.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A user name is a UTF-8 string of MQTT (MQTT 5.0, 1.5.4), so no longer than its length field can say.
const USER_NAME_BYTES_MAX: usize = 65_535;

/// Wrong lines that one error names; the rest is counted.
const WRONG_LINES_SHOWN: usize = 20;

/// The users of a password file.
#[derive(Debug, Default)]
pub struct PasswordFile {
    lines: Vec<Line>,
    /// Where each user's line is.
    users: HashMap<Arc<str>, usize>,
    /// Stands in for the hash of a user that does not exist.
    decoy: Option<PasswordHash>,
}

#[derive(Debug)]
enum Line {
    /// A comment, or nothing.
    Other(String),
    User(Arc<str>, PasswordHash),
}

/// Why a password file is refused.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file cannot be read.
    #[error("password file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Lines are wrong. One error for all of them.
    #[error("{}", shown(path, lines))]
    Lines {
        /// The file.
        path: PathBuf,
        /// Line number, counted from 1, and what is wrong there.
        lines: Vec<(usize, String)>,
    },
}

/// Why a name cannot stand in a password file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    /// Nothing before the colon.
    #[error("the user name is empty")]
    Empty,
    /// Longer than a user name of MQTT can be.
    #[error("the user name is longer than 65,535 bytes")]
    TooLong,
    /// A character that would end the name or the line, or begin a comment.
    #[error("a user name cannot hold \":\" or control characters, begin with \"#\", or begin or end with a space")]
    Character,
}

fn shown(path: &Path, lines: &[(usize, String)]) -> String {
    let mut text: Vec<String> = lines
        .iter()
        .take(WRONG_LINES_SHOWN)
        .map(|(line, message)| format!("{}:{line}: {message}", path.display()))
        .collect();
    if lines.len() > WRONG_LINES_SHOWN {
        text.push(format!("{}: and {} more lines", path.display(), lines.len() - WRONG_LINES_SHOWN));
    }
    text.join("\n")
}

impl PasswordFile {
    /// Reads a file, through symbolic links.
    ///
    /// # Errors
    /// It cannot be read, or is larger than 64 MiB, or one of its lines is wrong.
    pub fn load(path: &Path) -> Result<PasswordFile, AccessError> {
        let text = read_text(path).map_err(|source| AccessError::Read { path: path.to_owned(), source })?;
        PasswordFile::parse(&text).map_err(|lines| AccessError::Lines { path: path.to_owned(), lines })
    }

    fn parse(text: &str) -> Result<PasswordFile, Vec<(usize, String)>> {
        let mut file = PasswordFile::default();
        let mut wrong = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Err(message) = file.push_line(line) {
                wrong.push((index + 1, message));
            }
        }
        if wrong.is_empty() { Ok(file) } else { Err(wrong) }
    }

    fn push_line(&mut self, line: &str) -> Result<(), String> {
        if is_other(line) {
            self.lines.push(Line::Other(line.to_owned()));
            return Ok(());
        }
        let (name, hash) = line.split_once(':').ok_or("no \":\" between user name and password")?;
        let name = name.trim();
        check_user_name(name).map_err(|error| error.to_string())?;
        let hash: PasswordHash =
            hash.trim().parse().map_err(|error: super::password_hash::HashError| error.to_string())?;
        if self.users.contains_key(name) {
            return Err("this user has a line above already".to_owned());
        }
        self.push_user(name.into(), hash);
        Ok(())
    }

    fn push_user(&mut self, name: Arc<str>, hash: PasswordHash) {
        if self.decoy.as_ref().is_none_or(|decoy| decoy.cost() < hash.cost()) {
            self.decoy = Some(hash.decoy());
        }
        self.users.insert(Arc::clone(&name), self.lines.len());
        self.lines.push(Line::User(name, hash));
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn find(&self, user_name: &str) -> Option<(&Arc<str>, &PasswordHash)> {
        self.users.get_key_value(user_name).and_then(|(name, index)| match &self.lines[*index] {
            Line::User(_, hash) => Some((name, hash)),
            Line::Other(_) => None,
        })
    }

    /// A number that is another one when the user's password is. `None`: no such user.
    pub(super) fn number_of(&self, user_name: &str) -> Option<u64> {
        self.find(user_name).map(|(_, hash)| hash.number())
    }

    /// The user's name, and the number of its password, if this is the password. Hashes once, whether the user exists or not.
    pub(super) fn verify(&self, user_name: &str, password: Option<&[u8]>) -> Option<(Arc<str>, u64)> {
        let found = self.find(user_name);
        match (found, &self.decoy) {
            (Some((name, hash)), _) => hash.verify(password?).then(|| (Arc::clone(name), hash.number())),
            (None, Some(decoy)) => {
                decoy.verify(password?);
                None
            }
            (None, None) => None,
        }
    }

    /// Adds a user, or gives it a new password. Returns whether the user is new.
    ///
    /// # Errors
    /// The name cannot stand in a password file.
    pub fn set(&mut self, user_name: &str, hash: PasswordHash) -> Result<bool, UserNameError> {
        check_user_name(user_name)?;
        match self.users.get(user_name) {
            Some(index) => {
                self.lines[*index] = Line::User(user_name.into(), hash);
                Ok(false)
            }
            None => {
                self.push_user(user_name.into(), hash);
                Ok(true)
            }
        }
    }

    /// Removes a user; `false` if there is none of that name.
    pub fn remove(&mut self, user_name: &str) -> bool {
        let Some(index) = self.users.remove(user_name) else {
            return false;
        };
        self.lines.remove(index);
        for (index, line) in self.lines.iter().enumerate().skip(index) {
            if let Line::User(name, _) = line {
                self.users.insert(Arc::clone(name), index);
            }
        }
        true
    }

    /// Writes the file in one step: a reader sees the old file or the new one. An existing file keeps its mode and, where the
    /// system allows it, its owner; a new one can be read by its owner only. A symbolic link stays, its target is replaced.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        write_in_one_step(path, self.to_string().as_bytes())
    }

    /// Hashes the plain passwords of a text in mosquitto's format. Lines that are hashed stay as they are. Returns the file, and how many were hashed.
    ///
    /// # Errors
    /// The lines that are wrong, or what the operating system says while hashing.
    pub fn from_plain(path: &Path, kind: HashKind) -> Result<(PasswordFile, usize), AccessError> {
        let read_error = |source| AccessError::Read { path: path.to_owned(), source };
        let text = zeroize::Zeroizing::new(read_text(path).map_err(read_error)?);
        let mut hashed = Vec::new();
        let mut count = 0;
        for line in text.lines() {
            match plain_line(line) {
                Some((name, password)) => {
                    let hash = PasswordHash::new(kind, password.as_bytes()).map_err(read_error)?;
                    hashed.push(format!("{name}:{hash}"));
                    count += 1;
                }
                None => hashed.push(line.to_owned()),
            }
        }
        let file = PasswordFile::parse(&hashed.join("\n"))
            .map_err(|lines| AccessError::Lines { path: path.to_owned(), lines })?;
        Ok((file, count))
    }
}

impl fmt::Display for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match line {
                Line::Other(text) => writeln!(f, "{text}")?,
                Line::User(name, hash) => writeln!(f, "{name}:{hash}")?,
            }
        }
        Ok(())
    }
}

fn is_other(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// Name and password of a line whose password is not hashed.
fn plain_line(line: &str) -> Option<(&str, &str)> {
    let (name, password) = line.split_once(':').filter(|_| !is_other(line))?;
    let hashed = ["$6$", "$7$", "$argon2id$"].iter().any(|form| password.starts_with(form));
    (!hashed && !password.is_empty()).then_some((name, password))
}

fn check_user_name(name: &str) -> Result<(), UserNameError> {
    if name.is_empty() {
        return Err(UserNameError::Empty);
    }
    if name.len() > USER_NAME_BYTES_MAX {
        return Err(UserNameError::TooLong);
    }
    let bad = name.contains(':') || name.chars().any(char::is_control) || name.starts_with('#') || name.trim() != name;
    if bad { Err(UserNameError::Character) } else { Ok(()) }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "is larger than 64 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

fn write_in_one_step(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let before = std::fs::metadata(&path).ok();
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = write_new(&beside, bytes, before.as_ref()).and_then(|()| std::fs::rename(&beside, &path));
    if written.is_err() {
        // The file that was to be replaced is untouched; what was written beside it is of no use.
        let _ = std::fs::remove_file(&beside);
    }
    written?;
    // The rename itself must survive a power cut.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir)?.sync_all()
}

fn write_new(path: &Path, bytes: &[u8], like: Option<&std::fs::Metadata>) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if let Some(like) = like {
        // Only root may give a file away. Without that right the owner was somebody else's and the group may be all that can be kept.
        let _ = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
        file.set_permissions(std::fs::Permissions::from_mode(like.mode() & 0o777))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests;
