//! What the admin port of one node asks the others, and what this node answers them.
//!
//! A question goes over the control lane and its answer comes back over the bulk lane, where it may take its time without holding up a heartbeat. Either may be lost with its connection:
//! then the asker has no answer after [`PATIENCE`], and says whose is missing. A node works on [`AT_ONCE`] questions at a time and refuses what comes beyond; it asks nobody
//! on behalf of others.
//!
//! Owner: the node, one for its life. Tests to read first: those of `desk`, then `cluster-tests/tests/cluster/admin.rs`.

mod codec;
mod desk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use holdfast_raft::NodeId;

use crate::admin::{ClosedRequest, PAGE_MAX, PageRequest, Trouble};
use crate::link::{Lane, Links};
use crate::node::admin_source::Local;

use super::outlook;
use super::plane::{ClusterPlane, kind};
use codec::Frame;
pub(super) use codec::{Answer, Malformed, Question};
use desk::Desk;

/// How long a node may take for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Questions of other nodes that are worked on at one time.
const AT_ONCE: usize = 16;

/// Until a bulk lane that is full is tried again.
const LANE_FULL_PAUSE: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Questions {
    local: Arc<Local>,
    plane: Arc<ClusterPlane>,
    runtime: Handle,
    desk: Desk,
    places: Arc<Semaphore>,
    unanswered: AtomicU64,
}

impl Questions {
    /// To be called within the runtime on which questions are answered.
    pub fn new(local: Arc<Local>, plane: Arc<ClusterPlane>) -> Arc<Questions> {
        let desk = Desk::new(local.shared.run);
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Arc::new(Questions { local, plane, runtime: Handle::current(), desk, places, unanswered: AtomicU64::new(0) })
    }

    /// Asks a node, this one or another. `None`: it did not answer in time.
    pub async fn ask(&self, node: NodeId, question: Question) -> Option<Answer> {
        if self.local.shared.is_own(node) {
            return Some(self.answer(question).await);
        }
        let answer = self.ask_other(node, question).await;
        if answer.is_none() {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn ask_other(&self, node: NodeId, question: Question) -> Option<Answer> {
        let links = self.plane.links()?;
        let mut asked = self.desk.ask(node)?;
        let frame = Frame::Ask { id: asked.id(), question };
        if !links.send(node, Lane::Control, kind::ADMIN, frame.encode()) {
            return None;
        }
        timeout(PATIENCE, asked.answer()).await.ok().flatten()
    }

    /// How many questions had no answer.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// A frame of another node. Does not block.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn frame(self: &Arc<Self>, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        match Frame::decode(payload)? {
            Frame::Tell { id, answer } => self.desk.answered(from, id, answer),
            Frame::Ask { id, question } => {
                let Ok(place) = self.places.clone().try_acquire_owned() else {
                    self.refuse(from, id);
                    return Ok(());
                };
                let questions = self.clone();
                self.runtime.spawn(async move {
                    let _place = place;
                    let answer = questions.answer(question).await;
                    questions.tell(from, Frame::Tell { id, answer }).await;
                });
            }
        }
        Ok(())
    }

    fn refuse(&self, to: NodeId, id: u64) {
        let frame = Frame::Tell { id, answer: Answer::Failed("too many questions at a time".to_owned()) };
        // What is lost is missed by the asker.
        let _ = self.plane.links().map(|links| links.send(to, Lane::Bulk, kind::ADMIN, frame.encode()));
    }

    /// Whoever asked waits no longer than this does.
    async fn tell(&self, to: NodeId, frame: Frame) {
        let Some(links) = self.plane.links() else { return };
        let payload = frame.encode();
        let is_linked = |links: &Links| links.linked_peer(to).is_some();
        let sent = async {
            while !links.send(to, Lane::Bulk, kind::ADMIN, payload.clone()) && is_linked(links) {
                sleep(LANE_FULL_PAUSE).await;
            }
        };
        let _ = timeout(PATIENCE, sent).await;
    }

    /// What this node says.
    async fn answer(&self, question: Question) -> Answer {
        let answered = async {
            match question {
                Question::Clients { limit, after } => {
                    let limit = usize::try_from(limit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
                    let asked = PageRequest { limit, after: after.map(Arc::from) };
                    self.local.clients(&asked).await.map(Answer::clients)
                }
                Question::Client { client_id } => self.local.client(client_id.into()).await.map(Answer::client),
                Question::Copies => Ok(Answer::Copies(outlook::own_copies(&self.plane))),
                Question::Load => Ok(Answer::Load(Box::new(self.local.load()))),
                Question::Drain { terms } => self.local.draining.drain(terms).await.map(Box::new).map(Answer::Drain),
                Question::Undrain => Ok(Answer::Done(self.local.draining.undrain())),
                Question::Shed { count, terms } => {
                    self.local.draining.shed(count, terms).await.map(|()| Answer::Done(true))
                }
                Question::Keep => Ok(Answer::Done(self.local.draining.keep())),
                Question::Closed { limit, after, client_id } => {
                    let limit = usize::try_from(limit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
                    let asked = ClosedRequest { limit, after, client_id: client_id.map(Arc::from) };
                    Ok(Answer::closed(self.local.closed(&asked)))
                }
                Question::Sys => Ok(Answer::Sys(self.local.sys.lock().clone())),
                Question::Match { topic } => self.local.topic_match(topic.into()).await.map(Answer::matches),
                Question::Kick { client_id } => self.local.kick(client_id.into()).await.map(Answer::Kick),
            }
        };
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(Trouble { message, .. })) => Answer::Failed(message),
            Err(_) => Answer::Failed("an event loop did not answer in time".to_owned()),
        }
    }
}
