//! The data directory of a Holdfast node: what is on disk, and what a node may rely on when it opens it.
//!
//! | file | what it is | written |
//! | --- | --- | --- |
//! | `lock` | held locked by the process that uses the directory; its text is the process id, for people | at every start |
//! | `format` | the version of the layout of this directory | once, and when a newer program first opens it |
//! | `node.id` | the node's identity: 128 random bits in hexadecimal | once, with the directory |
//! | `alive` | when the node last ran, for the time that it was down ([`Alive`]) | every second, unsynced |
//! | `journal/` | all that the node was told to keep, in the order in which it was told ([`journal`]) | at every commit |
//! | `incomplete` | says that the directory is being filled and is none yet ([`Unborn`]) | before anything else of it |
//! | `quarantine/` | copies of damaged files, for people | when damage is found and `on_corruption = "quarantine"` |
//!
//! Order of a start: lock, then format, then identity; nothing else in the directory is touched before all three are good. Then `alive`, then the journal. A
//! directory that holds something but no identity is refused, never taken for a new one: a node that has lost its name must not
//! pass for a node that never had one.
//!
//! Who only wants to look takes the directory with [`Identity::open`] and reads it with [`Inspection`].
//!
//! Files come into being in one step: written beside their place, synced, renamed, and the directory synced.
//!
//! What goes into the journal: entries of keyed items ([`Entry`]), handed in by many threads and written by one ([`Storage`], module `commit`), and the index over them
//! that says what is live and where (module `items`). All of it goes through one door to the file system ([`disk`]), of which the tests have one that forgets, tears and
//! fails.
//!
//! Test to read first: `identity::tests::the_identity_is_made_once_and_kept`.

mod alive;
mod commit;
pub mod disk;
mod entry;
mod identity;
mod items;
pub mod journal;

pub use alive::Alive;
pub use commit::{
    Audience, BodiesError, CloseError, Figures, OpenError, Opened, Options, Recovered, RecoveredItem, State, Storage,
};
pub use entry::{Body, BodyId, Entry, ItemId, OwnerId, Value};
pub use identity::{FORMAT, Identity, IdentityError, Unborn};
pub use items::{Inspection, Unreadable};
