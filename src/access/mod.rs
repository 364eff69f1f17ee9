//! Who a client is: the user name and password of CONNECT against a password file. What it may do then is [`acl`]'s.
//!
//! One [`Access`] for each node, shared by all shards. It owns the users that were read last; [`Access::reload`] replaces them as a
//! whole, so that a connection is judged by one file or the other and never by a mixture. It also owns the bound on how many
//! passwords are hashed at one time, since one of them costs many milliseconds and megabytes.
//!
//! Invariants: it fails closed. A file that cannot be read, or in which one line is wrong, is refused as a whole: at start the node does
//! not come up, later the users that were read before stay. A user that does not exist costs as much time as a wrong password.
//! Neither a password nor a hash reaches a log line or an error.
//!
//! Tests to read first: `tests::who_is_let_in`, then `password_file::tests`.

pub mod acl;
pub mod bans;
mod password_file;
mod password_hash;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

pub use password_file::{AccessError, PasswordFile, UserNameError};
pub use password_hash::{HashKind, PasswordHash};

use crate::mqtt::ReasonCode;

/// Connections that may wait for their password to be hashed. More are told Server Busy, so that a storm of reconnects is shed
/// and not queued for longer than clients wait.
const WAITING_MAX: usize = 4096;

/// Longest wait until the hashing of a password begins. Beyond it the client has most likely given up.
const WAIT: Duration = Duration::from_secs(10);

/// Who a client has proved to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user whose password it knew; `None` is anonymous. A name that nobody checked is not an identity.
    pub user_name: Option<Arc<str>>,
}

/// Decides who may connect.
#[derive(Debug)]
pub struct Access {
    /// `None`: nobody has a password.
    password_file: Option<PathBuf>,
    users: ArcSwap<PasswordFile>,
    /// One permit for each password that is being hashed.
    hashing: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Access {
    /// Reads the password file, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is wrong: all of its wrong lines.
    pub fn new(password_file: Option<&Path>) -> Result<Self, AccessError> {
        let users = password_file.map(PasswordFile::load).transpose()?.unwrap_or_default();
        // Half of the cores at most: hashing must not starve the shards.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Access {
            password_file: password_file.map(Path::to_owned),
            users: ArcSwap::from_pointee(users),
            hashing: Arc::new(Semaphore::new((cores / 2).max(1))),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Reads the password file again; `false` if there is none. Connections that are open are not asked again.
    ///
    /// # Errors
    /// As [`Access::new`]; the users that were read before then stay in force.
    pub fn reload(&self) -> Result<bool, AccessError> {
        if let Some(path) = &self.password_file {
            self.users.store(Arc::new(PasswordFile::load(path)?));
        }
        Ok(self.password_file.is_some())
    }

    /// How many users have a password.
    pub fn user_count(&self) -> usize {
        self.users.load().len()
    }

    /// Whether deciding about this client means hashing a password, which takes time. If not, [`Access::authenticate`] never waits.
    pub fn needs_hashing(&self, user_name: Option<&str>) -> bool {
        self.password_file.is_some() && user_name.is_some()
    }

    /// Decides about the user name and password of a CONNECT (MQTT 5.0, 3.1.3.5, 3.1.3.6).
    ///
    /// Without a password file, names are not checked: who is let in is anonymous, whatever name it gives. A client that
    /// gives a name where there are passwords must know the password, also where anonymous clients are let in.
    ///
    /// May take 100 ms and longer: hashing runs on the blocking pool of the runtime that polls this, behind a bound for the whole node.
    /// Dropping the future gives up the wait.
    ///
    /// # Errors
    /// `NotAuthorized`: no user name, and anonymous clients are not let in. `BadUserNameOrPassword`: unknown user, or another
    /// password, or none. `ServerBusy`: too many passwords are waiting to be hashed.
    pub async fn authenticate(
        &self,
        allow_anonymous: bool,
        user_name: Option<&str>,
        password: Option<&[u8]>,
    ) -> Result<Identity, ReasonCode> {
        match user_name {
            Some(user_name) if self.password_file.is_some() => self.check(user_name, password).await,
            _ if allow_anonymous => Ok(Identity::default()),
            _ => Err(ReasonCode::NotAuthorized),
        }
    }

    async fn check(&self, user_name: &str, password: Option<&[u8]>) -> Result<Identity, ReasonCode> {
        let _waiting = Waiting::enter(&self.waiting).ok_or(ReasonCode::ServerBusy)?;
        let permit = tokio::time::timeout(WAIT, Arc::clone(&self.hashing).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(ReasonCode::ServerBusy);
        };
        let users = self.users.load_full();
        let user_name: Box<str> = user_name.into();
        let password = Zeroizing::new(password.map(<[u8]>::to_vec));
        let hashed = tokio::task::spawn_blocking(move || {
            // Held until the hash is done, even if the client has gone: what is bounded is the work.
            let _permit = permit;
            users.verify(&user_name, password.as_deref())
        });
        match hashed.await {
            Ok(Some(user_name)) => Ok(Identity { user_name: Some(user_name) }),
            Ok(None) => Err(ReasonCode::BadUserNameOrPassword),
            Err(error) => {
                tracing::error!(%error, "a password could not be checked");
                Err(ReasonCode::ServerUnavailable)
            }
        }
    }
}

/// Counts one connection that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    /// `None` when too many wait already.
    fn enter(count: &'a AtomicUsize) -> Option<Self> {
        let waiting = Waiting(count);
        (count.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
