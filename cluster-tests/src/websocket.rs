//! The client side of RFC 6455, small and open: a test can send any frame, masked or not, and sees each frame that comes.
//!
//! The key of the handshake is the one of the RFC's own example, so that the right answer is a constant.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use crate::transport::{PATIENCE, Socket, read_some};

/// The key of RFC 6455 section 1.3 and what a server must answer to it.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Opcodes of RFC 6455 section 5.2.
pub mod opcode {
    pub const CONTINUATION: u8 = 0x0;
    pub const TEXT: u8 = 0x1;
    pub const BINARY: u8 = 0x2;
    pub const CLOSE: u8 = 0x8;
    pub const PING: u8 = 0x9;
    pub const PONG: u8 = 0xA;
}

/// An upgrade request; `new` has all headers that the RFC asks for.
#[derive(Debug, Clone)]
pub struct Upgrade {
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Upgrade {
    pub fn new(path: &str) -> Self {
        let headers = [
            ("Host", "localhost"),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", KEY),
            ("Sec-WebSocket-Version", "13"),
        ];
        Self {
            path: path.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    /// Sets a header, in the place of the one of that name (in any case) if there is one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(there, _)| !there.eq_ignore_ascii_case(name));
        self
    }

    /// The list of sub-protocols on offer.
    pub fn protocol(self, list: &str) -> Self {
        self.header("Sec-WebSocket-Protocol", list)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("GET {} HTTP/1.1\r\n", self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// An HTTP response head, and what had come behind it.
#[derive(Debug, Clone, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub rest: Vec<u8>,
}

impl Response {
    /// A header's value by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Sends a request and reads the head of the response.
///
/// # Errors
/// Those of the socket; `InvalidData` when what came is no HTTP response.
pub fn request(socket: &mut dyn Socket, bytes: &[u8]) -> io::Result<Response> {
    socket.write_all(bytes)?;
    socket.flush()?;
    read_response(socket)
}

fn read_response(socket: &mut dyn Socket) -> io::Result<Response> {
    let deadline = Instant::now() + PATIENCE;
    let mut input = Vec::new();
    let end = loop {
        if let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if read_some(socket, &mut input, deadline)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::Error::other(head.clone()))?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    Ok(Response { status, headers, rest: input[end + 4..].to_vec() })
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub fin: bool,
    pub opcode: u8,
    pub payload: Vec<u8>,
}

impl Frame {
    /// A final frame.
    pub fn new(opcode: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self { fin: true, opcode, payload: payload.into() }
    }

    /// The same with FIN 0: the first or a middle part of a fragmented message.
    pub fn unfinished(mut self) -> Self {
        self.fin = false;
        self
    }

    /// The bytes, masked as a client must, or not.
    pub fn bytes(&self, masked: bool) -> Vec<u8> {
        let mut out = vec![u8::from(self.fin) << 7 | self.opcode];
        let mask_bit = u8::from(masked) << 7;
        match self.payload.len() {
            length @ ..126 => out.push(mask_bit | length as u8),
            length @ ..65_536 => {
                out.push(mask_bit | 126);
                out.extend((length as u16).to_be_bytes());
            }
            length => {
                out.push(mask_bit | 127);
                out.extend((length as u64).to_be_bytes());
            }
        }
        if masked {
            // A fixed mask: nothing but the server's unmasking depends on it.
            let mask = [0x37, 0xFA, 0x21, 0x3D];
            out.extend(mask);
            out.extend(self.payload.iter().enumerate().map(|(position, byte)| byte ^ mask[position % 4]));
        } else {
            out.extend_from_slice(&self.payload);
        }
        out
    }
}

/// An open WebSocket connection.
pub struct WebSocket {
    socket: Box<dyn Socket>,
    input: Vec<u8>,
    /// The response that opened it.
    pub response: Response,
    /// The code of the server's Close frame, once it came (1005 where it had none).
    pub close_code: Option<u16>,
    /// Pings that came from the server.
    pub pings: usize,
}

impl WebSocket {
    /// Upgrades, and checks the server's answer (RFC 6455 section 4.1).
    ///
    /// # Errors
    /// Those of the socket, and a refusal as the text of its status.
    pub fn open(mut socket: Box<dyn Socket>, upgrade: &Upgrade) -> io::Result<Self> {
        socket.write_all(&upgrade.bytes())?;
        socket.flush()?;
        Self::accept_answer(socket)
    }

    /// The same over a socket on which the request has been sent already, with or without frames behind it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn accept_answer(mut socket: Box<dyn Socket>) -> io::Result<Self> {
        let mut response = read_response(socket.as_mut())?;
        if response.status != 101 {
            return Err(io::Error::other(format!("status {} instead of 101", response.status)));
        }
        assert_eq!(response.header("Sec-WebSocket-Accept"), Some(ACCEPT), "RFC 6455 section 4.2.2");
        let input = std::mem::take(&mut response.rest);
        Ok(Self { socket, input, response, close_code: None, pings: 0 })
    }

    pub fn tcp(&self) -> &TcpStream {
        self.socket.tcp()
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)?;
        self.socket.flush()
    }

    /// # Errors
    /// Those of the socket.
    pub fn send_frame(&mut self, frame: &Frame) -> io::Result<()> {
        self.send_raw(&frame.bytes(true))
    }

    /// # Errors
    /// Those of the socket.
    pub fn send_binary(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_frame(&Frame::new(opcode::BINARY, bytes))
    }

    /// The next frame; `None` when the connection is closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] at the deadline; others as they are.
    ///
    /// # Panics
    /// When the server masks a frame, sets a reserved bit, or fragments or overfills a control frame.
    pub fn read_frame(&mut self, deadline: Instant) -> io::Result<Option<Frame>> {
        loop {
            if let Some((frame, size)) = parse_frame(&self.input) {
                self.input.drain(..size);
                return Ok(Some(frame));
            }
            if read_some(self.socket.as_mut(), &mut self.input, deadline)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Appends the payload of the next data frame; answers pings and Close. 0 when the connection is closed.
    ///
    /// # Errors
    /// As for [`read_frame`](Self::read_frame).
    ///
    /// # Panics
    /// When the server sends a text frame [MQTT-6.0.0-1], or data behind its Close.
    pub fn read_binary(&mut self, into: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
        while let Some(frame) = self.read_frame(deadline)? {
            match frame.opcode {
                opcode::PING => {
                    self.pings += 1;
                    // A server that closes meanwhile makes this fail, and the next read says so.
                    let _ = self.send_frame(&Frame::new(opcode::PONG, frame.payload));
                }
                opcode::PONG => {}
                opcode::CLOSE => {
                    let code = frame.payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                    self.close_code = Some(code);
                    let _ = self.send_frame(&Frame::new(opcode::CLOSE, frame.payload));
                }
                opcode::BINARY | opcode::CONTINUATION => {
                    assert!(self.close_code.is_none(), "data behind a Close frame");
                    if !frame.payload.is_empty() {
                        into.extend_from_slice(&frame.payload);
                        return Ok(frame.payload.len());
                    }
                }
                other => panic!("a frame with opcode {other:#x} from the server [MQTT-6.0.0-1]"),
            }
        }
        Ok(0)
    }
}

/// A frame from the front of `input`, and its size.
fn parse_frame(input: &[u8]) -> Option<(Frame, usize)> {
    let (&first, &second) = (input.first()?, input.get(1)?);
    assert_eq!(first & 0x70, 0, "reserved bits in a frame from the server");
    assert_eq!(second & 0x80, 0, "a server must not mask (RFC 6455 section 5.1)");
    let opcode = first & 0x0F;
    if opcode >= 8 {
        assert!(first & 0x80 != 0 && second <= 125, "a fragmented or long control frame (RFC 6455 section 5.5)");
    }
    let (length, head) = match second {
        126 => (usize::from(u16::from_be_bytes(*input.get(2..)?.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*input.get(2..)?.first_chunk()?) as usize, 10),
        short => (usize::from(short), 2),
    };
    let payload = input.get(head..head + length)?.to_vec();
    Some((Frame { fin: first & 0x80 != 0, opcode, payload }, head + length))
}
