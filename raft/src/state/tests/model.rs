//! The control state of one node a second time: no timers, no tables, no short cuts. Every client has the list of all its
//! connections ever, and what is due is found by looking at all of them again and again.

use std::collections::BTreeMap;

use super::*;

/// All there ever was.
#[derive(Default)]
struct Model {
    clients: BTreeMap<String, Vec<Connection>>,
    /// Epochs of leases that were gone at some time.
    gone: Vec<SessionEpoch>,
    now: u64,
}

/// One connection that there was, the last one of its client perhaps still.
struct Connection {
    epoch: SessionEpoch,
    expiry_secs: u32,
    will: Will,
    delay_secs: u32,
    /// When it ended without a takeover.
    ended_at: Option<u64>,
    session_over: bool,
}

#[derive(PartialEq, Clone, Copy)]
enum Will {
    Armed,
    Due,
    Gone,
}

impl Connection {
    fn events(&self) -> Vec<u64> {
        let (Some(ended_at), false) = (self.ended_at, self.session_over) else {
            return Vec::new();
        };
        let ms = |secs: u32| ended_at + 1000 * u64::from(secs);
        let will = (self.will == Will::Armed).then(|| ms(self.delay_secs.min(self.expiry_secs)));
        let end = (self.expiry_secs != NEVER_EXPIRES).then(|| ms(self.expiry_secs));
        will.into_iter().chain(end).collect()
    }
}

impl Model {
    fn will_due(client: &str, epoch: SessionEpoch) -> Effect {
        Effect::WillDue { client: client.into(), epoch, message: b"will".as_slice().into(), publisher: NODE }
    }

    fn publish(client: &str, connection: &mut Connection) -> Option<Effect> {
        if connection.will != Will::Armed {
            return None;
        }
        connection.will = Will::Due;
        Some(Self::will_due(client, connection.epoch))
    }

    fn end(client: &str, connection: &mut Connection) -> Vec<Effect> {
        let will = Self::publish(client, connection);
        connection.session_over = true;
        let ended = Effect::SessionEnded { client: client.into(), epoch: connection.epoch, holder: NODE };
        will.into_iter().chain([ended]).collect()
    }

    /// The earliest event of all clients, or of one.
    fn earliest(&self, only: Option<&str>) -> Option<(u64, String)> {
        let clients = self.clients.iter().filter(|(client, _)| only.is_none_or(|only| only == client.as_str()));
        let events = clients.flat_map(|(client, all)| {
            let events: Vec<u64> = all.iter().flat_map(Connection::events).collect();
            events.into_iter().map(|at| (at, client.clone()))
        });
        events.min()
    }

    fn run_due(&mut self, only: Option<&str>) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some((at, client)) = self.earliest(only).filter(|&(at, _)| at <= self.now) {
            let connection = self.clients.get_mut(&client).unwrap().last_mut().unwrap();
            let end = (connection.expiry_secs != NEVER_EXPIRES)
                .then(|| connection.ended_at.unwrap() + 1000 * u64::from(connection.expiry_secs));
            match end {
                Some(end) if end == at => effects.extend(Self::end(&client, connection)),
                _ => effects.extend(Self::publish(&client, connection)),
            }
            self.note_gone();
        }
        effects
    }

    fn has_lease(all: &[Connection]) -> bool {
        !all.last().unwrap().session_over || all.iter().any(|connection| connection.will == Will::Due)
    }

    fn note_gone(&mut self) {
        let gone = self.clients.values().filter(|all| !Self::has_lease(all));
        self.gone.extend(gone.map(|all| all.last().unwrap().epoch));
    }

    fn acquire(&mut self, client: &str, clean: bool, expiry_secs: u32, delay: Option<u32>) -> Applied {
        let mut effects = self.run_due(Some(client));
        let mut displaced = None;
        let mut session_present = false;
        let all = self.clients.entry(client.to_owned()).or_default();
        let mut epoch = self.gone.iter().max().unwrap_or(&0) + 1;
        if let Some(last) = all.last_mut() {
            if !last.session_over {
                displaced = last.ended_at.is_none().then_some(last.epoch);
                if clean || last.expiry_secs == 0 {
                    effects.extend(Self::end(client, last));
                    last.ended_at = Some(self.now);
                    epoch = last.epoch + 1;
                } else {
                    session_present = true;
                    epoch = last.epoch + 1;
                    if displaced.is_some() && last.delay_secs == 0 {
                        effects.extend(Self::publish(client, last));
                    }
                    if last.will == Will::Armed {
                        last.will = Will::Gone;
                    }
                    // Part of the same session from now on, which the next connection stands for.
                    last.session_over = true;
                }
            } else if Self::has_lease(all) {
                epoch = all.last().unwrap().epoch + 1;
            }
        }
        let will = if delay.is_some() { Will::Armed } else { Will::Gone };
        let delay_secs = delay.unwrap_or(0);
        all.push(Connection { epoch, expiry_secs, will, delay_secs, ended_at: None, session_over: false });
        let outcome = Outcome::Acquired { epoch, session_present, displaced };
        Applied { outcome, effects, changes: Vec::new() }
    }

    fn detach(&mut self, client: &str, epoch: SessionEpoch, fate: WillFate, expiry_secs: u32) -> Applied {
        let now = self.now;
        let last = self.clients.get_mut(client).and_then(|all| all.last_mut());
        let Some(last) = last.filter(|last| last.epoch == epoch && last.ended_at.is_none()) else {
            return Applied {
                outcome: Outcome::Refused(Refusal::NotConnected),
                effects: Vec::new(),
                changes: Vec::new(),
            };
        };
        if fate == WillFate::Drop {
            last.will = Will::Gone;
        }
        last.expiry_secs = expiry_secs;
        last.ended_at = Some(now);
        Applied { outcome: Outcome::Done, effects: self.run_due(Some(client)), changes: Vec::new() }
    }

    fn will_done(&mut self, client: &str, epoch: SessionEpoch) -> Applied {
        let all = self.clients.get_mut(client);
        let due = all.and_then(|all| all.iter_mut().find(|one| one.epoch == epoch && one.will == Will::Due));
        let outcome = match due {
            Some(connection) => {
                connection.will = Will::Gone;
                Outcome::Done
            }
            None => Outcome::Refused(Refusal::NotDue),
        };
        self.note_gone();
        let forgotten = Effect::WillForgotten { client: client.into(), epoch };
        let effects = if outcome == Outcome::Done { vec![forgotten] } else { Vec::new() };
        Applied { outcome, effects, changes: Vec::new() }
    }

    /// The node comes back, and the next tick follows at once.
    fn restart(&mut self) -> Vec<Effect> {
        let now = self.now;
        let all = self.clients.iter().flat_map(|(client, all)| all.iter().map(move |connection| (client, connection)));
        let due = all.filter(|(_, connection)| connection.will == Will::Due);
        let mut effects: Vec<_> = due.map(|(client, connection)| Self::will_due(client, connection.epoch)).collect();
        let last = self.clients.values_mut().filter_map(|all| all.last_mut());
        for connection in last.filter(|last| !last.session_over) {
            connection.ended_at.get_or_insert(now);
        }
        effects.extend(self.run_due(None));
        effects
    }

    /// What the model makes of a step; `None` for what it has no opinion on.
    fn apply(&mut self, now: u64, step: &Step) -> Option<Applied> {
        self.now = self.now.max(now);
        match step.command.clone() {
            Command::Acquire { client, clean, expiry_secs, will } => {
                Some(self.acquire(&client, clean, expiry_secs, will.map(|will| will.delay_secs)))
            }
            Command::Detach { client, epoch, will, expiry_secs } => {
                Some(self.detach(&client, epoch, will, expiry_secs))
            }
            Command::WillDone { client, epoch } => Some(self.will_done(&client, epoch)),
            Command::Tick => Some(Applied { outcome: Outcome::Done, effects: self.run_due(None), changes: Vec::new() }),
            _ => None,
        }
    }

    fn compare_with(&self, state: &ControlState) {
        assert_eq!(state.next_due(), self.earliest(None).map(|(at, _)| at));
        let leases: Vec<_> = self.clients.iter().filter(|(_, all)| Self::has_lease(all)).collect();
        assert_eq!(state.counts().leases, leases.len());
        for (client, all) in &self.clients {
            let last = all.last().filter(|last| !last.session_over);
            let session = state.session(client).map(|session| (session.epoch, session.connected));
            assert_eq!(session, last.map(|last| (last.epoch, last.ended_at.is_none())), "{client}");
        }
        let connections = self.clients.values().flatten();
        let connected = connections.filter(|connection| connection.ended_at.is_none() && !connection.session_over);
        assert_eq!(state.counts().connected, connected.count());
        let due = self.clients.values().flatten().filter(|connection| connection.will == Will::Due);
        assert_eq!(state.counts().wills_due, due.count());
    }
}

proptest! {
    #[test]
    fn agrees_with_the_state_at_every_step(steps in steps_of_one(any_command())) {
        let (mut state, mut model, mut now) = (ControlState::new(), Model::default(), 0);
        state.apply(0, (NODE, 0), register(NODE));
        for step in steps {
            now += step.after;
            let applied = step.apply(&mut state, now);
            if let Command::Register { .. } = step.command {
                model.now = now;
                let ticked = state.apply(now, (NODE, 0), Command::Tick).effects;
                prop_assert_eq!(sorted(&ticked), sorted(&model.restart()));
            }
            if let Some(expected) = model.apply(now, &step) {
                prop_assert_eq!(applied, expected, "{:?} at {}", step, now);
            }
            model.compare_with(&state);
        }
    }
}
