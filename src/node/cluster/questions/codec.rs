//! Questions of admin ports to other nodes and their answers, as bytes: a version, then postcard. [pure]
//!
//! Invariants: an answer that is made here has at most [`ANSWER_BYTES_MAX`] and a little: what does not fit is left to the next page, or told to be left out.
//! Bytes from a network never do more than fail.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::admin::view::{
    ClientDetail, ClientPage, ClosedCursor, ClosedPage, CopiesAt, Drain, DrainTerms, Kicked, Load, Matches,
};

/// The version of what follows.
const VERSION: u8 = 1;

/// Bytes of the list in an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What an answer may have beside its list: a cursor, which is a client id, and a client whose strings are as long as they can be.
const BESIDE_BYTES_MAX: usize = 512 * 1024;

/// What is asked of one node about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::node::cluster) enum Question {
    /// Its clients behind `after`, in the order of their ids.
    Clients {
        limit: u32,
        after: Option<String>,
    },
    /// One client and its subscriptions.
    Client {
        client_id: String,
    },
    /// To close the connection of a client.
    Kick {
        client_id: String,
    },
    /// How far the copies of its sessions are.
    Copies,
    /// How much it has to do.
    Load,
    /// To let its clients go, all or so many; to let no more go.
    Drain {
        terms: DrainTerms,
    },
    Undrain,
    Shed {
        count: u64,
        terms: DrainTerms,
    },
    Keep,
    /// Connections that have ended there, before `after`, of one client if it is named.
    Closed {
        limit: u32,
        after: Option<ClosedCursor>,
        client_id: Option<String>,
    },
    /// Who there would receive a message of this topic.
    Match {
        topic: String,
    },
    /// The numbers of its `$SYS` topics.
    Sys,
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::node::cluster) enum Answer {
    Clients(ClientPage),
    /// `None`: it has no such session.
    Client(Option<Box<ClientDetail>>),
    Kick(Option<Kicked>),
    /// It cannot say, for that reason.
    Failed(String),
    Copies(Vec<CopiesAt>),
    Load(Box<Load>),
    Drain(Box<Drain>),
    /// Whether there was something to be done.
    Done(bool),
    Closed(ClosedPage),
    Match(Matches),
    Sys(Vec<(String, u64)>),
}

/// One frame between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// `id` is of the asker alone.
    Ask {
        id: u64,
        question: Question,
    },
    Tell {
        id: u64,
        answer: Answer,
    },
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(in crate::node::cluster) enum Malformed {
    #[error("a question or answer of version {0}, and this program speaks version {VERSION}")]
    Version(u8),
    #[error("a question or answer of {0} bytes")]
    Length(usize),
    #[error("a question or answer that cannot be read: {0}")]
    Body(String),
}

impl Frame {
    pub fn encode(&self) -> Bytes {
        // Writing into a vector does not fail, and every type here has a length before it is written.
        postcard::to_extend(self, vec![VERSION]).map(Bytes::from).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Result<Frame, Malformed> {
        match bytes {
            _ if bytes.len() > ANSWER_BYTES_MAX + BESIDE_BYTES_MAX => Err(Malformed::Length(bytes.len())),
            [VERSION, body @ ..] => postcard::from_bytes(body).map_err(|error| Malformed::Body(error.to_string())),
            [version, ..] => Err(Malformed::Version(*version)),
            [] => Err(Malformed::Length(0)),
        }
    }
}

impl Answer {
    /// A page that is short enough; what is left out comes with the next one.
    pub fn clients(mut page: ClientPage) -> Answer {
        let fitting = fitting(&page.clients);
        if fitting < page.clients.len() {
            page.clients.truncate(fitting);
            page.next = page.clients.last().map(|last| last.client_id.clone());
        }
        Answer::Clients(page)
    }

    /// As [`Answer::clients`].
    pub fn closed(mut page: ClosedPage) -> Answer {
        let fitting = fitting(&page.closed);
        if fitting < page.closed.len() {
            page.closed.truncate(fitting);
            page.next = page.closed.last().map(|last| last.cursor().to_string());
        }
        Answer::Closed(page)
    }

    /// As many receivers as fit.
    pub fn matches(mut found: Matches) -> Answer {
        let fitting = fitting(&found.receivers);
        found.truncated |= fitting < found.receivers.len();
        found.receivers.truncate(fitting);
        Answer::Match(found)
    }

    /// A client with as many subscriptions as fit.
    pub fn client(found: Option<ClientDetail>) -> Answer {
        Answer::Client(found.map(|mut found| {
            let fitting = fitting(&found.subscriptions);
            found.truncated |= fitting < found.subscriptions.len();
            found.subscriptions.truncate(fitting);
            Box::new(found)
        }))
    }
}

/// How many of these fit into one answer; the first one always does.
fn fitting<T: Serialize>(list: &[T]) -> usize {
    let mut bytes = 0;
    let fits = |one: &&T| {
        // Counted by being written; what could not be written would not fit.
        bytes += postcard::to_stdvec(one).map_or(ANSWER_BYTES_MAX, |written| written.len());
        bytes <= ANSWER_BYTES_MAX
    };
    list.iter().take_while(fits).count().max(1).min(list.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::admin::view::{Client, ClosedConnection, Receiver, Subscription};

    fn client(id: &str) -> Client {
        Client { client_id: id.to_owned(), node: "n1".to_owned(), connected: true, epoch: 7, ..Client::default() }
    }

    fn subscription(filter: &str) -> Subscription {
        Subscription { filter: filter.to_owned(), qos: 1, subscription_id: Some(3), ..Subscription::default() }
    }

    fn frames() -> Vec<Frame> {
        let page = ClientPage {
            clients: vec![client("a"), client("b")],
            next: Some("b".to_owned()),
            missing: vec!["n3".to_owned()],
        };
        let detail = ClientDetail { client: client("a"), subscriptions: vec![subscription("x/#")], truncated: true };
        let kicked = Kicked { client_id: "a".to_owned(), node: "n1".to_owned(), was_connected: true };
        let questions = [
            Question::Clients { limit: 1_000, after: Some("é".to_owned()) },
            Question::Client { client_id: "a".to_owned() },
            Question::Kick { client_id: String::new() },
            Question::Copies,
            Question::Load,
            Question::Drain { terms: DrainTerms { redirect: Some("n2:1883".to_owned()), ..DrainTerms::default() } },
            Question::Undrain,
            Question::Shed { count: 9, terms: DrainTerms::default() },
            Question::Keep,
            Question::Closed {
                limit: 5,
                after: Some(ClosedCursor { closed_at_ms: 7, number: 1, node: "n".to_owned() }),
                client_id: Some("a".to_owned()),
            },
            Question::Match { topic: "a/b".to_owned() },
            Question::Sys,
        ];
        let answers = [
            Answer::Clients(page),
            Answer::client(Some(detail)),
            Answer::Client(None),
            Answer::Kick(Some(kicked)),
            Answer::Failed("busy".to_owned()),
            Answer::Copies(vec![CopiesAt { heir: "n2".to_owned(), ..CopiesAt::default() }]),
            Answer::Load(Box::new(Load { drain: Some(Drain::default()), ..Load::default() })),
            Answer::Drain(Box::default()),
            Answer::Done(true),
            Answer::closed(ClosedPage { closed: vec![ClosedConnection::default()], ..ClosedPage::default() }),
            Answer::Sys(vec![("clients/total".to_owned(), 7)]),
            Answer::matches(Matches { receivers: vec![Receiver::default()], ..Matches::default() }),
        ];
        let questions = questions.into_iter().map(|question| Frame::Ask { id: u64::MAX, question });
        questions.chain(answers.into_iter().map(|answer| Frame::Tell { id: 0, answer })).collect()
    }

    #[test]
    fn frames_come_back_as_they_were() {
        for frame in frames() {
            assert_eq!(Frame::decode(&frame.encode()).as_ref(), Ok(&frame));
        }
    }

    #[test]
    fn what_is_no_frame_says_why() {
        let mut other = frames()[0].encode().to_vec();
        other[0] = 9;
        assert_eq!(Frame::decode(&other), Err(Malformed::Version(9)));
        assert_eq!(Frame::decode(&[]), Err(Malformed::Length(0)));
        assert!(matches!(Frame::decode(&[VERSION]), Err(Malformed::Body(_))));
        assert!(matches!(Frame::decode(&vec![VERSION; 2_000_000]), Err(Malformed::Length(2_000_000))));
        // A list that claims to be longer than there are bytes.
        assert!(matches!(Frame::decode(&[VERSION, 1, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), Err(Malformed::Body(_))));
    }

    #[test]
    fn a_long_page_is_cut_and_says_where_to_go_on() {
        let clients: Vec<_> = (0..1_000).map(|number| client(&format!("{number:04}{}", "x".repeat(4_000)))).collect();
        let Answer::Clients(page) = Answer::clients(ClientPage { clients, ..ClientPage::default() }) else { panic!() };
        assert!((200..300).contains(&page.clients.len()), "{}", page.clients.len());
        assert_eq!(page.next.as_ref(), page.clients.last().map(|last| &last.client_id));
        let frame = Frame::Tell { id: 1, answer: Answer::Clients(page) };
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn the_longest_client_fits_alone() {
        let longest = "x".repeat(65_535);
        let one = || Client { user_name: Some(longest.clone()), ..client(&longest) };
        let mut page = ClientPage { clients: (0..20).map(|_| one()).collect(), next: None, missing: Vec::new() };
        page.next = Some(longest.clone());
        let frame = Frame::Tell { id: 1, answer: Answer::clients(page) };
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn too_many_subscriptions_are_told_to_be_left_out() {
        let subscriptions = (0..1_000).map(|_| subscription(&"x".repeat(60_000))).collect();
        let detail = ClientDetail { client: client("a"), subscriptions, truncated: false };
        let Answer::Client(Some(found)) = Answer::client(Some(detail)) else { panic!() };
        assert!(found.truncated && found.subscriptions.len() == 17, "{}", found.subscriptions.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn garbage_is_refused_or_a_frame(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), as_ours: bool) {
            if let Some(first) = bytes.first_mut().filter(|_| as_ours) {
                *first = VERSION;
            }
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }

        #[test]
        fn a_changed_byte_breaks_nothing(which in 0..24_usize, at in any::<prop::sample::Index>(), to: u8) {
            let mut bytes = frames()[which].encode().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = to;
            let _ = Frame::decode(&bytes);
        }
    }
}
