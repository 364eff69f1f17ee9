//! The keys by which signatures of tokens are judged: a secret, public keys in PEM, or a JSON Web Key Set.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::{digest, hmac, rsa, signature};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use zeroize::Zeroizing;

use super::TokenSettings;

/// Largest key file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Shortest secret. Below it, a token that somebody has seen gives the secret away (RFC 7518, 3.2 asks for 32).
const SECRET_BYTES_MIN: usize = 32;

/// Most keys of one file.
const KEYS_MAX: usize = 256;

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {what}", path.display())]
    Unfit { path: PathBuf, what: &'static str },
}

/// A signature algorithm (RFC 7518, 3.1; RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    pub fn of(name: &str) -> Option<Algorithm> {
        Some(match name {
            "HS256" => Algorithm::Hs256,
            "HS384" => Algorithm::Hs384,
            "HS512" => Algorithm::Hs512,
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }
}

enum Material {
    Secret(Zeroizing<Vec<u8>>),
    /// A SubjectPublicKeyInfo.
    Rsa(Vec<u8>),
    RsaParts(rsa::PublicKeyComponents<Vec<u8>>),
    /// A SubjectPublicKeyInfo, or a point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

struct Key {
    /// The `kid` of a JSON Web Key.
    name: Option<String>,
    /// The `alg` of a JSON Web Key: nothing else is accepted then.
    only: Option<Algorithm>,
    material: Material,
    number: u64,
}

/// Shows nothing of the secret.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:?})", self.name)
    }
}

/// All keys that hold.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    pub fn load(settings: &TokenSettings) -> Result<Keys, KeyError> {
        let mut keys = Vec::new();
        type Reader = fn(&[u8]) -> Result<Vec<Key>, &'static str>;
        let sources: [(_, Reader); 3] =
            [(&settings.secret_file, secret), (&settings.public_key_file, pem), (&settings.jwks_file, jwks)];
        for (path, read) in sources {
            let Some(path) = path else { continue };
            let bytes = read_bounded(path).map_err(|source| KeyError::Read { path: path.clone(), source })?;
            keys.extend(read(&bytes).map_err(|what| KeyError::Unfit { path: path.clone(), what })?);
        }
        Ok(Keys(keys))
    }

    pub fn holds(&self, number: u64) -> bool {
        self.0.iter().any(|key| key.number == number)
    }

    /// The number of the key whose signature it is. A `kid` that some key has chooses among them; otherwise all that fit are tried.
    pub fn verify(&self, algorithm: Algorithm, name: Option<&str>, signed: &[u8], signature: &[u8]) -> Option<u64> {
        let is_named = |key: &&Key| key.name.as_deref().is_none_or(|own| name.is_none_or(|name| own == name));
        let fits = |key: &&Key| key.only.is_none_or(|only| only == algorithm);
        let mut candidates = self.0.iter().filter(is_named).filter(fits);
        candidates.find(|key| key.verify(algorithm, signed, signature)).map(|key| key.number)
    }
}

impl Key {
    fn new(material: Material, name: Option<String>, only: Option<Algorithm>) -> Key {
        let mut context = digest::Context::new(&digest::SHA256);
        match &material {
            Material::Secret(bytes) => context.update(bytes),
            Material::Rsa(bytes) | Material::P256(bytes) | Material::P384(bytes) | Material::Ed25519(bytes) => {
                context.update(bytes);
            }
            Material::RsaParts(parts) => {
                context.update(&parts.n);
                context.update(&parts.e);
            }
        }
        let hash = context.finish();
        let number = hash.as_ref()[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Key { name, only, material, number: number.max(1) }
    }

    /// The material and the algorithm must be of one kind: a public key is no secret, whatever a token says.
    fn verify(&self, algorithm: Algorithm, signed: &[u8], given: &[u8]) -> bool {
        use Algorithm as A;
        let by = |how: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(how, key).verify(signed, given).is_ok()
        };
        match (&self.material, algorithm) {
            (Material::Secret(secret), A::Hs256) => has_mac(hmac::HMAC_SHA256, secret, signed, given),
            (Material::Secret(secret), A::Hs384) => has_mac(hmac::HMAC_SHA384, secret, signed, given),
            (Material::Secret(secret), A::Hs512) => has_mac(hmac::HMAC_SHA512, secret, signed, given),
            (Material::Rsa(key), _) => rsa_parameters(algorithm).is_some_and(|how| by(how, key)),
            (Material::RsaParts(parts), _) => {
                rsa_parameters(algorithm).is_some_and(|how| parts.verify(how, signed, given).is_ok())
            }
            (Material::P256(key), A::Es256) => by(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Material::P384(key), A::Es384) => by(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Material::Ed25519(key), A::EdDsa) => by(&signature::ED25519, key),
            _ => false,
        }
    }
}

fn has_mac(algorithm: hmac::Algorithm, secret: &[u8], signed: &[u8], given: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(algorithm, secret), signed, given).is_ok()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn read_bounded(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    use std::io::Read as _;
    let mut bytes = Zeroizing::new(Vec::new());
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than 1 MiB, which no file of keys is"));
    }
    Ok(bytes)
}

fn secret(bytes: &[u8]) -> Result<Vec<Key>, &'static str> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.starts_with(b"-----BEGIN") {
        return Err("this is a key in PEM, not a secret: name it with public_key_file");
    }
    if bytes.len() < SECRET_BYTES_MIN {
        return Err("the secret is shorter than 32 bytes");
    }
    Ok(vec![Key::new(Material::Secret(Zeroizing::new(bytes.to_vec())), None, None)])
}

fn pem(bytes: &[u8]) -> Result<Vec<Key>, &'static str> {
    let mut keys = Vec::new();
    for key in SubjectPublicKeyInfoDer::pem_slice_iter(bytes) {
        let der = key.map_err(|_| "a public key in it is damaged")?.to_vec();
        let head = &der[..der.len().min(40)];
        let names = |oid: &[u8]| memchr::memmem::find(head, oid).is_some();
        let material = if names(&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01]) {
            Material::Rsa(der)
        } else if names(&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]) {
            Material::P256(der)
        } else if names(&[0x2B, 0x81, 0x04, 0x00, 0x22]) {
            Material::P384(der)
        } else if names(&[0x2B, 0x65, 0x70]) {
            Material::Ed25519(der)
        } else {
            return Err("a public key in it is neither RSA, P-256, P-384 nor Ed25519");
        };
        keys.push(Key::new(material, None, None));
    }
    if keys.is_empty() { Err("no public key in PEM (BEGIN PUBLIC KEY) in it") } else { Ok(keys) }
}

fn jwks(bytes: &[u8]) -> Result<Vec<Key>, &'static str> {
    let set: Value = serde_json::from_slice(bytes).map_err(|_| "this is no JSON")?;
    let all = set.get("keys").and_then(Value::as_array).ok_or("it has no list called keys")?;
    if all.len() > KEYS_MAX {
        return Err("more than 256 keys");
    }
    let mut keys = Vec::new();
    for key in all {
        // A set may hold keys for other purposes (RFC 7517, 4.2, 5).
        if key.get("use").and_then(Value::as_str).is_some_and(|purpose| purpose != "sig") {
            continue;
        }
        if let Some(key) = jwk(key)? {
            keys.push(key);
        }
    }
    if keys.is_empty() { Err("no key in it that signatures can be judged by") } else { Ok(keys) }
}

/// `None`: a kind of key that is not known, which is left out (RFC 7517, 5).
fn jwk(key: &Value) -> Result<Option<Key>, &'static str> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| {
        let decoded = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
        decoded.filter(|bytes| !bytes.is_empty()).ok_or("a key in it is damaged")
    };
    let point = |len: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        if x.len() != len || y.len() != len {
            return Err("a key in it is damaged");
        }
        Ok([&[4][..], &x, &y].concat())
    };
    let material = match (text("kty"), text("crv")) {
        (Some("oct"), _) => {
            let secret = Zeroizing::new(bytes("k")?);
            if secret.len() < SECRET_BYTES_MIN {
                return Err("a secret in it is shorter than 32 bytes");
            }
            Material::Secret(secret)
        }
        (Some("RSA"), _) => Material::RsaParts(rsa::PublicKeyComponents { n: bytes("n")?, e: bytes("e")? }),
        (Some("EC"), Some("P-256")) => Material::P256(point(32)?),
        (Some("EC"), Some("P-384")) => Material::P384(point(48)?),
        (Some("OKP"), Some("Ed25519")) => Material::Ed25519(bytes("x")?),
        _ => return Ok(None),
    };
    let only = match text("alg") {
        None => None,
        Some(name) => match Algorithm::of(name) {
            Some(algorithm) => Some(algorithm),
            None => return Ok(None),
        },
    };
    Ok(Some(Key::new(material, text("kid").map(str::to_owned), only)))
}
