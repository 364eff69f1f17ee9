//! Who is banned is not let in, and loses the connection that it has.
//!
//! The question is asked where the session is owned, behind whatever the listener had to wait for: of a ban and a CONNECT at the same time one sees the other.

use holdfast_raft::Ban;
use tracing::warn;

use crate::access::bans::{self, Applicant};
use crate::metrics;
use crate::mqtt::{Connect, ReasonCode};

use super::connection::State;
use super::greeted::Greeted;
use super::{Close, ConnectionKey, Shard};

impl Shard {
    /// The ban of a client that asks to be let in.
    pub(super) fn ban_of(&self, greeted: &Greeted, connect: &Connect<'_>) -> Option<Ban> {
        self.shared.bans.of(&Applicant {
            client_id: &greeted.client_id,
            user_names: [greeted.identity.user_name.as_deref(), connect.user_name],
            address: greeted.peer.ip(),
        })
    }

    /// There is a ban: connections of those that it is about end.
    pub(super) fn banned(&mut self, ban: &Ban) {
        let is_about = |connection: &super::Connection| {
            let user_names = [connection.user_name.as_deref(), connection.claimed_name.as_deref()];
            let applicant = Applicant { client_id: &connection.client_id, user_names, address: connection.peer.ip() };
            bans::is_about(&ban.target, &applicant)
        };
        let about = self.connections.iter().filter(|(_, connection)| is_about(connection));
        let keys: Vec<ConnectionKey> = about.map(|(key, _)| key as ConnectionKey).collect();
        for key in keys {
            self.end_banned(key, ban);
        }
    }

    fn end_banned(&mut self, key: ConnectionKey, ban: &Ban) {
        let Some(connection) = self.connections.get(key as usize) else { return };
        let (client_id, peer) = (connection.client_id.clone(), connection.peer);
        match connection.state {
            State::Open { .. } => {
                let cause = bans::in_words(ban);
                if let Some(left_out) = metrics::admit_line("a ban closes connections") {
                    let left_out = (left_out > 0).then_some(left_out);
                    warn!(event = "close", client_id = &*client_id, %peer, left_out, "connection closed by the server: {cause}");
                }
                self.close(key, Close::ByServer { reason: ReasonCode::AdministrativeAction, what: "" });
            }
            State::Connecting(_) => self.refuse(key, ReasonCode::Banned, BANNED),
            State::Closing => {}
        }
    }
}

/// Why it is not let in.
pub(super) const BANNED: &str = "the client id, the user name or the address is banned (3.2.2.2)";
