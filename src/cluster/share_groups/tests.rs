//! Scripts: what happens to the messages of one group at the shard that keeps them, and what the machine has done, line by line.
//!
//! A line is `what happens => what is done`. The node of the script is 1. What others have of the group is set by `members`; messages are named by a letter, and who waits for one
//! is named by the same letter. Sequences count from 1.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::{NodeId, ShareMembers};
use holdfast_storage::OwnerId;

use crate::mqtt::{Message, QoS};

use super::*;

const SHARE: &str = "$share/g/t";

struct World {
    groups: ShareGroups<char>,
    now: u64,
    sequence: u64,
    here: Option<ShareMembers>,
    there: Vec<(Slot, ShareMembers)>,
    /// Whether the only member on this node is between two nodes.
    moves: bool,
    /// The other nodes that are asked, and what members on this one have.
    live: Vec<u64>,
    had: Vec<u64>,
    done: Vec<String>,
}

impl World {
    fn new() -> World {
        let bounds = Bounds {
            messages: 4,
            bytes: 10_000,
            retry_ms: 100,
            patience_ms: 1_000,
            absence_ms: 3_000,
            doubt_ms: 9_000,
        };
        World {
            groups: ShareGroups::new(bounds, false, Default::default()),
            now: 0,
            sequence: 0,
            here: None,
            there: Vec::new(),
            moves: false,
            live: Vec::new(),
            had: Vec::new(),
            done: Vec::new(),
        }
    }

    fn offer(&mut self, mut offer: Offer<char>) {
        let name = offer.message.payload[0] as char;
        match choose(offer.keeper, offer.refusals, self.here, &self.there, 0) {
            Choice::Here if self.moves => {
                offer.refusals.add_here();
                self.offer(offer);
            }
            Choice::Here => {
                self.done.push(format!("{name} here"));
                if offer.leg.take().is_some() {
                    self.done.push(format!("answer {name}"));
                }
                if offer.from.is_some() {
                    self.done.push(format!("delete {name}"));
                }
                let actions = self.groups.taken_here(&mut offer);
                self.carry_out(actions);
            }
            Choice::There(slot, wanted) => {
                self.sequence += 1;
                let any = if wanted == Wanted::Any { ", any" } else { "" };
                self.done.push(format!("{name} to {slot} as {}{any}", self.sequence));
                self.groups.give(NodeId(slot.into()), (self.sequence, wanted), offer);
            }
            Choice::Refuse => self.done.push(format!("{name} refused")),
            choice @ (Choice::Nobody | Choice::NoMembers) => {
                let before = self.done.len();
                let actions = self.groups.wait(self.now, choice == Choice::Nobody, offer);
                self.carry_out(actions);
                if !self.done[before..].iter().any(|done| done.starts_with("dropped")) {
                    self.done.push(format!("{name} waits"));
                }
            }
        }
    }

    /// Asks all that have members, and this node: what it has itself is said by `has`.
    fn ask(&mut self, number: u64) {
        let (_, ids, _) = self.groups.question(number).expect("it is open");
        let ids: Vec<u64> = ids.all().iter().map(|id| id.sequence).collect();
        if ids.iter().any(|id| self.had.contains(id)) {
            self.done.push(format!("{ids:?} is here"));
            let actions = self.groups.is_had(number);
            return self.carry_out(actions);
        }
        let mut frames = Vec::new();
        for node in self.live.clone() {
            self.sequence += 1;
            self.done.push(format!("ask {node} for {ids:?} as {}", self.sequence));
            frames.push((NodeId(node.into()), self.sequence));
        }
        let actions = self.groups.asked(number, frames);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Actions<char>) {
        for action in actions {
            match action {
                Action::Offer(offer) => self.offer(offer),
                Action::Ask(number) => self.ask(number),
                Action::Answer(leg) => self.done.push(format!("answer {leg}")),
                Action::Delete((_, item)) => self.done.push(format!("delete {}", item as u8 as char)),
                Action::Dropped(why) => self.done.push(format!("dropped {why:?}")),
                Action::Forgotten => self.done.push("forgotten".into()),
            }
        }
    }

    fn handle(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let node = |at: usize| NodeId(number(at).into());
        let qos = qos_of(&words);
        let actions = match words[0] {
            "members" => return self.set_members(words[1], words[2]),
            "moves" => return self.moves = true,
            "arrived" => return self.moves = false,
            "publish" => {
                let offer = Offer::new(SHARE.into(), message(words[1], qos), Keeper::Here).with_leg(letter(words[1]));
                return self.offer(offer);
            }
            "gives-back" => {
                let item = letter(words[1]).map(|letter| (OwnerId(1), letter as u64));
                return self.offer(Offer::new(SHARE.into(), message(words[1], qos), Keeper::Here).with_item(item));
            }
            "comes" => {
                let wanted = if words.contains(&"any") { Wanted::Any } else { Wanted::Connected };
                return self.offer(Offer::new(SHARE.into(), message(words[1], qos), Keeper::Elsewhere(wanted)));
            }
            "accepted" => self.groups.accepted(node(1), number(2)),
            "settled" => self.groups.settled(node(1), number(2)),
            "refused" => self.groups.refused((node(1), number(1) as Slot), number(2)),
            "live" => return self.live = (1..words.len()).map(number).collect(),
            "has" => return self.had.push(number(1)),
            "again" => {
                let ids = Names::new(MessageId { sequence: number(3), ..Default::default() });
                let offer = Offer::new(SHARE.into(), message(words[1], QoS::ExactlyOnce), Keeper::Here);
                self.groups.ask(offer.with_leg(letter(words[1])), ids, None);
                Actions::new()
            }
            "gone" => {
                let unsent = words.iter().position(|word| *word == "unsent").map(|at| number(at + 1));
                self.groups.node_gone(self.now, node(1), unsent, words.contains(&"heirs"))
            }
            "up" => {
                let again = self.groups.resend(node(1)).into_iter();
                let again = again
                    .map(|(sequence, _, _, message)| format!("{} again as {sequence}", message.payload[0] as char));
                return self.done.extend(again);
            }
            "welcomed" => self.groups.welcomed(node(1), number(3), number(5), words.get(7).map(|_| number(7))),
            "expelled" => self.groups.expelled(),
            "registered" => {
                let live: Vec<NodeId> = (1..words.len()).map(node).collect();
                self.groups.registered(self.now, &live, !self.live.is_empty())
            }
            "shrink" => self.groups.shrink(),
            "after" => {
                self.now += number(1);
                self.groups.tick(self.now)
            }
            other => panic!("no such thing: {other}"),
        };
        self.carry_out(actions);
    }

    fn set_members(&mut self, whose: &str, what: &str) {
        let members = match what {
            "none" => None,
            "detached" => Some(ShareMembers::new(0, true)),
            connected => Some(ShareMembers::new(connected.parse().expect("how many"), false)),
        };
        if whose == "here" {
            return self.here = members;
        }
        let slot: Slot = whose.parse().expect("a slot");
        self.there.retain(|(other, _)| *other != slot);
        self.there.extend(members.map(|members| (slot, members)));
        self.there.sort_by_key(|(slot, _)| *slot);
    }
}

fn letter(word: &str) -> Option<char> {
    word.chars().next()
}

fn qos_of(words: &[&str]) -> QoS {
    match words {
        [.., "qos0"] => QoS::AtMostOnce,
        [.., "qos2"] => QoS::ExactlyOnce,
        _ => QoS::AtLeastOnce,
    }
}

fn message(name: &str, qos: QoS) -> Arc<Message> {
    Arc::new(Message {
        payload: Bytes::copy_from_slice(name.as_bytes()),
        ..Message::sample(Default::default(), "t", qos)
    })
}

/// Plays a script, and holds what is done against it. What the machine keeps is given back.
#[track_caller]
fn play(script: &str) -> (usize, usize) {
    let mut world = World::new();
    let (mut expected, mut found) = (String::new(), String::new());
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (what, done) = line.split_once("=>").map_or((line, ""), |(what, done)| (what.trim(), done.trim()));
        world.handle(what);
        let _ = writeln!(expected, "{what} => {done}");
        let _ = writeln!(found, "{what} => {}", std::mem::take(&mut world.done).join(", "));
    }
    assert_eq!(found, expected, "\nfound:\n{found}\nexpected:\n{expected}");
    world.groups.kept()
}

#[test]
fn a_refusal_goes_round_once_and_waits() {
    // The only member is on its way from 2 to 3, and both say so; whoever publishes meanwhile waits, and is answered when it has arrived.
    let kept = play(
        "members 2 detached
         members 3 detached
         publish a               => a to 2 as 1, any
         refused 2 1             => a to 3 as 2, any
         refused 3 2             => a waits
         publish b               => b to 2 as 3, any
         refused 2 3             => b to 3 as 4, any
         refused 3 4             => b waits
         after 50                =>
         after 50                => a to 2 as 5, any
         refused 2 5             => a to 3 as 6, any
         accepted 3 6            => answer a, b to 2 as 7, any
         refused 2 7             => b to 3 as 8, any
         settled 3 6             =>
         settled 3 8             => answer b",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn who_refused_for_want_of_a_connected_member_is_asked_for_any() {
    // What 1 knows is old: the last connected members of 2 and 3 have just gone.
    play(
        "members 2 1
         members 3 1
         publish a               => a to 2 as 1
         refused 2 1             => a to 3 as 2
         refused 3 2             => a to 2 as 3, any
         refused 2 3             => a to 3 as 4, any
         accepted 3 4            => answer a
         settled 3 4             =>",
    );
}

#[test]
fn a_publisher_does_not_wait_for_ever_and_its_message_is_kept() {
    let kept = play(
        "members 2 1
         publish a               => a to 2 as 1
         refused 2 1             => a to 2 as 2, any
         refused 2 2             => a waits
         after 100               => a to 2 as 3
         refused 2 3             => a to 2 as 4, any
         refused 2 4             => a waits
         after 900               => answer a, a to 2 as 5
         refused 2 5             => a to 2 as 6, any
         refused 2 6             => a waits
         after 5000              => a to 2 as 7
         accepted 2 7            =>
         refused 2 7             => a to 2 as 8, any",
    );
    assert_eq!(kept.0, 1);
}

#[test]
fn a_message_for_which_the_member_here_moves_goes_elsewhere_or_waits() {
    play(
        "members here detached
         moves
         publish a               => a waits
         comes x any             => x refused
         members 2 1
         after 100               => a to 2 as 1
         refused 2 1             => a to 2 as 2, any
         refused 2 2             => a waits
         arrived
         members 2 none
         after 100               => a here, answer a",
    );
}

#[test]
fn a_message_from_elsewhere_is_taken_or_refused_and_never_kept() {
    let kept = play(
        "comes a any             => a refused
         members here detached
         comes b                 => b refused
         comes c any             => c here
         members here 1
         comes d                 => d here
         members here none
         members 2 1
         comes e                 => e refused",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_a_session_gave_back_stays_on_disk_until_a_member_has_it() {
    // Accepted is not enough: the member may go before it has acknowledged, and then this node has to find another one.
    let kept = play(
        "members 2 1
         gives-back a            => a to 2 as 1
         accepted 2 1            =>
         members 2 none
         members here detached
         refused 2 1             => a here, delete a
         members 2 1
         gives-back b            => b to 2 as 2
         settled 2 2             => delete b",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_was_given_back_goes_to_others_when_the_node_dies_that_has_accepted_it() {
    let kept = play(
        "members 2 1
         gives-back a            => a to 2 as 1
         accepted 2 1            =>
         members 2 none
         members 3 1
         gone 2                  => a to 3 as 2
         settled 3 2             => delete a",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn a_refusal_before_the_acceptance_of_what_came_with_it_leaves_the_publisher_waiting() {
    play(
        "members 2 1
         publish a               => a to 2 as 1
         publish b               => b to 2 as 2
         refused 2 1             => a to 2 as 3, any
         accepted 2 2            => answer b
         refused 2 1             =>
         accepted 2 3            => answer a",
    );
}

#[test]
fn a_node_that_was_given_up_keeps_what_it_owes_until_it_has_registered() {
    let kept = play(
        "members 2 1
         publish a               => a to 2 as 1
         accepted 2 1            => answer a
         publish b               => b to 2 as 2
         expelled                => answer b
         gone 2                  =>
         members 2 none
         publish c               => answer c, c waits
         gives-back d            => d waits
         after 5000              =>
         members 2 1
         registered 2            => c to 2 as 3
         accepted 2 3            => d to 2 as 4
         welcomed 2 run 7 received 1 => b to 2 as 5
         settled 2 1             =>
         settled 2 3             =>
         settled 2 4             => delete d
         settled 2 5             =>",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn a_node_that_was_given_up_leaves_with_its_own_sessions_what_they_have() {
    play(
        "expelled                =>
         members here detached
         gives-back a            => a here, delete a",
    );
}

#[test]
fn while_this_node_was_given_up_another_one_has_died() {
    let kept = play(
        "members 2 1
         publish a               => a to 2 as 1
         accepted 2 1            => answer a
         expelled                =>
         gone 2                  =>
         members 2 none
         members 3 1
         registered 3            => a to 3 as 2
         settled 3 2             =>",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn qos_2_goes_to_others_only_if_its_node_cannot_have_sent_it() {
    // The link is cut: 2 has got the first, and nothing of the second.
    let kept = play(
        "members 2 1
         publish a qos2          => a to 2 as 1
         gives-back b qos2       => b to 2 as 2
         publish c               => c to 2 as 3
         members 2 none
         members 3 1
         gone 2 unsent 2         => answer a, b to 3 as 4, c to 3 as 5
         settled 3 4             => delete b
         settled 3 5             => answer c",
    );
    assert_eq!(kept.0, 1, "what became of the first is not known");
}

#[test]
fn qos_2_in_doubt_is_settled_by_the_same_process_and_lost_with_it() {
    let kept = play(
        "members 2 1
         welcomed 2 run 7 received 0 =>
         gives-back a qos2       => a to 2 as 1
         gives-back b qos2       => b to 2 as 2
         members 2 none
         gone 2                  =>
         members 3 1
         after 1000              =>
         welcomed 2 run 7 received 1 => b to 3 as 3
         refused 2 1             => a to 3 as 4
         settled 3 3             => delete b
         settled 3 4             => delete a
         members 3 none
         members 2 1
         gives-back c qos2       => c to 2 as 5
         gone 2                  =>
         welcomed 2 run 8 received 0 => delete c, dropped NodeGone",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_is_in_doubt_is_not_kept_for_ever() {
    let kept = play(
        "members 2 1
         gives-back a qos2       => a to 2 as 1
         gone 2                  =>
         after 8999              =>
         after 1                 => delete a, dropped NodeGone",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn another_process_of_a_node_is_sent_what_was_not_stable_and_keeps_it() {
    let kept = play(
        "members 2 1
         welcomed 2 run 7 received 0 =>
         publish a               => a to 2 as 1
         publish b               => b to 2 as 2
         accepted 2 2            => answer a, answer b
         members 3 1
         members 2 none
         welcomed 2 run 8 received 0 kept 2 => a to 3 as 3
         accepted 2 2            =>
         settled 2 2             =>
         settled 3 3             =>",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn another_process_of_a_node_has_lost_what_the_earlier_one_had_accepted() {
    let kept = play(
        "members 2 1
         welcomed 2 run 7 received 0 =>
         publish a               => a to 2 as 1
         publish b               => b to 2 as 2
         accepted 2 1            => answer a
         members 3 1
         members 2 none
         welcomed 2 run 8 received 0 kept 2 => a to 3 as 3
         settled 2 2             => answer b
         settled 3 3             =>",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn a_group_whose_members_have_all_gone_is_waited_for_a_while() {
    let kept = play(
        "publish a               => answer a, a waits
         publish b               => answer b, b waits
         after 100               => a waits
         members 2 1
         after 100               => a to 2 as 1
         accepted 2 1            => b to 2 as 2
         settled 2 1             =>
         settled 2 2             =>
         members 2 none
         publish c               => answer c, c waits
         publish d               => answer d, d waits
         after 2900              => c waits
         publish e               => answer e, e waits
         after 100               => dropped NoMember, dropped NoMember, dropped NoMember",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_makes_room_is_what_others_have_accepted_and_never_what_is_waited_for() {
    play(
        "members 2 1
         gives-back a            => a to 2 as 1
         publish b               => b to 2 as 2
         accepted 2 1            =>
         publish c               => c to 2 as 3
         shrink                  =>
         publish d               => d to 2 as 4
         shrink                  => delete a, forgotten
         publish e               => e to 2 as 5
         shrink                  =>
         accepted 2 5            => answer b, answer c, answer d, answer e
         shrink                  => forgotten",
    );
}

#[test]
fn qos_0_is_not_kept() {
    let kept = play(
        "members 2 1
         publish a qos0          => a to 2 as 1
         refused 2 1             =>",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_a_dead_node_may_have_goes_to_it_again_when_it_is_back() {
    // QoS 2, and nobody knows whether a member had it: nobody else gets it, and the node says in the end.
    let kept = play(
        "welcomed 2 run 7 received 0
         members 2 1
         publish a qos2          => a to 2 as 1
         publish b qos2          => b to 2 as 2
         publish c qos2          => c to 2 as 3
         accepted 2 1            => answer a
         members 2 none
         members 3 1
         gone 2 unsent 3         => answer b, c to 3 as 4
         up 2                    => b again as 2
         welcomed 2 run 8 received 0 kept 2 => dropped NodeGone
         settled 2 2             =>
         settled 3 4             => answer c",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn what_a_dead_node_may_have_is_offered_when_nobody_has_it() {
    // Its heirs are asked for what it has not settled, and who waits goes on to wait.
    let kept = play(
        "members 2 1
         publish a qos2          => a to 2 as 1
         publish b qos2          => b to 2 as 2
         gives-back c qos2       => c to 2 as 3
         accepted 2 1            => answer a
         members 2 none
         members 3 1
         live 3 4
         gone 2 unsent 3 heirs   => c to 3 as 4
         after 100               => ask 3 for [1] as 5, ask 4 for [1] as 6, ask 3 for [2] as 7, ask 4 for [2] as 8
         after 100               =>
         refused 3 5             =>
         settled 4 6             =>
         refused 4 8             =>
         refused 3 7             => b to 3 as 9
         settled 3 9             => answer b
         settled 3 4             => delete c",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn a_message_that_comes_again_is_asked_for_first() {
    let kept = play(
        "members here 1
         live 2
         again a as 7            =>
         after 100               => ask 2 for [7] as 1
         refused 2 1             => a here, answer a
         has 8
         again b as 8            =>
         after 100               => [8] is here, answer b
         live
         again c as 9            =>
         after 100               => c here, answer c",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn when_one_dies_that_was_asked_everybody_is_asked_again() {
    // Who has said no may be its heir. What is said to the earlier question does not matter any more.
    let kept = play(
        "members 3 1
         live 2 3
         again a as 7            =>
         after 100               => ask 2 for [7] as 1, ask 3 for [7] as 2
         refused 3 2             =>
         live 3
         gone 2 heirs            =>
         after 100               => ask 3 for [7] as 3
         settled 3 2             =>
         refused 2 1             =>
         settled 3 3             => answer a",
    );
    assert_eq!(kept, (0, 0));
}

#[test]
fn a_node_that_begins_anew_is_asked_again() {
    play(
        "welcomed 2 run 7 received 0 =>
         live 2
         again a as 7            =>
         after 100               => ask 2 for [7] as 1
         welcomed 2 run 7 received 0 =>
         after 100               =>
         welcomed 2 run 8 received 0 =>
         after 100               => ask 2 for [7] as 2
         settled 2 2             => answer a",
    );
}

#[test]
fn a_node_that_was_given_up_asks_when_it_has_registered() {
    let kept = play(
        "members 2 1
         live 2 3
         publish b qos2          => b to 2 as 1
         accepted 2 1            => answer b
         again a as 7            =>
         after 100               => ask 2 for [7] as 2, ask 3 for [7] as 3
         expelled                => answer a
         gone 2 heirs            =>
         after 100               =>
         settled 3 3             =>
         live 3
         members 2 none
         registered 3            => ask 3 for [7] as 4, ask 3 for [1] as 5
         settled 3 4             =>
         settled 3 5             =>",
    );
    assert_eq!(kept, (0, 0));
}
