//! `[auth]`: how clients prove who they are.

use std::path::PathBuf;

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["password_file"];

/// `[auth]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Auth {
    /// Users and hashed passwords in mosquitto's format, as `holdfast passwd` writes it. `None`: nobody can log in.
    pub password_file: Option<PathBuf>,
}

impl Auth {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Auth {
        Auth { password_file: section.path("password_file") }
    }
}
