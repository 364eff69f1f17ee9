//! The token of the admin port: read from a file, compared in constant time, never shown.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;
use thiserror::Error;
use zeroize::Zeroizing;

/// A token shorter than this could be guessed.
const BYTES_MIN: usize = 16;
const BYTES_MAX: usize = 1024;

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    #[error("token_file: {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("token_file: {}: must hold one line of {BYTES_MIN} to {BYTES_MAX} visible ASCII characters", path.display())]
    NoToken { path: PathBuf },
}

/// What requests must carry.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Reads a file. White space around the token is not part of it.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no token.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let failed = |error| TokenError::Read { path: path.to_owned(), error };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(2 * BYTES_MAX as u64).read_to_end(&mut bytes).map_err(failed)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        let is_token =
            (BYTES_MIN..=BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(TokenError::NoToken { path: path.to_owned() });
        }
        Ok(Token(Zeroizing::new(text.to_owned())))
    }

    /// What a client of the port sends.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is it, in a time that does not depend on how much of it is right.
    pub fn is(&self, given: &[u8]) -> bool {
        given.ct_eq(self.0.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Token, TokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Token::read(file.path())
    }

    #[test]
    fn a_token_is_one_word_that_cannot_be_guessed() {
        assert_eq!(read(b" 0123456789abcdef\n").unwrap().as_str(), "0123456789abcdef");
        for wrong in
            [&b""[..], b"0123456789abcde", b"0123456789 abcdef", b"0123456789\nabcdef", b"\xFF\xFF0123456789abcdef"]
        {
            assert!(matches!(read(wrong), Err(TokenError::NoToken { .. })), "{wrong:?}");
        }
        assert!(read(&[b'x'; BYTES_MAX]).is_ok());
        assert!(read(&[b'x'; BYTES_MAX + 1]).is_err());
        let error = Token::read(Path::new("/nonexistent/token")).unwrap_err();
        assert!(error.to_string().starts_with("token_file: /nonexistent/token: "), "{error}");
    }

    #[test]
    fn only_the_token_itself_passes() {
        let token = read(b"0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [&b""[..], b"0123456789abcdeg", b"0123456789abcdef0", b"0123456789abcde"] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
