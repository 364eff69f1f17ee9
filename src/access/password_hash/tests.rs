//! The forms against values that other programs made.

use super::*;

/// Made by `mosquitto_passwd -b`, version 2.0.11.
const PBKDF2: (&str, &str) = (
    "secret",
    "$7$101$rWTqDFhcWhQR/stx$YB3r7khx8Z9Mx67ZW3+DrBPdC4NRm8d/qILLqZx8UgBtGAfWzkhfqefBf5gRbHvy3ef9VoztL1OimVpZ+RicDA==",
);

/// Made by `mosquitto_passwd -b`, version 2.0.11: a password that is not ASCII.
const PBKDF2_UTF8: (&str, &str) = (
    "pässwörd with spaces",
    "$7$101$C5/9ObI0V1HkrHx4$R507uqbdD02q4oEu6Cntk/OkXdYKNABIhld3P8aKdPnJLzhoJ76lia73hN5PTTgOze+g4zjK5mcXckbJHVpi8Q==",
);

/// Made by `mosquitto_passwd -H sha512 -b`, version 2.0.11.
const SHA512: (&str, &str) = (
    "old-secret",
    "$6$16QTe72+8o/7m7/L$FzdfWFIdCRmETYI2EKCjp1lhF/C9fVXM/utewMDNCo2XZnUMmocRyYGWHBDKBfdS3L/MfD7lf6p0qikRqsl0LA==",
);

/// From the tests of the reference implementation of Argon2, whose encoder mosquitto 2.1 uses; one lane and two.
const ARGON2ID: [(&str, &str); 2] = [
    ("password", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"),
    ("password", "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc"),
];

fn references() -> impl Iterator<Item = (&'static str, &'static str)> {
    [PBKDF2, PBKDF2_UTF8, SHA512].into_iter().chain(ARGON2ID)
}

#[test]
fn hashes_made_by_others_are_verified() {
    for (password, text) in references() {
        let hash: PasswordHash = text.parse().unwrap();
        assert!(hash.verify(password.as_bytes()), "{text}");
        for wrong in ["", "Password", "passwor", &format!("{password} "), &format!("{password}\0x")] {
            assert!(!hash.verify(wrong.as_bytes()), "{text} {wrong:?}");
        }
    }
}

#[test]
fn text_survives_reading_and_writing() {
    for (_, text) in references() {
        let hash: PasswordHash = text.parse().unwrap();
        assert_eq!(hash.to_string(), text);
    }
}

#[test]
fn padding_of_base64_does_not_matter() {
    let unpadded: PasswordHash = PBKDF2.1.trim_end_matches('=').parse().unwrap();
    assert!(unpadded.verify(PBKDF2.0.as_bytes()));
    let padded: PasswordHash = format!("{}=", ARGON2ID[0].1).parse().unwrap();
    assert!(padded.verify(ARGON2ID[0].0.as_bytes()));
}

#[test]
fn every_byte_of_the_hash_counts() {
    for (password, text) in references() {
        let good: PasswordHash = text.parse().unwrap();
        for index in 0..good.hash.len() {
            let mut bad = good.clone();
            bad.hash[index] ^= 1;
            assert!(!bad.verify(password.as_bytes()), "byte {index} of {text}");
        }
    }
}

#[test]
fn new_hashes_verify_and_never_repeat() {
    for kind in [HashKind::Argon2id, HashKind::Sha512Pbkdf2] {
        let one = PasswordHash::new(kind, b"correct horse").unwrap();
        let read: PasswordHash = one.to_string().parse().unwrap();
        assert_eq!(read, one);
        assert!(read.verify(b"correct horse"));
        let other = PasswordHash::new(kind, b"correct horse").unwrap();
        assert_ne!(one.salt, other.salt, "a salt of its own for each hash");
    }
    let written = PasswordHash::new(HashKind::Argon2id, b"").unwrap().to_string();
    assert!(written.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{written}");
}

#[test]
fn what_is_not_a_hash_is_refused() {
    let hash = PBKDF2.1.rsplit('$').next().unwrap();
    let plain = ["", "secret", "$", "$secret"];
    let unknown = ["$5$a$b", "$2b$12$abc", "$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65", "$$", "$pass$word"];
    let damaged = [
        "$6$".to_owned(),
        "$6$c29tZXNhbHQ".to_owned(),
        format!("$6$$ {hash}"),
        format!("$6$${hash}"),
        format!("$6$!!!!${hash}"),
        "$6$c29tZXNhbHQ$c29tZXNhbHQ".to_owned(),
        format!("$7$0$c29tZXNhbHQ${hash}"),
        format!("$7$-1$c29tZXNhbHQ${hash}"),
        format!("$7$10000001$c29tZXNhbHQ${hash}"),
        format!("$7$c29tZXNhbHQ${hash}"),
        format!("$7$101$c29tZXNhbHQ${hash}$"),
        format!("$6${}${hash}", "AAAA".repeat(100)),
        "$argon2id$v=18$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=2$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=2,p=1,x=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$t=2,m=256,p=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=4294967295,t=2,p=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=101,p=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=0,p=1$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=8,t=1,p=64$c29tZXNhbHQ$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=2,p=1$c2FsdA$nf65EOgL".to_owned(),
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf6".to_owned(),
        "$argon2id$v=19".to_owned(),
    ];
    for text in plain {
        assert_eq!(text.parse::<PasswordHash>(), Err(HashError::Plain), "{text:?}");
    }
    for text in unknown {
        assert_eq!(text.parse::<PasswordHash>(), Err(HashError::UnknownForm), "{text:?}");
    }
    for text in damaged {
        let parsed = text.parse::<PasswordHash>();
        assert!(matches!(parsed, Err(HashError::Damaged(_))), "{text:?} {parsed:?}");
    }
}

#[test]
fn debug_output_holds_no_hash() {
    let hash: PasswordHash = SHA512.1.parse().unwrap();
    assert_eq!(format!("{hash:?}"), "PasswordHash($6$…)");
}

#[test]
fn a_decoy_costs_the_same_and_matches_nothing() {
    for (password, text) in references() {
        let hash: PasswordHash = text.parse().unwrap();
        let decoy = hash.decoy();
        assert!(decoy.form == hash.form && decoy.hash.len() == hash.hash.len() && decoy.cost() == hash.cost());
        assert!(!decoy.verify(password.as_bytes()));
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in r"\$(6|7|argon2id)\$[$=,mtpv0-9A-Za-z+/]{0,120}|\PC{0,60}") {
        let _ = text.parse::<PasswordHash>();
    }
}
