//! The secret that all nodes of a cluster share, and what is proven with it.
//!
//! Invariants: the secret is in no log line and no error, is compared in constant time, and is at least [`SECRET_BYTES_MIN`] long.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// The shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// The longest secret file, in bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// Different bytes that a secret has at least: typing one key does not make one.
const DIFFERENT_BYTES_MIN: usize = 6;

/// What stands in examples and is left standing by mistake.
const PLACEHOLDERS: &[&str] =
    &["changeme", "change-me", "change_me", "change me", "example", "placeholder", "your-secret", "cluster.secret"];

/// Length of a proof in bytes.
pub(super) const PROOF_BYTES: usize = 32;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{} cannot be read: {cause}", path.display())]
    File { path: PathBuf, cause: std::io::Error },
    #[error("{} has more than {FILE_BYTES_MAX} bytes: it is no secret", .0.display())]
    TooLong(PathBuf),
    #[error("{} holds {found} bytes, and {SECRET_BYTES_MIN} are the least: make one with  head -c 32 /dev/urandom | base64", path.display())]
    TooShort { path: PathBuf, found: usize },
    #[error("{} holds a sample, which is no secret: make one with  head -c 32 /dev/urandom | base64", .0.display())]
    Sample(PathBuf),
}

/// The secret of a cluster.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// Reads the secret from its file: all of it but white space at both ends.
    ///
    /// # Errors
    /// What is wrong with the file; never what is in it.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let file = |cause| SecretError::File { path: path.to_owned(), cause };
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
        let opened = std::fs::File::open(path).map_err(file)?;
        warn_if_open_to_all(path, &opened);
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(file)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(SecretError::TooLong(path.to_owned()));
        }
        let secret = bytes.trim_ascii();
        if secret.len() < SECRET_BYTES_MIN {
            return Err(SecretError::TooShort { path: path.to_owned(), found: secret.len() });
        }
        if is_sample(secret) {
            return Err(SecretError::Sample(path.to_owned()));
        }
        Ok(Self::of(secret))
    }

    pub(super) fn of(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// What only somebody who knows the secret can say about these parts, in this order.
    pub(super) fn prove(&self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // Each with its length, so that no bytes can move from one part to the next.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// A key for this purpose alone, the same on every node.
    pub fn derive(&self, purpose: &str, name: &str) -> [u8; PROOF_BYTES] {
        self.prove(&[b"holdfast key", purpose.as_bytes(), name.as_bytes()])
    }

    /// Whether `proof` is that of these parts. Takes as long for a proof that is nearly right as for any other.
    pub(super) fn accepts(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.prove(parts), proof).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

/// Whoever can write the file decides who belongs to the cluster. Links to files are followed: that is how orchestrators hand out secrets.
fn warn_if_open_to_all(path: &Path, file: &std::fs::File) {
    #[cfg(unix)]
    if file.metadata().is_ok_and(|metadata| std::os::unix::fs::MetadataExt::mode(&metadata) & 0o002 != 0) {
        tracing::warn!(event = "link", path = %path.display(), "anybody on this machine can write the secret of the cluster");
    }
    #[cfg(not(unix))]
    let _ = (path, file);
}

fn is_sample(secret: &[u8]) -> bool {
    let text = String::from_utf8_lossy(secret).to_ascii_lowercase();
    let mut seen = [false; 256];
    secret.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    different < DIFFERENT_BYTES_MIN || PLACEHOLDERS.iter().any(|placeholder| text.contains(placeholder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Secret, SecretError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, content).unwrap();
        Secret::read(&path)
    }

    #[test]
    fn white_space_around_a_secret_is_not_part_of_it() {
        let plain = read(b"0123456789abcdef").unwrap();
        let lines = read(b"  0123456789abcdef\r\n").unwrap();
        assert!(lines.accepts(&[b"a"], &plain.prove(&[b"a"])));
        assert!(!read(b"0123456789abcdeg").unwrap().accepts(&[b"a"], &plain.prove(&[b"a"])));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        assert!(matches!(read(b""), Err(SecretError::TooShort { found: 0, .. })));
        assert!(matches!(read(b"  0123456789abcde \n"), Err(SecretError::TooShort { found: 15, .. })));
        assert!(matches!(read(b"aaaaaaaaaaaaaaaaaaaaaaaaa"), Err(SecretError::Sample(_))));
        assert!(matches!(read(b"please-ChangeMe-0123456789"), Err(SecretError::Sample(_))));
        assert!(matches!(read(&[7; 5000]), Err(SecretError::TooLong(_))));
        assert!(matches!(Secret::read(Path::new("/nonexistent/secret")), Err(SecretError::File { .. })));
        let error = read(b"please-ChangeMe-0123456789").unwrap_err().to_string();
        assert!(!error.contains("0123456789"), "{error}");
    }

    #[test]
    fn proofs_tell_parts_apart() {
        let secret = Secret::of(b"0123456789abcdef");
        let proof = secret.prove(&[b"ab", b"c"]);
        assert!(secret.accepts(&[b"ab", b"c"], &proof));
        for other in [&[&b"a"[..], b"bc"][..], &[b"abc"], &[b"ab", b"c", b""], &[b"c", b"ab"]] {
            assert!(!secret.accepts(other, &proof));
        }
        assert!(!secret.accepts(&[b"ab", b"c"], &proof[..31]));
        assert!(!secret.accepts(&[b"ab", b"c"], &[]));
    }
}
