//! `holdfast key`: the API keys of one node.

use std::io::Write;

use clap::{Args, Subcommand};

use super::http::escaped;
use super::table::{Table, plain};
use super::{AdminArgs, Asker, DONE, Failure};
use crate::admin::view::{Keys, NewKey, Role, Scope};

/// `holdfast key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print it: it is shown this once, and the node keeps a hash alone
    Add {
        /// What people call it
        #[arg(value_name = "NAME")]
        name: String,
        /// How far its holder may go: viewer, operator or admin
        #[arg(long, value_name = "ROLE", default_value = "viewer", value_parser = role)]
        role: Role,
        /// What it is for, of publish, read, manage and metrics; without it, what is usual for the role
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = scope)]
        scopes: Vec<Scope>,
    },
    /// Print the keys of the node, without their secrets
    List,
    /// Remove a key: nobody gets in by it from now on
    Rm {
        /// Its id, as `key list` prints it
        #[arg(value_name = "ID")]
        id: String,
    },
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.name() == text);
    found.ok_or_else(|| "expected viewer, operator or admin".to_owned())
}

fn scope(text: &str) -> Result<Scope, String> {
    let found = Scope::ALL.into_iter().find(|scope| scope.name() == text);
    found.ok_or_else(|| "expected publish, read, manage or metrics".to_owned())
}

pub(super) fn run(command: &KeyCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        KeyCommand::Add { name, role, scopes } => add(name, *role, scopes, asker, out)?,
        KeyCommand::List => list(asker, out)?,
        KeyCommand::Rm { id } => {
            let body = asker.good("DELETE", &format!("/api/v1/keys/{}", escaped(id)), "")?;
            let words = format!("the key {} is gone", plain(id));
            writeln!(out, "{}", if asker.json { body } else { words })?;
        }
    }
    Ok(DONE)
}

fn add(name: &str, role: Role, scopes: &[Scope], asker: &Asker, out: &mut dyn Write) -> Result<(), Failure> {
    let mut asked = serde_json::json!({"name": name, "role": role});
    if !scopes.is_empty() {
        asked["scopes"] = scopes.iter().map(|scope| scope.name()).collect();
    }
    let body = asker.good("POST", "/api/v1/keys", &asked.to_string())?;
    if asker.json {
        return Ok(writeln!(out, "{body}")?);
    }
    let NewKey { secret, .. } = asker.parsed(&body)?;
    Ok(writeln!(out, "{}", plain(&secret))?)
}

fn list(asker: &Asker, out: &mut dyn Write) -> Result<(), Failure> {
    let body = asker.good("GET", "/api/v1/keys", "")?;
    if asker.json {
        return Ok(writeln!(out, "{body}")?);
    }
    let Keys { keys } = asker.parsed(&body)?;
    let row = |key: &crate::admin::view::Key| {
        let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.name()).collect();
        vec![plain(&key.id), plain(&key.name), key.role.name().to_owned(), scopes.join(",")]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    Ok(Table::new(&["ID", "NAME", "ROLE", "SCOPES"]).write(out, &rows)?)
}
