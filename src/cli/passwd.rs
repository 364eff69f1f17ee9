//! `holdfast passwd`: users and passwords of a password file, with the flags of `mosquitto_passwd`.
//!
//! The file is read as a whole, changed, and written in one step; a file in which a line is wrong is not touched. A node that runs
//! reads it again when it is told to.

mod prompt;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use zeroize::Zeroizing;

use super::{DONE, FAILED};
use crate::access::{HashKind, PasswordFile, PasswordHash};

/// `holdfast passwd`.
///
/// The flags are those of `mosquitto_passwd`.
#[derive(Debug, Args)]
pub struct PasswdArgs {
    /// Make a new file; one that exists is overwritten
    #[arg(short = 'c', conflicts_with_all = ["delete", "upgrade"])]
    create: bool,
    /// Remove the user
    #[arg(short = 'D', requires = "user", conflicts_with_all = ["batch", "upgrade"])]
    delete: bool,
    /// Take the password from the command line, where other users of this machine can see it
    #[arg(short = 'b', requires = "password", conflicts_with = "upgrade")]
    batch: bool,
    /// Hash the passwords of a file that holds them as they are; hashed ones stay
    #[arg(short = 'U', conflicts_with = "user")]
    upgrade: bool,
    /// How passwords are hashed. mosquitto reads argon2id from version 2.1 on
    #[arg(short = 'H', value_name = "HASH", default_value = "argon2id")]
    hash: HashChoice,
    /// The password file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The user
    #[arg(value_name = "USER", required_unless_present = "upgrade")]
    user: Option<String>,
    /// The password, with -b. Without -b it is asked for, or read as one line from standard input if that is not a terminal
    #[arg(value_name = "PASSWORD", requires = "batch")]
    password: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum HashChoice {
    Argon2id,
    Sha512Pbkdf2,
}

impl From<HashChoice> for HashKind {
    fn from(choice: HashChoice) -> HashKind {
        match choice {
            HashChoice::Argon2id => HashKind::Argon2id,
            HashChoice::Sha512Pbkdf2 => HashKind::Sha512Pbkdf2,
        }
    }
}

/// Runs `holdfast passwd`.
pub fn run(args: &PasswdArgs) -> ExitCode {
    let code = match edit(args, prompt::ask) {
        Ok(done) => {
            // A reader that has gone away wants no more output.
            let _ = writeln!(io::stdout(), "{done}");
            DONE
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            FAILED
        }
    };
    ExitCode::from(code)
}

/// Does what the arguments say and says what was done. `ask` gets a password from whoever calls.
fn edit(args: &PasswdArgs, ask: impl FnOnce(&str) -> io::Result<Zeroizing<String>>) -> anyhow::Result<String> {
    let shown = args.file.display();
    let Some(user) = args.user.as_deref() else {
        let (file, hashed) = PasswordFile::from_plain(&args.file, args.hash.into())?;
        save(&file, args)?;
        return Ok(format!("{shown}: {hashed} passwords hashed, {} users in all", file.len()));
    };
    let mut file = if args.create { PasswordFile::default() } else { existing(args)? };
    if args.delete {
        anyhow::ensure!(file.remove(user), "{shown}: there is no user \"{user}\"");
        save(&file, args)?;
        return Ok(format!("{shown}: user \"{user}\" removed"));
    }
    let password = match &args.password {
        Some(password) => Zeroizing::new(password.clone()),
        None => ask(user)?,
    };
    anyhow::ensure!(!password.is_empty(), "the password is empty");
    anyhow::ensure!(password.len() <= PASSWORD_BYTES_MAX, "the password is longer than MQTT can carry");
    let added = file.set(user, PasswordHash::new(args.hash.into(), password.as_bytes())?)?;
    save(&file, args)?;
    Ok(format!("{shown}: user \"{user}\" {}", if added { "added" } else { "has a new password" }))
}

/// A password is binary data with a length of two bytes (MQTT 5.0, 1.5.6, 3.1.3.6).
const PASSWORD_BYTES_MAX: usize = 65_535;

fn existing(args: &PasswdArgs) -> anyhow::Result<PasswordFile> {
    if !args.file.exists() {
        anyhow::bail!("{} does not exist; -c makes it", args.file.display());
    }
    Ok(PasswordFile::load(&args.file)?)
}

fn save(file: &PasswordFile, args: &PasswdArgs) -> anyhow::Result<()> {
    file.save(&args.file).map_err(|error| anyhow::anyhow!("{} cannot be written: {error}", args.file.display()))
}

#[cfg(test)]
mod tests;
