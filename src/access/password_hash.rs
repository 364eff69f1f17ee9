//! One hashed password, in the forms that mosquitto's password files hold.
//!
//! | form | meaning |
//! | --- | --- |
//! | `$6$salt$hash` | SHA-512 of password and salt, in base64: files of mosquitto 1.6. Read, never written |
//! | `$7$iterations$salt$hash` | PBKDF2 with HMAC-SHA-512, in base64: mosquitto 2.0 |
//! | `$argon2id$v=19$m=..,t=..,p=..$salt$hash` | Argon2id (RFC 9106), in base64 without padding: mosquitto 2.1 |
//!
//! Costs are bounded when a hash is read: a slip in the file must not stall the node at the first log-in. Comparison takes the same
//! time wherever the first difference lies.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::{digest, pbkdf2};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Base64 with or without padding: the forms differ in it, and hand-made files too.
const BASE64_ANY: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const SHA512_BYTES: usize = 64;
/// What RFC 9106 recommends.
const ARGON2_SALT_BYTES: usize = 16;
/// mosquitto 2.0 reads `$7$` with a salt of this length only.
const PBKDF2_SALT_BYTES: usize = 12;
const SALT_BYTES_MAX: usize = 256;

/// About ten seconds of one core, beyond which an iteration count is a slip.
const PBKDF2_ITERATIONS_MAX: u32 = 10_000_000;
/// What OWASP asks of PBKDF2 with HMAC-SHA-512.
const PBKDF2_ITERATIONS: NonZeroU32 = NonZeroU32::new(210_000).unwrap();

/// What OWASP asks of Argon2id: 19 MiB, two passes, one lane.
const ARGON2_KIB: u32 = 19 * 1024;
const ARGON2_PASSES: u32 = 2;
const ARGON2_LANES: u32 = 1;
const ARGON2_HASH_BYTES: usize = 32;
/// 1 GiB for one log-in, beyond which a parameter is a slip.
const ARGON2_KIB_MAX: u32 = 1024 * 1024;
const ARGON2_PASSES_MAX: u32 = 100;
const ARGON2_LANES_MAX: u32 = 64;
const ARGON2_HASH_BYTES_MAX: usize = 256;

/// The forms that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// `$argon2id$`: the strongest; mosquitto reads it from 2.1 on.
    Argon2id,
    /// `$7$`: for files shared with mosquitto 2.0.
    Sha512Pbkdf2,
}

/// A hashed password. Its text (`Display`, `FromStr`) is what stands in the file behind the user's name.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    form: Form,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Sha512,
    Sha512Pbkdf2 { iterations: NonZeroU32 },
    Argon2id { version: Version, kib: u32, passes: u32, lanes: u32 },
}

/// Why a text is not a hashed password. It says nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// Most likely a password as it is.
    #[error("the password is not hashed (convert the file with: holdfast passwd -U FILE)")]
    Plain,
    /// A form that no version of mosquitto writes.
    #[error("unknown kind of hash: known are $6$, $7$ and $argon2id$")]
    UnknownForm,
    /// A known form, broken.
    #[error("damaged hash: {0}")]
    Damaged(&'static str),
}

impl PasswordHash {
    /// Hashes a password with a new salt.
    ///
    /// # Errors
    /// The operating system gives no random bytes, or there is no memory for the hash.
    pub fn new(kind: HashKind, password: &[u8]) -> std::io::Result<PasswordHash> {
        let (form, salt_len, len) = match kind {
            HashKind::Argon2id => (
                Form::Argon2id { version: Version::V0x13, kib: ARGON2_KIB, passes: ARGON2_PASSES, lanes: ARGON2_LANES },
                ARGON2_SALT_BYTES,
                ARGON2_HASH_BYTES,
            ),
            HashKind::Sha512Pbkdf2 => {
                (Form::Sha512Pbkdf2 { iterations: PBKDF2_ITERATIONS }, PBKDF2_SALT_BYTES, SHA512_BYTES)
            }
        };
        let mut salt = vec![0; salt_len];
        getrandom::fill(&mut salt).map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut hash = vec![0; len];
        form.hash_into(password, &salt, &mut hash).map_err(std::io::Error::other)?;
        Ok(PasswordHash { form, salt, hash })
    }

    /// Whether this is the password. Takes the time that the form costs, whether it is or not.
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut computed = Zeroizing::new(vec![0; self.hash.len()]);
        let hashed = self.form.hash_into(password, &self.salt, &mut computed);
        hashed.is_ok() && bool::from(computed.ct_eq(&self.hash))
    }

    /// A hash that costs as much as this one and that no password has.
    pub(super) fn decoy(&self) -> PasswordHash {
        let salt = self.salt.iter().map(|byte| !byte).collect();
        PasswordHash { form: self.form, salt, hash: vec![0; self.hash.len()] }
    }

    /// A number that another hash does not have, in all likelihood.
    pub(super) fn number(&self) -> u64 {
        let hash = digest::digest(&digest::SHA256, self.to_string().as_bytes());
        hash.as_ref()[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// What checking it costs, in one number that orders hashes of different forms near enough.
    pub(super) fn cost(&self) -> u64 {
        match self.form {
            Form::Sha512 => 1,
            Form::Sha512Pbkdf2 { iterations } => u64::from(iterations.get()) * 2,
            Form::Argon2id { kib, passes, .. } => u64::from(kib) * u64::from(passes) * 4,
        }
    }
}

impl Form {
    fn hash_into(self, password: &[u8], salt: &[u8], out: &mut [u8]) -> Result<(), argon2::Error> {
        match self {
            Form::Sha512 => {
                let mut context = digest::Context::new(&digest::SHA512);
                context.update(password);
                context.update(salt);
                out.copy_from_slice(context.finish().as_ref());
            }
            Form::Sha512Pbkdf2 { iterations } => {
                pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, iterations, salt, password, out);
            }
            Form::Argon2id { version, kib, passes, lanes } => {
                let params = Params::new(kib, passes, lanes, Some(out.len()))?;
                Argon2::new(Algorithm::Argon2id, version, params).hash_password_into(password, salt, out)?;
            }
        }
        Ok(())
    }
}

impl FromStr for PasswordHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let fields = text.strip_prefix('$').ok_or(HashError::Plain)?;
        let (form, fields) = fields.split_once('$').ok_or(HashError::Plain)?;
        match form {
            "6" => parse_sha512(Form::Sha512, fields),
            "7" => {
                let (iterations, fields) =
                    fields.split_once('$').ok_or(HashError::Damaged("the number of iterations is missing"))?;
                let iterations = iterations.parse().ok().filter(|n: &NonZeroU32| n.get() <= PBKDF2_ITERATIONS_MAX);
                let iterations =
                    iterations.ok_or(HashError::Damaged("the number of iterations is not from 1 to 10,000,000"))?;
                parse_sha512(Form::Sha512Pbkdf2 { iterations }, fields)
            }
            "argon2id" => parse_argon2id(fields),
            _ => Err(HashError::UnknownForm),
        }
    }
}

/// `salt$hash` with a hash of 64 bytes.
fn parse_sha512(form: Form, fields: &str) -> Result<PasswordHash, HashError> {
    let (salt, hash) = parse_salt_and_hash(fields)?;
    if hash.len() != SHA512_BYTES {
        return Err(HashError::Damaged("the hash does not have 64 bytes"));
    }
    Ok(PasswordHash { form, salt, hash })
}

/// `v=19$m=..,t=..,p=..$salt$hash`; without `v=` it is version 16 (the PHC string format).
fn parse_argon2id(fields: &str) -> Result<PasswordHash, HashError> {
    let (version, fields) = match fields.strip_prefix("v=").and_then(|rest| rest.split_once('$')) {
        Some(("19", rest)) => (Version::V0x13, rest),
        Some(("16", rest)) => (Version::V0x10, rest),
        Some(_) => return Err(HashError::Damaged("unknown version of Argon2")),
        None => (Version::V0x10, fields),
    };
    let (costs, fields) = fields.split_once('$').ok_or(HashError::Damaged("the parameters of Argon2 are missing"))?;
    let (kib, passes, lanes) = parse_costs(costs)
        .ok_or(HashError::Damaged("the parameters of Argon2 are not m=..,t=..,p=.. within bounds"))?;
    let (salt, hash) = parse_salt_and_hash(fields)?;
    let bounds = Params::MIN_OUTPUT_LEN..=ARGON2_HASH_BYTES_MAX;
    if !bounds.contains(&hash.len()) || salt.len() < argon2::MIN_SALT_LEN {
        return Err(HashError::Damaged("salt or hash is too short or too long"));
    }
    Params::new(kib, passes, lanes, Some(hash.len()))
        .map_err(|_| HashError::Damaged("parameters that Argon2 does not allow"))?;
    Ok(PasswordHash { form: Form::Argon2id { version, kib, passes, lanes }, salt, hash })
}

fn parse_costs(costs: &str) -> Option<(u32, u32, u32)> {
    let mut costs = costs.split(',');
    let mut cost = |prefix: &str, max: u32| {
        let number: u32 = costs.next()?.strip_prefix(prefix)?.parse().ok()?;
        (1..=max).contains(&number).then_some(number)
    };
    let parsed = (cost("m=", ARGON2_KIB_MAX)?, cost("t=", ARGON2_PASSES_MAX)?, cost("p=", ARGON2_LANES_MAX)?);
    costs.next().is_none().then_some(parsed)
}

fn parse_salt_and_hash(fields: &str) -> Result<(Vec<u8>, Vec<u8>), HashError> {
    let (salt, hash) = fields.split_once('$').ok_or(HashError::Damaged("salt or hash is missing"))?;
    let decode = |field: &str| BASE64_ANY.decode(field).map_err(|_| HashError::Damaged("salt or hash is not base64"));
    let (salt, hash) = (decode(salt)?, decode(hash)?);
    if salt.is_empty() || salt.len() > SALT_BYTES_MAX || hash.is_empty() {
        return Err(HashError::Damaged("salt or hash is too short or too long"));
    }
    Ok((salt, hash))
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base64 = match self.form {
            Form::Argon2id { .. } => &BASE64_STANDARD_NO_PAD,
            Form::Sha512 | Form::Sha512Pbkdf2 { .. } => &BASE64_STANDARD,
        };
        match self.form {
            Form::Sha512 => write!(f, "$6")?,
            Form::Sha512Pbkdf2 { iterations } => write!(f, "$7${iterations}")?,
            Form::Argon2id { version, kib, passes, lanes } => {
                write!(f, "$argon2id$v={}$m={kib},t={passes},p={lanes}", u32::from(version))?;
            }
        }
        write!(f, "${}${}", base64.encode(&self.salt), base64.encode(&self.hash))
    }
}

/// Shows the form only: a hash in a log could be attacked at leisure.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Sha512 => "$6$",
            Form::Sha512Pbkdf2 { .. } => "$7$",
            Form::Argon2id { .. } => "$argon2id$",
        };
        write!(f, "PasswordHash({form}…)")
    }
}

#[cfg(test)]
mod tests;
