//! `holdfast acl`: what a client may do, and which rule says so. The same code decides here, at the admin port, and on connections.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};

use super::http::escaped;
use super::{AdminArgs, Asker, DONE, FAILED, Failure};
use crate::access::acl::{Acl, Action, Decision, Subject};
use crate::config::{Config, Environment};
use crate::node::acl_settings;

/// `holdfast acl`.
#[derive(Debug, Args)]
pub struct AclArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: AclCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum AclCommand {
    /// Print whether a client may do something, and the rule and line that decided.
    ///
    /// Exit code 0: it may. 1: it may not.
    Test {
        #[arg(value_enum, value_name = "ACTION")]
        action: Asked,
        /// A topic name; a topic filter for sub
        #[arg(value_name = "TOPIC")]
        topic: String,
        /// Its user name; without it, it is anonymous
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Its client id
        #[arg(long, value_name = "ID", default_value = "")]
        client: String,
        /// The listener that it comes through
        #[arg(long, value_name = "NAME", default_value = "")]
        listener: String,
        /// It comes from another machine
        #[arg(long)]
        remote: bool,
        /// Ask the files that this configuration names, and no node
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// What a client is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Asked {
    /// Publish to a topic
    Pub,
    /// Subscribe to a filter
    Sub,
    /// Be sent a message of a topic
    Read,
}

impl From<Asked> for Action {
    fn from(asked: Asked) -> Action {
        match asked {
            Asked::Pub => Action::Publish,
            Asked::Sub => Action::Subscribe,
            Asked::Read => Action::Read,
        }
    }
}

pub(super) fn run(command: &AclCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let AclCommand::Test { action, topic, user, client, listener, remote, config } = command;
    let action = Action::from(*action);
    let decision: Decision = match config {
        Some(path) => {
            let subject = Subject {
                client_id: client.as_str().into(),
                user_name: user.as_deref().map(Into::into),
                listener: listener.as_str().into(),
                is_local: !remote,
                ..Subject::default()
            };
            offline(path, subject, action, topic)?
        }
        None => {
            let mut path = format!("/api/v1/acl/test?action={}&topic={}", action.label(), escaped(topic));
            path += &format!("&client_id={}&listener={}&remote={remote}", escaped(client), escaped(listener));
            if let Some(user) = user {
                path += &format!("&user_name={}", escaped(user));
            }
            asker.parsed(&asker.good("GET", &path, "")?)?
        }
    };
    if asker.json {
        writeln!(out, "{}", serde_json::to_string(&decision).unwrap_or_default())?;
    } else {
        writeln!(out, "{decision}")?;
    }
    Ok(if decision.allowed { DONE } else { FAILED })
}

fn offline(path: &Path, subject: Subject, action: Action, topic: &str) -> Result<Decision, Failure> {
    let loaded = Config::load_all(Some(path), &Environment::of_process());
    let config = loaded.map_err(|errors| Failure::Usage(errors.to_string()))?.config;
    let acl = Acl::new(acl_settings(&config)).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Arc::new(acl).rights(subject).explain(action, topic))
}
