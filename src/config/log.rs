//! `[log]`: what is written to standard error.

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["format", "level", "connection_messages"];

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// The least important lines that are still written.
    pub level: Level,
    /// Whether each connection that opens or closes is a line.
    pub connection_messages: bool,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Pretty,
    /// One JSON object for each line.
    Json,
}

/// How important a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is broken and needs someone.
    Error,
    /// Something was refused or lost.
    Warn,
    /// Life of the node and its connections.
    Info,
    /// Why things happened.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// The word for it, in a configuration and in a filter of `tracing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Auto, level: Level::Info, connection_messages: true }
    }
}

impl Log {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Log {
        let default = Log::default();
        let formats = [("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)];
        let levels =
            [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace].map(|level| (level.as_str(), level));
        Log {
            format: section.choice("format", default.format, &formats),
            level: section.choice("level", default.level, &levels),
            connection_messages: section.bool("connection_messages", default.connection_messages),
        }
    }
}
