//! An MQTT client for the command line: one connection, driven by whoever holds it.
//!
//! It speaks the broker's own codec from the other side. [`Client::next`] is the only thing that waits: it reads, keeps the connection
//! alive, answers what needs an answer (PUBACK, PUBREC, PUBREL, PUBCOMP), and returns what the command has to know. Cancelling it loses nothing.
//!
//! Invariants: a QoS 2 message is told once, at its PUBLISH, and known by its id until its PUBREL [MQTT-4.3.3-10].

mod options;
mod transport;

use std::collections::HashSet;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

pub use options::{ConnectionArgs, Target, UsageError, parse_qos};
use transport::Transport;

use crate::mqtt::{
    Ack, AckKind, Connect, Disconnect, Malformed, Packet, PacketId, Peer, PropertiesBuf, Property, ProtocolVersion,
    Publish, QoS, ReasonCode, Subscribe, SubscribeFiltersBuf, SubscriptionOptions, Will, decode, next_frame,
};

/// How long the way to a CONNACK may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest packet that is taken: the largest there is.
const PACKET_BYTES_MAX: u32 = 268_435_460;

/// The exit code for a wait that was limited by `-W`, mosquitto's.
pub const TIMED_OUT: u8 = 27;

/// Why a client gave up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Usage(#[from] UsageError),
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("no answer within {} s", CONNECT_TIMEOUT.as_secs())]
    NoAnswer,
    #[error("no answer to a ping")]
    NoPingResponse,
    #[error("connection refused: {}{}", reason.name(), text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused { reason: ReasonCode, code: u8, text: Option<String> },
    #[error("the broker closed the connection{}", .0.map(|reason| format!(": {}", reason.name())).unwrap_or_default())]
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
        matches!(self, Self::Network(_) | Self::NoAnswer | Self::NoPingResponse | Self::Closed(_))
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
            .map_err(|_| ClientError::NoAnswer)?
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
            session_present: false,
            debug: args.debug,
        };
        client.put_connect(args, target);
        client.flush().await?;
        while !client.take_connack()? {
            if client.transport.receive(&mut client.received).await? == 0 {
                return Err(ClientError::Closed(None));
            }
        }
        Ok(client)
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
        if let Some(secs) = connack.properties.server_keep_alive() {
            self.keep_alive = keep_alive(secs);
        }
        let len = frame.total_len;
        self.received.drain(..len);
        self.say("received CONNACK");
        Ok(true)
    }

    /// Puts a PUBLISH behind what is to be sent; its packet id when it has one.
    pub fn publish(&mut self, topic: &str, payload: &[u8], qos: QoS, retain: bool) -> Option<PacketId> {
        let packet_id = (qos != QoS::AtMostOnce).then(|| self.next_packet_id());
        let properties = Default::default();
        let publish = Publish { dup: false, qos, retain, topic, packet_id, properties, payload };
        publish.encode(self.version, &mut self.unsent);
        self.say("sending PUBLISH");
        packet_id
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
    /// Those of the network.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        if !self.unsent.is_empty() || self.is_sending {
            self.is_sending = true;
            self.transport.send(&mut self.unsent).await?;
            self.is_sending = false;
            self.last_sent = Instant::now();
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
        self.flush().await?;
        self.transport.close().await?;
        Ok(())
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
            Some(received) => received.map(drop).map_err(ClientError::from),
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

/// Runs a command of the client on a runtime of its own and says what went wrong.
pub fn run(command: impl Future<Output = Result<u8, ClientError>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::from(super::FAILED);
        }
    };
    let outcome = runtime.block_on(command);
    // A thread that waits for standard input cannot be stopped, and must not be waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(exit_code) => ExitCode::from(exit_code),
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests;
