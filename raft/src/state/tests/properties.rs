//! What holds for every sequence of commands of one node. For several see `cluster_properties.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn run(steps: &[Step], mut each: impl FnMut(&Step, &Applied, &ControlState)) -> ControlState {
    let (mut state, mut now) = (ControlState::new(), 0);
    state.apply(0, (NODE, 0), register(NODE));
    for step in steps {
        now += step.after;
        let applied = step.apply(&mut state, now);
        each(step, &applied, &state);
    }
    state
}

proptest! {
    #[test]
    fn the_same_commands_make_the_same_digest(steps in steps_of_one(any_command())) {
        let mut digests = Vec::new();
        run(&steps, |_, _, state| digests.push(state.digest()));
        let mut again = Vec::new();
        run(&steps, |_, _, state| again.push(state.digest()));
        prop_assert_eq!(&digests, &again);
        let different: BTreeSet<_> = digests.iter().collect();
        prop_assert_eq!(different.len(), digests.len(), "every command counts in the index at least");
    }

    #[test]
    fn a_will_is_due_once_and_a_session_ends_once_and_after_its_will(steps in steps_of_one(any_command())) {
        let mut seen = BTreeSet::new();
        let mut ended = BTreeMap::new();
        let mut runs = 0;
        run(&steps, |step, applied, _| {
            runs += usize::from(matches!(step.command, Command::Register { .. }));
            for effect in &applied.effects {
                let (client, epoch, what) = match effect {
                    Effect::WillDue { client, epoch, .. } => (client, *epoch, "will"),
                    Effect::SessionEnded { client, epoch, .. } => (client, *epoch, "ended"),
                    _ => continue,
                };
                // The next incarnation is told once more what it has to publish.
                let run = if what == "will" { runs } else { 0 };
                assert!(seen.insert((Arc::clone(client), epoch, what, run)), "{effect:?} a second time");
                let last = ended.get(client).copied().unwrap_or(0);
                assert!(epoch > last || run > 0, "{effect:?} after the end of {last}");
                if what == "ended" {
                    ended.insert(Arc::clone(client), epoch);
                }
            }
        });
    }

    #[test]
    fn epochs_of_a_client_only_grow(steps in steps_of_one(any_command())) {
        let mut last: BTreeMap<ClientId, SessionEpoch> = BTreeMap::new();
        run(&steps, |step, applied, _| {
            if let (Command::Acquire { client, .. }, Outcome::Acquired { epoch, .. }) = (&step.command, &applied.outcome) {
                let earlier = last.insert(Arc::clone(client), *epoch);
                assert!(earlier.is_none_or(|earlier| earlier < *epoch));
            }
        });
    }

    #[test]
    fn a_session_is_resumed_or_not_however_often_anybody_ticks(steps in steps_of_one(any_lease_command())) {
        let mut ticked = ControlState::new();
        ticked.apply(0, (NODE, 0), register(NODE));
        let (mut seldom, mut now) = (ticked.clone(), 0);
        for step in steps.iter().filter(|step| !matches!(step.command, Command::WillDone { .. } | Command::Tick)) {
            now += step.after;
            ticked.apply(now, (NODE, 0), Command::Tick);
            let mut step = step.clone();
            let [often, seldom] = [&mut ticked, &mut seldom].map(|state| {
                // Epochs of new leases may differ, so a Detach means the connection that there is.
                if let Command::Detach { client, epoch, .. } = &mut step.command {
                    *epoch = state.session(client).map_or(0, |session| session.epoch);
                }
                match step.apply(state, now).outcome {
                    Outcome::Acquired { session_present, displaced, .. } => format!("{session_present} {}", displaced.is_some()),
                    outcome => format!("{outcome:?}"),
                }
            });
            prop_assert_eq!(often, seldom);
        }
    }

    #[test]
    fn ticking_until_nothing_is_due_leaves_no_timer_behind(steps in steps_of_one(any_command())) {
        let mut state = run(&steps, |_, _, _| ());
        let mut now = 0;
        while let Some(at) = state.next_due() {
            prop_assert!(at >= now, "the next event lies behind");
            now = at;
            let before = state.digest();
            state.apply(now, (NODE, 0), Command::Tick);
            prop_assert_ne!(state.digest(), before);
            prop_assert!(state.next_due().is_none_or(|next| next > now));
        }
    }
}
