//! Asks for a password: twice and unseen on a terminal, once and as a line elsewhere.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};

use zeroize::Zeroizing;

/// No password is longer; a pipe that never ends a line must not fill the memory.
const LINE_BYTES_MAX: u64 = 65_536;

/// The password that whoever calls wants `user` to have.
///
/// # Errors
/// The two entries differ, the entry was given up, or standard input cannot be read.
pub(super) fn ask(user: &str) -> io::Result<Zeroizing<String>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return read_line(stdin.lock());
    }
    let first = ask_unseen(&format!("Password for {user}: "))?;
    let second = ask_unseen("The same again: ")?;
    if first != second {
        return Err(io::Error::other("the two passwords differ"));
    }
    Ok(first)
}

fn read_line(input: impl BufRead) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    input.take(LINE_BYTES_MAX).read_line(&mut line)?;
    let len = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(len);
    Ok(line)
}

fn ask_unseen(question: &str) -> io::Result<Zeroizing<String>> {
    let mut err = io::stderr();
    write!(err, "{question}")?;
    err.flush()?;
    let answer = {
        let stdin = io::stdin();
        let _unseen = Unseen::begin(stdin.as_raw_fd())?;
        read_keys(stdin.lock())
    };
    writeln!(err)?;
    answer
}

/// Keys up to the end of the line. The terminal does not edit while nothing is shown, so backspace and the keys that give up are read here.
fn read_keys(keys: impl BufRead) -> io::Result<Zeroizing<String>> {
    const GIVE_UP: [u8; 2] = [0x03, 0x04];
    const BACKSPACE: [u8; 2] = [0x08, 0x7F];
    const ERASE_LINE: u8 = 0x15;
    let mut typed = Zeroizing::new(Vec::new());
    for key in keys.take(LINE_BYTES_MAX).bytes() {
        match key? {
            b'\r' | b'\n' => break,
            key if GIVE_UP.contains(&key) => return Err(io::Error::other("given up")),
            key if BACKSPACE.contains(&key) => {
                // A character, not a byte: continuation bytes go with what they continue.
                while typed.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            ERASE_LINE => typed.clear(),
            key => typed.push(key),
        }
    }
    let text = std::str::from_utf8(&typed).map_err(|_| io::Error::other("the password is not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Unseen {
    terminal: RawFd,
    before: libc::termios,
}

impl Unseen {
    fn begin(terminal: RawFd) -> io::Result<Self> {
        // SAFETY: `termios` is plain numbers, for which zero is a value.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `before` is a valid place to write one `termios` to; a bad descriptor is answered with an error.
        if unsafe { libc::tcgetattr(terminal, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut unseen = before;
        // Without ISIG too: a signal would end the process and leave the terminal mute.
        unseen.c_lflag &= !(libc::ECHO | libc::ICANON | libc::ISIG);
        unseen.c_cc[libc::VMIN] = 1;
        unseen.c_cc[libc::VTIME] = 0;
        set(terminal, &unseen)?;
        Ok(Unseen { terminal, before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = set(self.terminal, &self.before);
    }
}

fn set(terminal: RawFd, to: &libc::termios) -> io::Result<()> {
    // SAFETY: `to` is a valid `termios` that was read from the system; a bad descriptor is answered with an error.
    match unsafe { libc::tcsetattr(terminal, libc::TCSAFLUSH, to) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(typed: &str) -> io::Result<String> {
        read_keys(typed.as_bytes()).map(|text| text.to_string())
    }

    #[test]
    fn keys_are_edited_as_a_terminal_would() {
        assert_eq!(keys("secret\nmore").unwrap(), "secret");
        assert_eq!(keys("secret\r").unwrap(), "secret");
        assert_eq!(keys("secrex\u{7f}t\n").unwrap(), "secret");
        assert_eq!(keys("sä\u{7f}\u{8}\u{8}\u{8}ok\n").unwrap(), "ok");
        assert_eq!(keys("wrong\u{15}right\n").unwrap(), "right");
        assert_eq!(keys("no end of line").unwrap(), "no end of line");
        assert!(keys("sec\u{3}ret\n").is_err());
        assert!(keys("\u{4}").is_err());
        assert!(read_keys(&[0xFF, b'\n'][..]).is_err());
    }

    #[test]
    fn elsewhere_it_is_one_line() {
        let line = |text: &str| read_line(text.as_bytes()).unwrap().to_string();
        assert_eq!(line("secret\nmore\n"), "secret");
        assert_eq!(line("two words \r\n"), "two words ");
        assert_eq!(line(""), "");
    }

    #[test]
    fn what_is_no_terminal_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        assert!(Unseen::begin(file.as_raw_fd()).is_err());
    }
}
