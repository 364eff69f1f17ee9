//! Whom no node lets in. [pure]
//!
//! A ban is by client id, by user name, or by addresses, and there is one for each of these: a newer one replaces it. When one ends is measured by the wall clock of whoever asks, as operators
//! write it; the state forgets what ended a while ago when a newer ban is made, by the time that stands in it, so that every node forgets the same.
//!
//! Invariant: at most [`BANS_MAX`].
//!
//! Test to read first: `tests::a_ban_is_replaced_and_taken_back`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::digest::Digest;
use crate::command::{Ban, BanTarget, Effect, Outcome, Refusal};

/// Most bans at one time.
pub const BANS_MAX: usize = 10_000;

/// The version of the control state that brought them.
pub(super) const SINCE_VERSION: u16 = 2;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Bans(BTreeMap<BanTarget, Ban>);

impl Bans {
    pub fn set(&mut self, ban: Ban, effects: &mut Vec<Effect>) -> Outcome {
        if !self.0.contains_key(&ban.target) && self.0.len() >= BANS_MAX {
            self.forget_ended(ban.since_ms, effects);
            if self.0.len() >= BANS_MAX {
                return Outcome::Refused(Refusal::TooManyBans);
            }
        }
        effects.push(Effect::Banned { ban: ban.clone() });
        self.0.insert(ban.target.clone(), ban);
        Outcome::Done
    }

    pub fn remove(&mut self, target: &BanTarget, effects: &mut Vec<Effect>) -> Outcome {
        if self.0.remove(target).is_none() {
            return Outcome::Refused(Refusal::UnknownBan);
        }
        effects.push(Effect::Unbanned { target: target.clone() });
        Outcome::Done
    }

    fn forget_ended(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.0.retain(|target, ban| {
            let goes_on = ban.until_ms.is_none_or(|until| until > now_ms);
            if !goes_on {
                effects.push(Effect::Unbanned { target: target.clone() });
            }
            goes_on
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Ban> {
        self.0.values()
    }

    /// For a snapshot; false if it is there already, or there are too many.
    pub fn put(&mut self, ban: Ban) -> bool {
        self.0.len() < BANS_MAX && self.0.insert(ban.target.clone(), ban).is_none()
    }

    /// What has changed since.
    pub fn difference(&self, newer: &Bans, effects: &mut Vec<Effect>) {
        let gone = self.0.keys().filter(|target| !newer.0.contains_key(*target));
        effects.extend(gone.map(|target| Effect::Unbanned { target: target.clone() }));
        let new = newer.0.values().filter(|ban| self.0.get(&ban.target) != Some(ban));
        effects.extend(new.map(|ban| Effect::Banned { ban: ban.clone() }));
    }

    pub fn digest(&self, digest: &mut Digest) {
        for Ban { target, until_ms, since_ms, reason } in self.iter() {
            let (kind, text, bits, len): (u64, Arc<str>, u128, u64) = match target {
                BanTarget::ClientId(text) => (0, text.clone(), 0, 0),
                BanTarget::UserName(text) => (1, text.clone(), 0, 0),
                BanTarget::Addresses { prefix, len } => (2, "".into(), *prefix, u64::from(*len)),
            };
            let until = until_ms.map_or(0, |until| until.saturating_add(1));
            let bits = [(bits >> 64) as u64, bits as u64];
            digest.add(&[&"ban", &kind, &text, &bits[0], &bits[1], &len, &until, since_ms, reason]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(text: &str, since_ms: u64, until_ms: Option<u64>) -> Ban {
        Ban { target: BanTarget::ClientId(text.into()), since_ms, until_ms, reason: "r".into() }
    }

    #[test]
    fn a_ban_is_replaced_and_taken_back() {
        let (mut bans, mut effects) = (Bans::default(), Vec::new());
        assert_eq!(bans.set(ban("c", 1, None), &mut effects), Outcome::Done);
        assert_eq!(bans.set(ban("c", 2, Some(9)), &mut effects), Outcome::Done);
        assert_eq!(bans.iter().collect::<Vec<_>>(), [&ban("c", 2, Some(9))]);
        let target = BanTarget::ClientId("c".into());
        assert_eq!(bans.remove(&target, &mut effects), Outcome::Done);
        assert_eq!(bans.remove(&target, &mut effects), Outcome::Refused(Refusal::UnknownBan));
        assert_eq!(effects.len(), 3);
        assert_eq!(effects[2], Effect::Unbanned { target });
    }

    #[test]
    fn they_are_bounded_and_those_that_ended_make_room() {
        let (mut bans, mut effects) = (Bans::default(), Vec::new());
        for number in 0..BANS_MAX {
            let until_ms = (number == 7).then_some(100);
            assert_eq!(bans.set(ban(&number.to_string(), 1, until_ms), &mut effects), Outcome::Done);
        }
        effects.clear();
        assert_eq!(bans.set(ban("more", 99, None), &mut effects), Outcome::Refused(Refusal::TooManyBans));
        assert_eq!(bans.set(ban("8", 99, None), &mut effects), Outcome::Done, "it takes no room");
        assert_eq!(bans.set(ban("more", 100, None), &mut effects), Outcome::Done);
        assert!(effects.contains(&Effect::Unbanned { target: BanTarget::ClientId("7".into()) }));
        assert_eq!(bans.iter().count(), BANS_MAX);
    }

    #[test]
    fn the_difference_leads_from_one_to_the_other() {
        let (mut older, mut newer, mut ignored) = (Bans::default(), Bans::default(), Vec::new());
        older.set(ban("gone", 1, None), &mut ignored);
        older.set(ban("same", 1, None), &mut ignored);
        older.set(ban("changed", 1, None), &mut ignored);
        newer.set(ban("same", 1, None), &mut ignored);
        newer.set(ban("changed", 2, None), &mut ignored);
        newer.set(ban("new", 2, None), &mut ignored);
        let mut effects = Vec::new();
        older.difference(&newer, &mut effects);
        let set = |text| Effect::Banned { ban: ban(text, 2, None) };
        let gone = Effect::Unbanned { target: BanTarget::ClientId("gone".into()) };
        assert_eq!(effects, [gone, set("changed"), set("new")]);
    }

    #[test]
    fn a_state_with_bans_comes_back_from_its_snapshot() {
        use super::super::{ControlState, VERSIONS};
        use crate::command::{Command, NodeId};

        let node = NodeId(7);
        let mut state = ControlState::new();
        let register = |versions| Command::Register { node, name: "n".to_owned(), run: 0, versions, intact: true };
        state.apply(1, (node, 0), register((1, 1)));
        let set = |text| Command::Ban { ban: ban(text, 1, Some(9)) };
        let refused = state.apply(2, (node, 1), set("c")).outcome;
        assert_eq!(refused, Outcome::Refused(Refusal::Versions), "some node could not read it");
        let mut state = ControlState::new();
        state.apply(1, (node, 0), register(VERSIONS));
        let before = state.digest();
        let applied = state.apply(1, (node, 1), set("c"));
        assert_eq!((applied.outcome, applied.effects.len()), (Outcome::Done, 1));
        let addresses = BanTarget::Addresses { prefix: 0xff << 120, len: 8 };
        state.apply(1, (node, 1), Command::Ban { ban: Ban { target: addresses, ..ban("", 1, None) } });
        assert_ne!(state.digest(), before);
        let restored = ControlState::restore(state.snapshot()).unwrap();
        assert_eq!(restored.digest(), state.digest());
        assert_eq!(
            ControlState::new()
                .difference(&restored)
                .iter()
                .filter(|effect| matches!(effect, Effect::Banned { .. }))
                .count(),
            2
        );
    }
}
