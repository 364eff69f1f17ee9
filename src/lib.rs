//! Holdfast: an MQTT broker that stays one broker when it is many machines.
pub mod access;
pub mod cli;
pub mod config;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod mqtt;
pub mod node;
pub mod retained;
pub mod session;
pub mod shard;
pub mod subscriptions;
pub mod topic;
