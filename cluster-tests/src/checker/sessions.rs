//! Whether a session must be there: Session Present of every CONNACK against what was promised before.

use std::collections::HashMap;

use super::Violation;
use crate::history::{Event, Name};

/// What the next CONNACK may say to a CONNECT without Clean Start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expect {
    #[default]
    Absent,
    Present,
    /// A CONNECT was not answered: it may or may not have had its effect.
    Either,
}

#[derive(Default)]
struct Session {
    expect: Expect,
    /// The CONNECT that waits for its CONNACK: (clean, keeps, expectation before it).
    asked: Option<(bool, bool, Expect)>,
}

#[derive(Default)]
pub(super) struct Sessions {
    clients: HashMap<Name, Session>,
}

impl Sessions {
    pub(super) fn observe(&mut self, event: &Event, found: &mut Vec<Violation>) {
        match event {
            Event::ConnectSent { client, clean, keeps } => {
                let session = self.clients.entry(client.clone()).or_default();
                session.asked = Some((*clean, *keeps, session.expect));
                session.expect = match (session.expect, *clean, *keeps) {
                    (Expect::Present, false, true) => Expect::Present,
                    (Expect::Absent, _, false) => Expect::Absent,
                    _ => Expect::Either,
                };
            }
            Event::Connected { client, present } => {
                let session = self.clients.entry(client.clone()).or_default();
                let Some((clean, keeps, before)) = session.asked.take() else { return };
                session.expect = if keeps { Expect::Present } else { Expect::Absent };
                let wrong = match before {
                    _ if clean && *present => Some("Session Present after Clean Start"),
                    Expect::Present if !clean && !*present => Some("a promised session is not present"),
                    Expect::Absent if *present => Some("a session that had ended is present"),
                    _ => None,
                };
                found.extend(wrong.map(|what| Violation::new(format!("{client}: {what}"), Some(client), &[])));
            }
            Event::Ended { client } => {
                self.clients.insert(client.clone(), Session::default());
            }
            _ => {}
        }
    }
}
