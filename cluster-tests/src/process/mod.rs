//! Real processes: the program under test, started with a configuration of the test's own.

mod broker;
mod installation;
mod log;
mod program;
mod setup;

pub use broker::Broker;
pub use installation::{Installation, START, copy_folder, flip};
pub use log::{Line, Log};
pub use program::{command as program_command, path as program_path};
pub use setup::Setup;
