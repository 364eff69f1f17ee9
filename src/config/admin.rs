//! `[admin]`: the HTTP port for health, metrics and commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::reading::Section;
use super::values::expected;

pub(super) const KEYS: &[&str] = &["bind", "token_file", "keys_file"];

/// `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Address and port; port 0 lets the kernel choose one. `None`: there is no such port.
    pub bind: Option<SocketAddr>,
    /// The file with the token that requests must carry, but for those about health. `Some` wherever other machines can reach `bind`.
    pub token_file: Option<PathBuf>,
    /// The file with the hashes of API keys; `None`: `api-keys` in the data directory.
    pub keys_file: Option<PathBuf>,
}

impl Default for Admin {
    fn default() -> Self {
        Admin { bind: Some(SocketAddr::from(([127, 0, 0, 1], Admin::PORT))), token_file: None, keys_file: None }
    }
}

impl Admin {
    /// The port that programs expect it on.
    pub const PORT: u16 = 18083;

    /// Whether only this machine can reach the port.
    pub fn is_loopback(&self) -> bool {
        self.bind.is_none_or(|bind| bind.ip().to_canonical().is_loopback())
    }

    pub(super) fn read(section: &mut Section<'_, '_>) -> Admin {
        let bind = section.optional("bind", |value| match value.as_str() {
            Some("off") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| WHAT.to_owned()),
            None => Err(expected(ADDRESS, value)),
        });
        let bind = bind.unwrap_or(Admin::default().bind);
        Admin { bind, token_file: section.path("token_file"), keys_file: section.path("keys_file") }
    }
}

const ADDRESS: &str = "an address such as \"127.0.0.1:18083\", or \"off\"";
const WHAT: &str = "expected an address such as \"127.0.0.1:18083\" or \"[::1]:18083\", or \"off\"";
