//! Who takes part in the mixed load, and how a round of it is played and settled.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::checker::Checker;
use crate::dice::Dice;
use crate::history::History;
use crate::wire::Version;

use super::{Actor, CutOnPanic, Publisher, Round, Subscriber, WillClient, read_retained};

/// Retain Handling 2: no retained messages at the time of the subscribe.
const LIVE_ONLY: u8 = 0x20;

/// The topics of each publisher of retained values.
const RETAINED_TOPICS: usize = 8;

/// How long Wills and the like may take after a restart before they count as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// All clients of the load.
pub struct Cast {
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    wills: Vec<WillClient>,
    retained_topics: Vec<String>,
}

impl Cast {
    /// Four publishers of QoS 1 and four of QoS 2, of which half have kept sessions and two each set and delete retained values; six kept
    /// subscribers, two clean ones, three clients with Wills.
    pub fn mixed(dice: &mut Dice) -> Self {
        let mut publishers = Vec::new();
        let mut retained_topics = Vec::new();
        for qos in [1, 2] {
            for index in 0..4u8 {
                let name = format!("p{qos}{index}");
                let own: Vec<_> = (0..RETAINED_TOPICS).map(|number| format!("r/{name}/{number}")).collect();
                let retains = index == 3;
                let topics = if retains { own } else { vec![format!("load/{index}/a"), format!("load/{index}/b")] };
                let version = if index % 2 == 0 { Version::V5 } else { Version::V311 };
                let mut publisher = Publisher::new(&name, version, qos, &topics, dice.fork(&name));
                if index != 1 {
                    publisher = publisher.kept();
                }
                if retains {
                    publisher = publisher.retaining();
                    retained_topics.extend(topics);
                }
                publishers.push(publisher);
            }
        }
        let wills = [("w0", Version::V5), ("w1", Version::V311), ("w2", Version::V5)];
        let wills =
            wills.map(|(name, version)| WillClient::new(name, version, &format!("wills/{name}"), dice.fork(name)));
        Self { publishers, subscribers: subscribers(dice), wills: wills.into(), retained_topics }
    }

    /// Plays a round of load; `end` is called while it runs and ends it, by a kill or by [`Round::cut`].
    pub fn play(&mut self, round: &Round<'_>, end: impl FnOnce()) {
        self.play_on(std::slice::from_ref(round), 0, end);
    }

    /// The same on several nodes, each of which has a round; with another `turn` everybody is on another one.
    pub fn play_on(&mut self, rounds: &[Round<'_>], turn: usize, end: impl FnOnce()) {
        std::thread::scope(|scope| {
            for (number, actor) in self.actors().enumerate() {
                let round = &rounds[(number + turn) % rounds.len()];
                scope.spawn(move || actor.play(round));
            }
            let _cut = CutOnPanic(rounds);
            end();
        });
    }

    fn actors(&mut self) -> impl Iterator<Item = &mut dyn Actor> {
        let publishers = self.publishers.iter_mut().map(|actor| actor as &mut dyn Actor);
        let subscribers = self.subscribers.iter_mut().map(|actor| actor as &mut dyn Actor);
        let wills = self.wills.iter_mut().map(|actor| actor as &mut dyn Actor);
        publishers.chain(subscribers).chain(wills)
    }

    /// Brings everything to its end: publishers resend and finish, subscribers take what waits for them, retained values are read.
    /// Then the checker judges.
    ///
    /// # Panics
    /// When a promise was broken.
    pub fn settle(&mut self, address: SocketAddr, history: &History, checker: &mut Checker) {
        self.settle_on(&[address], 0, history, checker);
    }

    /// The same on several nodes, all of which serve.
    ///
    /// # Panics
    /// When a promise was broken.
    pub fn settle_on(&mut self, addresses: &[SocketAddr], turn: usize, history: &History, checker: &mut Checker) {
        let rounds = |history| {
            let rounds = addresses.iter().map(|address| Round::finishing(*address, history));
            rounds.map(|round| if addresses.len() > 1 { round.in_cluster() } else { round }).collect::<Vec<_>>()
        };
        play_all(self.publishers.iter_mut().map(|actor| actor as &mut dyn Actor), &rounds(history), turn);
        let deadline = Instant::now() + PATIENCE;
        loop {
            play_all(self.subscribers.iter_mut().map(|actor| actor as &mut dyn Actor), &rounds(history), turn);
            checker.read(history);
            // What is owed may be a Will that is still to be published.
            if !checker.is_owed() || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for address in addresses {
            read_retained(*address, history, "r/#", &self.retained_topics);
        }
        checker.read(history);
        checker.settle();
        checker.assert_kept(history);
    }
}

fn play_all<'a>(actors: impl Iterator<Item = &'a mut dyn Actor>, rounds: &[Round<'_>], turn: usize) {
    std::thread::scope(|scope| {
        for (number, actor) in actors.enumerate() {
            let round = &rounds[(number + turn) % rounds.len()];
            scope.spawn(move || actor.play(round));
        }
    });
}

fn subscribers(dice: &mut Dice) -> Vec<Subscriber> {
    let mut new = |name: &str, version, wanted: &[(&str, u8)]| Subscriber::new(name, version, wanted, dice.fork(name));
    vec![
        new("s0", Version::V5, &[("load/#", 2), ("wills/+", 2)]).kept(),
        new("s1", Version::V311, &[("load/+/a", 1), ("wills/#", 1)]).kept().lazy(),
        new("s2", Version::V5, &[("load/0/a", 2), ("load/2/+", 0)]).kept().churning("load/1/b", 2),
        new("s3", Version::V5, &[("r/#", LIVE_ONLY | 2), ("load/2/b", 1)]).kept().churning("load/0/#", 1).fickle(),
        new("s4", Version::V5, &[("$share/g/load/#", 2)]).kept().lazy(),
        new("s5", Version::V311, &[("$share/g/load/#", 2)]).kept(),
        new("c0", Version::V5, &[("load/#", 1)]),
        new("c1", Version::V311, &[("#", 2)]),
    ]
}
