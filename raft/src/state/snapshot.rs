//! The control state as bytes, and back.
//!
//! A snapshot is a sequence of chunks. Each begins with the number of the format and is a whole number of records, so
//! that it can be read, sent and written by itself; the last record says how many there were. Leases come holder by holder in
//! the order of the lists, in which they are put back. Timers and tables are made anew; images at rest are not part of it.
//!
//! What is read may come from a network or a damaged disk: whatever cannot be a state is refused, and nothing is allocated for what is not
//! there.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ControlState;
use super::claims::WaitingClaim;
use super::heirs::{Heir, HomeHeirs};
use super::lease::{Flag, Lease, Phase, TIME_MAX};
use super::nodes::{Node, NodeSlot, Standing};
use super::orphans::Pending;
use super::routes::{Route, RouteKey, Routes, Sweep};
use super::table::Entry;
use super::tenures::{EraEnd, Fate, Tenure};
use super::wills::{DueWill, Publisher};
use crate::command::{Ban, ClientId, Incarnation, LeaseWill, NodeId, SessionEpoch, ShareMembers, ShareRoute};

/// Number of the format, the first byte of every chunk.
const FORMAT: u8 = 1;

/// Bytes of a chunk, unless a single record is larger.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Why bytes are no snapshot. The state that was there before is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotError {
    #[error("the snapshot has format {found}, and this build reads format {FORMAT}")]
    Format { found: u8 },
    #[error("chunk {chunk} of the snapshot is damaged: {what}")]
    Damaged { chunk: usize, what: &'static str },
    #[error("the snapshot ends in the middle")]
    Incomplete,
}

/// One thing of the state. New kinds go to the end.
#[derive(Serialize, Deserialize)]
enum Record {
    Head {
        now: u64,
        index: u64,
        version: u16,
        incarnation_floor: Incarnation,
        epoch_floor: SessionEpoch,
    },
    Node(NodeRecord),
    Lease(LeaseRecord),
    Claim(ClaimRecord),
    Will {
        client: ClientId,
        epoch: SessionEpoch,
        message: Bytes,
        publisher: (u8, Incarnation),
    },
    /// One that nobody publishes yet.
    WaitingWill {
        client: ClientId,
        epoch: SessionEpoch,
        message: Bytes,
    },
    Route {
        filter: Arc<str>,
        nodes: Vec<(u8, u64, ())>,
    },
    Share {
        share: ShareRoute,
        nodes: Vec<(u8, u64, ShareMembers)>,
    },
    Sweeps {
        routes: Option<(Option<Arc<str>>, bool)>,
        shares: Option<(Option<ShareRoute>, bool)>,
    },
    End {
        records: u64,
    },
    /// Of one home.
    Heirs {
        home: u8,
        base: Vec<(u8, bool)>,
        next: Option<(u64, Vec<u8>)>,
        inherited_at: u64,
        whole: bool,
    },
    /// Of one dead node.
    Orphans {
        node: u8,
        heirs: Vec<u8>,
        passed: bool,
        shares_from: u64,
    },
    /// Eras of a node, of those that ended, whose sessions are inherited.
    Inheritable {
        node: u8,
        eras: Vec<u32>,
    },
    /// A lease that its holder has inherited.
    InheritedLease {
        client: ClientId,
        from: u8,
    },
    Ban(Ban),
}

#[derive(Serialize, Deserialize)]
struct NodeRecord {
    slot: u8,
    id: NodeId,
    name: String,
    incarnation: Incarnation,
    run: u64,
    versions: (u16, u16),
    /// 0 live, 1 dead, 2 forgotten; since that control time.
    standing: (u8, u64),
    batch: u64,
    registered_at: u64,
    routes_from: u64,
    era: u32,
    ends: Vec<(u32, u64, bool)>,
}

#[derive(Serialize, Deserialize)]
struct LeaseRecord {
    client: ClientId,
    holder: u8,
    epoch: SessionEpoch,
    began: SessionEpoch,
    ahead: u32,
    era: u32,
    phase: u64,
    expiry_secs: u32,
    closing: bool,
    will: Option<LeaseWill>,
}

#[derive(Serialize, Deserialize)]
struct ClaimRecord {
    client: ClientId,
    by: u8,
    epoch: SessionEpoch,
    asked: NodeId,
    clean: bool,
    expiry_secs: u32,
    will: Option<LeaseWill>,
    cut: Option<u64>,
}

impl ControlState {
    /// All of the state, in chunks of at most [`CHUNK_BYTES_MAX`].
    pub fn snapshot(&self) -> impl Iterator<Item = Vec<u8>> {
        Chunks { records: Some(self.records()), next: None, count: 0 }
    }

    /// The state that a snapshot was made of.
    ///
    /// # Errors
    /// If the chunks are not all chunks of one snapshot, in their order.
    pub fn restore(chunks: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Self, SnapshotError> {
        let mut reader = Reader::default();
        for (chunk, bytes) in chunks.into_iter().enumerate() {
            reader.read_chunk(bytes.as_ref()).map_err(|refused| match refused {
                Refused::Format(found) => SnapshotError::Format { found },
                Refused::Damaged(what) => SnapshotError::Damaged { chunk, what },
            })?;
        }
        if reader.complete { Ok(reader.state) } else { Err(SnapshotError::Incomplete) }
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let head = Record::Head {
            now: self.now,
            index: self.index,
            version: self.version,
            incarnation_floor: self.nodes.incarnation_floor,
            epoch_floor: self.leases.epoch_floor,
        };
        let nodes = self.nodes.all().map(|(slot, node)| self.node_record(slot, node));
        let heirs = self.heirs.iter().map(|(home, heirs)| heirs_record(home, heirs));
        let orphans = self.orphans.iter().map(|(node, pending)| self.orphans_record(node, pending));
        let inheritable = self.nodes.all().filter_map(|(slot, _)| self.inheritable_record(slot));
        let leases = || self.nodes.all().flat_map(|(slot, _)| self.leases.table.of(slot));
        let inherited = leases().filter_map(inherited_record);
        let claims = self.leases.claims.iter().map(|(client, claim)| claim_record(client, claim));
        let wills = self.wills.iter().filter_map(|(client, epoch, will)| will_record(client, epoch, will));
        let waiting = self.wills.unannounced().map(|(client, epoch, message)| Record::WaitingWill {
            client: Arc::clone(client),
            epoch,
            message: message.clone(),
        });
        let routes = self
            .routes
            .iter()
            .map(|(filter, routes)| Record::Route { filter: Arc::clone(filter), nodes: packed(routes) });
        let shares = self
            .share_routes
            .iter()
            .map(|(share, routes)| Record::Share { share: share.clone(), nodes: packed(routes) });
        let sweeps = Record::Sweeps { routes: sweep_of(&self.routes), shares: sweep_of(&self.share_routes) };
        let nodes = nodes.chain(heirs).chain(orphans).chain(inheritable);
        let leases = leases().map(lease_record).chain(inherited);
        let all = std::iter::once(head).chain(nodes).chain(leases).chain(claims).chain(wills).chain(waiting);
        let bans = self.bans.iter().cloned().map(Record::Ban);
        all.chain(routes).chain(shares).chain(bans).chain([sweeps])
    }

    fn node_record(&self, slot: NodeSlot, node: &Node) -> Record {
        let Node { id, ref name, incarnation, run, versions, standing, batch, registered_at, routes_from, .. } = *node;
        let (standing, since) = standing.numbers();
        let tenure = self.leases.tenures.get(slot.place());
        Record::Node(NodeRecord {
            slot: slot.number() as u8,
            id,
            name: name.to_string(),
            incarnation,
            run,
            versions,
            standing: (standing as u8, since),
            batch,
            registered_at,
            routes_from,
            era: tenure.map_or(0, |tenure| tenure.era),
            ends: tenure.map_or(Vec::new(), |tenure| {
                tenure.ends.iter().map(|end| (end.era, end.at, end.fate == Fate::Lost)).collect()
            }),
        })
    }

    fn orphans_record(&self, node: NodeSlot, pending: &Pending) -> Record {
        Record::Orphans {
            node: node.number() as u8,
            heirs: numbers(&pending.heirs),
            passed: pending.passed,
            shares_from: self.nodes.get(node).shares_from,
        }
    }

    fn inheritable_record(&self, node: NodeSlot) -> Option<Record> {
        let ends = &self.leases.tenures.get(node.place())?.ends;
        let eras: Vec<u32> = ends.iter().filter(|end| end.fate == Fate::Inherited).map(|end| end.era).collect();
        (!eras.is_empty()).then_some(Record::Inheritable { node: node.number() as u8, eras })
    }
}

fn numbers(slots: &[NodeSlot]) -> Vec<u8> {
    slots.iter().map(|slot| slot.number() as u8).collect()
}

fn heirs_record(home: NodeSlot, heirs: &HomeHeirs) -> Record {
    let HomeHeirs { base, next, inherited_at, whole } = heirs;
    Record::Heirs {
        home: home.number() as u8,
        base: base.iter().map(|heir| (heir.slot.number() as u8, heir.stale)).collect(),
        next: next.as_ref().map(|(fill, next)| (*fill, numbers(next))),
        inherited_at: *inherited_at,
        whole: *whole,
    }
}

fn inherited_record(Entry { client, lease }: &Entry) -> Option<Record> {
    let from = lease.inherited_from?.number() as u8;
    Some(Record::InheritedLease { client: Arc::clone(client), from })
}

fn lease_record(Entry { client, lease }: &Entry) -> Record {
    Record::Lease(LeaseRecord {
        client: Arc::clone(client),
        holder: lease.holder.number() as u8,
        epoch: lease.epoch,
        began: lease.began,
        ahead: lease.ahead(),
        era: lease.era,
        phase: lease.phase().number(),
        expiry_secs: lease.expiry_secs,
        closing: lease.has(Flag::Closing),
        will: lease.will.as_deref().cloned(),
    })
}

fn claim_record(client: &ClientId, claim: &WaitingClaim) -> Record {
    let &WaitingClaim { by, epoch, asked, clean, expiry_secs, ref will, cut } = claim;
    let (client, by, will) = (Arc::clone(client), by.number() as u8, will.clone());
    Record::Claim(ClaimRecord { client, by, epoch, asked, clean, expiry_secs, will, cut })
}

fn will_record(client: &ClientId, epoch: SessionEpoch, will: &DueWill) -> Option<Record> {
    let Publisher::Node(slot, incarnation) = will.publisher else {
        return None;
    };
    let (client, message) = (Arc::clone(client), will.message.clone());
    Some(Record::Will { client, epoch, message, publisher: (slot.number() as u8, incarnation) })
}

fn packed<V: Copy>(routes: &[Route<V>]) -> Vec<(u8, u64, V)> {
    routes.iter().map(|route| (route.node.number() as u8, route.index, route.value)).collect()
}

fn sweep_of<K: RouteKey>(routes: &Routes<K>) -> Option<(Option<K>, bool)> {
    routes.sweep_state().map(|sweep| (sweep.after.clone(), sweep.again))
}

/// Records on their way into chunks.
struct Chunks<R> {
    /// `None` when the last chunk is made.
    records: Option<R>,
    /// The one that did not go into the chunk before.
    next: Option<Vec<u8>>,
    count: u64,
}

impl<R: Iterator<Item = Record>> Iterator for Chunks<R> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let records = self.records.as_mut()?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES_MAX + CHUNK_BYTES_MAX / 16);
        chunk.push(FORMAT);
        chunk.extend(self.next.take().unwrap_or_default());
        for record in records {
            let before = chunk.len();
            chunk = written(&record, chunk);
            self.count += 1;
            if chunk.len() > CHUNK_BYTES_MAX && before > 1 {
                self.next = Some(chunk.split_off(before));
                return Some(chunk);
            }
        }
        self.records = None;
        Some(written(&Record::End { records: self.count }, chunk))
    }
}

/// `bytes` with the record behind them.
fn written(record: &Record, bytes: Vec<u8>) -> Vec<u8> {
    let written = postcard::serialize_with_flavor(record, Behind(bytes));
    written.expect("a vector takes all that is written to it, and no record has a sequence of unknown length")
}

/// Writes behind what is there.
struct Behind(Vec<u8>);

impl postcard::ser_flavors::Flavor for Behind {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Why a chunk is refused.
enum Refused {
    Format(u8),
    Damaged(&'static str),
}

impl From<&'static str> for Refused {
    fn from(what: &'static str) -> Self {
        Refused::Damaged(what)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    state: ControlState,
    count: u64,
    complete: bool,
}

impl Reader {
    fn read_chunk(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let Some((&format, mut bytes)) = bytes.split_first() else {
            return Err("it is empty".into());
        };
        if format != FORMAT {
            return Err(Refused::Format(format));
        }
        while !bytes.is_empty() {
            let (record, rest) = postcard::take_from_bytes::<Record>(bytes).map_err(|_| "a record cannot be read")?;
            bytes = rest;
            if self.complete {
                return Err("there is something behind the end".into());
            }
            if (self.count == 0) != matches!(record, Record::Head { .. }) {
                return Err("the head is not where it belongs".into());
            }
            self.read(record)?;
            self.count += 1;
        }
        Ok(())
    }

    fn read(&mut self, record: Record) -> Result<(), &'static str> {
        let state = &mut self.state;
        match record {
            Record::Head { now, index, version, incarnation_floor, epoch_floor } => {
                (state.now, state.index, state.version) = (now.min(TIME_MAX), index, version);
                (state.nodes.incarnation_floor, state.leases.epoch_floor) = (incarnation_floor, epoch_floor);
            }
            Record::Node(node) => self.read_node(node)?,
            Record::Heirs { home, base, next, inherited_at, whole } => {
                let (home, heirs) = self.heirs(home, base, next)?;
                self.state.heirs.put(home, HomeHeirs { inherited_at, whole, ..heirs });
            }
            Record::Orphans { node, heirs, passed, shares_from } => {
                self.read_orphans(node, heirs, passed)?.shares_from = shares_from;
            }
            Record::Inheritable { node, eras } => self.read_inheritable(node, &eras)?,
            Record::InheritedLease { client, from } => {
                let from = self.slot(from)?;
                let table = &mut self.state.leases.table;
                let key = table.find(&client).ok_or("nothing was inherited")?;
                table.lease_mut(key).inherited_from = Some(from);
            }
            Record::Lease(lease) => self.read_lease(lease)?,
            Record::Claim(claim) => self.read_claim(claim)?,
            Record::Will { client, epoch, message, publisher: (slot, incarnation) } => {
                let publisher = Publisher::Node(self.slot(slot)?, incarnation);
                self.check_will(&client, epoch)?;
                self.state.wills.put(client, epoch, DueWill { message, publisher });
            }
            Record::WaitingWill { client, epoch, message } => {
                self.check_will(&client, epoch)?;
                self.state.wills.wait(client, epoch, message);
            }
            Record::Route { filter, nodes } => {
                let routes = self.routes(nodes)?;
                if !self.state.routes.put(filter, routes) {
                    return Err("a route is there twice");
                }
            }
            Record::Share { share, nodes } => {
                let routes = self.routes(nodes)?;
                if !self.state.share_routes.put(share, routes) {
                    return Err("a share group is there twice");
                }
            }
            Record::Sweeps { routes, shares } => {
                state.routes.put_sweep(routes.map(|(after, again)| Sweep { after, again }));
                state.share_routes.put_sweep(shares.map(|(after, again)| Sweep { after, again }));
            }
            Record::Ban(ban) => {
                if !state.bans.put(ban) {
                    return Err("a ban is there twice, or there are too many");
                }
            }
            Record::End { records } => {
                self.complete = records == self.count;
                if !self.complete {
                    return Err("records are missing");
                }
            }
        }
        Ok(())
    }

    fn slot(&self, number: u8) -> Result<NodeSlot, &'static str> {
        let slot = NodeSlot::new(usize::from(number)).filter(|slot| self.state.nodes.has(*slot));
        slot.ok_or("a node is named that is not there")
    }

    fn read_node(&mut self, record: NodeRecord) -> Result<(), &'static str> {
        let slot = NodeSlot::new(usize::from(record.slot)).ok_or("a node has an impossible place")?;
        let standing = match record.standing {
            (0, _) => Standing::Live,
            (1, since) => Standing::Dead(since),
            (2, since) => Standing::Forgotten(since),
            _ => return Err("a node is neither live nor dead"),
        };
        let state = &mut self.state;
        let forgotten = matches!(standing, Standing::Forgotten(_));
        if state.nodes.has(slot) || (!forgotten && state.nodes.find(record.id).is_some()) {
            return Err("a node is there twice");
        }
        let eras: Vec<u32> = record.ends.iter().map(|(era, ..)| *era).collect();
        if !eras.iter().copied().eq(record.era.saturating_sub(eras.len() as u32)..record.era) {
            return Err("the eras of a node have gaps");
        }
        state.forgotten += usize::from(forgotten);
        let NodeRecord { id, name, incarnation, run, versions, batch, registered_at, routes_from, era, ends, .. } =
            record;
        let name = name.into();
        state.nodes.put(Node {
            slot,
            id,
            name,
            incarnation,
            run,
            versions,
            standing,
            batch,
            registered_at,
            routes_from,
            shares_from: routes_from,
        });
        let fate = |lost| if lost { Fate::Lost } else { Fate::Kept };
        let ends = ends.into_iter().map(|(era, at, lost)| EraEnd { era, at, fate: fate(lost) }).collect();
        *state.leases.tenure(slot) = Tenure { era, ends, connected: 0 };
        Ok(())
    }

    fn heirs(
        &self,
        home: u8,
        base: Vec<(u8, bool)>,
        next: Option<(u64, Vec<u8>)>,
    ) -> Result<(NodeSlot, HomeHeirs), &'static str> {
        let home = self.slot(home)?;
        let (stale, base): (Vec<bool>, Vec<u8>) = base.into_iter().map(|(slot, stale)| (stale, slot)).unzip();
        let base = self.others(home, &base)?;
        let base = base.into_iter().zip(stale).map(|(slot, stale)| Heir { slot, stale }).collect();
        let next = match next {
            Some((fill, next)) => Some((fill, self.live_others(home, &next)?)),
            None => None,
        };
        Ok((home, HomeHeirs { base, next, ..HomeHeirs::default() }))
    }

    fn read_orphans(&mut self, node: u8, heirs: Vec<u8>, passed: bool) -> Result<&mut Node, &'static str> {
        let node = self.slot(node)?;
        let heirs = self.live_others(node, &heirs)?;
        let dead = matches!(self.state.nodes.get(node).standing, Standing::Dead(_));
        if heirs.is_empty() || !dead || !self.state.orphans.put(node, Pending { heirs, passed }) {
            return Err("orphans are of nobody, or for nobody");
        }
        Ok(self.state.nodes.get_mut(node))
    }

    fn read_inheritable(&mut self, node: u8, eras: &[u32]) -> Result<(), &'static str> {
        let node = self.slot(node)?;
        let ends = &mut self.state.leases.tenure(node).ends;
        for era in eras {
            let end = ends.iter_mut().find(|end| end.era == *era && end.fate == Fate::Kept);
            end.ok_or("an era is inherited that has not ended, or was lost")?.fate = Fate::Inherited;
        }
        Ok(())
    }

    /// Nodes other than that one, in the order of ids.
    fn others(&self, but: NodeSlot, numbers: &[u8]) -> Result<Vec<NodeSlot>, &'static str> {
        let slots = numbers.iter().map(|number| self.slot(*number)).collect::<Result<Vec<NodeSlot>, _>>()?;
        let id = |slot: &NodeSlot| (self.state.nodes.id(*slot), *slot);
        let in_order = slots.is_sorted_by(|one, other| id(one) < id(other));
        if in_order && !slots.contains(&but) { Ok(slots) } else { Err("heirs are out of order") }
    }

    fn live_others(&self, but: NodeSlot, numbers: &[u8]) -> Result<Vec<NodeSlot>, &'static str> {
        let slots = self.others(but, numbers)?;
        let all_live = slots.iter().all(|slot| self.state.nodes.is_live(*slot));
        if all_live { Ok(slots) } else { Err("an heir is dead") }
    }

    fn read_lease(&mut self, record: LeaseRecord) -> Result<(), &'static str> {
        let holder = self.slot(record.holder)?;
        let leases = &mut self.state.leases;
        if leases.table.find(&record.client).is_some() {
            return Err("a lease is there twice");
        }
        let tenure = leases.tenure(holder);
        let oldest = tenure.era - tenure.ends.len() as u32;
        if !(oldest..=tenure.era).contains(&record.era) {
            return Err("a lease is of an era that is not known");
        }
        let phase = Phase::of_number(record.phase);
        if record.era == tenure.era && phase == Phase::Connected {
            tenure.connected += 1;
        }
        let mut lease = Lease::new(record.epoch, holder, record.era, phase);
        lease.set_ahead(record.ahead);
        lease.set(Flag::Closing, record.closing);
        leases.will_bytes += record.will.as_ref().map_or(0, |will| will.message.len() as u64);
        (lease.began, lease.expiry_secs, lease.will) = (record.began, record.expiry_secs, record.will.map(Box::new));
        if lease.is_ended() && lease.will.is_some() {
            return Err("a Will waits for a session that is over");
        }
        let key = leases.table.insert(record.client, lease);
        leases.arm(key);
        Ok(())
    }

    fn read_claim(&mut self, record: ClaimRecord) -> Result<(), &'static str> {
        let by = self.slot(record.by)?;
        let leases = &mut self.state.leases;
        let Some(key) = leases.table.find(&record.client) else {
            return Err("a claim is on nothing");
        };
        if leases.table.lease(key).phase() == Phase::Connected || leases.table.lease(key).has(Flag::Claimed) {
            return Err("a claim is on a lease that cannot have it");
        }
        let ClaimRecord { client, epoch, asked, clean, expiry_secs, will, cut, .. } = record;
        leases.disarm(key);
        leases.table.lease_mut(key).set(Flag::Claimed, true);
        leases.arm(key);
        leases.will_bytes += will.as_ref().map_or(0, |will| will.message.len() as u64);
        leases.claims.insert(client, WaitingClaim { by, epoch, asked, clean, expiry_secs, will, cut });
        Ok(())
    }

    /// Marks the lease that a due Will is of.
    fn check_will(&mut self, client: &ClientId, epoch: SessionEpoch) -> Result<(), &'static str> {
        let Some(key) = self.state.leases.table.find(client) else {
            return Err("a Will is due of nobody");
        };
        if self.state.wills.get(client, epoch).is_some() {
            return Err("a Will is there twice");
        }
        self.state.leases.table.lease_mut(key).set(Flag::WillDue, true);
        Ok(())
    }

    fn routes<V>(&self, nodes: Vec<(u8, u64, V)>) -> Result<Vec<Route<V>>, &'static str> {
        if !nodes.is_sorted_by(|(before, ..), (behind, ..)| before < behind) || nodes.is_empty() {
            return Err("the nodes of a route are out of order");
        }
        nodes.into_iter().map(|(node, index, value)| Ok(Route { node: self.slot(node)?, index, value })).collect()
    }
}
