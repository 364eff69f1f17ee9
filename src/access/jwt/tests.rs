//! Tokens that were made here, and what is wrong with those that are not let in.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, KeyPair as _};
use aws_lc_rs::{hmac, rsa};
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"a secret of at least 32 bytes, as is asked for";

const WHO: Bearer<'_> = Bearer { client_id: "c", user_name: Some("alice") };

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token that `sign` signs.
fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn hs256(secret: &'static [u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    move |signed| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed).as_ref().to_vec()
}

fn secret_token(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, hs256(SECRET))
}

/// Tokens whose keys are in files of these contents: secret, PEM, key set.
fn tokens(files: [Option<&[u8]>; 3], change: impl FnOnce(&mut TokenSettings)) -> Result<Tokens, KeyError> {
    let dir = tempfile::tempdir().unwrap();
    let write = |(index, text): (usize, Option<&[u8]>)| {
        let path = dir.path().join(index.to_string());
        text.map(|text| std::fs::write(&path, text).unwrap()).map(|()| path)
    };
    let [secret_file, public_key_file, jwks_file] = [write((0, files[0])), write((1, files[1])), write((2, files[2]))];
    let mut settings = TokenSettings {
        secret_file,
        public_key_file,
        jwks_file,
        disconnect_after_expire: true,
        ..TokenSettings::default()
    };
    change(&mut settings);
    Tokens::load(&settings)
}

fn by_secret(change: impl FnOnce(&mut TokenSettings)) -> Tokens {
    tokens([Some(SECRET), None, None], change).unwrap()
}

fn pem(der: &[u8]) -> Vec<u8> {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")).into_bytes()
}

#[test]
fn who_is_let_in_by_a_token() {
    let tokens = by_secret(|_| {});
    let claims = json!({"sub": "bob", "exp": NOW + 60, "nbf": NOW - 60, "site": "north", "floor": 3,
        "acl": {"pub": ["a/#"]}, "deep": {"x": 1}});
    let bob = tokens.judge(&secret_token(&claims), WHO, NOW).unwrap();
    assert_eq!(bob.user_name.as_deref(), Some("bob"), "what CONNECT says was not checked");
    assert_eq!((bob.method, bob.expires_at), (Method::Token, Some(NOW + 60)));
    assert!(tokens.holds(bob.proof));
    let attributes = bob.attributes.unwrap();
    assert_eq!(attributes.acl_claim.as_deref(), Some(r#"{"pub":["a/#"]}"#));
    let claim = |name: &str| attributes.claims.iter().find(|(key, _)| &**key == name).map(|(_, value)| &**value);
    assert_eq!((claim("site"), claim("floor"), claim("deep")), (Some("north"), Some("3"), None));
}

#[test]
fn times_of_a_token_are_kept_to_the_second_and_to_the_leeway() {
    let (strict, lenient) = (by_secret(|_| {}), by_secret(|settings| settings.leeway_secs = 10));
    let at = |tokens: &Tokens, claims: Value, now| tokens.judge(&secret_token(&claims), WHO, now).map(|_| ());
    let expires = || json!({"exp": NOW});
    assert_eq!(at(&strict, expires(), NOW - 1), Ok(()));
    assert_eq!(at(&strict, expires(), NOW), Err("the token has expired"));
    assert_eq!(at(&lenient, expires(), NOW + 9), Ok(()));
    assert!(at(&lenient, expires(), NOW + 10).is_err());
    let begins = || json!({"nbf": NOW});
    assert_eq!(at(&strict, begins(), NOW), Ok(()));
    assert_eq!(at(&strict, begins(), NOW - 1), Err("the token does not hold yet"));
    assert_eq!(at(&lenient, begins(), NOW - 10), Ok(()));
    for odd in [json!({"exp": "soon"}), json!({"exp": -5}), json!({"nbf": null})] {
        assert!(at(&strict, odd.clone(), NOW).is_err(), "{odd}");
    }
}

#[test]
fn claims_must_be_what_is_asked_for() {
    let tokens = by_secret(|settings| {
        settings.issuer = Some("me".to_owned());
        settings.audience = Some("mqtt".to_owned());
        settings.verify_claims = [("name", "${username}"), ("client", "${clientid}"), ("role", "device")]
            .map(|(name, expected)| (name.to_owned(), expected.to_owned()))
            .into();
    });
    let good = json!({"iss": "me", "aud": ["web", "mqtt"], "name": "alice", "client": "c", "role": "device"});
    let judge = |claims: &Value, who| tokens.judge(&secret_token(claims), who, NOW);
    assert_eq!(judge(&good, WHO).unwrap().user_name.as_deref(), Some("alice"), "a claim has confirmed it");
    for (claim, wrong) in [("iss", json!("you")), ("aud", json!("web")), ("name", json!("bob")), ("role", json!(1))] {
        let mut claims = good.clone();
        claims[claim] = wrong;
        assert!(judge(&claims, WHO).is_err(), "{claim}");
        claims.as_object_mut().unwrap().remove(claim);
        assert!(judge(&claims, WHO).is_err(), "no {claim}");
    }
    assert!(judge(&good, Bearer { client_id: "d", ..WHO }).is_err());
    assert!(judge(&good, Bearer { user_name: None, ..WHO }).is_err());
}

#[test]
fn what_was_not_signed_by_a_key_is_nobody() {
    let tokens = by_secret(|_| {});
    let good = secret_token(&json!({"sub": "bob"}));
    assert!(tokens.judge(&good, WHO, NOW).is_ok());
    let (signed, _) = good.rsplit_once('.').unwrap();
    let other =
        token(&json!({"alg": "HS256"}), &json!({"sub": "bob"}), hs256(b"another secret of thirty-two bytes, too"));
    let none = token(&json!({"alg": "none"}), &json!({"sub": "bob"}), |_| Vec::new());
    let extended = token(&json!({"alg": "HS256", "crit": ["x"]}), &json!({"sub": "bob"}), hs256(SECRET));
    for bad in [format!("{signed}."), signed.to_owned(), good.replace('e', "f"), other, none, extended, String::new()] {
        assert!(tokens.judge(&bad, WHO, NOW).is_err(), "{bad}");
    }
    assert!(looks_like_token(&good));
    assert!(["a.b.c", "pass.word", "", "e30.e30.e30"].iter().all(|text| !looks_like_token(text)));
}

#[test]
fn public_keys_in_pem_and_in_key_sets_are_used_for_their_algorithms() {
    let random = SystemRandom::new();
    let claims = json!({"sub": "bob"});
    let rsa = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    let rsa_signed = token(&json!({"alg": "RS256", "kid": "r"}), &claims, |signed| {
        let mut signature = vec![0; rsa.public_modulus_len()];
        rsa.sign(&signature::RSA_PKCS1_SHA256, &random, signed, &mut signature).unwrap();
        signature
    });
    let ec = signature::EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let ec_signed = token(&json!({"alg": "ES256", "kid": "e"}), &claims, |signed| {
        ec.sign(&random, signed).unwrap().as_ref().to_vec()
    });
    let ed = signature::Ed25519KeyPair::generate().unwrap();
    let ed_signed = token(&json!({"alg": "EdDSA", "kid": "d"}), &claims, |signed| ed.sign(signed).as_ref().to_vec());

    use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
    let der = |key: PublicKeyX509Der<'_>| pem(key.as_ref());
    let all_pem = [
        der(rsa.public_key().as_der().unwrap()),
        der(ec.public_key().as_der().unwrap()),
        der(ed.public_key().as_der().unwrap()),
    ]
    .concat();
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let point = ec.public_key().as_ref();
    let set = json!({"keys": [
        {"kty": "EC", "crv": "P-256", "kid": "e", "alg": "ES256", "x": text(&point[1..33]), "y": text(&point[33..])},
        {"kty": "OKP", "crv": "Ed25519", "kid": "d", "x": text(ed.public_key().as_ref())},
        {"kty": "unknown"},
        {"kty": "RSA", "use": "enc", "n": "x", "e": "AQAB"}]})
    .to_string();
    let by_pem = tokens([None, Some(&all_pem), None], |_| {}).unwrap();
    let by_set = tokens([None, None, Some(set.as_bytes())], |_| {}).unwrap();
    let is_let_in = |tokens: &Tokens, token: &str| tokens.judge(token, WHO, NOW).is_ok();
    for signed in [&rsa_signed, &ec_signed, &ed_signed] {
        assert!(is_let_in(&by_pem, signed), "{signed}");
    }
    assert!(is_let_in(&by_set, &ec_signed) && is_let_in(&by_set, &ed_signed));
    assert!(!is_let_in(&by_set, &rsa_signed), "its key is not in the set");
    // A token that names another key of the set.
    let wrong_name = token(&json!({"alg": "EdDSA", "kid": "e"}), &claims, |signed| ed.sign(signed).as_ref().to_vec());
    assert!(!is_let_in(&by_set, &wrong_name));
}

#[test]
fn algorithms_are_not_confused() {
    // Whoever knows the public key signs with it as if it were a secret.
    let ec = signature::EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
    let der: PublicKeyX509Der<'_> = ec.public_key().as_der().unwrap();
    let file = pem(der.as_ref());
    let tokens = tokens([None, Some(&file), None], |_| {}).unwrap();
    for secret in [file.as_slice(), der.as_ref(), ec.public_key().as_ref()] {
        let forged = token(&json!({"alg": "HS256"}), &json!({"sub": "bob"}), |signed| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed).as_ref().to_vec()
        });
        assert!(tokens.judge(&forged, WHO, NOW).is_err());
    }
}

#[test]
fn keys_that_cannot_be_used_are_refused_at_once() {
    let refused = |files: [Option<&[u8]>; 3]| tokens(files, |_| {}).unwrap_err().to_string();
    assert!(refused([Some(b"short"), None, None]).ends_with("the secret is shorter than 32 bytes"));
    assert!(refused([Some(b"-----BEGIN PUBLIC KEY-----\n"), None, None]).contains("public_key_file"));
    assert!(refused([None, Some(b"nothing"), None]).contains("no public key"));
    for set in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}"#] {
        assert!(!refused([None, None, Some(set.as_bytes())]).is_empty(), "{set}");
    }
    let absent = TokenSettings { jwks_file: Some("/nonexistent/keys".into()), ..TokenSettings::default() };
    assert!(Tokens::load(&absent).is_err());
}
