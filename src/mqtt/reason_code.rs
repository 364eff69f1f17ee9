//! Reason codes (MQTT 5.0, 2.4) and how they map to the return codes of MQTT 3.1 and 3.1.1.

macro_rules! reason_codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// The result of an operation, one byte on the wire (2.4). From 0x80 on it is a failure.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $(#[doc = $text] $name = $value,)*
        }

        impl ReasonCode {
            /// Every reason code, in the order of its value.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$name,)*];

            /// The reason code with this value; None if the specification has none.
            pub const fn from_u8(value: u8) -> Option<ReasonCode> {
                match value {
                    $($value => Some(ReasonCode::$name),)*
                    _ => None,
                }
            }

            /// Its name as the specification prints it, for logs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ReasonCode::$name => $text,)*
                }
            }
        }
    };
}

reason_codes! {
    Success = 0x00, "Success";
    GrantedQoS1 = 0x01, "Granted QoS 1";
    GrantedQoS2 = 0x02, "Granted QoS 2";
    DisconnectWithWill = 0x04, "Disconnect with Will Message";
    NoMatchingSubscribers = 0x10, "No matching subscribers";
    NoSubscriptionExisted = 0x11, "No subscription existed";
    ContinueAuthentication = 0x18, "Continue authentication";
    ReAuthenticate = 0x19, "Re-authenticate";
    UnspecifiedError = 0x80, "Unspecified error";
    MalformedPacket = 0x81, "Malformed Packet";
    ProtocolError = 0x82, "Protocol Error";
    ImplementationSpecificError = 0x83, "Implementation specific error";
    UnsupportedProtocolVersion = 0x84, "Unsupported Protocol Version";
    ClientIdentifierNotValid = 0x85, "Client Identifier not valid";
    BadUserNameOrPassword = 0x86, "Bad User Name or Password";
    NotAuthorized = 0x87, "Not authorized";
    ServerUnavailable = 0x88, "Server unavailable";
    ServerBusy = 0x89, "Server busy";
    Banned = 0x8A, "Banned";
    ServerShuttingDown = 0x8B, "Server shutting down";
    BadAuthenticationMethod = 0x8C, "Bad authentication method";
    KeepAliveTimeout = 0x8D, "Keep Alive timeout";
    SessionTakenOver = 0x8E, "Session taken over";
    TopicFilterInvalid = 0x8F, "Topic Filter invalid";
    TopicNameInvalid = 0x90, "Topic Name invalid";
    PacketIdentifierInUse = 0x91, "Packet Identifier in use";
    PacketIdentifierNotFound = 0x92, "Packet Identifier not found";
    ReceiveMaximumExceeded = 0x93, "Receive Maximum exceeded";
    TopicAliasInvalid = 0x94, "Topic Alias invalid";
    PacketTooLarge = 0x95, "Packet too large";
    MessageRateTooHigh = 0x96, "Message rate too high";
    QuotaExceeded = 0x97, "Quota exceeded";
    AdministrativeAction = 0x98, "Administrative action";
    PayloadFormatInvalid = 0x99, "Payload format invalid";
    RetainNotSupported = 0x9A, "Retain not supported";
    QoSNotSupported = 0x9B, "QoS not supported";
    UseAnotherServer = 0x9C, "Use another server";
    ServerMoved = 0x9D, "Server moved";
    SharedSubscriptionsNotSupported = 0x9E, "Shared Subscriptions not supported";
    ConnectionRateExceeded = 0x9F, "Connection rate exceeded";
    MaximumConnectTime = 0xA0, "Maximum connect time";
    SubscriptionIdentifiersNotSupported = 0xA1, "Subscription Identifiers not supported";
    WildcardSubscriptionsNotSupported = 0xA2, "Wildcard Subscriptions not supported";
}

#[allow(non_upper_case_globals)]
impl ReasonCode {
    /// What 0x00 is called in DISCONNECT.
    pub const NormalDisconnection: ReasonCode = ReasonCode::Success;
    /// What 0x00 is called in SUBACK.
    pub const GrantedQoS0: ReasonCode = ReasonCode::Success;
}

impl ReasonCode {
    /// Whether it says that the operation failed (2.4).
    pub const fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    /// The return code of a CONNACK of MQTT 3.1 and 3.1.1 (3.1.1, table 3.1). What those versions cannot say becomes
    /// "server unavailable", upon which a client may try again later.
    pub const fn connect_return_code(self) -> u8 {
        match self {
            ReasonCode::Success => 0,
            ReasonCode::UnsupportedProtocolVersion => 1,
            ReasonCode::ClientIdentifierNotValid => 2,
            ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => 4,
            ReasonCode::NotAuthorized | ReasonCode::Banned => 5,
            _ => 3,
        }
    }

    /// The reason code for a return code of MQTT 3.1 and 3.1.1; None for the reserved ones.
    pub const fn from_connect_return_code(code: u8) -> Option<ReasonCode> {
        match code {
            0 => Some(ReasonCode::Success),
            1 => Some(ReasonCode::UnsupportedProtocolVersion),
            2 => Some(ReasonCode::ClientIdentifierNotValid),
            3 => Some(ReasonCode::ServerUnavailable),
            4 => Some(ReasonCode::BadUserNameOrPassword),
            5 => Some(ReasonCode::NotAuthorized),
            _ => None,
        }
    }
}

impl std::fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), *self as u8)
    }
}
