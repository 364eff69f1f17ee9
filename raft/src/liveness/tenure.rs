//! A node's own side: its grant, and what follows when it is not renewed.

use super::Timing;
use crate::command::Incarnation;

/// What a node may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has no incarnation.
    Unregistered,
    /// It may acknowledge, deliver and publish until then.
    Granted { until: u64 },
    /// It may not, for now. Its clients stay connected.
    Suspended,
    /// Its incarnation is over, or as good as over: it closes its clients and registers anew.
    Ended,
}

/// The grant of one node.
#[derive(Debug)]
pub struct Tenure {
    timing: Timing,
    incarnation: Option<Incarnation>,
    /// The end of the newest grant.
    until: u64,
    /// Answers to renewals sent before then do not count.
    valid_from: u64,
    /// Since when there has been no valid grant, if there is none.
    suspended_since: Option<u64>,
    /// No links to a majority.
    cut: bool,
    ended: bool,
    sent_at: Option<u64>,
    /// What the wall clock was ahead of the boot clock when it was last looked at.
    ahead: Option<i128>,
}

impl Tenure {
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            incarnation: None,
            until: 0,
            valid_from: 0,
            suspended_since: None,
            cut: false,
            ended: false,
            sent_at: None,
            ahead: None,
        }
    }

    /// The node has this incarnation from now on. It has no grant before its first renewal is answered.
    pub fn registered(&mut self, incarnation: Incarnation, now: u64) {
        let (timing, ahead, cut) = (self.timing, self.ahead, self.cut);
        *self = Self { incarnation: Some(incarnation), ahead, cut, ..Self::new(timing) };
        self.valid_from = now;
        self.suspended_since = Some(now);
    }

    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation.filter(|_| !self.ended)
    }

    /// Whether it is time to ask for more. Without a valid grant it asks five times as often.
    #[must_use]
    pub fn renewal_due(&self, now: u64) -> bool {
        let pause = if self.suspended_since.is_some() { self.timing.renew_ms / 5 } else { self.timing.renew_ms };
        self.incarnation().is_some() && self.sent_at.is_none_or(|sent| now >= sent.saturating_add(pause))
    }

    /// A renewal goes out.
    pub fn sent(&mut self, now: u64) {
        self.sent_at = Some(now);
    }

    /// The renewal that was sent at `sent` was answered with `granted` milliseconds.
    pub fn renewed(&mut self, incarnation: Incarnation, sent: u64, granted: u64, now: u64) {
        // What was sent in the future, or grants more than anybody may, is not from a leader in its right mind.
        let sound = sent <= now && sent >= self.valid_from;
        if self.incarnation() == Some(incarnation) && sound {
            self.until = self.until.max(sent + granted.min(self.timing.grant_ms()));
            if self.until > now && !self.cut {
                self.suspended_since = None;
            }
        }
    }

    /// The incarnation was expired.
    pub fn expired(&mut self, incarnation: Incarnation) {
        if self.incarnation == Some(incarnation) {
            self.end();
        }
    }

    /// The incarnation is over, whatever the others think of it.
    pub fn end(&mut self) {
        self.ended = self.incarnation.is_some();
    }

    /// Whether there are links to a majority of the voters, this node included.
    pub fn linked(&mut self, majority: bool) {
        self.cut = !majority;
    }

    /// What the node may do now. To be asked often: it is here that a paused machine is seen, and that a suspension becomes an end.
    pub fn standing(&mut self, boot: u64, wall: u64) -> Standing {
        self.see_pause(boot, wall);
        if self.incarnation.is_none() {
            return Standing::Unregistered;
        }
        let granted = !self.cut && self.until > boot;
        let since = match (granted, self.suspended_since) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            // It was suspended when the grant ended, even if nobody has looked since.
            (false, None) if self.cut => Some(boot),
            (false, None) => Some(self.until.min(boot)),
        };
        self.suspended_since = since;
        if since.is_some_and(|since| boot.saturating_sub(since) >= self.timing.fence_grace_ms) {
            self.ended = true;
        }
        match (self.ended, since) {
            (true, _) => Standing::Ended,
            (false, Some(_)) => Standing::Suspended,
            (false, None) => Standing::Granted { until: self.until },
        }
    }

    fn see_pause(&mut self, boot: u64, wall: u64) {
        let ahead = i128::from(wall) - i128::from(boot);
        let jumped =
            self.ahead.is_some_and(|before| (ahead - before).unsigned_abs() > u128::from(self.timing.margin_ms));
        self.ahead = Some(ahead);
        if jumped {
            self.until = 0;
            self.valid_from = boot;
            self.suspended_since.get_or_insert(boot);
        }
    }
}
