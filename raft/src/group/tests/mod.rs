//! Clusters in one process, over a network of queues that can be cut and slowed down. Read `working` first.

mod disks;
mod faults;
mod heirs;
mod members;
mod scene;
mod working;
