//! Looking for nodes: at the seeds for ever, and where other nodes say that there are some, for a while.
//!
//! A place is a host and a port; its name is resolved anew each time, and every address that it has is looked at, unless a node is linked that was
//! met there. Looking is a connection of its own that ends when both know who is there: from then on the task of that peer dials it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_raft::NodeId;
use tokio::sync::watch;

use super::handshake::{dial_one, resolve};
use super::hello::Purpose;
use super::refusal::{Failure, Refusal, Warning};
use super::shared::{Place, PlaceKind, Shared, backoff, stopped};

/// Places that are looked at, at one time.
const PLACES_MAX: usize = 256;

/// A place that another node told of, and where nobody was found for so long, is not looked at any more.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);

/// How long an address that was this node's own is taken for that.
const KNOWN_FOR: Duration = Duration::from_secs(10);

impl Shared {
    /// Looks at a place from now on. False if there are too many.
    pub(super) fn look_at(self: &Arc<Self>, place: &str, kind: PlaceKind) -> bool {
        let mut places = self.places.lock();
        if let Some(known) = places.get_mut(place) {
            // A place that was told of may become a seed, and stays one.
            if kind == PlaceKind::Seed {
                known.kind = PlaceKind::Seed;
            }
            return true;
        }
        if places.len() >= PLACES_MAX {
            return false;
        }
        places.insert(place.to_owned(), Place { kind, trouble: None });
        drop(places);
        let seeker = Seeker {
            shared: Arc::clone(self),
            place: place.to_owned(),
            met: HashMap::new(),
            last_error: String::new(),
        };
        self.runtime.spawn(seeker.run(self.stop.subscribe()));
        true
    }

    pub(super) fn look_at_told(self: &Arc<Self>, place: &str) {
        self.look_at(place, PlaceKind::Told);
    }
}

/// Who looks at one place.
struct Seeker {
    shared: Arc<Shared>,
    place: String,
    /// Who was met at which address of it, and when.
    met: HashMap<SocketAddr, (NodeId, Instant)>,
    last_error: String,
}

impl Seeker {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut failures = 0;
        let mut found_at = Instant::now();
        let mut warning = Warning::default();
        loop {
            let is_over = tokio::select! {
                found = self.look() => {
                    failures = if found { 0 } else { failures + 1 };
                    self.tell((!found).then(|| self.last_error.clone()));
                    if found {
                        found_at = Instant::now();
                    }
                    false
                }
                () = stopped(&mut stop) => true,
            };
            if is_over || self.gives_up(found_at) {
                return;
            }
            if failures > 0 && warning.is_due(found_at, Instant::now()) {
                let place = self.place.as_str();
                tracing::warn!(event = "link", place, "no node is found there: {}", self.last_error);
            }
            // Where all is well there is no hurry.
            let pause = if failures == 0 { backoff(u32::MAX) } else { backoff(failures - 1) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }

    fn gives_up(&self, found_at: Instant) -> bool {
        let mut places = self.shared.places.lock();
        let gives_up = found_at.elapsed() >= GIVE_UP_AFTER
            && places.get(&self.place).is_some_and(|place| place.kind == PlaceKind::Told);
        if gives_up {
            places.remove(&self.place);
        }
        gives_up
    }

    /// Says to people why no node is there, or that one is.
    fn tell(&self, trouble: Option<String>) {
        if let Some(place) = self.shared.places.lock().get_mut(&self.place) {
            place.trouble = trouble;
        }
    }

    /// Looks at all addresses of the place. Whether there is a node at one of them.
    async fn look(&mut self) -> bool {
        let addresses = match resolve(&self.place).await {
            Ok(addresses) => addresses,
            Err(failure) => {
                self.note(&failure);
                return false;
            }
        };
        self.met.retain(|address, _| addresses.contains(address));
        let mut found = false;
        for address in addresses {
            found |= self.is_known(address) || self.meet(address).await;
        }
        found
    }

    fn is_known(&self, address: SocketAddr) -> bool {
        self.met.get(&address).is_some_and(|(id, when)| {
            let is_linked = || self.shared.peer(*id).is_some_and(|peer| peer.is_up());
            (*id == self.shared.own.id && when.elapsed() < KNOWN_FOR) || is_linked()
        })
    }

    async fn meet(&mut self, address: SocketAddr) -> bool {
        match dial_one(&self.shared, address, None, Purpose::Meet).await {
            Ok(dialled) => {
                self.met.insert(address, (dialled.hello.peer.id, Instant::now()));
                match self.shared.meet_dialled(dialled).await {
                    Ok(()) => true,
                    Err(refusal) => {
                        self.note(&Failure::Refused(refusal));
                        false
                    }
                }
            }
            Err(Failure::Refused(Refusal::Own) | Failure::RefusedByPeer(Refusal::Own)) => {
                self.met.insert(address, (self.shared.own.id, Instant::now()));
                true
            }
            Err(failure) => {
                self.note(&failure);
                false
            }
        }
    }

    fn note(&mut self, failure: &Failure) {
        self.last_error = failure.to_string();
        self.shared.note(failure, &self.place);
    }
}
