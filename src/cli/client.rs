//! An MQTT client for the command line: one connection, driven by whoever holds it.
//!
//! It speaks the broker's own codec from the other side. [`Client::next`] is the only thing that waits: it reads, keeps the connection
//! alive, answers what needs an answer (PUBACK, PUBREC, PUBREL, PUBCOMP), and returns what the command has to know. Cancelling it loses nothing.
//!
//! Invariants: a QoS 2 message is told once, at its PUBLISH, and known by its id until its PUBREL [MQTT-4.3.3-10].

mod backoff;
mod options;
mod transport;
mod trouble;

use std::collections::HashSet;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

pub use backoff::Backoff;
pub use options::{ConnectionArgs, Target, UsageError, parse_qos, shown};
use transport::Transport;

use crate::mqtt::{
    Ack, AckKind, Connect, Disconnect, Malformed, Packet, PacketId, Peer, PropertiesBuf, Property, ProtocolVersion,
    Publish, QoS, ReasonCode, Subscribe, SubscribeFiltersBuf, SubscriptionOptions, Will, decode, next_frame,
};

/// How long the way to a CONNACK may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the broker may take to answer the ping behind the last message: as long as a slow line needs for what is still in buffers.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long is listened for the reason of a connection that broke while something was sent.
const REASON_TIMEOUT: Duration = Duration::from_millis(200);

/// Largest packet that is taken, and sent unless the broker takes smaller ones only: the largest there is.
pub const PACKET_BYTES_MAX: u32 = 268_435_460;

/// The exit code for a wait that was limited by `-W`, mosquitto's.
pub const TIMED_OUT: u8 = 27;

/// Why a client gave up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// Something to be sent, or a file of the options, that cannot be used.
    #[error("{0}")]
    Input(String),
    #[error("standard output: {0}")]
    Output(io::Error),
    /// Says by itself where.
    #[error("{text}")]
    CannotConnect { text: String, may_pass: bool },
    #[error("the connection broke: {0}")]
    Lost(io::Error),
    #[error("no answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("no answer to a ping")]
    NoPingResponse,
    #[error("the broker refused the connection: {}{}", reason.name(), text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused { reason: ReasonCode, code: u8, text: Option<String> },
    #[error("the broker closed the connection{}", .0.map_or(" and gave no reason".to_owned(), |reason| format!(": {}", reason.name())))]
    Closed(Option<ReasonCode>),
    #[error("the broker sent a malformed packet: {0}")]
    Malformed(#[from] Malformed),
    #[error("the broker sent {0} out of turn")]
    OutOfTurn(&'static str),
}

impl ClientError {
    /// The exit code: that of the CONNACK when the broker refused, as mosquitto's clients have it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => super::USAGE,
            Self::Refused { code, .. } => *code,
            _ => super::FAILED,
        }
    }

    /// Whether connecting again may help.
    pub fn is_lost_connection(&self) -> bool {
        match self {
            Self::CannotConnect { may_pass, .. } => *may_pass,
            Self::Lost(_) | Self::NoAnswer(_) | Self::NoPingResponse | Self::Closed(_) => true,
            _ => false,
        }
    }

    /// The error with the address that it is about.
    pub fn at(&self, target: &Target) -> String {
        match self {
            Self::Usage(_) | Self::Input(_) | Self::Output(_) | Self::CannotConnect { .. } => self.to_string(),
            _ => format!("{target}: {self}"),
        }
    }
}

/// What a command has to know of what arrived.
#[derive(Debug)]
pub enum Event {
    Message {
        topic: String,
        payload: Vec<u8>,
        retain: bool,
    },
    /// A message of ours has come to its end: PUBACK or PUBCOMP, or a PUBREC that refuses.
    Published {
        packet_id: PacketId,
        reason: ReasonCode,
    },
    Subscribed {
        codes: Vec<u8>,
    },
}

/// A connection behind its CONNACK.
pub struct Client {
    transport: Transport,
    version: ProtocolVersion,
    keep_alive: Option<Duration>,
    received: Vec<u8>,
    /// Encoded and not sent.
    unsent: Vec<u8>,
    /// Sending has begun and not ended: some of it may be queued below.
    is_sending: bool,
    last_sent: Instant,
    ping_sent: Option<Instant>,
    last_packet_id: u16,
    half_received: HashSet<PacketId>,
    /// Messages that may be on their way at once, as the broker said.
    pub receive_maximum: u16,
    /// The largest packet that the broker takes, as far as it said.
    packet_bytes_max: u32,
    pub session_present: bool,
    debug: bool,
}

impl Client {
    /// Connects, with everything that the arguments say.
    ///
    /// # Errors
    /// All of [`ClientError`].
    pub async fn connect(args: &ConnectionArgs, target: &Target) -> Result<Self, ClientError> {
        tokio::time::timeout(CONNECT_TIMEOUT, Self::try_connect(args, target))
            .await
            .map_err(|_| ClientError::NoAnswer(CONNECT_TIMEOUT))?
    }

    async fn try_connect(args: &ConnectionArgs, target: &Target) -> Result<Self, ClientError> {
        let transport = Transport::open(target, args).await?;
        let mut client = Self {
            transport,
            version: args.version,
            keep_alive: keep_alive(args.keep_alive_secs),
            received: Vec::new(),
            unsent: Vec::new(),
            is_sending: false,
            last_sent: Instant::now(),
            ping_sent: None,
            last_packet_id: 0,
            half_received: HashSet::new(),
            receive_maximum: u16::MAX,
            packet_bytes_max: PACKET_BYTES_MAX,
            session_present: false,
            debug: args.debug,
        };
        client.put_connect(args, target);
        let unanswered = |received: &[u8], error: &io::Error| trouble::unanswered(target, received, Some(error));
        let sent = client.transport.send(&mut client.unsent).await;
        sent.map_err(|error| unanswered(&client.received, &error))?;
        client.last_sent = Instant::now();
        loop {
            match client.take_connack() {
                Ok(true) => return Ok(client),
                // What is no MQTT is said as what it is.
                Err(ClientError::Malformed(_)) if client.received.starts_with(b"HTTP/") => {
                    return Err(trouble::unanswered(target, &client.received, None));
                }
                Ok(false) => {}
                Err(error) => return Err(error),
            }
            match client.transport.receive(&mut client.received).await {
                Ok(0) => return Err(trouble::unanswered(target, &client.received, None)),
                Ok(_) => {}
                Err(error) => return Err(unanswered(&client.received, &error)),
            }
        }
    }

    fn put_connect(&mut self, args: &ConnectionArgs, target: &Target) {
        let mut properties = PropertiesBuf::default();
        if let Some(secs) = args.session_expiry_secs() {
            properties.push(Property::SessionExpiryInterval(secs));
        }
        let connect = Connect {
            version: self.version,
            clean_start: !args.keep_session,
            keep_alive_secs: args.keep_alive_secs,
            client_id: args.id.as_deref().unwrap_or_default(),
            properties: properties.as_properties(),
            will: args.will_topic.as_deref().map(|topic| Will {
                qos: args.will_qos,
                retain: args.will_retain,
                properties: Default::default(),
                topic,
                payload: args.will_payload.as_deref().unwrap_or_default().as_bytes(),
            }),
            user_name: target.user_name.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
        };
        connect.encode(self.version, &mut self.unsent);
        self.say("sending CONNECT");
    }

    /// Whether the CONNACK was there and says yes.
    fn take_connack(&mut self) -> Result<bool, ClientError> {
        let Some(frame) = next_frame(&self.received, PACKET_BYTES_MAX)? else {
            return Ok(false);
        };
        let Packet::ConnAck(connack) = decode(&frame, self.version, Peer::Server)? else {
            return Err(ClientError::OutOfTurn("a packet before its CONNACK"));
        };
        if connack.reason != ReasonCode::Success {
            let code = if self.version.is_v5() { connack.reason as u8 } else { connack.reason.connect_return_code() };
            let text = connack.properties.reason_string().map(str::to_owned);
            return Err(ClientError::Refused { reason: connack.reason, code, text });
        }
        self.session_present = connack.session_present;
        self.receive_maximum = connack.properties.receive_maximum().unwrap_or(u16::MAX);
        self.packet_bytes_max = connack.properties.maximum_packet_size().unwrap_or(PACKET_BYTES_MAX);
        if let Some(secs) = connack.properties.server_keep_alive() {
            self.keep_alive = keep_alive(secs);
        }
        let len = frame.total_len;
        self.received.drain(..len);
        self.say("received CONNACK");
        Ok(true)
    }

    /// Puts a PUBLISH behind what is to be sent; its packet id when it has one.
    ///
    /// # Errors
    /// The packet would be larger than the broker takes, or than MQTT knows.
    pub fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
    ) -> Result<Option<PacketId>, ClientError> {
        let len = publish_len(self.version, topic, payload, qos);
        if len > self.packet_bytes_max as usize {
            return Err(ClientError::Input(format!(
                "a message of {} bytes makes a packet of {len}, and the largest that {} is {}",
                payload.len(),
                if self.packet_bytes_max == PACKET_BYTES_MAX { "MQTT knows" } else { "the broker takes" },
                self.packet_bytes_max
            )));
        }
        let packet_id = (qos != QoS::AtMostOnce).then(|| self.next_packet_id());
        let properties = Default::default();
        let publish = Publish { dup: false, qos, retain, topic, packet_id, properties, payload };
        publish.encode(self.version, &mut self.unsent);
        self.say("sending PUBLISH");
        Ok(packet_id)
    }

    /// Puts a SUBSCRIBE behind what is to be sent.
    pub fn subscribe(&mut self, filters: &[String], options: SubscriptionOptions) {
        let packet_id = self.next_packet_id();
        let mut list = SubscribeFiltersBuf::default();
        for filter in filters {
            list.push(filter, options);
        }
        let subscribe = Subscribe { packet_id, properties: Default::default(), filters: list.as_filters() };
        subscribe.encode(self.version, &mut self.unsent);
        self.say("sending SUBSCRIBE");
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is over.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            let before = self.received.len();
            let event = self.take_packet()?;
            self.flush().await?;
            if let Some(event) = event {
                return Ok(event);
            }
            if self.received.len() == before {
                self.wait().await?;
            }
        }
    }

    /// Sends all that was put.
    ///
    /// # Errors
    /// The connection is over: with the reason that the broker gave, if it did.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        if !self.unsent.is_empty() || self.is_sending {
            self.is_sending = true;
            if let Err(error) = self.transport.send(&mut self.unsent).await {
                return Err(self.why_broken(error).await);
            }
            self.is_sending = false;
            self.last_sent = Instant::now();
        }
        Ok(())
    }

    /// A broker that ends the connection while we send may have said why: that is then still to be read.
    async fn why_broken(&mut self, error: io::Error) -> ClientError {
        let deadline = Instant::now() + REASON_TIMEOUT;
        loop {
            let before = self.received.len();
            if let Err(reason) = self.take_packet() {
                return reason;
            }
            if self.received.len() == before
                && !matches!(
                    tokio::time::timeout_at(deadline, self.transport.receive(&mut self.received)).await,
                    Ok(Ok(1..))
                )
            {
                return ClientError::Lost(error);
            }
        }
    }

    /// Waits until the broker has taken all that was sent: the answer to a ping comes behind everything before it. That is the only way to
    /// know of messages of QoS 0.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is over, and what was sent may not have been taken.
    pub async fn settle(&mut self) -> Result<(), ClientError> {
        let settling = async {
            self.until_ping_is_answered().await?;
            Packet::PingReq.encode(self.version, &mut self.unsent);
            self.say("sending PINGREQ");
            self.ping_sent = Some(Instant::now());
            self.until_ping_is_answered().await
        };
        tokio::time::timeout(SETTLE_TIMEOUT, settling).await.map_err(|_| ClientError::NoAnswer(SETTLE_TIMEOUT))?
    }

    async fn until_ping_is_answered(&mut self) -> Result<(), ClientError> {
        while self.ping_sent.is_some() {
            let before = self.received.len();
            // Whatever else comes is of no interest any more.
            let _event = self.take_packet()?;
            self.flush().await?;
            if self.received.len() == before {
                match self.transport.receive(&mut self.received).await {
                    Ok(0) => return Err(ClientError::Closed(None)),
                    Ok(_) => {}
                    Err(error) => return Err(ClientError::Lost(error)),
                }
            }
        }
        Ok(())
    }

    /// Says goodbye, so that no Will is published.
    ///
    /// # Errors
    /// Those of the network.
    pub async fn disconnect(mut self) -> Result<(), ClientError> {
        let disconnect = Disconnect { reason: ReasonCode::Success, properties: Default::default() };
        disconnect.encode(self.version, &mut self.unsent);
        self.say("sending DISCONNECT");
        let leaving = async {
            self.flush().await?;
            self.transport.close().await.map_err(ClientError::Lost)
        };
        tokio::time::timeout(CLOSE_TIMEOUT, leaving).await.map_err(|_| ClientError::NoAnswer(CLOSE_TIMEOUT))?
    }

    /// Closes a connection that is over, without a word: the broker waits for that.
    pub async fn close(mut self) {
        // What is over cannot fail any more.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.transport.close()).await;
    }

    /// Takes the next packet out of what was received, and puts the answer that it needs behind what is to be sent. `None` when there is none,
    /// or when it concerns nobody else.
    fn take_packet(&mut self) -> Result<Option<Event>, ClientError> {
        let Some(frame) = next_frame(&self.received, PACKET_BYTES_MAX)? else {
            return Ok(None);
        };
        let len = frame.total_len;
        let packet = decode(&frame, self.version, Peer::Server)?;
        if self.debug {
            eprintln!("received {}", packet.packet_type().name());
        }
        let mut answer = None;
        let event = match packet {
            Packet::Publish(publish) => {
                let is_new = match (publish.qos, publish.packet_id) {
                    (QoS::ExactlyOnce, Some(packet_id)) => {
                        answer = Some((AckKind::PubRec, packet_id));
                        self.half_received.insert(packet_id)
                    }
                    (QoS::AtLeastOnce, Some(packet_id)) => {
                        answer = Some((AckKind::PubAck, packet_id));
                        true
                    }
                    _ => true,
                };
                is_new.then(|| Event::Message {
                    topic: publish.topic.to_owned(),
                    payload: publish.payload.to_vec(),
                    retain: publish.retain,
                })
            }
            Packet::PubRel(ack) => {
                self.half_received.remove(&ack.packet_id);
                answer = Some((AckKind::PubComp, ack.packet_id));
                None
            }
            Packet::PubRec(ack) if !ack.reason.is_error() => {
                answer = Some((AckKind::PubRel, ack.packet_id));
                None
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) | Packet::PubRec(ack) => {
                Some(Event::Published { packet_id: ack.packet_id, reason: ack.reason })
            }
            Packet::SubAck(suback) => Some(Event::Subscribed { codes: suback.codes.to_vec() }),
            Packet::PingResp => {
                self.ping_sent = None;
                None
            }
            Packet::UnsubAck(_) => None,
            Packet::Disconnect(disconnect) => {
                return Err(ClientError::Closed(Some(disconnect.reason)));
            }
            other => return Err(ClientError::OutOfTurn(other.packet_type().name())),
        };
        if let Some((kind, packet_id)) = answer {
            let ack = Ack { packet_id, reason: ReasonCode::Success, properties: Default::default() };
            ack.encode(kind, self.version, &mut self.unsent);
        }
        self.received.drain(..len);
        Ok(event)
    }

    /// Reads more, or pings when it is time to [MQTT-3.1.2-20].
    async fn wait(&mut self) -> Result<(), ClientError> {
        let deadline = self.keep_alive.map(|interval| match self.ping_sent {
            Some(sent) => sent + interval,
            None => self.last_sent + interval,
        });
        let receiving = self.transport.receive(&mut self.received);
        let received = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, receiving).await.ok(),
            None => Some(receiving.await),
        };
        match received {
            Some(Ok(0)) => Err(ClientError::Closed(None)),
            Some(received) => received.map(drop).map_err(ClientError::Lost),
            None if self.ping_sent.is_some() => Err(ClientError::NoPingResponse),
            None => {
                Packet::PingReq.encode(self.version, &mut self.unsent);
                self.say("sending PINGREQ");
                self.ping_sent = Some(Instant::now());
                self.flush().await
            }
        }
    }

    fn next_packet_id(&mut self) -> PacketId {
        self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
        PacketId::new(self.last_packet_id).unwrap_or(PacketId::MIN)
    }

    fn say(&self, what: &str) {
        if self.debug {
            eprintln!("{what}");
        }
    }
}

fn keep_alive(secs: u16) -> Option<Duration> {
    (secs != 0).then(|| Duration::from_secs(secs.into()))
}

/// The bytes of a PUBLISH packet without properties.
fn publish_len(version: ProtocolVersion, topic: &str, payload: &[u8], qos: QoS) -> usize {
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { 2 };
    let body = 2 + topic.len() + packet_id + usize::from(version.is_v5()) + payload.len();
    let length_field = match body {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    };
    1 + length_field + body
}

/// Runs a command of the client on a runtime of its own and says what went wrong.
pub fn run(args: &ConnectionArgs, command: impl AsyncFnOnce(&Target) -> Result<u8, ClientError>) -> ExitCode {
    // Signals are seen by a thread of their own, also while the command waits for whoever reads its output.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(super::FAILED);
        }
    };
    let outcome = match args.target() {
        Ok(target) => runtime.block_on(command(&target)).map_err(|error| (error.at(&target), error)),
        Err(error) => Err((error.to_string(), error.into())),
    };
    // A thread that waits for standard input cannot be stopped, and must not be waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(exit_code) => ExitCode::from(exit_code),
        // Whoever read the output has had enough of it.
        Err((_, ClientError::Output(error))) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err((text, error)) => {
            eprintln!("error: {text}");
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests;
